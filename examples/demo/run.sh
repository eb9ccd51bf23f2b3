#!/usr/bin/env bash
# Runs the demonstration with the binary of `make build`, in a data directory of its own. Arguments go to `evalfleet eval run`.
set -euo pipefail
cd "$(dirname "$0")/../.."
EVALFLEET_LOG_DIR="${EVALFLEET_LOG_DIR:-.evalfleet/demo/logs}" \
  exec bin/evalfleet eval run examples/demo/task.yaml --data-dir .evalfleet/demo "$@"
