"""dpkg, tar, cp and rsync put files into a directory: content, modes, owners and times must be what they are plainly."""

from __future__ import annotations

import os
import pathlib
import shutil

from .compare import tree
from .place import Place, target

NAME = "dpkg"
ABOUT = "dpkg, tar, cp -a, rsync -a and cpio into a directory; trees compared with modes, owners and times"
# Downloaded by scripts/setup.sh; none has scripts that need a system around them.
PACKAGES = ["hello", "netbase", "bash-completion", "sqlite3", "media-types", "libjs-jquery"]
LIMIT_S = 300.0


def debs() -> pathlib.Path:
    return target() / "suites" / "debs"


def missing() -> str | None:
    wanting = [tool for tool in ("dpkg", "tar", "rsync", "cpio") if shutil.which(tool) is None]
    if wanting or len(list(debs().glob("*.deb"))) < 3:
        return f"{', '.join(wanting) or 'packages to install'} not there: scripts/setup.sh suites"
    return None


def groups() -> list[str]:
    return ["dpkg", "tar", "cp", "rsync", "cpio"]


def run_group(group: str, place: Place) -> dict[str, str]:
    root = place.fresh("root")
    if group == "dpkg":
        outcomes = _dpkg(place, root)
    else:
        outcomes = _copy(group, place, root)
    return outcomes


def _dpkg(place: Place, root: pathlib.Path) -> dict[str, str]:
    """Unpacks all packages, again over themselves, and removes one."""
    admin = root / "var/lib/dpkg"
    for name in ("info", "updates", "triggers", "parts", "alternatives"):
        (admin / name).mkdir(parents=True)
    for name in ("status", "available"):
        (admin / name).touch()
    packages = sorted(str(path) for path in debs().glob("*.deb"))
    # The chroot has no shell: what has scripts is unpacked, not configured.
    command = ["dpkg", f"--root={root}", "--force-all", "--no-triggers", "--log=/dev/null", "--unpack"]
    outcomes = {}
    for name, packages_of_step in (("unpack", packages), ("unpack again", packages), ("one more", packages[:1])):
        done = place.run([*command, *packages_of_step], limit_s=LIMIT_S)
        outcomes[name] = f"{done.outcome}: {_complaints(done.errors)}"
        outcomes.update({f"{name}: {path}": what for path, what in tree(root).items() if _stable(path)})
        listed = place.run(["dpkg-query", f"--admindir={admin}", "-W", "-f", "${Package} ${Version} ${Status}\\n"], limit_s=LIMIT_S)
        outcomes[f"{name}: list"] = listed.output
    return outcomes


def _stable(path: str) -> bool:
    """dpkg writes its own files at the time of the day; what is in them is compared by `list`."""
    return not path.startswith("var/lib/dpkg")


def _complaints(text: str) -> str:
    return "; ".join(line for line in text.splitlines() if line.startswith("dpkg: error"))


def _copy(group: str, place: Place, root: pathlib.Path) -> dict[str, str]:
    """Brings a tree with times of long ago into the directory, twice."""
    source = place.fresh("source")
    _make_source(source)
    archive = place.dir / "archive"
    scripts = {
        "tar": f"tar -C {source} -cf {archive} . && tar -C {root} -xpf {archive}",
        # The second does not use copy_file_range.
        "cp": f"mkdir -p {root}/a {root}/b; cp -a {source}/. {root}/a && cp -a --sparse=always {source}/. {root}/b",
        "rsync": f"rsync -aH --fsync {source}/ {root} || rsync -aH {source}/ {root}",
        "cpio": f"cd {source} && find . -depth | LC_ALL=C sort | cpio -o --quiet > {archive} && cd {root} && cpio -idmu --quiet < {archive}",
    }
    outcomes = {}
    for attempt in ("once", "again"):
        done = place.run(["sh", "-c", scripts[group]], limit_s=LIMIT_S)
        outcomes[attempt] = done.outcome
        outcomes.update({f"{attempt}: {path}": what for path, what in tree(root).items()})
    return outcomes


def _make_source(source: pathlib.Path) -> None:
    """Files of many sizes and modes, read-only ones, hard and symbolic links; each with a time of its own."""
    for number in range(60):
        directory = source / f"d{number % 7}"
        directory.mkdir(exist_ok=True)
        path = directory / f"f{number}"
        path.write_bytes(bytes([number]) * (number * number * 37))
        path.chmod([0o644, 0o444, 0o755, 0o600, 0o400][number % 5])
        if number % 9 == 0:
            os.link(path, directory / f"hard{number}")
            os.symlink(f"f{number}", directory / f"soft{number}")
    for number, path in enumerate(sorted(source.rglob("f*"))):
        os.utime(path, ns=(10**18 + number * 1_000_003, 10**18 + number * 7_000_009))
