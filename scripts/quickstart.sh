#!/usr/bin/env bash
# The main job end to end: the sample benchmark, and an example of a custom benchmark, on the embedded endpoint. No key; no
# network but the package registry.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh
make_venv
output_dir=${1:-results/quickstart}
"$venv"/bin/eval-factory run_eval --run_config test_cases/quickstart.yml --output_dir "$output_dir"

# A custom benchmark: an example is written beside the result, once, and run.
own=${output_dir%/}_own_benchmark
[ -e "$own/run_config.yml" ] || "$venv"/bin/eval-factory new_benchmark "$own"
"$venv"/bin/eval-factory run_eval --run_config "$own/run_config.yml" --output_dir "$own/result"
echo
echo "The result: $output_dir/evaluation_config.yaml (to read: $output_dir/report.html)"
echo "A benchmark of your own: change the files in $own and run it again (docs/custom-benchmarks.md)"
