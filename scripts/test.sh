#!/usr/bin/env bash
# Runs the tests, as many side by side as there are cores (TEST_WORKERS says how many); arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
make_dev_venv
exec "$venv"/bin/python -m pytest -n "${TEST_WORKERS:-auto}" --dist worksteal "$@"
