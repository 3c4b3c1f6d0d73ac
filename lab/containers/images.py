"""The images: Debian with its databases, made once by mmdebstrap, and on it the lines that docs/containers.md gives for somebody else's image."""

from __future__ import annotations

import hashlib
import pathlib
import shutil

from ..systemd.image import SUITE, Failure, call, mmdebstrap
from .engine import Podman

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ("redis-server", "postgresql-15", "etcd-server", "etcd-client", "procps")
# Tags of the images; localhost/ is what podman puts before the names of its own.
FOREBAY, DEBIAN = "localhost/forebay", "localhost/debian-databases"
MUSL = "localhost/musl"


def build(podman: Podman, scratch: pathlib.Path, archive: pathlib.Path) -> None:
    """Makes all that is not there. Forebay's is always a new one: its programs may have changed."""
    podman.ask("rmi", "--force", "--ignore", FOREBAY)
    said = podman.call("load", "--quiet", "--input", archive)
    loaded = said.rsplit(": ", 1)[-1].strip()
    podman.call("tag", loaded, FOREBAY)
    podman.call("tag", base(podman, scratch), DEBIAN)
    for name in ("redis", "postgres", "etcd"):
        podman.call("build", "--quiet", "--network", "none", "--pull-never", "--tag", f"localhost/{name}", "--file", HERE / "image" / f"{name}.containerfile", HERE / "image")


def base(podman: Podman, scratch: pathlib.Path) -> str:
    """Debian with its databases, as an image; its name says what it is made of."""
    made_of = " ".join([SUITE, *PACKAGES])
    name = f"localhost/debian-databases-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    if podman.has_image(name):
        return name
    tree = scratch / "debian.tar"
    tree.unlink(missing_ok=True)
    print("building Debian with mmdebstrap: minutes", flush=True)
    # No cluster, and no service is started where images are made.
    no_cluster = "--essential-hook=mkdir -p \"$1/etc/postgresql-common\" && echo 'create_main_cluster = false' >\"$1/etc/postgresql-common/createcluster.conf\""
    left_out = ["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"]
    mmdebstrap("minbase", PACKAGES, *left_out, no_cluster, SUITE, tree)
    podman.call("import", "--quiet", tree, name)
    tree.unlink()
    return name


def musl(podman: Podman, scratch: pathlib.Path, program: pathlib.Path) -> None:
    """An image with musl alone, as Alpine's are, and a program that is linked to it."""
    tree = scratch / "musl"
    shutil.rmtree(tree, ignore_errors=True)
    for place in ("bin", "lib", "usr/bin", "tmp", "data", "pool"):
        (tree / place).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    shutil.copy("/bin/busybox", tree / "bin/busybox")
    (tree / "bin/sh").symlink_to("busybox")
    loader = next(iter(pathlib.Path("/lib").glob("ld-musl-*.so.1")), None)
    if loader is None:
        raise Failure("musl's loader is not there: scripts/setup.sh test-containers")
    shutil.copy(loader, tree / "lib" / loader.name)
    shutil.copy(program, tree / "usr/bin" / program.name)
    call("tar", "-C", tree, "-cf", scratch / "musl.tar", ".")
    podman.call("import", "--quiet", scratch / "musl.tar", MUSL)
    for kind in ("three-lines", "with-libraries"):
        podman.call("build", "--quiet", "--network", "none", "--pull-never", "--tag", f"{MUSL}-{kind}", "--file", HERE / "image" / f"musl-{kind}.containerfile", HERE / "image")
