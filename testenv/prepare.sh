#!/usr/bin/env bash
# Installs what this repository's builds, tests and demo need and this machine lacks, with apt-get when
# root; else names what is missing and the one command that installs it.  Fast when everything is there.
#
#   prepare.sh [demo|test]     default test: everything
#
# Go comes from Debian's newest suite when the machine's own is older than go.mod asks: unpacked below
# the cache (binlogmq-go/bin, which the Makefile has in its PATH), not installed.
NAME=prepare
here=$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)
# shellcheck source=testenv/lib.sh
. "$here/lib.sh"

want=${1:-test}
case $want in demo | test) ;; *) usage ;; esac
GO_DIR=$CACHE/binlogmq-go
PATH=$PATH:$GO_DIR/bin

missing=() # Debian packages
need() { # COMMAND PACKAGE...: unless COMMAND is there, PACKAGEs are missing
  command -v "$1" >/dev/null || missing+=("${@:2}")
}
java_is_new() { # 17 or newer, with the compiler that runs programs from source
  command -v javac >/dev/null && [ "$("$JAVA" -version 2>&1 | sed -n '1s/[^"]*"\([0-9]*\).*/\1/p')" -ge 17 ] 2>/dev/null
}
go_is_new() {
  local wanted have
  wanted=$(sed -n 's/^go //p' "${here%/*}/go.mod")
  have=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//')
  [ -n "$have" ] && [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ]
}

fetch_go() {
  local series
  series=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' "${here%/*}/go.mod")
  lock "$CACHE/binlogmq-go.lock"
  if ! go_is_new; then
    rm -rf "$GO_DIR"
    unpack_debian sid "$GO_DIR/tree" "golang-$series-go" "golang-$series-src"
    ln -s "tree/usr/lib/go-$series/bin" "$GO_DIR/bin"
    go_is_new || die "Go of Debian's newest suite is older than go.mod asks: install Go by hand"
  fi
  unlock
}

need git git
need make make
need curl curl ca-certificates
need flock util-linux
need setsid util-linux
need mvn maven
java_is_new || missing+=(default-jdk-headless)
if [ "$want" = test ]; then
  need python3 python3
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  need npm npm
  need zstd zstd
  need gcc gcc libc6-dev # the race detector
  need shellcheck shellcheck
fi

if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    note "missing: ${missing[*]}; as root run:"
    echo "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  note "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  { apt-get -q -o Acquire::Retries=3 update && apt-get -q -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null ||
    tail_and_die "apt-get failed" "$log"
  rm -f "$log"
  java_is_new || die "the Java that Debian gives is older than 17: install one by hand and set JAVA_HOME"
fi
go_is_new || fetch_go
