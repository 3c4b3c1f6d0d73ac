"""Statements that change a MariaDB server's definitions, and what must be seen of them after a cut.

A plain server whose binary log is synced loses none of them on ext4 and XFS: each ends with a sync of that log, an append, which commits
the journal of the file system and with it the names of all other files. Two things such a server loses as well, so no statement here
makes them: the contents of `db.opt`, which MariaDB does not sync (`CREATE DATABASE ... CHARACTER SET`, `ALTER DATABASE`), and the row of
a new SEQUENCE.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .mariadb import NO_ANSWER, Server

# The server's own databases, of which nothing is compared. `mysql` has what users and procedures are, which is asked for by itself.
OWN = "('information_schema', 'performance_schema', 'mysql', 'sys')"
# Has no tables whose files may be damaged.
WITHOUT_FILES = "('information_schema', 'performance_schema')"
# How an answer begins that says nothing of what was asked for.
UNREADABLE = ("ERROR", NO_ANSWER)
# Where a load commits while nothing is defined.
LOAD = "load_slowly"
TABLES = f"""
CREATE DATABASE d; CREATE DATABASE e0; CREATE DATABASE {LOAD}; USE d;
CREATE TABLE {LOAD}.commits (id INT PRIMARY KEY) ENGINE=InnoDB;
CREATE TABLE renamed1 (id INT PRIMARY KEY, a INT, b INT) ENGINE=InnoDB; INSERT INTO renamed1 SELECT seq, seq, seq FROM seq_1_to_50;
CREATE TABLE rebuilt (id INT PRIMARY KEY, a INT, b INT) ENGINE=InnoDB; INSERT INTO rebuilt SELECT seq, seq, seq FROM seq_1_to_50;
CREATE TABLE columns (id INT PRIMARY KEY, a INT) ENGINE=InnoDB; INSERT INTO columns SELECT seq, seq FROM seq_1_to_50;
CREATE TABLE parted (id INT PRIMARY KEY, a INT) ENGINE=InnoDB
    PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200)); INSERT INTO parted VALUES (3, 3);
CREATE TABLE exchanged (id INT PRIMARY KEY, a INT) ENGINE=InnoDB; INSERT INTO exchanged VALUES (1, 1), (2, 2);
CREATE TABLE myisam1 (id INT PRIMARY KEY) ENGINE=MyISAM;
CREATE TABLE innodb0 (id INT PRIMARY KEY) ENGINE=InnoDB; CREATE TABLE aria0 (id INT PRIMARY KEY) ENGINE=Aria;
CREATE VIEW v AS SELECT 0 AS x;
"""


class SchemaChanges:
    """Statements at random, each of which succeeds if those before it were done: it knows by name what is there."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.made = 0
        # Of each kind, the numbers of what is there. The oldest one goes first, so that both a new and an old name go.
        self.there: dict[str, list[int]] = {"innodb": [0], "aria": [0], "database": [0], "column": [], "user": []}
        # The other of two names, in turn.
        self.second: dict[str, bool] = {"renamed": False, "myisam": False}
        self.has_trigger = self.has_index = False
        self.column = "a"

    def next(self) -> str:
        self.made += 1
        return self.rng.choice(KINDS)(self, self.made)

    def _add(self, kind: str, number: int) -> int:
        self.there[kind].append(number)
        return number

    def _one_of(self, kind: str) -> int | None:
        return self.there[kind].pop(0) if self.there[kind] else None

    def _drop(self, kind: str, name: str, create: Callable[[int], str], number: int) -> str:
        """Drops one of the kind, or makes one if there is none."""
        one = self._one_of(kind)
        return create(number) if one is None else f"DROP {name}{one}"

    def _rename(self, table: str) -> str:
        old, new = (2, 1) if self.second[table] else (1, 2)
        self.second[table] = not self.second[table]
        return f"RENAME TABLE d.{table}{old} TO d.{table}{new}"

    def rename_table(self, _number: int) -> str:
        return self._rename("renamed")

    def rename_myisam(self, _number: int) -> str:
        return self._rename("myisam")

    def comment(self, number: int) -> str:
        return f"ALTER TABLE d.renamed{2 if self.second['renamed'] else 1} COMMENT 'comment {number}'"

    def add_column(self, number: int) -> str:
        return f"ALTER TABLE d.columns ADD COLUMN c{self._add('column', number)} INT DEFAULT {number}, ALGORITHM=INSTANT"

    def drop_column(self, number: int) -> str:
        column = self._one_of("column")
        return f"ALTER TABLE d.columns DROP COLUMN c{column}, ALGORITHM=INSTANT" if column else self.add_column(number)

    def rename_column(self, number: int) -> str:
        old, self.column = self.column, f"a{number}"
        return f"ALTER TABLE d.columns RENAME COLUMN {old} TO {self.column}"

    def replace_view(self, number: int) -> str:
        return f"CREATE OR REPLACE VIEW d.v AS SELECT {number} AS x"

    def replace_trigger(self, number: int) -> str:
        self.has_trigger = True
        return f"CREATE OR REPLACE TRIGGER d.tr BEFORE INSERT ON d.rebuilt FOR EACH ROW SET NEW.a = {number}"

    def drop_trigger(self, number: int) -> str:
        if not self.has_trigger:
            return self.replace_trigger(number)
        self.has_trigger = False
        return "DROP TRIGGER d.tr"

    def replace_procedure(self, number: int) -> str:
        return f"CREATE OR REPLACE PROCEDURE d.pr() SELECT {number}"

    def exchange_partition(self, _number: int) -> str:
        return "ALTER TABLE d.parted EXCHANGE PARTITION p0 WITH TABLE d.exchanged"

    def truncate(self, _number: int) -> str:
        return "TRUNCATE TABLE d.exchanged"

    def rebuild(self, number: int) -> str:
        return f"ALTER TABLE d.rebuilt ENGINE=InnoDB, COMMENT='rebuild {number}'"

    def change_index(self, _number: int) -> str:
        self.has_index = not self.has_index
        return "CREATE INDEX ia ON d.rebuilt (a)" if self.has_index else "DROP INDEX ia ON d.rebuilt"

    def change_default(self, number: int) -> str:
        return f"ALTER TABLE d.rebuilt ALTER COLUMN b SET DEFAULT {number}"

    def create_aria(self, number: int) -> str:
        return f"CREATE TABLE d.aria{self._add('aria', number)} (id INT PRIMARY KEY, v INT DEFAULT {number}) ENGINE=Aria"

    def drop_aria(self, number: int) -> str:
        return self._drop("aria", "TABLE d.aria", self.create_aria, number)

    def create_table(self, number: int) -> str:
        return f"CREATE TABLE d.innodb{self._add('innodb', number)} (id INT PRIMARY KEY, v INT DEFAULT {number}) ENGINE=InnoDB"

    def drop_table(self, number: int) -> str:
        return self._drop("innodb", "TABLE d.innodb", self.create_table, number)

    def replace_table(self, number: int) -> str:
        columns = f"(id INT PRIMARY KEY, c{number} INT) ENGINE=InnoDB SELECT seq AS id, {number} AS c{number} FROM d.seq_1_to_20"
        return f"CREATE OR REPLACE TABLE d.replaced {columns}"

    def create_database(self, number: int) -> str:
        return f"CREATE DATABASE e{self._add('database', number)}"

    def drop_database(self, number: int) -> str:
        return self._drop("database", "DATABASE e", self.create_database, number)

    def create_user(self, number: int) -> str:
        return f"CREATE USER u{self._add('user', number)}"

    def drop_user(self, number: int) -> str:
        return self._drop("user", "USER u", self.create_user, number)


