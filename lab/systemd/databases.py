"""The databases: their units as Debian ships them, and how numbers are written to them and read again.

A number counts as acknowledged when its line has come out of the database's own client.
"""

from __future__ import annotations

import dataclasses

MANY = 1_000_000


@dataclasses.dataclass(frozen=True)
class Database:
    """One database; each text of it is a script of the guest."""

    name: str
    unit: str
    # Options of `forebay enable` besides --yes and the pool.
    options: str
    # What its status shows when it absorbs.
    absorbed: str
    prepare: str
    is_ready: str
    # Writes the numbers from {first} to {last}, and prints each when it is acknowledged.
    write: str
    # Prints all numbers that it has, a line each.
    read: str
    # What must hold of the unit by itself after its processes were killed: it starts anew.
    restarts: bool

    def writing(self, first: int, last: int = MANY) -> str:
        return self.write.format(first=first, last=last)



def redis_like(name: str, client: str) -> Database:
    """Redis, or what has its commands."""
    return Database(
        name=name,
        unit=f"{name}-server",
        options="",
        absorbed="appendonly",
        prepare="true",
        is_ready=f"test \"$({client} ping)\" = PONG",
        write="seq {first} {last} | sed \"s/.*/EVAL \\\"redis.call('RPUSH','lab',ARGV[1]) return ARGV[1]\\\" 0 &/\" | stdbuf -oL " + client,
        read=f"{client} lrange lab 0 -1",
        restarts=True,
    )


REDIS = redis_like("redis", "redis-cli")
VALKEY = redis_like("valkey", "valkey-cli -p 6380")

POSTGRES = Database(
    name="postgres",
    unit="postgresql@15-main",
    options="",
    absorbed="pg_wal",
    prepare="runuser -u postgres -- psql -qAtXc 'create table lab (n int primary key)'",
    is_ready="runuser -u postgres -- psql -qAtXc 'select 1'",
    write="cd /; seq {first} {last} | sed 's/.*/insert into lab values (&) returning n;/' | runuser -u postgres -- stdbuf -oL psql -qAtX",
    read="cd /; runuser -u postgres -- psql -qAtXc 'select n from lab'",
    restarts=False,
)

MARIADB = Database(
    name="mariadb",
    unit="mariadb",
    options="",
    absorbed="ib_logfile",
    prepare="mariadb -e 'create database lab; create table lab.t (n int primary key) engine=InnoDB'",
    is_ready="mariadb -e 'select 1'",
    write="seq {first} {last} | sed 's/.*/insert into lab.t values (&); select &;/' | stdbuf -oL mariadb -N --unbuffered",
    read="mariadb -N -e 'select n from lab.t'",
    restarts=True,
)

ETCD = Database(
    name="etcd",
    unit="etcd",
    options="",
    absorbed="wal",
    prepare="true",
    is_ready="ETCDCTL_API=3 etcdctl endpoint health",
    write="export ETCDCTL_API=3; for n in $(seq {first} {last}); do etcdctl put lab/$n $n >/dev/null && echo $n; done",
    read="ETCDCTL_API=3 etcdctl get --prefix lab/ --print-value-only",
    restarts=True,
)

ALL = {database.name: database for database in (REDIS, VALKEY, POSTGRES, MARIADB, ETCD)}
