"""podman of a user without rights: its containers lie in a namespace of users, in which container ids are ids of its own share (/etc/subuid)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import tempfile

from .databases import Served
from .engine import Podman
from .images import HERE
from .life import USER, ContainerLife, Trial

OWNER = "nobody"
# Its share: what is root in a container is the user itself, what is 1 there the first of these.
SHARE_FIRST, SHARE = 300_000, 65_536


class RootlessPodman(Podman):
    """One with images and containers of its own, in a directory that its user reaches."""

    def __init__(self) -> None:
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="forebay-rootless-", dir="/var/tmp"))
        super().__init__(self.home)
        self.home.chmod(0o755)
        (self.home / "share").write_text(f"{OWNER}:{SHARE_FIRST}:{SHARE}\n")
        for place in (self.run_dir, self.home / "storage", self.home / "home"):
            place.mkdir(exist_ok=True)
            shutil.chown(place, OWNER)
        # The file of shares is this podman's alone, in a mount namespace.
        before = ["unshare", "--mount", "--propagation", "private", "sh", HERE / "image/rootless.sh", self.home, self.run_dir, OWNER]
        self.command = [*map(str, before), *self.command]

    def take(self, podman: Podman, image: str) -> None:
        """Takes over an image of another podman's."""
        archive = self.home / "image.tar"
        podman.call("save", "--quiet", "--format", "oci-archive", "--output", archive, image)
        archive.chmod(0o644)
        self.call("load", "--quiet", "--input", archive)
        archive.unlink()

    def __exit__(self, *of_exception: object) -> None:
        super().__exit__(*of_exception)
        shutil.rmtree(self.home, ignore_errors=True)

    def drop_run_dir(self) -> None:
        # What keeps its namespace between two commands.
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.run_dir / "tmp/pause.pid").read_text()), signal.SIGKILL)
        super().drop_run_dir()


class RootlessLife(ContainerLife):
    """Its volumes belong to who the database's user is outside."""

    def lay_volumes(self) -> None:
        super().lay_volumes()
        for place in (self.data, self.pool):
            os.chown(place, SHARE_FIRST + USER - 1, SHARE_FIRST + USER - 1)


def rootless_of(podman: Podman, database: Served) -> str:
    with RootlessPodman() as rootless:
        rootless.take(podman, database.image)
        return RootlessLife(rootless, database, Trial("rootless", restarts=True), rootless.home).tried()
