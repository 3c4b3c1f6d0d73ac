"""A running program and the session by which it is written to; what was acknowledged is noted here, outside of both."""

from __future__ import annotations

import os
import pathlib
import queue
import signal
import subprocess
import threading
import time

from suites import processes

from .program import Home, Program

READY_LIMIT_S = 90.0
END_LIMIT_S = 60.0
READ_LIMIT_S = 120.0


class Failure(Exception):
    """What a program or its session did instead of what it has to."""


class Session:
    """One session process, whose lines a thread reads."""

    def __init__(self, process: subprocess.Popen):
        self.process = process
        # When each number was acknowledged.
        self.acknowledged: dict[int, float] = {}
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if not line.endswith("\n"):
                # Killed within it.
                break
            if line.startswith("ack "):
                self.acknowledged[int(line[4:])] = time.monotonic()
            else:
                self.lines.put(line.strip())
        self.lines.put(None)

    def _line(self, limit_s: float) -> str:
        try:
            line = self.lines.get(timeout=limit_s)
        except queue.Empty:
            raise Failure(f"the session says nothing for {limit_s:.0f} s") from None
        if line is None:
            raise Failure(f"the session has ended (status {self.process.wait()})")
        return line

    def wait_ready(self) -> None:
        # Java's libraries speak first.
        while self._line(READY_LIMIT_S) != "ready":
            pass

    def _tell(self, text: str) -> None:
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def begin_writing(self, first: int, last: int) -> None:
        self._tell(f"write {first} {last}")

    def numbers(self) -> list[int]:
        self._tell("read")
        found = []
        while (line := self._line(READ_LIMIT_S)) != "end":
            found += [int(line)] if line else []
        return found

    def end(self) -> None:
        """Ends it in the orderly way."""
        self.process.stdin.close()
        try:
            self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"the session does not end in {END_LIMIT_S:.0f} s") from None

    def join(self) -> None:
        """Waits until all that it said is noted: it has been killed."""
        self.process.kill()
        self.process.wait()
        self.reader.join()


class Running:
    """A program that runs, with `front` before its command line, and some sessions."""

    def __init__(self, program: Program, home: Home, front: list[str], env: dict[str, str], said: pathlib.Path, sessions: int = 1):
        self.program = program
        command = program.command(home)
        self.said = said
        self.helper = self._popen(command.helper, command.env) if command.helper else None
        argv = [*front, *command.argv]
        if program.server:
            self.process = self._popen(argv, {**command.env, **env})
            self.sessions = [Session(self._popen(program.session(home), {}, piped=True)) for _ in range(sessions)]
        else:
            self.process = self._popen(argv, {**command.env, **env}, piped=True)
            self.sessions = [Session(self.process)]
        try:
            for session in self.sessions:
                session.wait_ready()
        except Failure as failure:
            raise Failure(f"it does not start: {failure}: {self.last_words()}") from None

    def _popen(self, argv: list[str], env: dict[str, str], *, piped: bool = False) -> subprocess.Popen:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True} if piped else {"stdin": subprocess.DEVNULL}
        with open(self.said, "ab") as output:
            # Not where the lab runs: some leave files there.
            return subprocess.Popen(
                argv, env={**os.environ, **env}, stderr=output, cwd=self.said.parent, **({} if piped else {"stdout": output}), **pipes
            )

    def last_words(self) -> str:
        return " / ".join(self.said.read_text(errors="replace").splitlines()[-5:])

    @property
    def acknowledged(self) -> set[int]:
        # Copies: their threads go on noting.
        return {number for session in self.sessions for number in list(session.acknowledged)}

    def kill(self, pids: list[int]) -> None:
        for pid in pids:
            processes.signal_to(pid, signal.SIGKILL)

    def end(self) -> None:
        """Ends the program in the orderly way, and all that came with it."""
        for session in self.sessions:
            session.end()
        if self.program.server:
            self.process.terminate()
        try:
            status = self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"it does not end in {END_LIMIT_S:.0f} s: {self.last_words()}") from None
        finally:
            self.stop()
        # A server of Java's or Erlang's ends with the signal's own status, or with 1.
        of_servers = (128 + signal.SIGTERM, -signal.SIGTERM, 1)
        if status != 0 and not (self.program.server and status in of_servers):
            raise Failure(f"it ended with status {status}: {self.last_words()}")

    def stop(self) -> None:
        """Kills whatever is left, and notes what the sessions still had to say."""
        processes.stop_all()
        for session in self.sessions:
            session.join()
