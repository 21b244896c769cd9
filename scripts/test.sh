#!/usr/bin/env bash
# Runs the tests; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
make_venv
exec .venv/bin/python -m pytest "$@"
