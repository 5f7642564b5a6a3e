#!/usr/bin/env bash
# What "make demo" runs: starts a MySQL, a Kafka and a Pulsar of its own, then the program beside this
# script, and stops and deletes everything at the end, also on Ctrl-C.  ONESHOT=1: check and end.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/../.."
export BINLOGMQ_TESTENV_DIR=$PWD/.testenv/demo

clean() {
  trap '' INT TERM
  if [ -s "$BINLOGMQ_TESTENV_DIR/binlogmq.pid" ]; then kill "$(cat "$BINLOGMQ_TESTENV_DIR/binlogmq.pid")" 2>/dev/null || true; fi
  echo "demo: stopping and deleting everything"
  testenv/servers.sh down
}
trap clean EXIT
trap 'exit 130' INT TERM

mkdir -p "$BINLOGMQ_TESTENV_DIR"
go build -o "$BINLOGMQ_TESTENV_DIR/demo" ./test/demo
testenv/servers.sh up mysql kafka pulsar | tee "$BINLOGMQ_TESTENV_DIR/addresses"
oneshot=()
[ -z "${ONESHOT:-}" ] || oneshot=(-oneshot)
"$BINLOGMQ_TESTENV_DIR/demo" -addresses "$BINLOGMQ_TESTENV_DIR/addresses" -dir "$BINLOGMQ_TESTENV_DIR" "${oneshot[@]}"
