#!/usr/bin/env bash
# Makes the Python environment .tools/venv-NAME with what REQUIREMENTS pins, unless it is there and current.
#
#   scripts/venv.sh NAME REQUIREMENTS
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1 requirements=$2
venv=.tools/venv-$name
stamp=$venv/requirements.stamp

if cmp -s "$requirements" "$stamp"; then
  exit 0
fi
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "setup: installing python3-venv"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
  else
    echo "setup: please install Python's venv module (Debian: python3-venv), then run this again" >&2
    exit 1
  fi
fi

echo "setup: making $venv"
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-input -r "$requirements"
cp "$requirements" "$stamp"
