# Source it after common.sh, then call activate_environment: Python and everything the recipes
# and the tests need are on the PATH afterwards.
#
# What is there already is used: `python` as it stands if it has all modules and this
# repository's fairseq_rfa, else the active virtual environment (what is missing is installed
# into it), else .venv in the root of the repository, which is made once and brought up to date
# when setup.py or constraints.txt change.

has_everything() {
    # From another folder, so that the repository's own files do not count as installed.
    (cd / && python - "$plugin" "$@") 2>/dev/null <<'PYTHON'
import os
import sys
from importlib.util import find_spec

plugin, *modules = sys.argv[1:]
found = {name: find_spec(name) for name in ["fairseq_rfa", *modules]}
installed = all(found.values()) and (3, 11) <= sys.version_info < (3, 14)
sys.exit(not installed or not os.path.samefile(os.path.dirname(found["fairseq_rfa"].origin), plugin))
PYTHON
}

# The first Python that serves, with a wheel of fairseq if there is one; a name may be found several times, and some
# do not run.
find_python() {
    local versions name path
    for versions in '(3, 11) <= sys.version_info < (3, 13)' '(3, 13) <= sys.version_info < (3, 14)'; do
        for name in python3 python python3.13 python3.12 python3.11; do
            while read -r path; do
                "$path" -c "import ensurepip, sys, venv; sys.exit(not $versions)" 2>/dev/null || continue
                printf '%s\n' "$path"
                return
            done < <(type -aP "$name")
        done
    done
    return 1
}

# make_venv DIR: a virtual environment without packages.
make_venv() {
    local python
    python=$(find_python) ||
        fail "no Python 3.11, 3.12 or 3.13 with the module venv found; install one (on Debian: python3-venv) or activate an environment that has it"
    say "making $1 with $python"
    "$python" -m venv --clear "$1" ||
        fail "'$python -m venv' failed, see above; install the package that provides venv"
}

# Where fairseq is not installed and has no wheel, pip builds it: five minutes and a C++ compiler.
need_compiler() {
    local header
    header=$(python -c 'import importlib.util, platform, sys, sysconfig
has_wheel = sys.version_info < (3, 13) and (sys.platform, platform.machine()) == ("linux", "x86_64")
is_there = has_wheel or importlib.util.find_spec("fairseq")
print("" if is_there else sysconfig.get_path("include") + "/Python.h")')
    if [ -n "$header" ] && { [ ! -f "$header" ] || ! command -v c++ >/dev/null; }; then
        fail "fairseq has no wheel for $(python --version) here, and to build it takes a C++ compiler and the file '$header'; install both (on Debian: g++ and python3-dev), or Python 3.12 on Linux on x86-64"
    fi
}

# install_with_pip DIR EXTRAS [PACKAGE…]: the project and packages, in the versions of DIR/constraints.txt. These are
# asked for by variables, which hold where pip builds a package as well: a newer torch there would be several GB more.
install_with_pip() {
    local folder=$1 extras=$2
    shift 2
    need_compiler
    (cd -- "$folder" && PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
        python -m pip install --disable-pip-version-check --editable "${root}[$extras]" "$@") ||
        fail "pip could not install the packages, see above; check the network and run again"
}

install_project() {
    say "installing fairseq_rfa and what it needs with $(command -v python) (minutes, the first time)"
    install_with_pip "$root" recipes,test
}

use_own_environment() {
    local environment=$root/.venv stamp
    stamp=$(cat -- "$root/setup.py" "$root/constraints.txt" | sha256sum)
    # A copied or moved environment still points to where it was made.
    if [[ $("$environment/bin/pip" --version 2>/dev/null) != *" $environment/"* ]]; then
        rm -f -- "$environment/installed"
        make_venv "$environment"
    fi
    export VIRTUAL_ENV=$environment PATH="$environment/bin:$PATH"
    unset PYTHONHOME
    hash -r
    if [ "$(cat -- "$environment/installed" 2>/dev/null)" != "$stamp" ]; then
        rm -f -- "$environment/installed"
        install_project
        write_file "$environment/installed" printf '%s\n' "$stamp"
    fi
}

# activate_environment [MODULE…]: also asks for these modules (pytest).
# shellcheck disable=SC2120 # the tests name modules
activate_environment() {
    local modules=(fairseq torch matplotlib sacrebleu sacremoses sentencepiece subword_nmt tensorboardX "$@") conda=${CONDA_PREFIX-}
    # The tests also read what is written for TensorBoard, check habits, and build what pip installs.
    [[ " $* " != *" pytest "* ]] || modules+=(tensorboard ruff setuptools)
    # The base environment of conda is active without being chosen; nothing is installed there.
    [ "${CONDA_DEFAULT_ENV-}" != base ] || conda=
    if has_everything "${modules[@]}" && command -v fairseq-train >/dev/null; then
        return
    elif [ -n "${VIRTUAL_ENV-}$conda" ] && [ "${VIRTUAL_ENV-}" != "$root/.venv" ]; then
        python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' ||
            fail "the active environment '${VIRTUAL_ENV:-$conda}' has $(python --version 2>&1); deactivate it, or use one with Python 3.11, 3.12 or 3.13"
        install_project
    else
        use_own_environment
    fi
}
