"""fio writes, reads back and verifies, with each way of doing I/O that the kernel has."""

from __future__ import annotations

import re
import shutil

from .place import Place

NAME = "fio"
ABOUT = "fio, writing and verifying, with and without O_DIRECT, one process and two"
ENGINES = ["sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "posixaio", "mmap", "io_uring"]
PATTERNS = ["write", "randwrite", "randrw"]
LIMIT_S = 300.0


def missing() -> str | None:
    return None if shutil.which("fio") else "fio is not installed: scripts/setup.sh suites"


def groups() -> list[str]:
    return ENGINES


def run_group(group: str, place: Place) -> dict[str, str]:
    outcomes = {}
    for pattern in PATTERNS:
        for direct in (0, 1):
            if direct and group == "mmap":
                continue
            for jobs in (1, 2):
                name = f"{pattern}{', direct' if direct else ''}, {jobs} {'process' if jobs == 1 else 'processes'}"
                outcomes.update(_job(place, name, group, pattern, direct, jobs))
    return outcomes


def _job(place: Place, name: str, engine: str, pattern: str, direct: int, jobs: int) -> dict[str, str]:
    directory = place.fresh(re.sub(r"\W+", "-", name))
    options = {
        "name": "v",
        "directory": str(directory),
        "filesize": "1M",
        "rw": pattern,
        # mmap wants whole pages, O_DIRECT whole blocks.
        "bs": "4k" if direct or engine == "mmap" else "1k-9k",
        "bs_unaligned": int(not direct and engine != "mmap"),
        "ioengine": engine,
        "iodepth": 8,
        "direct": direct,
        "numjobs": jobs,
        # Several jobs are forked processes, which write what their parent made; one is a thread of the process that opened the file first.
        "thread": int(jobs == 1),
        "fsync": 7,
        "fdatasync": 11,
        "end_fsync": 1,
        "verify": "crc32c",
        "verify_fatal": 1,
        "randrepeat": 1,
    }
    command = ["fio", "--minimal", *(f"--{key}={value}" for key, value in options.items())]
    wrote = place.run(command, limit_s=LIMIT_S, cwd=directory)
    sizes = sorted(path.stat().st_size for path in directory.glob("v.*"))
    return {name: f"{wrote.outcome}{_errors(wrote.output + wrote.errors)}", f"{name}: files": f"{sizes}"}


def _errors(text: str) -> str:
    found = re.findall(r"(?:verify: .*|fio: .*(?:err|fail).*|err=\s*[1-9].*)", re.sub(r"pid=\d+", "pid=…", text))
    return "".join(f"; {line}" for line in found[:3])
