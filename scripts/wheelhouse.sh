#!/usr/bin/env bash
# Into an empty folder: all wheels that an install without a network needs, for this system and Python (PYTHON chooses
# one), and install.sh, which takes packages from nowhere else. Usage: wheelhouse.sh FOLDER
set -euo pipefail
mkdir -p "${1:?usage: wheelhouse.sh FOLDER}"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
source scripts/venv.sh
[ -z "$(ls -A "$folder")" ] || { echo "$folder is not empty: install.sh would take what is in it" >&2; exit 2; }
python=$(find_python)
version=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$python" -m venv "$tools"
wheel=("$tools/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder")
"${wheel[@]}" --require-hashes -r requirements.lock
"${wheel[@]}" .
# Hashes anew: some wheels were built here from what requirements.lock names.
(cd "$folder" && sha256sum -- *.whl) | sed -E 's/^([0-9a-f]+) [ *]([^-]+)-([^-]+)-.*/\2==\3 --hash=sha256:\1/' \
  > "$folder/wheels.lock"
cat > "$folder/install.sh" << END
#!/bin/sh
# Makes an environment with eval-factory from the wheels beside this file, without a network. Usage: install.sh FOLDER
set -eu
here=\$(cd "\$(dirname "\$0")" && pwd)
python=\${PYTHON:-python$version}
"\$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$version")' || {
  echo "these wheels are for Python $version: set PYTHON to one" >&2; exit 3; }
"\$python" -m venv "\${1:?usage: install.sh FOLDER}"
"\$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-index \\
  --find-links "\$here" --no-deps --require-hashes -r "\$here/wheels.lock"
echo "installed: \$1/bin/eval-factory"
END
