#!/usr/bin/env bash
# Private Apache Pulsar brokers for integration tests, without containers.
#
#   pulsar.sh start PORT HTTP_PORT DIR [KEY=VALUE...]   options go to standalone.conf;
#                                ports 0: free ones, kept for later starts of DIR
#   pulsar.sh proxy PORT HTTP_PORT DIR BROKER_DIR   Pulsar's proxy before the broker of
#                                BROKER_DIR; what follows takes a proxy's DIR as well
#   pulsar.sh cluster BROKERS ZOOKEEPER DIR [KEY=VALUE...]   brokers DIR/1, DIR/2, ... and their
#                                bookie DIR/bookie, with their metadata in ZOOKEEPER (HOST:PORT);
#                                what follows takes DIR/N and DIR/bookie, and wipe also DIR
#   pulsar.sh stop DIR           stop the broker, keep its data
#   pulsar.sh kill DIR           SIGKILL, keep its data
#   pulsar.sh restart DIR        stop if it runs, start with the same ports and options
#   pulsar.sh pause|resume DIR   SIGSTOP, SIGCONT
#   pulsar.sh wipe DIR           kill the broker and delete DIR
#   pulsar.sh admin DIR METHOD PATH [JSON]   one admin REST call below /admin/v2/
#   pulsar.sh fetch              only resolve the jars and warm the class archive
#   pulsar.sh classpath          print the class path (it holds a Java client too)
#
# A broker is one JVM (Java 17 or newer): Pulsar standalone with one bookie, RocksDB
# metadata, no functions worker, on loopback.  Its jars come from Maven, once.  In a cluster
# each broker and the bookie is a JVM of its own, with half the heap.
# Options that are not given are Pulsar's own defaults, but: deduplication is on, one
# replica, no fsync, and topics without subscription keep their data (by default they lose it
# when a ledger ends, as at each restart, or after a minute without producer).
# A broker with authentication on is asked with the token in PULSAR_ADMIN_TOKEN.
#
# `start` is idempotent: a running broker of DIR is left alone, a stopped or killed
# one is started again with the data it has.  Last line on stdout: the two URLs; of a cluster
# a line for each broker.
NAME=pulsar
# shellcheck source=testenv/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

VERSION=${PULSAR_VERSION:-4.0.8}
HOME_DIR=${PULSAR_SERVERS_HOME:-$CACHE/pulsar-servers}/$VERSION
HEAP=${PULSAR_HEAP:-512m} MEMBER_HEAP=${PULSAR_MEMBER_HEAP:-256m} JAVA_OPTS=${PULSAR_JAVA_OPTS:-}
CLUSTER=standalone
START_TIMEOUT=${START_TIMEOUT:-600}

exclusion() { echo "<exclusion><groupId>$1</groupId><artifactId>$2</artifactId></exclusion>"; }

write_pom() { # ARTIFACT, and more dependencies on standard input
  pom pulsar
  # pulsar-opentelemetry is pinned: its later releases did not resolve; the pinned one fits. Of jackson-core an older one is nearer
  # to the proxy than what its other parts need.
  echo '<dependencyManagement><dependencies>'
  dependency org.apache.pulsar pulsar-opentelemetry 4.0.0 </dev/null
  dependency com.fasterxml.jackson.core jackson-core 2.17.2 </dev/null
  echo '</dependencies></dependencyManagement><dependencies>'
  { # etcd metadata and Kubernetes functions: not used here
    echo '<exclusions>'
    exclusion org.apache.pulsar jetcd-core-shaded
    exclusion io.kubernetes '*'
    exclusion io.grpc grpc-xds
    echo '</exclusions>'
  } | dependency org.apache.pulsar "$1" "$VERSION"
  cat
  echo '</dependencies></project>'
}

