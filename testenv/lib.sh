# What the scripts of this folder share. Sourced, never run; NAME is the caller's name in its messages.
# shellcheck shell=bash
set -euo pipefail
export LC_ALL=C

CACHE=${BINLOGMQ_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME}/.cache}}
JAVA=${JAVA_HOME:+$JAVA_HOME/bin/}java

note() { echo "$NAME: $*" >&2; }
die() {
  note "$@"
  exit 1
}

# Prints the comment at the top of the running script: its usage.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

# tail_and_die MESSAGE FILE...: the first errors and the last lines of a server's own logs, then the message.
tail_and_die() {
  local message=$1 file
  shift
  for file in "$@"; do
    [ -s "$file" ] || continue
    { echo "--- first errors in $file" && { grep -m 5 -E 'ERROR|Exception' "$file" || true; } && echo "--- its last lines" && tail -n 15 "$file"; } >&2
  done
  die "$message"
}

is_number() { case $1 in '' | *[!0-9]*) return 1 ;; esac }
now_ms() { date +%s%3N; }

# Holds a lock file until unlock or the end of the shell.
lock() { # FILE
  mkdir -p "${1%/*}"
  exec 9>"$1"
  flock 9
}
unlock() { exec 9>&-; }

# free_port DIR [COUNT]: prints the first of COUNT consecutive ports, below the kernel's own range, that nobody listens on and nobody
# else is given as long as DIR exists, at most for a day: a server binds its ports long after they are chosen, and gives them up while it is down.
free_port() (
  local ports=${TMPDIR:-/tmp}/binlogmq-ports-$UID first port
  mkdir -p "$ports"
  exec 8>"$ports/lock"
  flock 8
  find "$ports" -name '[0-9]*' -mmin +1440 -delete
  while :; do
    first=$((20000 + RANDOM % 12000))
    for ((port = first; port < first + ${2:-1}; port++)); do
      ! { [ -s "$ports/$port" ] && [ -d "$(cat "$ports/$port")" ]; } || continue 2
      ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue 2
    done
    for ((port = first; port < first + ${2:-1}; port++)); do echo "$1" >"$ports/$port"; done
    echo "$first"
    return
  done
)

# Runs a command in the background for good: of its own session, and without the caller's
# open files, lest a lock that the caller holds through flock(1) outlive it.
detach() {
  local fd
  for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    [[ $fd -le 2 || $fd = 255 ]] || eval "exec $fd>&-"
  done
  exec setsid "$@"
}

# launch PIDFILE LOG COMMAND...: starts a server; its output goes to LOG.
launch() {
  local file=$1 log=$2 pid
  shift 2
  detach "$@" </dev/null >>"$log" 2>&1 &
  pid=$!
  disown "$pid" 2>/dev/null || true
  echo "$pid" >"$file"
}

