#!/usr/bin/env bash
# Fetches what the other targets need. The only step that uses a network; safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
for program in git curl python3; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if ((${#missing[@]})); then
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "setup: please install ${missing[*]}, then run this again" >&2
    exit 1
  fi
fi

echo "setup: fetching Go modules"
go mod download
go mod download -modfile=tools.mod

scripts/venv.sh inspect scripts/requirements/inspect.txt
