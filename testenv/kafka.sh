#!/usr/bin/env bash
# A private Apache Kafka (KRaft) of one or more brokers for integration tests, without containers.
#
#   kafka.sh start PORT DIR [--brokers N] [-- KEY=VALUE...]   server.properties settings after --;
#                                   PORT 0: free ones, kept for later starts of DIR
#   kafka.sh stop DIR [ID]          stop all brokers or one, keep the data
#   kafka.sh wipe DIR               kill all and delete DIR
#   kafka.sh restart DIR ID         stop broker ID if it runs, start it with its data
#   kafka.sh kill DIR ID            SIGKILL            kafka.sh pause|resume DIR ID   SIGSTOP, SIGCONT
#   kafka.sh status DIR             one line a broker: id, pid, resident memory
#   kafka.sh tool DIR NAME ARG...   topics, configs, console-consumer, dump-log, ... (see tool_class)
#   kafka.sh fetch                  only download the jars (once; later calls work offline)
#
# Broker ID (1..N) serves clients on 127.0.0.1:PORT+ID-1 and other controllers on PORT+N+ID-1;
# every broker is a controller too.  A setting may hold @DIR@ (the broker's folder), @ID@ and
# @PORT@, @CONTROLLER@ (its ports); given twice, the last counts.  `start` is idempotent: running
# brokers are left alone, stopped ones are started again with the data and the N that DIR has.
# Last line printed on stdout by `start`: the bootstrap servers.
#
# Needs Java 17 or newer, and Maven for the first call.  KAFKA_VERSION, KAFKA_HEAP_OPTS and
# KAFKA_JVM_OPTS may be set; adding -XX:TieredStopAtLevel=1 to the last saves a third of the
# start-up CPU and costs throughput.
NAME=kafka
# shellcheck source=testenv/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

VERSION=${KAFKA_VERSION:-4.4.0}
HOME_DIR=${KAFKA_HOME_DIR:-$CACHE/kafka-servers}/$VERSION
HEAP_OPTS=${KAFKA_HEAP_OPTS:--Xms128m -Xmx512m}
JVM_OPTS=${KAFKA_JVM_OPTS:--XX:+UseSerialGC}
START_TIMEOUT=${START_TIMEOUT:-600}
STOP_TIMEOUT=${STOP_TIMEOUT:-10}

# Downloads the jars of the server and its tools unless they are there already.
fetch() {
  [ ! -f "$HOME_DIR/.complete" ] || return 0
  need_java
  lock "$HOME_DIR/lock"
  [ -f "$HOME_DIR/.complete" ] || fetch_unlocked
  unlock
}
fetch_unlocked() {
  local artifact
  note "downloading Kafka $VERSION"
  {
    pom kafka
    echo '<dependencies>'
    dependency org.apache.kafka kafka_2.13 "$VERSION" </dev/null
    # kafka-tools pulls Kafka Connect and its web server in; no tool below needs them.
    {
      echo '<exclusions>'
      for artifact in connect-runtime connect-json connect-api; do
        echo "<exclusion><groupId>org.apache.kafka</groupId><artifactId>$artifact</artifactId></exclusion>"
      done
      echo '</exclusions>'
    } | dependency org.apache.kafka kafka-tools "$VERSION"
    dependency org.apache.logging.log4j log4j-slf4j-impl 2.25.5 </dev/null
    echo '</dependencies></project>'
  } >"$HOME_DIR/pom.xml"
  rm -rf "${HOME_DIR:?}/lib"
  maven "$HOME_DIR/mvn.log" -f "$HOME_DIR/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$HOME_DIR/lib" ||
    tail_and_die "downloading Kafka $VERSION failed" "$HOME_DIR/mvn.log"
  cat >"$HOME_DIR/log4j2.properties" <<'LOG'
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = ${sys:kafka.log.level:-WARN}
rootLogger.appenderRef.out.ref = out
LOG
  touch "$HOME_DIR/.complete"
}

java_run() { # CLASS ARGS...: a short-lived tool
  "$JAVA" -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -cp "$HOME_DIR/lib/*" \
    -Dlog4j2.configurationFile="$HOME_DIR/log4j2.properties" "$@"
}

