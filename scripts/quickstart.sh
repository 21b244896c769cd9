#!/usr/bin/env bash
# The main job end to end: the sample benchmark on the embedded endpoint. No key; no network but the package registry.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
make_venv
output_dir=${1:-results/quickstart}
.venv/bin/eval-factory run_eval --run_config test_cases/quickstart.yml --output_dir "$output_dir"
echo
echo "The result: $output_dir/evaluation_config.yaml (to read: $output_dir/report.html)"