fetch() {
  ! jars_are_there "$HOME_DIR" || [ ! -f "$HOME_DIR/.complete" ] || return 0
  local dir
  need_java
  lock "$HOME_DIR/lock"
  if ! jars_are_there "$HOME_DIR"; then
    note "resolving pulsar-broker $VERSION with Maven"
    write_pom pulsar-broker </dev/null >"$HOME_DIR/pom.xml"
    maven_classpath "$HOME_DIR"
  fi
  if [ ! -f "$HOME_DIR/.complete" ]; then
    # One short run writes a class archive: later starts need half the CPU.
    note "first run, to warm the class archive"
    dir=$(mktemp -d)
    rm -f "$HOME_DIR/classes.jsa"
    (launch_broker 0 0 "$dir" && stop "$dir") >/dev/null || die "the broker does not run; see $dir"
    rm -rf "$dir"
    touch "$HOME_DIR/.complete"
  fi
  unlock
}

fetch_proxy() {
  ! jars_are_there "$HOME_DIR/proxy" || return 0
  need_java
  lock "$HOME_DIR/lock"
  if ! jars_are_there "$HOME_DIR/proxy"; then
    note "resolving pulsar-proxy $VERSION with Maven"
    mkdir -p "$HOME_DIR/proxy"
    # Else it logs nothing.
    dependency org.apache.logging.log4j log4j-slf4j2-impl 2.23.1 </dev/null |
      write_pom pulsar-proxy >"$HOME_DIR/proxy/pom.xml"
    maven_classpath "$HOME_DIR/proxy"
  fi
  unlock
}

# nettyMaxFrameSizeBytes: the bookie must take maxMessageSize + 10 KiB; else a large
# message is retried for ever and wedges its topic.
write_config() { # PORT HTTP_PORT [KEY=VALUE...]
  {
    cat <<END
clusterName=$CLUSTER
brokerServicePort=$1
webServicePort=$2
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
listeningInterface=lo
allowLoopback=true
allowEphemeralPorts=true
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
managedLedgerCacheSizeMB=64
journalSyncData=false
nettyMaxFrameSizeBytes=5253120
numIOThreads=2
brokerDeduplicationEnabled=true
defaultRetentionTimeInMinutes=-1
defaultRetentionSizeInMB=-1
brokerDeleteInactiveTopicsEnabled=false
END
    printf '%s\n' "${@:3}"
  } | last_wins
}

write_logging() {
  cat <<'END'
<Configuration status="ERROR"><Appenders><Console name="c">
<PatternLayout pattern="%d{HH:mm:ss.SSS} %-5level [%t] %c{1} - %m%n%throwable{12}"/></Console></Appenders>
<Loggers><Root level="${env:PULSAR_LOG_LEVEL:-warn}"><AppenderRef ref="c"/></Root></Loggers></Configuration>
END
}

# The configuration file tells a server's process from others: it stands on its command line.
conf() { # DIR
  local kind
  for kind in proxy broker bookie standalone; do
    [ ! -f "$1/$kind.conf" ] || break
  done
  echo "$1/$kind.conf"
}
server_pid() { pid_of "$1/server.pid" "$(conf "$1")"; }

start() { # PORT HTTP_PORT DIR [KEY=VALUE...]
  local dir=$3
  [[ $1$2 =~ ^[0-9]+$ ]] || die "PORT and HTTP_PORT must be numbers"
  mkdir -p "$dir" && dir=$(cd "$dir" && pwd -P)
  fetch
  launch_broker "$1" "$2" "$dir" "${@:4}"
}

# java_server DIR HEAP CLASS ARGS...: starts a server on the broker's class path.
java_server() {
  local dir=$1 heap=$2 open opens=() archive=$HOME_DIR/classes.jsa
  shift 2
  write_logging >"$dir/log4j2.xml"
  for open in java.base/java.nio java.base/jdk.internal.misc java.base/jdk.internal.platform \
    java.management/sun.management jdk.management/com.sun.management.internal; do
    opens+=(--add-opens "$open=ALL-UNNAMED")
  done
  if [ -f "$archive" ]; then archive=-XX:SharedArchiveFile=$archive
  else archive=-XX:ArchiveClassesAtExit=$archive; fi
  # shellcheck disable=SC2086
  launch "$dir/server.pid" "$dir/server.log" \
    "$JAVA" -Xms64m "-Xmx$heap" "-XX:MaxDirectMemorySize=$heap" -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
    "$archive" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off "${opens[@]}" \
    -Dio.netty.tryReflectionSetAccessible=true "-Dlog4j2.configurationFile=$dir/log4j2.xml" $JAVA_OPTS \
    -cp "$(cat "$HOME_DIR/classpath")" "$@"
}