tool_class() {
  case $1 in
    topics) echo TopicCommand ;;
    configs) echo ConfigCommand ;;
    console-consumer) echo consumer.ConsoleConsumer ;;
    console-producer) echo ConsoleProducer ;;
    consumer-groups) echo consumer.group.ConsumerGroupCommand ;;
    delete-records) echo DeleteRecordsCommand ;;
    dump-log) echo DumpLogSegments ;;
    leader-election) echo LeaderElectionCommand ;;
    reassign-partitions) echo reassign.ReassignPartitionsCommand ;;
    transactions) echo TransactionsCommand ;;
    api-versions) echo BrokerApiVersionsCommand ;;
    *) die "unknown tool '$1'" ;;
  esac
}
tool() { # DIR NAME ARGS...
  local name=$2 class
  class=$(tool_class "$name")
  shift 2
  [ "$name" = dump-log ] || set -- --bootstrap-server "$(bootstrap)" "$@"
  java_run "org.apache.kafka.tools.$class" "$@"
}

# DIR/cluster holds "PORT N CLUSTER-ID".
load_cluster() {
  [ -f "$1/cluster" ] || die "$1 is not a Kafka directory"
  read -r PORT BROKERS CLUSTER_ID <"$1/cluster"
}
check_id() { is_number "$1" && [ "$1" -ge 1 ] && [ "$1" -le "$BROKERS" ] || die "no broker '$1' (1..$BROKERS)"; }
bootstrap() { seq "$PORT" $((PORT + BROKERS - 1)) | sed 's/^/127.0.0.1:/' | paste -sd, -; }

broker_pid() { pid_of "$1/$2/pid" "$1/$2/server.properties"; } # DIR ID
signal() { signal_process "$3" "$1/$2/pid" "$1/$2/server.properties"; } # DIR ID SIGNAL

write_config() { # DIR ID KEY=VALUE...
  local dir=$1 id=$2 i voters="" copies=$((BROKERS < 3 ? BROKERS : 3)) isr=$((BROKERS < 2 ? 1 : 2))
  shift 2
  for ((i = 1; i <= BROKERS; i++)); do voters=$voters${voters:+,}$i@127.0.0.1:$((PORT + BROKERS + i - 1)); done
  {
    cat <<CONF
process.roles=broker,controller
node.id=$id
controller.quorum.voters=$voters
listeners=CLIENT://127.0.0.1:@PORT@,CONTROLLER://127.0.0.1:@CONTROLLER@
advertised.listeners=CLIENT://127.0.0.1:@PORT@
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
log.dirs=@DIR@/data
default.replication.factor=$copies
min.insync.replicas=$isr
offsets.topic.replication.factor=$copies
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=$copies
transaction.state.log.min.isr=$isr
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=$copies
share.coordinator.state.topic.min.isr=$isr
group.initial.rebalance.delay.ms=0
# Heap that the log cleaner reserves (128 MiB by default).
log.cleaner.dedupe.buffer.size=16777216
CONF
    # A dead broker is noticed after 3 s, not 9 s.  (A lone one has nobody to hand over to.)
    [ "$BROKERS" = 1 ] || printf '%s\n' broker.heartbeat.interval.ms=500 broker.session.timeout.ms=3000
    printf '%s\n' "$@"
  } | last_wins | sed -e "s|@DIR@|$dir/$id|g" -e "s|@ID@|$id|g" \
    -e "s|@PORT@|$((PORT + id - 1))|g" -e "s|@CONTROLLER@|$((PORT + BROKERS + id - 1))|g"
}

launch_broker() { # DIR ID: start the JVM, return at once
  local dir=$1/$2
  if [ ! -f "$dir/data/meta.properties" ]; then
    java_run kafka.tools.StorageTool format "--cluster-id=$CLUSTER_ID" -c "$dir/server.properties" >"$dir/format.log" 2>&1 ||
      tail_and_die "formatting the data of broker $2 failed" "$dir/format.log"
  fi
  [ ! -f "$dir/server.log" ] || mv "$dir/server.log" "$dir/server.log.old"
  # shellcheck disable=SC2086
  launch "$dir/pid" "$dir/server.log" "$JAVA" $HEAP_OPTS $JVM_OPTS -cp "$HOME_DIR/lib/*" -Dkafka.log.level=INFO \
    -Dlog4j2.configurationFile="$HOME_DIR/log4j2.properties" kafka.Kafka "$dir/server.properties"
}

await() { # DIR ID: until the broker serves clients
  local i log=$1/$2/server.log
  for ((i = 0; i < START_TIMEOUT * 20; i++)); do
    ! grep -q 'Kafka Server started' "$log" || return 0
    [ -d "/proc/$(cat "$1/$2/pid")" ] || {
      grep -E ' (ERROR|FATAL) |^Caused by|^Error' "$log" | tail -n 5 >&2
      tail_and_die "broker $2 did not start" "$log"
    }
    sleep 0.05
  done
  tail_and_die "broker $2 is not ready after $START_TIMEOUT s (are most of the $BROKERS controllers up?)" "$log"
}

