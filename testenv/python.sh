#!/usr/bin/env bash
# Small Python programs, with packages from PyPI.
#
#   python.sh run PACKAGE==VERSION[,...] FILE.py [ARG...]
#   python.sh install PACKAGE==VERSION[,...]      print the interpreter that has them; installed once, then from the cache
#
# Needs Python 3 with its module venv.
NAME=python
# shellcheck source=testenv/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

install() { # PACKAGES
  local dir log
  dir=$CACHE/binlogmq-python/$(tr -c 'A-Za-z0-9.\n' _ <<<"$1")
  if [ ! -e "$dir/complete" ] || ! "$dir/bin/python" -c '' 2>/dev/null; then
    lock "$CACHE/binlogmq-python/lock"
    if [ ! -e "$dir/complete" ] || ! "$dir/bin/python" -c '' 2>/dev/null; then
      note "installing $1"
      rm -rf "$dir"
      log=$(mktemp)
      # shellcheck disable=SC2086
      { python3 -m venv "$dir" >"$log" 2>&1 </dev/null && patiently "$log" "$dir/bin/pip" --disable-pip-version-check install ${1//,/ }; } ||
        tail_and_die "pip failed" "$log"
      rm -f "$log"
      touch "$dir/complete"
    fi
    unlock
  fi
  echo "$dir/bin/python"
}

case ${1:-} in
  install) [ $# -eq 2 ] || usage; install "$2" ;;
  run) [ $# -ge 3 ] || usage
    python=$(install "$2")
    exec "$python" "${@:3}" ;;
  *) usage ;;
esac
