#!/usr/bin/env bash
# Ports on loopback for what a test listens on itself.
#
#   ports.sh DIR [COUNT]   print COUNT ports (1), on one line, that nobody listens on; no test and no server is
#                          given them as long as the folder DIR exists, at most for a day
NAME=ports
# shellcheck source=testenv/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

[ $# -ge 1 ] && [ -d "$1" ] || usage
dir=$(cd "$1" && pwd -P)
for ((n = 0; n < ${2:-1}; n++)); do free_port "$dir"; done | paste -sd ' ' -
