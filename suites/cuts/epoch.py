"""Disks that are cut under a server, and what the next boot is told."""

from __future__ import annotations

import pathlib
import random
import subprocess
import uuid

from .. import processes
from ..place import create_pool
from . import mariadb
from .disk import Disk


class CutEpoch:
    """Some rounds on disks below a directory: after each cut the machine counts as booted anew, with a pool that lived through it."""

    def __init__(self, home: pathlib.Path, rng: random.Random):
        self.home, self.rng = home, rng
        self.said, self.socket, self.pool = home / "said", home / "socket", home / "pool"
        self.disks: list[Disk] = []
        self.about = "made"
        self.acknowledged = self.counted = 0
        self._boot_anew()

    def add_disk(self, name: str, kind: str) -> None:
        (self.home / name).mkdir()
        self.disks.append(Disk(self.home / name, kind))

    def close(self) -> None:
        processes.stop_all()
        for disk in self.disks:
            disk.close()

    def _boot_anew(self) -> None:
        self.boot = uuid.UUID(int=self.rng.getrandbits(128))

    def _env(self) -> dict[str, str]:
        """In this boot, with a pool that lived through the cut."""
        run = self.home / "run"
        run.mkdir(exist_ok=True)
        return {"FOREBAY_TEST_BOOT_ID": str(self.boot), "FOREBAY_TEST_POOL_SURVIVED": "1", "FOREBAY_RUN_DIR": str(run)}

    def _cut(self) -> None:
        """Nothing reaches a device any more, in any order; everything is killed; the next boot begins."""
        # Not in the middle of a sync: one that the shutdown overtakes may return 0 all the same, and the living would build on it (see `loop`).
        processes.pause(processes.descendants())
        for disk in self.rng.sample(self.disks, len(self.disks)):
            disk.cut()
        processes.stop_all()
        for disk in self.disks:
            disk.mount_again()
        self._boot_anew()


class ServerEpoch(CutEpoch):
    """The same with a MariaDB server, whose data directory is on the first of the disks."""

    def _make(self, kinds: dict[str, str], segment: str | None, tables: str, *, is_on_disk: bool) -> None:
        """Disks by their names, the data directory, a pool with such segments (or none), and the server with these tables, on their disks if so."""
        try:
            for name, kind in kinds.items():
                self.add_disk(name, kind)
            self.data = self.disks[0].mounted / "mariadb"
            mariadb.create(self.data)
            if segment is not None:
                create_pool(self.pool, size="64MiB", segment=segment, lanes=8)
            self.server = self._start()
            subprocess.run(self.server.command(), input=tables, check=True, text=True, timeout=mariadb.CALL_LIMIT_S)
            for disk in self.disks if is_on_disk else []:
                disk.write_back()
        except BaseException:
            self.close()
            raise

    def _start(self) -> mariadb.Server:
        """Starts the server in this boot."""
        raise NotImplementedError
