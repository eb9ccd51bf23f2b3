#!/usr/bin/env bash
# Fuzzes each target of the module in turn, for the time given (default 30s).
# What is new is minimized little: by default Go spends up to a minute on each input.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}

grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort |
  while IFS=: read -r file func; do
    name=${func#func }
    echo "== $(dirname "$file") $name"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 5x "$(dirname "$file")" </dev/null
  done
