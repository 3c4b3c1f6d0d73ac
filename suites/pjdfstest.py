"""pjdfstest: what POSIX says of names, modes, owners, times and errors, call by call and file kind by file kind."""

from __future__ import annotations

import re

from .place import Place, built, not_built

NAME = "pjdfstest"
ABOUT = "pjdfstest: results and errors of chmod, chown, link, mkfifo, mknod, open, rename, rmdir, symlink, truncate, unlink, utimensat"
FRONT_END = "notify"
PROGRAM = "bin/pjdfstest"
LIMIT_S = 480.0
SETTINGS = """\
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
stat_st_birthtime = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""


def missing() -> str | None:
    return not_built(PROGRAM)


def groups() -> list[str]:
    return ["all"]


def run_group(group: str, place: Place) -> dict[str, str]:
    settings, home = place.dir / "settings.toml", place.fresh("files")
    settings.write_text(SETTINGS)
    # Other users have to get there.
    for directory in (place.dir, home):
        directory.chmod(0o755)
    command = [str(built(PROGRAM)), "-c", str(settings), "-p", str(home)]
    done = place.run(command, limit_s=LIMIT_S, env={"NO_COLOR": "1", "RUST_BACKTRACE": "0"})
    outcomes = {"all": done.outcome}
    for name, said in re.findall(r"^(\S+::\S+)\s+(ok|FAILED|skipped)$", done.output, re.M):
        outcomes[name] = said
    return outcomes
