#!/usr/bin/env bash
# Builds evalfleet, with the guest program within it, into the folder BIN: scripts/build.sh BIN
# Shows what it does on stderr: in a terminal one line that changes, elsewhere a line every ten seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
guest=./services/sandboxd/cmd/guestd
program=./services/allinone/cmd/evalfleet
# The binary is stripped, so the compiler makes no debug information. Without the trace pages of grpc-go, which nothing
# serves, no template is linked; a template may call any method, so that the linker would keep all of them: 20 % more.
flags=(-v -trimpath -tags=grpcnotrace -ldflags=-s -gcflags=all=-dwarf=false)
# The compiler collects garbage less often, which saves a tenth of its time and costs it 200 MB for the largest package.
export GOGC=${GOGC:-400}
# With cgo the guest could not take capabilities from its threads.
export CGO_ENABLED=0

build() {
  mkdir -p "$bin/guest"
  rm -f "$bin/guestd"
  echo "packages: $(go list -deps "$program" "$guest" | wc -l)"
  go build "${flags[@]}" -o "$bin/guest/guestd" "$guest"
  echo '{"Replace": {"services/sandboxd/internal/guestbinary/embedded/guestd": "'"$bin/guest/guestd"'"}}' >"$bin/guest/overlay.json"
  go build "${flags[@]}" -overlay "$bin/guest/overlay.json" -o "$bin/" "$program"
}

# follow reads what go reports, counts modules and packages, and prints everything else: go's errors.
follow() {
  local line code doing="listing packages" modules=0 packages=0 total=0 last=$SECONDS
  while true; do
    code=0
    IFS= read -r -t 1 line || code=$?
    if ((code == 0)); then
      if [[ $line =~ ^packages:\ ([0-9]+)$ ]]; then
        total=${BASH_REMATCH[1]}
      elif [[ $line =~ ^go:\ downloading\ (.*) ]]; then
        doing="module $((++modules)): downloading ${BASH_REMATCH[1]}"
      elif [[ $line == */cmd/evalfleet ]]; then
        doing="linking evalfleet"
      elif [[ $line =~ ^[A-Za-z0-9._/~-]+$ ]]; then
        doing="compiling package $((++packages)) of at most $total: $line"
      else
        clear_line
        printf '%s\n' "$line" >&2
      fi
    elif ((code <= 128)); then # Above 128 a second has passed without a line.
      break
    fi
    if [[ -t 2 ]]; then
      clear_line
      printf '%.*s' "$((columns - 1))" "build: ${SECONDS} s, $doing" >&2
    elif ((SECONDS - last >= 10)); then
      echo "build: ${SECONDS} s, $doing" >&2
      last=$SECONDS
    fi
  done
  clear_line
}

clear_line() {
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
}

columns=$(tput cols 2>/dev/null || echo 80)
build 2>&1 | follow # A build that fails ends the script here.
echo "build: $bin/evalfleet is ready after $SECONDS s" >&2
