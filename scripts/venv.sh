# Sourced by the other scripts: makes .venv from requirements.lock when it is missing or the lock has changed.
# PYTHON chooses the interpreter; any of 3.10, 3.11 and 3.12 will do.

find_python() {
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.10 python3 python; do
    if "$candidate" -c 'import sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "needs Python 3.10, 3.11 or 3.12 with the venv module; set PYTHON to one" >&2
  return 3
}

# The linters have an environment of their own: .venv stays as small as a user's.
make_lint_venv() {
  local stamp
  stamp=$(cksum < requirements-lint.lock)
  if [ "$(cat .venv-lint/.made-from 2>/dev/null)" != "$stamp" ]; then
    rm -rf .venv-lint
    "$(find_python)" -m venv .venv-lint
    .venv-lint/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r requirements-lint.lock
    echo "$stamp" > .venv-lint/.made-from
  fi
}

make_venv() {
  local python stamp
  stamp=$(cksum < requirements.lock)
  if [ ! -x .venv/bin/python ] || [ "$(cat .venv/.made-from 2>/dev/null)" != "$stamp" ]; then
    python=$(find_python)
    echo "making .venv with $python ..." >&2
    rm -rf .venv
    "$python" -m venv .venv
    # --no-deps: the lock is the whole list, and it leaves torch out although crfm-helm asks for it.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r requirements.lock
    echo "$stamp" > .venv/.made-from
  fi
  if [ ! -x .venv/bin/eval-factory ] || [ pyproject.toml -nt .venv/bin/eval-factory ]; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
    touch .venv/bin/eval-factory
  fi
}