start_brokers() { # DIR ID...
  local dir=$1 id begin jobs=()
  shift
  [ $# -gt 0 ] || return 0
  begin=$(now_ms)
  for id in "$@"; do launch_broker "$dir" "$id" & jobs+=($!); done
  for id in "${jobs[@]}"; do wait "$id"; done
  for id in "$@"; do (await "$dir" "$id") || { stop "$dir" "$@" && exit 1; }; done
  note "$VERSION: started broker(s) $* in $(($(now_ms) - begin)) ms"
  status "$dir" >&2
}

start() { # PORT DIR [--brokers N] [-- KEY=VALUE...]
  local port=$1 dir=$2 n="" id todo=()
  shift 2
  is_number "$port" || die "PORT must be a number"
  if [ "${1:-}" = --brokers ]; then
    n=${2:-}
    is_number "$n" && [ "$n" -ge 1 ] || die "--brokers needs a number"
    shift 2
  fi
  if [ $# -gt 0 ]; then
    [ "$1" = -- ] || die "unexpected '$1'; settings come after --"
    shift
  fi
  mkdir -p "$dir" && dir=$(cd "$dir" && pwd -P)
  fetch
  if [ -f "$dir/cluster" ]; then
    load_cluster "$dir"
    [[ $port = 0 || $port = "$PORT" ]] && [ "${n:-$BROKERS}" = "$BROKERS" ] ||
      die "$dir holds $BROKERS broker(s) from port $PORT on; wipe it first"
  else
    PORT=$port BROKERS=${n:-1} CLUSTER_ID=$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d =)
    [ "$PORT" != 0 ] || PORT=$(free_port "$dir" $((BROKERS * 2)))
    echo "$PORT $BROKERS $CLUSTER_ID" >"$dir/cluster"
  fi
  for ((id = 1; id <= BROKERS; id++)); do
    if broker_pid "$dir" "$id" >/dev/null; then
      note "broker $id is running already"
      continue
    fi
    mkdir -p "$dir/$id"
    write_config "$dir" "$id" "$@" >"$dir/$id/server.properties"
    todo+=("$id")
  done
  start_brokers "$dir" "${todo[@]}"
  bootstrap
}

stop() { # DIR ID...
  local dir=$1 id deadline=$((SECONDS + STOP_TIMEOUT))
  shift
  for id in "$@"; do signal "$dir" "$id" TERM; done
  for id in "$@"; do
    while broker_pid "$dir" "$id" >/dev/null && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.05; done
    # Of several brokers the last finds no controller quorum that would let it go.
    ! broker_pid "$dir" "$id" >/dev/null || note "broker $id did not stop within $STOP_TIMEOUT s: killed"
  done
  kill_brokers "$dir" "$@"
}

kill_brokers() { # DIR ID...
  local dir=$1 id
  shift
  for id in "$@"; do signal "$dir" "$id" KILL; done
  for id in "$@"; do
    await_end "$dir/$id/pid" "$dir/$id/server.properties" 120 || die "broker $id did not die"
  done
}

status() {
  local id pid
  for ((id = 1; id <= BROKERS; id++)); do
    if pid=$(broker_pid "$1" "$id"); then echo "broker $id: pid $pid, $(rss_mib "$pid") MiB resident"
    else echo "broker $id: stopped"; fi
  done
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  start) [ $# -ge 2 ] || usage; start "$@"; exit ;;
  fetch) fetch; exit ;;
  stop | wipe | restart | kill | pause | resume | status | tool) [ $# -ge 1 ] || usage ;;
  *) usage ;;
esac
[ -d "$1" ] || exit 0
dir=$(cd "$1" && pwd -P) && shift
load_cluster "$dir"
case $command in restart | kill | pause | resume) check_id "${1:-}" ;; esac
case $command in
  stop) if [ $# -gt 0 ]; then check_id "$1"; else mapfile -t ids < <(seq "$BROKERS"); set -- "${ids[@]}"; fi
    stop "$dir" "$@" ;;
  wipe) mapfile -t ids < <(seq "$BROKERS"); kill_brokers "$dir" "${ids[@]}"; rm -rf -- "$dir" ;;
  restart) stop "$dir" "$1"; start_brokers "$dir" "$1" ;;
  kill) kill_brokers "$dir" "$1" ;;
  pause) signal "$dir" "$1" STOP ;;
  resume) signal "$dir" "$1" CONT ;;
  status) status "$dir" ;;
  tool) [ $# -ge 1 ] || usage; tool "$dir" "$@" ;;
esac
