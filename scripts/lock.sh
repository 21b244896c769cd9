#!/usr/bin/env bash
# Makes the lock files anew: exact versions, one for all of Python 3.10 to 3.12, no address of any index. Needs `uv`.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
  uv pip compile "$1" --override scripts/lock-overrides.txt --universal --python-version 3.10 --fork-strategy fewest \
    --no-annotate --no-header --no-emit-index-url --upgrade --output-file "$2"
}
compile scripts/requirements.in requirements.lock
compile scripts/requirements-lint.in requirements-lint.lock
