#!/usr/bin/env bash
# Run the tests, in a virtual environment that is made where none is active, with a process for each
# core, at most four.
#
#   tests/run.sh [arguments of pytest]
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/../recipes/lib/common.sh"
source "$here/../recipes/lib/environment.sh"

if [ "${1-}" = --help ]; then
    usage
    exit 0
fi
activate_environment pytest xdist
export OMP_NUM_THREADS=1
cd -- "$root"
exec python -m pytest -q --numprocesses auto --maxprocesses 4 --dist loadfile "$@" tests
