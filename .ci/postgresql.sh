#!/bin/sh
# A PostgreSQL server for the tests, in a folder of its own and on 127.0.0.1 only.
#   url=$(.ci/postgresql.sh start FOLDER)   makes and starts it, prints its URL; FOLDER must not exist yet
#   .ci/postgresql.sh stop FOLDER           stops it and removes FOLDER
# Exits 3 where PostgreSQL is not installed.
set -eu

usage() {
    echo "usage: $0 start|stop FOLDER" >&2
    exit 2
}

[ $# -eq 2 ] || usage
verb=$1
folder=$2

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
if [ -z "$bin" ]; then
    command -v initdb >/dev/null || { echo "$0: PostgreSQL is not installed" >&2; exit 3; }
    bin=$(dirname "$(command -v initdb)")
fi

# The server refuses to run as root.
as_owner() {
    if [ "$(id -u)" -eq 0 ]; then
        (cd / && exec setpriv --reuid postgres --regid postgres --clear-groups "$@")
    else
        "$@"
    fi
}

case $verb in
start)
    mkdir "$folder"
    folder=$(cd "$folder" && pwd)
    [ "$(id -u)" -ne 0 ] || chown postgres "$folder"
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    # Nothing here is to survive the test, so nothing waits for the disk.
    if ! { as_owner "$bin/initdb" -D "$folder/data" -U wastenot --auth=trust --encoding=UTF8 --locale=C --no-sync &&
        as_owner "$bin/pg_ctl" -D "$folder/data" -l "$folder/log" -w -o \
            "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off" start; } >"/dev/null" 2>&1
    then
        echo "$0: the server did not start; see $folder/log" >&2
        exit 1
    fi
    echo "postgresql://wastenot@127.0.0.1:$port/postgres"
    ;;
stop)
    as_owner "$bin/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null
    rm -rf "$folder"
    ;;
*) usage ;;
esac
