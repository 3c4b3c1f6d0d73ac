"""fio writes, reads back and verifies, with each way of doing I/O that the kernel has."""

from __future__ import annotations

import re
import shutil

from .place import Place

NAME = "fio"
ABOUT = "fio, writing and verifying, with and without O_DIRECT, one process and two"
# Those that write by system calls that Forebay follows, so that their files stay absorbed; of the others it lets go when they begin.
FOLLOWED = {"sync", "psync", "vsync", "pvsync", "pvsync2"}
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
        # One job is a thread of the process that laid the file out, several are forked processes of another. `fallocate` and files that the
        # parent of the writing process opened would be given back to the kernel before the job begins.
        "thread": int(jobs == 1),
        "fallocate": "none",
        "overwrite": 1,
        "fsync": 7,
        "fdatasync": 11,
        "end_fsync": 1,
        "verify": "crc32c",
        "verify_fatal": 1,
        "randrepeat": 1,
    }
    command = ["fio", "--minimal", *(f"--{key}={value}" for key, value in options.items())]
    outcomes, absorbed = {}, [place.absorbed_writes]
    if jobs > 1:
        laid_out = place.run([*command, "--create_only=1"], limit_s=LIMIT_S, cwd=directory)
        outcomes[f"{name}: laid out"] = f"{laid_out.outcome}{_errors(laid_out.output + laid_out.errors)}"
    absorbed.append(place.absorbed_writes)
    wrote = place.run(command, limit_s=LIMIT_S, cwd=directory)
    absorbed.append(place.absorbed_writes)
    outcomes[name] = f"{wrote.outcome}{_errors(wrote.output + wrote.errors)}"
    sizes = sorted(path.stat().st_size for path in directory.glob("v.*"))
    outcomes[f"{name}: files"] = f"{sizes}"
    # What goes on plainly has to have been absorbed first, or nothing was compared.
    before = absorbed[1 if engine in FOLLOWED else 0]
    outcomes[f"{name}: absorbed"] = "nothing" if place.pool and absorbed[2] == before else "some writes, where there is a pool"
    return outcomes


def _errors(text: str) -> str:
    found = re.findall(r"(?:verify: .*|fio: .*(?:err|fail).*|err=\s*[1-9].*)", re.sub(r"pid=\d+", "pid=…", text))
    return "".join(f"; {line}" for line in found[:3])