# Each as likely as any other.
KINDS: tuple[Callable[[SchemaChanges, int], str], ...] = tuple(
    method for name, method in vars(SchemaChanges).items() if callable(method) and not name.startswith("_") and name != "next"
)


def read_all(server: Server) -> dict[str, str]:
    """Every definition and what every table has, each by a name; but nothing of the load, which goes on."""
    left_out = f"NOT IN {OWN} AND TABLE_SCHEMA <> '{LOAD}'"
    listed = server.answers(
        {
            "databases": f"SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN {OWN}",
            "tables": f"SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA {left_out}",
        }
    )
    questions = {
        "triggers": "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_OBJECT_TABLE, ACTION_STATEMENT FROM information_schema.TRIGGERS "
        f"WHERE TRIGGER_SCHEMA NOT IN {OWN} ORDER BY 1, 2",
        "users": "SELECT Host, User FROM mysql.global_priv ORDER BY 1, 2",
        "grants": "SELECT Host, Db, User FROM mysql.db ORDER BY 1, 2, 3",
        "procedures": "SELECT db, name, body FROM mysql.proc WHERE db = 'd' ORDER BY 1, 2",
    }
    for database in listed["databases"].splitlines():
        questions[f"database {database}"] = f"SHOW CREATE DATABASE `{database}`"
    for line in listed["tables"].splitlines():
        database, table, kind = (line.split("\t") + ["", ""])[:3]
        name, quoted = f"{database}.{table}", f"`{database}`.`{table}`"
        if kind == "VIEW":
            questions[f"view {name}"] = f"SHOW CREATE VIEW {quoted}"
        else:
            questions[f"table {name}"] = f"SHOW CREATE TABLE {quoted}"
            questions[f"checksum of {name}"] = f"CHECKSUM TABLE {quoted} EXTENDED"
            questions[f"rows of {name}"] = f"SELECT COUNT(*) FROM {quoted}"
    return server.answers(questions)


def differences(acknowledged: dict[str, str], found: dict[str, str]) -> list[str]:
    """What is not as it was acknowledged. What could not be read is never as it should be, not even twice."""
    wrong = []
    for name in sorted({*acknowledged, *found}):
        was, is_now = acknowledged.get(name), found.get(name)
        if is_now is None:
            wrong.append(f"{name} is gone: {was[:200]}")
        elif was is None:
            wrong.append(f"{name} is there, which no statement left: {is_now[:200]}")
        elif was != is_now or is_now.startswith(UNREADABLE):
            wrong.append(f"{name}: acknowledged as {was[:200]!r}, now {is_now[:260]!r}")
    return wrong


def failed_checks(server: Server) -> list[str]:
    """What CHECK TABLE says of every table that it does not find sound, the server's own ones included."""
    sound = ("OK", "Table is already up to date", "The storage engine for the table doesn't support check")
    listed = server.answers(
        {
            "tables": "SELECT CONCAT('`', TABLE_SCHEMA, '`.`', TABLE_NAME, '`') FROM information_schema.TABLES "
            f"WHERE TABLE_SCHEMA NOT IN {WITHOUT_FILES} AND TABLE_TYPE = 'BASE TABLE'"
        }
    )
    said = server.answers({table: f"CHECK TABLE {table} EXTENDED" for table in listed["tables"].splitlines()})
    if not said:
        return ["there are no tables to be checked"]
    return [f"CHECK TABLE {table}: {' / '.join(lines.splitlines())}" for table, lines in said.items() if lines.split("\t")[-1] not in sound]
