"""Running programs: each with a time limit, and none outlives the runner.

The runner makes itself the reaper of all its descendants (`PR_SET_CHILD_SUBREAPER`), so that also those that a test put in the background
are its children in the end, and `stop_all` finds them. It never looks at other processes.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on orphaned descendants become this process's children. SIGTERM and SIGHUP end it in the orderly way."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def _children() -> list[int]:
    """Process ids of our children, zombies included."""
    found = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except FileNotFoundError:
            pass
    return found


def stop_all(limit_s: float = 20.0) -> None:
    """Kills all our descendants: children first; theirs are ours then."""
    deadline = time.monotonic() + limit_s
    while (children := _children()) and time.monotonic() < deadline:
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


def descendants(of: int | None = None) -> list[int]:
    """Process ids of all that came from a process (from us) and are there still: parents before their children."""
    children: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [os.getpid() if of is None else of]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def pause(pids: list[int], limit_s: float = 5.0) -> None:
    """Stops these, each thread between two system calls."""
    for pid in pids:
        signal_to(pid, signal.SIGSTOP)
    deadline = time.monotonic() + limit_s
    while not all(map(_is_stopped, pids)) and time.monotonic() < deadline:
        time.sleep(0.001)


def signal_to(pid: int, number: int) -> None:
    """Sends it, if the process is there still."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _is_stopped(pid: int) -> bool:
    """True if none of its threads is in a system call or will be: all are stopped, or have ended."""
    try:
        tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
        states = [(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in tasks]
    except OSError:
        return not pathlib.Path(f"/proc/{pid}").exists()
    return all(state in "TZX" for state in states)


@dataclasses.dataclass
class Done:
    """How a program ended."""

    status: int
    output: str
    errors: str
    timed_out: bool = False

    @property
    def outcome(self) -> str:
        return "timed out" if self.timed_out else f"status {self.status}"


def run(
    argv: list[str],
    *,
    cwd: pathlib.Path,
    limit_s: float,
    env: dict[str, str] | None = None,
    stdin: str = "",
) -> Done:
    """Runs a program in a session of its own; what it left behind is killed with it."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        timed_out = False
        try:
            child.communicate(stdin.encode(), timeout=limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
            stop_all()
        said = []
        for file in (output, errors):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
        return Done(child.returncode, said[0], said[1], timed_out)


def say(text: str) -> None:
    """Progress, for who waits."""
    print(f"suites: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