# await_broker DIR PORT HTTP_PORT BEGIN: until it serves; writes its URLs.
await_broker() {
  local pid i
  pid=$(cat "$1/server.pid")
  for ((i = 0; ; i++)); do
    if [ "$(rest "$3" GET brokers/ready 2>/dev/null)" = ok ] &&
      [[ $(rest "$3" GET namespaces/public 2>/dev/null) == *public/default* ]]; then break; fi
    [ -d "/proc/$pid" ] || tail_and_die "the broker did not start" "$1/server.log"
    [ $i -lt $((START_TIMEOUT * 5)) ] || tail_and_die "not ready after $START_TIMEOUT s" "$1/server.log"
    sleep 0.2
  done
  note "Pulsar $VERSION, pid $pid, up in $(($(now_ms) - $4)) ms, $(rss_mib "$pid") MiB resident"
  echo "pulsar://127.0.0.1:$2 http://127.0.0.1:$3" >"$1/urls"
  cat "$1/urls"
}

launch_broker() { # PORT HTTP_PORT DIR [KEY=VALUE...]
  local port=$1 http=$2 dir=$3 pid begin kept=()
  shift 3
  if pid=$(server_pid "$dir"); then
    note "running already (pid $pid)"
    cat "$dir/urls"
    return 0
  fi
  [ ! -s "$dir/start.args" ] || mapfile -t kept <"$dir/start.args"
  [ "$port" != 0 ] || port=${kept[0]:-$(free_port "$dir")}
  [ "$http" != 0 ] || http=${kept[1]:-$(free_port "$dir")}
  [ -s "$dir/bookie.port" ] || free_port "$dir" >"$dir/bookie.port" # part of the bookie's identity
  printf '%s\n' "$port" "$http" "$@" >"$dir/start.args"
  write_config "$port" "$http" "$@" >"$dir/standalone.conf"
  begin=$(now_ms)
  java_server "$dir" "$HEAP" org.apache.pulsar.PulsarStandaloneStarter \
    --config "$dir/standalone.conf" --no-functions-worker --no-stream-storage \
    --metadata-dir "$dir/metadata" --bookkeeper-dir "$dir/bookie" --bookkeeper-port "$(cat "$dir/bookie.port")"
  await_broker "$dir" "$port" "$http" "$begin"
}

cluster() { # BROKERS ZOOKEEPER DIR [KEY=VALUE...]
  local brokers=$1 zookeeper=$2 dir=$3 n port http begin
  is_number "$brokers" || die "BROKERS must be a number: '$brokers'"
  shift 3
  mkdir -p "$dir" && dir=$(cd "$dir" && pwd -P)
  fetch
  [ ! -f "$dir/brokers" ] || die "$dir has a cluster already"
  for ((n = 1; n <= brokers; n++)); do
    mkdir -p "$dir/$n"
    port=$(free_port "$dir") http=$(free_port "$dir")
    # Who was killed gives up its topics when its session ends.
    printf '%s\n' "$port" "$http" "metadataStoreUrl=zk:$zookeeper" "configurationMetadataStoreUrl=zk:$zookeeper" \
      metadataStoreSessionTimeoutMillis=10000 loadBalancerSheddingEnabled=false loadBalancerAutoBundleSplitEnabled=false \
      "$@" >"$dir/$n/start.args"
  done
  echo "$brokers" >"$dir/brokers"
  begin=$(now_ms)
  setup "$zookeeper" "$http" "$port" "$dir"
  mkdir -p "$dir/bookie"
  write_bookie_config "$(free_port "$dir")" "$zookeeper" "$dir/bookie" >"$dir/bookie/bookie.conf"
  : >"$dir/bookie/start.args"
  start_bookie "$dir/bookie"
  for ((n = 1; n <= brokers; n++)); do
    # In turns, since two that begin together may make the same nodes; one that has ended for whatever reason begins once more.
    launch_member "$dir/$n"
    (await_member "$dir/$n" "$begin") || {
      launch_member "$dir/$n"
      await_member "$dir/$n" "$begin"
    }
  done
}

