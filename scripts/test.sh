#!/usr/bin/env bash
# Runs the tests; arguments go to pytest. Four more side by side than there are cores, for many wait for others: a server,
# a queue of Slurm, a browser (TEST_WORKERS says how many).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
make_dev_venv
exec "$venv"/bin/python -m pytest -n "${TEST_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) + 4))}" --dist worksteal "$@"
