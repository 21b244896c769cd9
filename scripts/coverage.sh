#!/usr/bin/env bash
# How much of the packages that decide on numbers do their own unit tests reach, lines and branches? Under its floor, one of
# them fails. What is not reached is listed. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
make_dev_venv
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export COVERAGE_FILE=$folder/coverage
floors=(scoring=97 config=94 tasks=96)
only=()
for floor in "${floors[@]}"; do
  only+=("tests/unit/${floor%=*}" "--cov=eval_factory.${floor%=*}")
done
"$venv/bin/python" -m pytest -n "${TEST_WORKERS:-auto}" --dist worksteal --cov-branch --cov-report= "${only[@]}" "$@"
failed=0
for floor in "${floors[@]}"; do
  "$venv/bin/python" -m coverage report --include="*/eval_factory/${floor%=*}/*" --fail-under="${floor#*=}" \
    --show-missing --skip-covered --precision=1 || failed=1
done
exit "$failed"
