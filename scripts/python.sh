#!/usr/bin/env bash
# Works on the packages in clients, with pinned tools in .tools: setup, generate, fmt or lint.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh python scripts/requirements/python.txt
tools=$PWD/.tools/venv-python/bin

case $1 in
setup)
  scripts/venv.sh stubs scripts/requirements/stubs.txt
  # The least versions that the package accepts, as wheels, for the test of its wheel.
  least=scripts/requirements/python-least.txt wheels=.tools/wheels-python
  if ! cmp -s "$least" "$wheels/requirements.stamp"; then
    rm -rf "$wheels"
    "$tools/pip" download --quiet --disable-pip-version-check --no-input --only-binary :all: --dest "$wheels" -r "$least"
    cp "$least" "$wheels/requirements.stamp"
  fi
  ;;
generate)
  scripts/venv.sh stubs scripts/requirements/stubs.txt
  .tools/venv-stubs/bin/python clients/python/stubs.py proto clients/python/src
  "$tools/python" clients/python/reference.py clients/python/src >docs/python-reference.md
  ;;
fmt)
  cd clients
  "$tools/ruff" check --quiet --fix --exit-zero .
  "$tools/ruff" format --quiet .
  ;;
lint)
  for package in python inspect; do
    (
      cd "clients/$package"
      "$tools/ruff" format --quiet --check .
      "$tools/ruff" check --quiet .
    )
  done
  (cd clients/python && "$tools/mypy" --no-error-summary)
  # inspect_ai is in an environment of its own.
  scripts/venv.sh inspect scripts/requirements/inspect.txt
  (cd clients/inspect && "$tools/mypy" --no-error-summary --python-executable ../../.tools/venv-inspect/bin/python)
  ;;
*)
  echo "python.sh: unknown task $1" >&2
  exit 2
  ;;
esac
