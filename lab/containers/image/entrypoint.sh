#!/usr/bin/env bash
# What the entry scripts of published images of PostgreSQL do: make the cluster at the first start, with a server for that time, and become the server.
set -euo pipefail
if [[ ! -s $PGDATA/PG_VERSION ]]; then
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    initdb --auth=trust --username=postgres >/dev/null
    pg_ctl -w -o '-c listen_addresses=' start >/dev/null
    psql -qAtXc 'create table lab (n int primary key)' -U postgres
    pg_ctl -m fast -w stop >/dev/null
fi
exec "$@"
