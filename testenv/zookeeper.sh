#!/usr/bin/env bash
# Private ZooKeeper servers for integration tests, without containers: one, or three
# that form an ensemble.
#
#   zookeeper.sh start PORT[,PORT,PORT] DIR [KEY=VALUE...]   options go to zoo.cfg;
#                                       ports 0: free ones, kept for later starts of DIR
#   zookeeper.sh stop DIR [N]           stop all servers or server N (1..3), keep the data
#   zookeeper.sh kill DIR [N]           SIGKILL, keep the data
#   zookeeper.sh pause|resume DIR [N]   SIGSTOP, SIGCONT
#   zookeeper.sh status DIR             one line a server: N PORT standalone|leader|follower|down
#   zookeeper.sh wipe DIR               kill all servers and delete DIR
#   zookeeper.sh fetch                  only resolve the jars
#   zookeeper.sh classpath              print the class path (it holds the Java client too)
#
# Needs Java 11 or newer; the jars come from Maven, once.  Ticks are 500 ms, so that
# sessions can be as short as 1 s.
#
# `start` is idempotent: it starts those servers of DIR that do not run, with the data
# they have.  Last line printed on stdout: the connect string.
NAME=zookeeper
# shellcheck source=testenv/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

VERSION=${ZOOKEEPER_VERSION:-3.9.5}
HOME_DIR=${ZOOKEEPER_SERVERS_HOME:-$CACHE/zookeeper-servers}/$VERSION
HEAP=${ZOOKEEPER_HEAP:-128m}
START_TIMEOUT=${START_TIMEOUT:-600}

write_pom() {
  pom zookeeper
  echo '<dependencies>'
  dependency org.apache.zookeeper zookeeper "$VERSION" </dev/null
  # Optional for clients, but servers need them.
  dependency io.dropwizard.metrics metrics-core 4.1.12.1 </dev/null
  dependency org.xerial.snappy snappy-java 1.1.10.5 </dev/null
  dependency org.slf4j slf4j-simple 2.0.13 </dev/null
  echo '</dependencies></project>'
}

fetch() {
  ! jars_are_there "$HOME_DIR" || return 0
  need_java
  lock "$HOME_DIR/lock"
  if ! jars_are_there "$HOME_DIR"; then
    note "resolving zookeeper $VERSION with Maven"
    write_pom >"$HOME_DIR/pom.xml"
    maven_classpath "$HOME_DIR"
  fi
  unlock
}

write_config() { # DIR N PORT [KEY=VALUE...]
  {
    cat <<END
dataDir=$1/$2
clientPort=$3
clientPortAddress=127.0.0.1
tickTime=500
initLimit=40
syncLimit=6
admin.enableServer=false
4lw.commands.whitelist=*
forceSync=no
END
    cat "$1/members"
    printf '%s\n' "${@:4}"
  } | last_wins
}

mode() { # PORT: prints standalone, leader or follower once the server serves
  timeout 2 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf srvr >&3 && cat <&3' "$1" 2>/dev/null |
    awk '/^Mode:/ { print $2; ok = 1 } END { exit !ok }'
}

start() { # PORTS DIR [KEY=VALUE...]
  local ports dir=$2 n i kept=()
  IFS=, read -ra ports <<<"$1"
  shift 2
  [[ ${#ports[@]} =~ ^[13]$ ]] || die "give one port or three"
  for i in "${ports[@]}"; do is_number "$i" || die "PORT must be a number: '$i'"; done
  mkdir -p "$dir" && dir=$(cd "$dir" && pwd -P)
  fetch
  if [ ! -f "$dir/members" ]; then
    for ((n = 1; n <= ${#ports[@]} && ${#ports[@]} > 1; n++)); do
      echo "server.$n=127.0.0.1:$(free_port "$dir"):$(free_port "$dir")"
    done >"$dir/members"
  fi
  [ ! -s "$dir/ports" ] || mapfile -t kept <"$dir/ports"
  for n in "${!ports[@]}"; do
    [ "${ports[n]}" != 0 ] || ports[n]=${kept[n]:-$(free_port "$dir")}
  done
  printf '%s\n' "${ports[@]}" >"$dir/ports"
  for ((n = 1; n <= ${#ports[@]}; n++)); do
    if pid_of "$dir/$n/server.pid" "$dir/$n/zoo.cfg" >/dev/null; then
      note "server $n is running already"
      continue
    fi
    mkdir -p "$dir/$n"
    echo "$n" >"$dir/$n/myid"
    write_config "$dir" "$n" "${ports[n - 1]}" "$@" >"$dir/$n/zoo.cfg"
    launch "$dir/$n/server.pid" "$dir/$n/server.log" \
      "$JAVA" -Xms16m "-Xmx$HEAP" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
      "-Dorg.slf4j.simpleLogger.defaultLogLevel=${ZOOKEEPER_LOG_LEVEL:-warn}" \
      -cp "$(cat "$HOME_DIR/classpath")" org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/$n/zoo.cfg"
  done
  for ((n = 1; n <= ${#ports[@]}; n++)); do
    for ((i = 0; ; i++)); do
      ! mode "${ports[n - 1]}" >/dev/null || break
      [ -d "/proc/$(cat "$dir/$n/server.pid")" ] || tail_and_die "server $n did not start" "$dir/$n/server.log"
      [ $i -lt $((START_TIMEOUT * 5)) ] || tail_and_die "server $n is not ready after $START_TIMEOUT s" "$dir/$n/server.log"
      sleep 0.2
    done
  done
  printf '127.0.0.1:%s\n' "${ports[@]}" | paste -sd, -
}

status() { # DIR
  local n=0 port
  while read -r port; do
    n=$((n + 1))
    echo "$n $port $(mode "$port" || echo down)"
  done <"$1/ports"
}

signal() { # SIGNAL DIR [N]
  local n
  for n in ${3:-1 2 3}; do signal_process "$1" "$2/$n/server.pid" "$2/$n/zoo.cfg"; done
}
end() { # SIGNAL DIR [N]
  local n
  signal "$@"
  for n in ${3:-1 2 3}; do
    await_end "$2/$n/server.pid" "$2/$n/zoo.cfg" 120 || die "server $n did not end within 120 s"
  done
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  start) [ $# -ge 2 ] || usage; start "$@"; exit ;;
  fetch) fetch; exit ;;
  classpath) fetch; cat "$HOME_DIR/classpath"; exit ;;
  stop | kill | pause | resume | status | wipe) [ $# -ge 1 ] || usage ;;
  *) usage ;;
esac
[ -d "$1" ] || exit 0
dir=$(cd "$1" && pwd -P) && shift
[ -f "$dir/ports" ] || die "$dir is not a server directory"
case $command in
  stop) end TERM "$dir" "$@" ;;
  kill) end KILL "$dir" "$@" ;;
  pause) signal STOP "$dir" "$@" ;;
  resume) signal CONT "$dir" "$@" ;;
  status) status "$dir" ;;
  wipe) end KILL "$dir"; rm -rf -- "$dir" ;;
esac
