"""How long an installation of Debian packages takes in a chroot: plain, with libeatmydata, and under `forebay run --emulated`.

    python3 -m lab.programs.installs [--repeat 3] [PACKAGE…]

As root, with mmdebstrap and Debian's archive. Each time in a fresh copy of the same root, whose packages are downloaded already.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from suites import processes
from suites.place import forebay, target

from .life import EATMYDATA, FOREBAY, PLAIN, eatmydata

PACKAGES = ["git", "python3", "perl", "less"]
# What a run does by itself, which knows no log of dpkg's; and every file absorbed.
ABSORB_ALL = "forebay, all absorbed"
VARIANTS = (PLAIN, EATMYDATA, FOREBAY, ABSORB_ALL)
INSTALL = ["env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "apt-get", "-qq", "-y", "--no-install-recommends"]
LINES_SHOWN = 20


def run(*argv: str | pathlib.Path) -> str:
    done = subprocess.run(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-LINES_SHOWN:])
        raise SystemExit(f"{' '.join(map(str, argv))}: status {done.returncode}:\n{last}")
    return done.stdout


def make_root(scratch: pathlib.Path, packages: list[str]) -> pathlib.Path:
    """Debian with nothing but apt, the packages beside it as files, as a tar; made once for these packages."""
    tar = scratch / f"debian-{'-'.join(packages)}.tar"
    if not tar.exists():
        processes.say("installs: making Debian's files")
        download = " ".join([*INSTALL, "--download-only", "install", *packages])
        options = ["--quiet", "--variant=apt", "--include=libeatmydata1", "--skip=cleanup/apt", f"--customize-hook=chroot \"$1\" {download}"]
        run("mmdebstrap", *options, "bookworm", tar)
    return tar


def seconds(variant: str, tar: pathlib.Path, scratch: pathlib.Path, packages: list[str]) -> float:
    """How long the installation took."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="root-", dir=scratch))
    front: list[str] = []
    if variant == EATMYDATA:
        front = ["env", f"LD_PRELOAD={eatmydata()}"]
    mounted = [root / "proc", root / "dev/shm"]
    try:
        run("tar", "-xf", tar, "-C", root)
        (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (root / "usr/sbin/policy-rc.d").chmod(0o755)
        if variant in (FOREBAY, ABSORB_ALL):
            for name in ("forebay", "libforebay.so"):
                shutil.copy2(pathlib.Path(forebay()).parent / name, root / "usr/lib" / name)
            all_files = ["--profile", "generic", "--absorb", "*"] if variant == ABSORB_ALL else []
            front = ["/usr/lib/forebay", "run", "--emulated", "64MiB", *all_files, "--"]
        for kind, path in (("proc", mounted[0]), ("tmpfs", mounted[1])):
            path.mkdir(parents=True, exist_ok=True)
            run("mount", "-t", kind, kind, path)
        run("sync")
        began = time.monotonic()
        run("chroot", root, *front, *INSTALL, "--no-download", "install", *packages)
        return time.monotonic() - began
    finally:
        processes.stop_all()
        for path in reversed(mounted):
            subprocess.run(["umount", str(path)], capture_output=True)
        if not any(f" {path} " in pathlib.Path("/proc/self/mounts").read_text() for path in mounted):
            shutil.rmtree(root, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m lab.programs.installs", description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", default=PACKAGES, help=f"what is installed (default: {' '.join(PACKAGES)})")
    parser.add_argument("--repeat", type=int, default=3, help="so often, the variants in turn; medians count (default: 3)")
    options = parser.parse_args()
    processes.adopt_orphans()
    scratch = target().resolve() / "programs"
    scratch.mkdir(parents=True, exist_ok=True)
    tar = make_root(scratch, options.packages)
    took: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(options.repeat):
        for variant in VARIANTS:
            took[variant].append(seconds(variant, tar, scratch, options.packages))
            processes.say(f"installs: {variant}: {took[variant][-1]:.1f} s")
    print("| variant | seconds | of plain |\n|---|---:|---:|")
    medians = {variant: sorted(times)[len(times) // 2] for variant, times in took.items()}
    for variant, time_s in medians.items():
        print(f"| {variant} | {time_s:.1f} | {time_s / medians[PLAIN]:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
