#!/usr/bin/env bash
# Small Java programs, run from source, with libraries from Maven.
#
#   java.sh run GROUP:ARTIFACT:VERSION[,...] FILE.java [ARG...]
#   java.sh classpath GROUP:ARTIFACT:VERSION[,...]      print the class path; resolved once, then from the cache
#
# Needs a JDK 17 or newer, and Maven for the first call with a list of libraries.
NAME=java
# shellcheck source=testenv/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

classpath() { # LIBRARIES
  local dir library words=()
  dir=$CACHE/binlogmq-java/$(tr -c 'A-Za-z0-9.\n' _ <<<"$1")
  if ! jars_are_there "$dir"; then
    need_java
    lock "$dir/lock"
    if ! jars_are_there "$dir"; then
      note "resolving $1 with Maven"
      {
        pom java
        echo '<dependencies>'
        # Without a logger the libraries warn about that. First, so that its version of the interface counts.
        dependency org.slf4j slf4j-nop 2.0.17 </dev/null
        for library in ${1//,/ }; do
          IFS=: read -ra words <<<"$library"
          [ ${#words[@]} = 3 ] || die "'$library' is not GROUP:ARTIFACT:VERSION"
          dependency "${words[@]}" </dev/null
        done
        echo '</dependencies></project>'
      } >"$dir/pom.xml"
      maven_classpath "$dir"
    fi
    unlock
  fi
  cat "$dir/classpath"
}

case ${1:-} in
  classpath) [ $# -eq 2 ] || usage; classpath "$2" ;;
  run) [ $# -ge 3 ] || usage
    path=$(classpath "$2")
    exec "$JAVA" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$path" "${@:3}" ;;
  *) usage ;;
esac
