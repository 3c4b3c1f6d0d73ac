"""Tests of Go packages: binaries that no library can be put before, so an agent makes their calls on logs (docs/notify.md).

`scripts/setup.sh suites` builds each package's tests, and copies its directory: tests read what lies there, and some write beside it.
"""

from __future__ import annotations

import dataclasses
import re
import shutil

from .place import Place, built, not_built

LIMIT_S = 480.0
# What a test said of itself at its end: subtests too.
ENDED = re.compile(r"--- (PASS|FAIL|SKIP): (.+?) \(\d+\.\d+s\)")


@dataclasses.dataclass(frozen=True)
class GoTests:
    """A suite of packages' tests (suites/compare.py says what the fields are)."""

    NAME: str
    ABOUT: str
    packages: tuple[str, ...]
    # By package, a pattern of tests that are not run, and why.
    without: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    FRONT_END: str = "notify"

    def missing(self) -> str | None:
        return not_built(*(f"go/{_file(package)}.test" for package in self.packages))

    def groups(self) -> list[str]:
        return list(self.packages)

    def notes(self) -> list[str]:
        return [f"{package}: not run, since {why}: `{pattern}`" for package, (pattern, why) in self.without.items()]

    def run_group(self, group: str, place: Place) -> dict[str, str]:
        return self.run_again(group, place, [])

    def run_again(self, group: str, place: Place, names: list[str]) -> dict[str, str]:
        """Only the tests of these names, with all their subtests; all, if none of them is a test's name."""
        home, temporary = place.dir / "package", place.fresh("tmp")
        shutil.copytree(built(f"go/{_file(group)}"), home, symlinks=True)
        options = ["-test.v", "-test.short", f"-test.timeout={LIMIT_S:.0f}s"]
        only = {name.split("/")[0] for name in names if name.startswith(("Test", "Example", "Fuzz"))}
        if only:
            options.append(f"-test.run=^({'|'.join(map(re.escape, sorted(only)))})$")
        if group in self.without:
            options.append(f"-test.skip={self.without[group][0]}")
        # They put files into the directory for temporary ones, and are not to see more than that plain or under Forebay.
        environment = {"TMPDIR": str(temporary), **self.environment}
        done = place.run([str(built(f"go/{_file(group)}.test")), *options], limit_s=LIMIT_S + 10, cwd=home, env=environment)
        outcomes = {"the package": done.outcome}
        for verdict, name in ENDED.findall(done.output):
            outcomes[name.replace(str(place.dir), "…")] = verdict
        return outcomes


def _file(package: str) -> str:
    return package.replace("/", "-")


OS = GoTests(
    "go-os",
    "Go's own tests of `os` and `internal/poll`",
    ("os", "internal/poll"),
    without={"os": ("^TestRootMulti(Link|Rename)$", "they take minutes")},
)
BBOLT = GoTests("bbolt", "bbolt's own tests", ("go.etcd.io/bbolt",))
ETCD = GoTests(
    "etcd-wal",
    "etcd's own tests of its write-ahead log, its snapshots, its backend and its Raft server",
    (
        "go.etcd.io/etcd/server/v3/storage/wal",
        "go.etcd.io/etcd/server/v3/etcdserver/api/snap",
        "go.etcd.io/etcd/server/v3/storage/backend",
        "go.etcd.io/etcd/server/v3/etcdserver",
    ),
)
