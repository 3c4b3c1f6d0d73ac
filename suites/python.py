"""Python's own tests of what touches files and processes (Debian's libpython3.11-testsuite), test by test."""

from __future__ import annotations

import functools
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree

from .place import Place

NAME = "python"
ABOUT = "Python's own tests: files, sqlite3, dbm, mmap, subprocess, tempfile, …"
PYTHON = "/usr/bin/python3"
MODULES = """
    test_file test_fileio test_io test_bufio test_file_eintr test_fileinput test_largefile test_os test_posix test_stat
    test_pathlib test_shutil test_tempfile test_glob test_fcntl test_mmap test_memoryio
    test_subprocess test_popen test_fork1 test_wait3 test_wait4 test_pipes test_pty
    test_sqlite3 test_dbm test_dbm_dumb test_dbm_gnu test_dbm_ndbm test_shelve test_mailbox
    test_tarfile test_zipfile test_gzip test_filecmp test_linecache test_py_compile
""".split()
# Not run: a process absorbs files that its children inherit, and waits for them meanwhile, so that each child waits two seconds for each file
# (docs/files-membership.md, "Other writers"): right, and minutes in all.
SLOW = {"test_subprocess": ["*test_swap_fds*", "*test_remapping_std_fds*", "*_are_single_inout_fd*"]}
# A test that takes longer hangs; of a module that does, no test counts, plain or under Forebay, and its case says "timed out".
TEST_LIMIT_S = 200
MODULE_LIMIT_S = 240.0


def missing() -> str | None:
    if shutil.which(PYTHON) is None:
        return f"{PYTHON} is not installed"
    done = subprocess.run([PYTHON, "-c", "import test.test_file"], capture_output=True)
    return None if done.returncode == 0 else "libpython3.11-testsuite is not installed: scripts/setup.sh suites"


@functools.cache
def interpreter(module: str) -> str | None:
    """A Python that has this module of the tests. Debian's package lacks test_sqlite3; another `python3` may have it."""
    for python in (PYTHON, "python3"):
        done = subprocess.run([python, "-c", f"import sqlite3, test.{module}"], capture_output=True, timeout=60)
        if done.returncode == 0:
            return python
    return None


def groups() -> list[str]:
    return [module for module in MODULES if interpreter(module)]


def notes() -> list[str]:
    """What there is no Python for."""
    lacking = [f"{module}: not run: no Python here has it" for module in MODULES if not interpreter(module)]
    slow = {module: ", ".join(f"`{test}`" for test in tests) for module, tests in SLOW.items()}
    return lacking + [f"{module}: not run, since they take minutes: {tests}" for module, tests in slow.items()]


def run_group(group: str, place: Place) -> dict[str, str]:
    return run_again(group, place, [])


def run_again(group: str, place: Place, names: list[str]) -> dict[str, str]:
    """Only these tests of the module; all, if none of them is a test's name."""
    only = [word for name in names if name.startswith("test.") for word in ("-m", name)]
    only += [word for pattern in SLOW.get(group, []) for word in ("-i", pattern)]
    report = place.dir / "junit.xml"
    temporary = place.fresh("tmp")
    command = [interpreter(group) or PYTHON, "-m", "test", "--junit-xml", str(report), "--tempdir", str(temporary), "--timeout", str(TEST_LIMIT_S), *only, group]
    # Their own directory for what they put in the system's temporary one.
    done = place.run(command, limit_s=MODULE_LIMIT_S, env={"TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"})
    outcomes = {"the module": done.outcome}
    if report.exists() and report.stat().st_size:
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            outcomes[case.get("name", "?")] = _outcome(case, place.dir)
    else:
        outcomes["the report"] = "none was written"
    return outcomes


def _outcome(case: xml.etree.ElementTree.Element, place: pathlib.Path) -> str:
    for kind in ("error", "failure"):
        if (found := case.find(kind)) is not None:
            # Its last line: what was raised. What names the place it ran in is cut out.
            text = (found.text or found.get("message") or "").strip().splitlines()
            said = re.sub(r"\btmp\w{8}\b", "tmp…", text[-1].replace(str(place), "…")) if text else ""
            return f"{kind}: {said}"
    return "skipped" if case.find("skipped") is not None or case.get("status") == "skipped" else "passed"