setup() { # ZOOKEEPER HTTP_PORT PORT DIR
  write_logging >"$4/log4j2.xml"
  "$JAVA" -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Dlog4j2.configurationFile=$4/log4j2.xml" \
    --add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/jdk.internal.misc=ALL-UNNAMED \
    -cp "$(cat "$HOME_DIR/classpath")" org.apache.pulsar.PulsarClusterMetadataSetup \
    --cluster "$CLUSTER" --metadata-store "zk:$1" --configuration-metadata-store "zk:$1" \
    --web-service-url "http://127.0.0.1:$2" --broker-service-url "pulsar://127.0.0.1:$3" >"$4/server.log" 2>&1 ||
    tail_and_die "the cluster's metadata could not be written" "$4/server.log"
}

write_bookie_config() { # PORT ZOOKEEPER DIR
  cat <<END
bookiePort=$1
metadataServiceUri=metadata-store:zk:$2
advertisedAddress=127.0.0.1
listeningInterface=lo
allowLoopback=true
journalDirectories=$3/journal
ledgerDirectories=$3/ledgers
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_writeCacheMaxSizeMb=32
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_blockCacheSize=8388608
journalSyncData=false
journalPreAllocSizeMB=4
nettyMaxFrameSizeBytes=5253120
httpServerEnabled=false
zkTimeout=5000
diskUsageThreshold=0.999
diskUsageWarnThreshold=0.998
END
}

