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

# A Docker Engine, for the tests of sandboxes in containers: they start one where none answers.
if ! PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v dockerd >/dev/null && [[ ! -S /var/run/docker.sock ]]; then
  installed=
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "setup: installing docker.io"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends docker.io >/dev/null && installed=yes
  fi
  if [[ -z $installed ]]; then
    echo "setup: there is no Docker Engine here, so the tests of the docker driver will fail; install Docker (Debian: docker.io) as root" >&2
  fi
fi

echo "setup: fetching Go modules"
go mod download
go mod download -modfile=tools.mod

scripts/venv.sh inspect scripts/requirements/inspect.txt
scripts/workers.sh
scripts/venv.sh sdk scripts/requirements/sdk.txt
