"""The databases: how each is started under Forebay and plainly, and how numbers are written to it and read again.

A number counts as acknowledged when its line has come out of the database's own client.
"""

from __future__ import annotations

import dataclasses

MANY = 1_000_000


@dataclasses.dataclass(frozen=True)
class Database:
    """One database; each text of it is a script of the guest."""

    name: str
    # The command of its server, which lies in /data/NAME.
    server: str
    # Options of `forebay run` besides the pool.
    options: str
    # What its status shows when it absorbs.
    absorbed: str
    is_ready: str
    # Writes the numbers from {first} to {last}, and prints each when it is acknowledged.
    write: str
    # Prints all numbers that it has, a line each.
    read: str
    user: str = "root"
    # Before it is started for the first time, and after.
    before: str = "true"
    after: str = "true"

    @property
    def pool(self) -> str:
        return f"/fast/{self.name}.pool"

    @property
    def run_dir(self) -> str:
        return f"/run/forebay-{self.name}"

    def writing(self, first: int, last: int = MANY) -> str:
        return self.write.format(first=first, last=last)


def redis(name: str, port: int, fsync: str) -> Database:
    return Database(
        name=name,
        server=f"redis-server --port {port} --dir /data/{name} --save '' --appendonly yes --appendfsync {fsync} --logfile log",
        options="",
        absorbed="appendonly",
        is_ready=f"test \"$(redis-cli -p {port} ping)\" = PONG",
        write=f"seq {{first}} {{last}} | sed \"s/.*/EVAL \\\"redis.call('RPUSH','lab',ARGV[1]) return ARGV[1]\\\" 0 &/\" | stdbuf -oL redis-cli -p {port}",
        read=f"redis-cli -p {port} lrange lab 0 -1",
    )


# By the library.
REDIS = redis("redis", 6379, "always")
SQLITE = Database(
    name="sqlite",
    server="/lab/sqlite.py serve",
    options="--profile sqlite",
    absorbed="db-wal",
    is_ready="/lab/sqlite.py read",
    write="/lab/sqlite.py write {first} {last}",
    read="/lab/sqlite.py read",
)
PROGRAMS = "/usr/lib/postgresql/15/bin"
PSQL = f"{PROGRAMS}/psql -h /tmp -U postgres -qAtX postgres"
POSTGRES = Database(
    name="postgres",
    server=f"{PROGRAMS}/postgres -D /data/postgres/base -k /tmp -c listen_addresses= -c jit=off",
    options="",
    absorbed="pg_wal",
    is_ready=f"{PSQL} -c 'select 1'",
    write=f"seq {{first}} {{last}} | sed 's/.*/insert into lab values (&) returning n;/' | stdbuf -oL {PSQL}",
    read=f"{PSQL} -c 'select n from lab'",
    user="postgres",
    before=f"{PROGRAMS}/initdb -D /data/postgres/base -U postgres -A trust -E UTF8 --locale=C --wal-segsize=1 >/dev/null",
    after=f"{PSQL} -c 'create table lab (n int primary key)'",
)
# By the agent: a Go program. Debian's etcd starts on arm64 only if it is told to.
ETCD = Database(
    name="etcd",
    server="env ETCD_UNSUPPORTED_ARCH=arm64 etcd --data-dir /data/etcd/etcd --heartbeat-interval 1000 --election-timeout 10000 --log-level error",
    options="--front-end notify --profile etcd",
    absorbed="wal",
    is_ready="ETCDCTL_API=3 etcdctl endpoint health",
    write="export ETCDCTL_API=3; for n in $(seq {first} {last}); do etcdctl put lab/$n $n >/dev/null && echo $n; done",
    read="ETCDCTL_API=3 etcdctl get --prefix lab/ --print-value-only",
)
# Without Forebay, and without syncs: what must lose.
CONTROL = redis("control", 6380, "no")

ALL = {database.name: database for database in (REDIS, SQLITE, POSTGRES, ETCD)}
