#!/usr/bin/env bash
# The servers that tests and `make demo` share, all below one folder: $BINLOGMQ_TESTENV_DIR, or
# .testenv in the repository.  Tests start what they need by themselves.
#
#   servers.sh up KIND...     start these: mysql, mariadb, mariadb11, mysql56, mariadb102, mariadb114,
#                             kafka, pulsar, zookeeper; prints "KIND ADDRESS" for each
#   servers.sh status         one line a server directory
#   servers.sh down           kill every server below the folder, shared or private, and delete its data
#   servers.sh fetch [KIND...]   only download what these need (default: all)
NAME=servers
here=$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)
# shellcheck source=testenv/lib.sh
. "$here/lib.sh"

ALL=(mysql mariadb mariadb11 mysql56 mariadb102 mariadb114 kafka pulsar zookeeper)
STATE=${BINLOGMQ_TESTENV_DIR:-${here%/*}/.testenv}

# Which script a server directory belongs to.
script_of() { # DIR
  if [ -f "$1/my.cnf" ]; then echo mysql.sh
  elif [ -f "$1/cluster" ]; then echo kafka.sh
  elif [ -f "$1/start.args" ] || [ -f "$1/brokers" ]; then echo pulsar.sh
  elif [ -f "$1/ports" ]; then echo zookeeper.sh; fi
}

up() { # KIND
  local dir=$STATE/shared/$1
  # As the Go helper does: one starts, the others wait.
  lock "$STATE/$1.lock"
  case $1 in
    kafka) "$here/kafka.sh" start 0 "$dir" ;;
    pulsar) "$here/pulsar.sh" start 0 0 "$dir" ;;
    zookeeper) "$here/zookeeper.sh" start 0 "$dir" ;;
    *) "$here/mysql.sh" start "$1" 0 "$dir" ;;
  esac | sed "s/^/$1 /"
  unlock
}

fetch() { # KIND
  case $1 in
    kafka | pulsar | zookeeper) "$here/$1.sh" fetch ;;
    *) "$here/mysql.sh" fetch "$1" ;;
  esac
}

down() {
  local dir script failed=0
  for dir in "$STATE"/shared/* "$STATE"/private/*; do
    [ -d "$dir" ] || continue
    script=$(script_of "$dir")
    if [ -z "$script" ]; then rm -rf -- "$dir"
    else "$here/$script" wipe "$dir" || failed=1; fi
  done
  [ $failed = 0 ] || die "some servers could not be stopped"
  rm -rf -- "$STATE"
}

status() {
  local dir pid state
  for dir in "$STATE"/shared/* "$STATE"/private/*; do
    [ -d "$dir" ] || continue
    state=down
    for pid in "$dir"/{,*/}{server.pid,pid}; do
      if [ -s "$pid" ] && grep -qsF -- "$dir" "/proc/$(cat "$pid")/cmdline"; then state="up, pid $(cat "$pid")"; fi
    done
    echo "${dir#"$STATE"/}: $state"
  done
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  up) for kind in "$@"; do up "$kind"; done ;;
  fetch) for kind in "${@:-${ALL[@]}}"; do fetch "$kind"; done ;;
  down) down ;;
  status) status ;;
  *) usage ;;
esac