start_bookie() { # DIR
  local i port pid
  port=$(sed -n 's/^bookiePort=//p' "$1/bookie.conf")
  java_server "$1" "$MEMBER_HEAP" \
    -Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver \
    -Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver \
    org.apache.bookkeeper.server.Main --conf "$1/bookie.conf"
  pid=$(cat "$1/server.pid")
  for ((i = 0; ; i++)); do
    ! { : >"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null || break
    [ -d "/proc/$pid" ] || tail_and_die "the bookie did not start" "$1/server.log"
    [ $i -lt $((START_TIMEOUT * 5)) ] || tail_and_die "the bookie is not ready after $START_TIMEOUT s" "$1/server.log"
    sleep 0.2
  done
}

launch_member() { # DIR
  local args
  mapfile -t args <"$1/start.args"
  write_config "${args[@]}" >"$1/broker.conf"
  java_server "$1" "$MEMBER_HEAP" org.apache.pulsar.PulsarBrokerStarter --broker-conf "$1/broker.conf"
}
await_member() { # DIR BEGIN
  local args
  mapfile -t args <"$1/start.args"
  await_broker "$1" "${args[@]:0:2}" "$2"
}

start_proxy() { # PORT HTTP_PORT DIR BROKER_PORT BROKER_HTTP_PORT
  local port=$1 http=$2 dir=$3 pid i begin
  if pid=$(server_pid "$dir"); then
    note "running already (pid $pid)"
    cat "$dir/urls"
    return 0
  fi
  [ "$port" != 0 ] || port=$(free_port "$dir")
  [ "$http" != 0 ] || http=$(free_port "$dir")
  printf '%s\n' "$port" "$http" "$4" "$5" >"$dir/start.args"
  cat >"$dir/proxy.conf" <<END
clusterName=standalone
brokerServiceURL=pulsar://127.0.0.1:$4
brokerWebServiceURL=http://127.0.0.1:$5
servicePort=$port
webServicePort=$http
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
brokerProxyAllowedHostNames=*
brokerProxyAllowedIPAddresses=*
brokerProxyAllowedTargetPorts=$4
END
  write_logging >"$dir/log4j2.xml"
  begin=$(now_ms)
  launch "$dir/server.pid" "$dir/server.log" \
    "$JAVA" -Xms32m -Xmx256m -XX:MaxDirectMemorySize=256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    --add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/jdk.internal.misc=ALL-UNNAMED \
    -Dio.netty.tryReflectionSetAccessible=true "-Dlog4j2.configurationFile=$dir/log4j2.xml" \
    -cp "$(cat "$HOME_DIR/proxy/classpath")" org.apache.pulsar.proxy.server.ProxyServiceStarter -c "$dir/proxy.conf"
  pid=$(cat "$dir/server.pid")
  for ((i = 0; ; i++)); do
    if { : >"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null && [ "$(rest "$http" GET brokers/ready 2>/dev/null)" = ok ]; then break; fi
    [ -d "/proc/$pid" ] || tail_and_die "the proxy did not start" "$dir/server.log"
    [ $i -lt $((START_TIMEOUT * 5)) ] || tail_and_die "the proxy is not ready after $START_TIMEOUT s" "$dir/server.log"
    sleep 0.2
  done
  note "Pulsar's proxy $VERSION, pid $pid, up in $(($(now_ms) - begin)) ms"
  echo "pulsar://127.0.0.1:$port http://127.0.0.1:$http" >"$dir/urls"
  cat "$dir/urls"
}

rest() { # HTTP_PORT METHOD PATH [JSON]
  curl -sS --fail-with-body -m 60 -X "$2" -H 'Content-Type: application/json' ${4:+--data "$4"} \
    ${PULSAR_ADMIN_TOKEN:+-H "Authorization: Bearer $PULSAR_ADMIN_TOKEN"} "http://127.0.0.1:$1/admin/v2/$3"
}

end() { # SIGNAL DIR
  signal_process "$1" "$2/server.pid" "$(conf "$2")"
  await_end "$2/server.pid" "$(conf "$2")" 300 || die "pid $(server_pid "$2") did not end within 300 s"
}
stop() { end TERM "$1"; }

restart() { # DIR
  local args
  stop "$1"
  mapfile -t args <"$1/start.args"
  if [ -f "$1/bookie.conf" ]; then
    # One that was killed stands in its own way until its session has ended.
    local i
    for ((i = 0; i < 20; i++)); do (start_bookie "$1" 2>/dev/null) && return; done
    start_bookie "$1"
    return
  fi
  if [ -f "$1/proxy.conf" ]; then
    start_proxy "${args[@]:0:2}" "$1" "${args[@]:2}"
    return
  fi
  if [ -f "$1/broker.conf" ]; then
    local begin
    begin=$(now_ms)
    launch_member "$1"
    await_member "$1" "$begin"
    return
  fi
  start "${args[@]:0:2}" "$1" "${args[@]:2}"
}

wipe_cluster() { # DIR
  local member
  for member in "$1"/*/server.pid; do
    [ ! -f "$member" ] || end KILL "${member%/*}"
  done
  rm -rf -- "$1"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  start) [ $# -ge 3 ] || usage; start "$@"; exit ;;
  proxy)
    [ $# -eq 4 ] && [ -f "$4/start.args" ] || usage
    mkdir -p "$3" && dir=$(cd "$3" && pwd -P)
    fetch_proxy
    mapfile -t broker <"$4/start.args"
    start_proxy "$1" "$2" "$dir" "${broker[@]:0:2}"
    exit
    ;;
  cluster) [ $# -ge 3 ] || usage; cluster "$@"; exit ;;
  fetch) fetch; fetch_proxy; exit ;;
  classpath) fetch; cat "$HOME_DIR/classpath"; exit ;;
  stop | kill | restart | pause | resume | wipe | admin) [ $# -ge 1 ] || usage ;;
  *) usage ;;
esac
[ -d "$1" ] || exit 0
dir=$(cd "$1" && pwd -P) && shift
if [ "$command" = wipe ] && [ -f "$dir/brokers" ]; then
  wipe_cluster "$dir"
  exit
fi
[ -f "$dir/start.args" ] || die "$dir is not a broker directory"
case $command in
  stop) stop "$dir" ;;
  kill) end KILL "$dir" ;;
  restart) restart "$dir" ;;
  pause) signal_process STOP "$dir/server.pid" "$(conf "$dir")" ;;
  resume) signal_process CONT "$dir/server.pid" "$(conf "$dir")" ;;
  wipe) end KILL "$dir"; rm -rf -- "$dir" ;;
  admin) [ $# -ge 2 ] || usage; rest "$(sed -n 2p "$dir/start.args")" "$@" ;;
esac
