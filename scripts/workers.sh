#!/usr/bin/env bash
# Fetches the packages of the example worker in Node. It is safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=.tools/worker-node
if cmp -s examples/worker-node/package-lock.json "$packages/package-lock.stamp"; then
  exit 0
fi
if ! command -v npm >/dev/null; then
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "setup: installing nodejs and npm"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
  else
    echo "setup: please install nodejs and npm, then run this again" >&2
    exit 1
  fi
fi
echo "setup: fetching $packages"
rm -rf "$packages" && mkdir -p "$packages"
cp examples/worker-node/package.json examples/worker-node/package-lock.json "$packages/"
(cd "$packages" && npm ci --ignore-scripts --no-audit --no-fund --silent)
cp examples/worker-node/package-lock.json "$packages/package-lock.stamp"
