#!/usr/bin/env bash
# Makes Python code from the protocol: generate.sh PYTHON FOLDER. PYTHON has what requirements.txt names.
set -euo pipefail

python=$(realpath --no-symlinks "$1")
mkdir -p "$2"
folder=$(realpath "$2")
cd "$(dirname "$0")/../../proto"
# The messages of google.api come with googleapis-common-protos.
"$python" -m grpc_tools.protoc -I . -I third_party --python_out="$folder" --grpc_python_out="$folder" $(find evalfleet -name '*.proto') buf/validate/validate.proto
