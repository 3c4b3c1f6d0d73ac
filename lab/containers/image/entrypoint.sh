#!/usr/bin/env bash
# What the entry scripts of published images of PostgreSQL do: make the cluster at the first start, with a server for that time, and become the server.
set -euo pipefail
if [[ ! -s $PGDATA/PG_VERSION ]]; then
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    initdb --auth=trust --username=postgres >/dev/null
    # Where no client looks: who finds it ready would find it gone a moment later.
    pg_ctl -w -o "-c listen_addresses= -c unix_socket_directories=$PGDATA" start >/dev/null
    psql -h "$PGDATA" -qAtXc 'create table lab (n int primary key)' -U postgres
    pg_ctl -m fast -w stop >/dev/null
fi
exec "$@"
