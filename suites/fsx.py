"""fsx: random reads, writes, truncations, syncs and mappings of one file, each read verified, by fixed seeds."""

from __future__ import annotations

import hashlib

from .place import Place, built, not_built

NAME = "fsx"
ABOUT = "fsx, whose every read is verified, with its own random calls; each log of calls and last file compared"
FRONT_END = "notify"
PROGRAM = "bin/fsx"
LIMIT_S = 120.0
SEEDS = range(1, 9)
CALLS = 2000
READ_AND_WRITTEN = {"read": 10, "write": 10, "truncate": 3, "fsync": 2, "fdatasync": 2}
# By name, how often each call is made relative to the others. Those that are not named are not made; what comes with the
# first stays absorbed, the others let go of the file at some time.
MIXES = {
    "written": {**READ_AND_WRITTEN, "close_open": 1, "posix_fadvise": 1, "mapread": 0, "mapwrite": 0},
    "allocated": {**READ_AND_WRITTEN, "close_open": 1, "posix_fallocate": 1, "punch_hole": 1, "mapread": 0, "mapwrite": 0},
    "mapped": {**READ_AND_WRITTEN, "close_open": 2, "mapread": 1, "mapwrite": 1, "invalidate": 1},
    "copied": {**READ_AND_WRITTEN, "close_open": 2, "sendfile": 1, "copy_file_range": 1, "mapread": 0, "mapwrite": 0},
}


def missing() -> str | None:
    return not_built(PROGRAM)


def groups() -> list[str]:
    return list(MIXES)


def run_group(group: str, place: Place) -> dict[str, str]:
    settings = place.dir / "fsx.toml"
    weights = "\n".join(f"{call} = {weight}.0" for call, weight in MIXES[group].items())
    settings.write_text(f"flen = 131072\n[opsize]\nmax = 20000\n[weights]\n{weights}\n")
    outcomes = {}
    for seed in SEEDS:
        home = place.fresh(f"seed-{seed}")
        command = [str(built(PROGRAM)), "-vv", "-f", str(settings), "-S", str(seed), "-N", str(CALLS), "-P", str(home), str(home / "file")]
        done = place.run(command, limit_s=LIMIT_S, cwd=home, env={"NO_COLOR": "1"})
        said = (done.output + done.errors).splitlines()
        # Its log of calls, without what `forebay run` says around it.
        calls = "\n".join(line for line in said if line.startswith("["))
        left = (home / "file").read_bytes() if (home / "file").exists() else b""
        outcomes[f"seed {seed}"] = f"{done.outcome}; {_short(calls.encode())} of calls; {_short(left)} left"
    return outcomes


def _short(data: bytes) -> str:
    return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:12]}"
