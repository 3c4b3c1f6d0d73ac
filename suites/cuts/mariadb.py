"""A MariaDB server whose data is larger than its buffer pool, and what must be seen of it after a cut.

Every transaction adds 32 to the column `n` of the table `wide`, spread over 1 to 32 of its pages, and leaves its number in `tx`: a page that is older
than it has to be shows in the sum.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess
import time

ROWS = 1200
ADDED = 32
START_LIMIT_S = 90.0
CALL_LIMIT_S = 120.0
# The line before what a statement of several gives.
ANSWER = "answer of statement "
NO_ANSWER = "no answer"
TABLES = f"""
CREATE DATABASE IF NOT EXISTS test; USE test;
CREATE TABLE wide (id INT PRIMARY KEY, n BIGINT NOT NULL, v VARCHAR(7000)) ENGINE=InnoDB;
INSERT INTO wide SELECT seq, 0, REPEAT('x', 6900) FROM seq_1_to_{ROWS};
CREATE TABLE tx (id INT PRIMARY KEY) ENGINE=InnoDB;
CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=InnoDB;
"""
# Files that come, go, and change their names.
FILES = [
    "TRUNCATE TABLE other",
    "INSERT IGNORE INTO other SELECT seq, REPEAT('z', 150) FROM seq_1_to_500",
    "ALTER TABLE other FORCE",
    "CREATE OR REPLACE TABLE other (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=InnoDB",
]


def program(name: str) -> str | None:
    """Where a program of the server's is: some are where only root looks."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def missing() -> list[str]:
    names = ("mariadbd", "mariadb", "mariadb-install-db", "innochecksum")
    return [name for name in names if program(name) is None]


def create(data: pathlib.Path) -> None:
    """A data directory without tables of ours."""
    command = [program("mariadb-install-db"), "--no-defaults", "--user=root", f"--datadir={data}", "--auth-root-authentication-method=normal"]
    # What lies in a doublewrite buffer innochecksum takes for damaged pages.
    subprocess.run([*command, "--innodb-doublewrite=0"], check=True, capture_output=True, timeout=CALL_LIMIT_S)


class Server:
    """A running server; `front` stands before its command line."""

    def __init__(self, front: list[str], data: pathlib.Path, socket: pathlib.Path, options: list[str], env: dict[str, str], said: pathlib.Path):
        self.socket = socket
        command = [program("mariadbd"), "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket}", "--skip-networking"]
        command += [f"--pid-file={socket}.pid", "--innodb-buffer-pool-size=6M", "--log-bin=changes", "--innodb-flush-neighbors=0", *options]
        with open(said, "ab") as output:
            self.process = subprocess.Popen([*front, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **env})
        deadline = time.monotonic() + START_LIMIT_S
        while self.ask("SELECT 1") != "1":
            if self.process.poll() is not None or time.monotonic() > deadline:
                last = said.read_text(errors="replace").splitlines()[-3:]
                raise RuntimeError(f"the server does not start (status {self.process.poll()}): {' / '.join(last)}")
            time.sleep(0.05)

    def command(self) -> list[str]:
        return [program("mariadb"), "--no-defaults", "-uroot", f"--socket={self.socket}", "--batch", "--skip-column-names", "--unbuffered"]

    def ask(self, statement: str) -> str:
        """What the statement gives; nothing if it fails."""
        done = subprocess.run([*self.command(), "-e", statement], capture_output=True, text=True, timeout=CALL_LIMIT_S)
        return done.stdout.strip() if done.returncode == 0 else ""

    def answers(self, questions: dict[str, str]) -> dict[str, str]:
        """What each statement gives, by its name, in one call: a client for each takes long. Of one that fails, the error."""
        script = "".join(f"SELECT '{ANSWER}{number}';\n{statement};\n" for number, statement in enumerate(questions.values()))
        command = [*self.command(), "--force"]
        done = subprocess.run(
            command, input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=CALL_LIMIT_S
        )
        return dict(zip(questions, answers_in(done.stdout, len(questions))))

    def faults(self, acknowledged: int) -> list[str]:
        """What is wrong, if the transactions up to `acknowledged` were."""
        sums = "SELECT CONCAT_WS(' ', (SELECT COUNT(*) FROM test.tx), (SELECT IFNULL(MAX(id), 0) FROM test.tx), (SELECT SUM(n) FROM test.wide))"
        found = self.ask(sums).split()
        if len(found) != 3:
            return [f"the sums cannot be asked for: {found}"]
        count, last, added = map(int, found)
        wrong = []
        if last < acknowledged:
            wrong.append(f"transactions {last + 1} to {acknowledged} were acknowledged and are gone")
        if count != last:
            wrong.append(f"{count} transactions are there, and the last is {last}")
        if added != ADDED * count:
            wrong.append(f"{count} transactions added {added} instead of {ADDED * count}")
        for table in ("wide", "tx", "other"):
            said = self.ask(f"CHECK TABLE test.{table} EXTENDED").split("\t")[-1]
            if said != "OK":
                wrong.append(f"CHECK TABLE {table}: {said}")
        return wrong

    def last(self) -> int:
        """The last transaction that is there."""
        return int(self.ask("SELECT IFNULL(MAX(id), 0) FROM test.tx"))


def answers_in(output: str, number: int) -> list[str]:
    """What each of so many statements gave. The server may have ended on the way."""
    answers: list[list[str]] = []
    for line in output.splitlines():
        if line == f"{ANSWER}{len(answers)}" and len(answers) < number:
            answers.append([])
        elif answers:
            answers[-1].append(line)
    return ["\n".join(lines) for lines in answers] + [NO_ANSWER] * (number - len(answers))


class Client:
    """One connection, over which transactions go one after the other."""

    def __init__(self, server: Server, said: pathlib.Path):
        with open(said, "ab") as errors:
            self.process = subprocess.Popen(
                [*server.command(), "test"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )

    def send(self, statements: str) -> None:
        self.process.stdin.write(f"{statements}; SELECT 'done';\n")
        self.process.stdin.flush()

    def call(self, statements: str) -> None:
        self.send(statements)
        if self.process.stdout.readline().strip() != "done":
            raise RuntimeError(f"the server did not do: {statements[:100]}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def transaction(number: int, rng: random.Random) -> str:
    """The statements of a transaction: pages all over the table."""
    rows = rng.choice([1, 4, 16, 32, 32, 32])
    first = rng.randrange(ROWS)
    ids = ", ".join(str((first + row * 37) % ROWS + 1) for row in range(rows))
    return f"BEGIN; UPDATE wide SET n = n + {ADDED // rows} WHERE id IN ({ids}); INSERT INTO tx VALUES ({number}); COMMIT"
