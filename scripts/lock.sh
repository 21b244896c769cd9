#!/usr/bin/env bash
# Makes requirements.lock anew: exact versions, one for all of Python 3.10 to 3.12, no address of any index. Needs `uv`.
set -euo pipefail
cd "$(dirname "$0")/.."
uv pip compile scripts/requirements.in --override scripts/lock-overrides.txt --universal --python-version 3.10 \
  --fork-strategy fewest --no-annotate --no-header --no-emit-index-url --upgrade --output-file requirements.lock
