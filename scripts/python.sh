#!/usr/bin/env bash
# Works on the package in clients/python, with pinned tools in .tools: setup, generate, fmt or lint.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh python scripts/requirements/python.txt
tools=$PWD/.tools/venv-python/bin

case $1 in
setup)
  scripts/venv.sh stubs scripts/requirements/stubs.txt
  ;;
generate)
  scripts/venv.sh stubs scripts/requirements/stubs.txt
  .tools/venv-stubs/bin/python clients/python/stubs.py proto clients/python/src
  ;;
fmt)
  cd clients/python
  "$tools/ruff" check --quiet --fix --exit-zero .
  "$tools/ruff" format --quiet .
  ;;
lint)
  cd clients/python
  "$tools/ruff" format --quiet --check .
  "$tools/ruff" check --quiet .
  "$tools/mypy" --no-error-summary
  ;;
*)
  echo "python.sh: unknown task $1" >&2
  exit 2
  ;;
esac
