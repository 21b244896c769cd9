#!/usr/bin/env bash
# How many small mistakes in the modules that every number comes through do their own unit tests find? mutmut makes the
# mistakes, one at a time (pyproject.toml says where); those that no test finds are listed. Half an hour for all on two
# cores; arguments are names of modules: scripts/mutants.sh merge scores
set -euo pipefail
cd "$(dirname "$0")/.."
export EVAL_FACTORY_VENV=.venv-mutants
source scripts/venv.sh
make_mutants_venv
rm -rf mutants # kept results know nothing of changed tests
names=()
for module; do
  names+=("eval_factory.*.$module.*")
done
log=$(mktemp)
"$venv/bin/mutmut" run --max-children "$(nproc)" ${names[@]+"${names[@]}"} > "$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
mv "$log" mutants/log
for left in $("$venv/bin/mutmut" results | grep -v 'not checked' | sed -nE 's/^ +(eval_factory[^:]+): .*/\1/p'); do
  "$venv/bin/mutmut" show "$left"
done
"$venv/bin/mutmut" export-cicd-stats > /dev/null
"$venv/bin/python" - << 'END'
import json
counts = json.load(open("mutants/mutmut-cicd-stats.json"))
counts = {name: number for name, number in counts.items() if number and name != "total"}  # of all, chosen or not
print(", ".join(f"{name} {number}" for name, number in counts.items()), f"of {sum(counts.values())} mutants")
END
