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

# For the tests of the documents' lines for a shell, which are left out where it is missing.
if ! command -v jq >/dev/null && ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo "setup: installing jq"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends jq >/dev/null
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

# A Redis server, for the tests of what replicas share: each starts its own.
if ! command -v redis-server >/dev/null; then
  installed=
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "setup: installing redis-server"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server >/dev/null && installed=yes
  fi
  if [[ -z $installed ]]; then
    echo "setup: there is no redis-server here, so the tests of Redis will fail; install it (Debian: redis-server) as root" >&2
  fi
fi

# An emulated machine, for the tests of what this machine's kernel is not set up for: the emulator, a static busybox that
# starts it, and a kernel, which is unpacked and not installed.
if [[ $(uname -m) == x86_64 ]] && ((EUID == 0)) && command -v apt-get >/dev/null; then
  if ! command -v qemu-system-x86_64 >/dev/null || [[ ! -x /bin/busybox ]]; then
    echo "setup: installing qemu-system-x86"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends qemu-system-x86 busybox-static >/dev/null
  fi
  if [[ ! -f .tools/machine/vmlinuz ]]; then
    echo "setup: fetching a kernel for the emulated machine"
    apt-get update -qq
    scratch=$(mktemp -d)
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/{print $2; exit}')
    (cd "$scratch" && apt-get download -qq "$package" 2>/dev/null && dpkg -x "$package"_*.deb .)
    mkdir -p .tools/machine
    mv "$scratch"/boot/vmlinuz-* .tools/machine/vmlinuz
    rm -r "$scratch"
  fi
fi

echo "setup: fetching Go modules"
go mod download
go mod download -modfile=tools.mod

scripts/venv.sh inspect scripts/requirements/inspect.txt
scripts/workers.sh
scripts/python.sh setup
scripts/venv.sh sdk scripts/requirements/sdk.txt