# pid_of PIDFILE ARGUMENT: prints the pid if that process lives and has that very argument,
# so that a pid that went to somebody else is never signalled.
pid_of() {
  local pid
  [ -s "$1" ] || return 1
  pid=$(cat "$1")
  pid_is "$pid" "$2" && echo "$pid"
}
pid_is() { { tr '\0' '\n' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qxF -- "$2"; } # PID ARGUMENT

# await_end PIDFILE ARGUMENT SECONDS: until the process is gone, its sockets and files closed.
await_end() {
  local i pid
  pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] || return 0
  for ((i = 0; i < $3 * 20; i++)); do
    is_gone "$pid" "$2" && rm -f "$1" && return 0
    sleep 0.05
  done
  return 1
}
is_gone() { # PID ARGUMENT
  local state tasks
  [ -d "/proc/$1" ] || return 0
  # A process that is ending has no arguments any more but may still hold its sockets. A zombie without
  # other threads holds nothing: it waits for a parent that reaps.
  state=$(awk '/^State/ { print $2 }' "/proc/$1/status" 2>/dev/null) || return 0
  tasks=("/proc/$1/task/"*)
  [ "$state" != Z ] || [ ${#tasks[@]} -gt 1 ] || return 0
  { tr '\0' '\n' <"/proc/$1/cmdline"; } 2>/dev/null | grep -q . && ! pid_is "$1" "$2"
}

# signal_process SIGNAL PIDFILE ARGUMENT: no error when it does not run.
signal_process() {
  local pid
  pid=$(pid_of "$2" "$3") || return 0
  kill "-$1" "$pid"
  [ "$1" != TERM ] || kill -CONT "$pid" # a paused server could not obey
}

rss_mib() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$1/status"; }

# Of KEY=VALUE lines with the same key the last counts, at the place of the first.
last_wins() {
  awk -F= 'NF { if (!($1 in line)) key[++n] = $1; line[$1] = $0 }
    END { for (i = 1; i <= n; i++) print line[key[i]] }'
}

need_java() {
  command -v "$JAVA" >/dev/null || die "no java found: run testenv/prepare.sh, or set JAVA_HOME"
  command -v mvn >/dev/null || die "no mvn found: run testenv/prepare.sh"
}

jars_are_there() { # DIR: every jar of DIR/classpath still exists
  [ -s "$1/classpath" ] && tr ':' '\n' <"$1/classpath" |
    while IFS= read -r jar; do [ -f "$jar" ] || exit 1; done
}

# patiently LOG COMMAND...: a download, up to three times, for a network fails now and then. Its output goes to LOG.
patiently() {
  local log=$1 attempt
  shift
  for attempt in 1 2 3; do
    ! "$@" >"$log" 2>&1 </dev/null || return 0
    [ "$attempt" = 3 ] || sleep $((10 * attempt))
  done
  return 1
}

# maven LOG ARGS...: one at a time, since all of them write into one repository.
maven() (
  mkdir -p "$HOME/.m2"
  exec 7>"$HOME/.m2/binlogmq.lock"
  flock 7
  patiently "$1" mvn -B -q "${@:2}"
)

# maven_classpath DIR: writes DIR/classpath, the jars of the dependencies that DIR/pom.xml names.
maven_classpath() {
  maven "$1/mvn.log" -f "$1/pom.xml" dependency:build-classpath -DincludeScope=runtime -Dmdep.outputFile="$1/classpath" ||
    tail_and_die "Maven could not resolve what $1/pom.xml names" "$1/mvn.log"
}

# pom ARTIFACT: the head of a pom.xml up to its dependencies; dependency GROUP ARTIFACT VERSION: one of them.
pom() {
  echo "<project><modelVersion>4.0.0</modelVersion>"
  echo "<groupId>testenv</groupId><artifactId>$1</artifactId><version>1</version><packaging>pom</packaging>"
}
dependency() {
  printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>' "$@"
  cat # exclusions, from standard input
  echo '</dependency>'
}

# First main-archive URI and keyring named by the system's own apt sources.
archive_source() { # prints: URI [KEYRING]
  local file
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    awk 'function out() { if (u != "" && u !~ /security/) { print u, k; done = 1; exit } }
      /^[[:space:]]*$/ { out(); u = k = "" }
      tolower($1) == "uris:" { u = $2 }
      tolower($1) == "signed-by:" { k = $2 }
      END { if (!done) out() }' "$file"
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] || continue
    awk '$1 == "deb" { k = ""
      for (i = 2; i <= NF; i++) {
        if (match($i, /signed-by=[^] ]*/)) k = substr($i, RSTART + 10, RLENGTH - 10)
        if ($i ~ /^[a-z+]+:\//) { if ($i !~ /security/) print $i, k; next } } }' "$file"
  done
}

# The index may be an old one, of a mirror that lags: its signature is checked all the same.
apt_private() { # STATE-DIR TOOL ARGS...
  local state=$1 tool=$2
  shift 2
  "$tool" -q -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false -o Dir::State="$state/state" -o Dir::State::Lists="$state/lists" \
    -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" \
    -o Dir::Etc::SourceList="$state/archive.sources" -o Dir::Etc::SourceParts=/dev/null \
    -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none \
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
    -o Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled=false \
    -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false "$@"
}

# unpack_debian SUITE DIR PACKAGE...: the packages and all that they need, unpacked under DIR without
# installing anything: apt works on a private, empty package state.
unpack_debian() {
  local suite=$1 dir=$2 src uri key state=$CACHE/mysql-servers/apt-$1 deb
  shift 2
  src=$(archive_source | head -n 1)
  [ -n "$src" ] || die "no archive found in this machine's apt sources"
  read -r uri key <<<"$src"
  mkdir -p "$state/state" "$state/lists/partial" "$state/cache/archives/partial" "$dir"
  : >"$state/status"
  {
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$uri" "$suite"
    [ -z "$key" ] || printf 'Signed-By: %s\n' "$key"
  } >"$state/archive.sources"
  note "reading the $suite package index"
  apt_private "$state" apt-get update >"$state/update.log" 2>&1 ||
    tail_and_die "apt-get update failed" "$state/update.log"
  note "downloading $*"
  apt_private "$state" apt-get -y --no-install-recommends --download-only install "$@" \
    >"$state/download.log" 2>&1 || tail_and_die "download failed" "$state/download.log"
  for deb in "$state"/cache/archives/*.deb; do
    # Perl is wanted by helper scripts only.
    case ${deb##*/} in perl-* | perl_* | libperl* | libdb5* | libgdbm*) continue ;; esac
    dpkg-deb -x "$deb" "$dir"
  done
  rm -f "$state"/cache/archives/*.deb
}
