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
installed = all(found.values()) and sys.version_info[:2] in ((3, 11), (3, 12))
sys.exit(not installed or not os.path.samefile(os.path.dirname(found["fairseq_rfa"].origin), plugin))
PYTHON
}

# The first Python that serves; a name may be found several times, and some do not run.
find_python() {
    local name path
    for name in python3 python python3.12 python3.11; do
        while read -r path; do
            "$path" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
                2>/dev/null || continue
            printf '%s\n' "$path"
            return
        done < <(type -aP "$name")
    done
    return 1
}

install_project() {
    say "installing fairseq_rfa and what it needs with $(command -v python) (minutes, the first time)"
    (cd -- "$root" && python -m pip install --disable-pip-version-check \
        --constraint constraints.txt --editable '.[recipes,test]') ||
        fail "pip could not install the packages, see above; check the network and run again"
}

use_own_environment() {
    local environment=$root/.venv python stamp
    stamp=$(cat -- "$root/setup.py" "$root/constraints.txt" | sha256sum)
    # A copied or moved environment still points to where it was made.
    if [[ $("$environment/bin/pip" --version 2>/dev/null) != *" $environment/"* ]]; then
        python=$(find_python) ||
            fail "no Python 3.11 or 3.12 with the module venv found; install one (on Debian: python3.11-venv) or activate an environment that has it"
        say "making $environment with $python"
        rm -f -- "$environment/installed"
        "$python" -m venv --clear "$environment" ||
            fail "'$python -m venv' failed, see above; install the package that provides venv"
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
        python -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' ||
            fail "the active environment '${VIRTUAL_ENV:-$conda}' has $(python --version 2>&1); deactivate it, or use one with Python 3.11 or 3.12"
        install_project
    else
        use_own_environment
    fi
}
