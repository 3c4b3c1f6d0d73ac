"""Some of Python's own tests, their calls made by an agent: what the library does not see of a program is not seen here either."""

from __future__ import annotations

from . import python
from .python import missing, run_again, run_group

__all__ = ["ABOUT", "FRONT_END", "NAME", "groups", "missing", "run_again", "run_group"]

NAME = "python-notify"
ABOUT = "Python's own tests of files and processes by `--front-end notify`"
FRONT_END = "notify"
MODULES = """
    test_file test_fileio test_bufio test_file_eintr test_fileinput test_os test_posix test_pathlib test_shutil test_tempfile
    test_fcntl test_mmap test_popen test_fork1 test_wait3 test_pty test_dbm_dumb test_dbm_gnu test_mailbox test_tarfile test_gzip
""".split()


def groups() -> list[str]:
    return [module for module in MODULES if python.interpreter(module)]
