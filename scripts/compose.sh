#!/usr/bin/env bash
# Starts or stops the services of docker-compose.yaml: scripts/compose.sh up|down
# MODELGW_CONFIG names the configuration of modelgw with the keys of providers.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! docker compose version >/dev/null 2>&1; then
  echo "make $1 needs Docker with its plugin compose, version 2 or later: docker compose version must work." \
    "Docker's packages name it docker-compose-plugin, Ubuntu's docker-compose-v2." >&2
  exit 1
fi
# Modelgw runs as a user of its own, which could not read a key file of mode 600. So it gets a copy that is readable, in a
# folder that no other user of this machine can enter. Containers read the copy whenever they start again, so it stays
# until they are removed.
copy=.evalfleet/compose/modelgw.yaml
if [[ $1 == down ]]; then
  docker compose down
  exec rm -f "$copy"
fi
config=${MODELGW_CONFIG:-deploy/docker/modelgw.yaml}
if [[ -d $config || ! -r $config ]]; then
  echo "make up cannot read MODELGW_CONFIG=$config; deploy/docker/modelgw.example.yaml is an example" >&2
  exit 1
fi
install -d -m 700 .evalfleet/compose
install -m 644 "$config" "$copy.new"
mv "$copy.new" "$copy"

# The hash is a label of modelgw's container: compose makes the container anew when the file has changed.
hash=$(sha256sum "$copy")
export MODELGW_CONFIG=$PWD/$copy MODELGW_CONFIG_HASH=${hash%% *}
if ! docker compose up --build --detach --wait; then
  failed=$(docker compose ps --all --format '{{.Service}} {{.Health}}' | sed '/ healthy$/d; s/ .*//')
  if [[ -n $failed ]]; then
    echo "make up has failed; what the services that are not healthy said last:" >&2
    docker compose logs --tail 3 $failed >&2
  fi
  exit 1
fi
