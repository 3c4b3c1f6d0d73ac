"""git with everything synced: what it made must be the same objects."""

from __future__ import annotations

import hashlib
import shutil

from .place import Place

NAME = "git"
ABOUT = "git with `core.fsync=all`: commits, merges, gc, fsck, clones; objects and results compared"
LIMIT_S = 120.0
SETTINGS = {
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "user.name": "Forebay",
    "user.email": "forebay@example.org",
    "init.defaultBranch": "main",
    "gc.auto": "0",
    "pack.threads": "1",
    "advice.detachedHead": "false",
}
COMMITS = 12


def missing() -> str | None:
    return None if shutil.which("git") else "git is not installed"


def groups() -> list[str]:
    return ["fsync", "batch"]


class Repository:
    """Runs git and notes what each command said."""

    def __init__(self, place: Place, method: str):
        self.place = place
        self.outcomes: dict[str, str] = {}
        settings = {**SETTINGS, "core.fsyncMethod": method}
        self.settings = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        self.clock = 1_700_000_000
        self.dir = place.fresh("repository")

    def git(self, *words: str, name: str = "", where: str = "") -> str:
        """One command; its outcome is its status and what it printed."""
        self.clock += 1
        date = f"{self.clock} +0000"
        env = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        cwd = self.place.dir / where if where else self.dir
        done = self.place.run(["git", *self.settings, *words], limit_s=LIMIT_S, cwd=cwd, env=env)
        said = done.output.replace(str(self.place.dir), "…")
        text = f"{done.outcome}: {said}" if len(said) < 100 else f"{done.outcome}: {hashlib.sha256(said.encode()).hexdigest()[:16]}"
        if done.status:
            text += f" {[line for line in done.errors.splitlines() if 'fatal' in line or 'error' in line][:2]}"
        self.outcomes[name or f"{self.clock - 1_700_000_000:03} {' '.join(words)[:60].replace(str(self.place.dir), '…')}"] = text
        return done.output

    def write(self, name: str, text: str) -> None:
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_group(group: str, place: Place) -> dict[str, str]:
    repository = Repository(place, group)
    git = repository.git
    git("init", "--quiet")
    for number in range(COMMITS):
        for file in range(4):
            repository.write(f"d{file}/f{number % 5}.txt", "".join(f"{number} {file} {line * line}\n" for line in range(20 + 40 * file)))
        git("add", ".")
        git("commit", "--quiet", "-m", f"commit {number}")
    git("checkout", "--quiet", "-b", "side", "HEAD~4")
    for number in range(4):
        repository.write(f"side{number}.txt", f"{number}\n" * 50)
        git("add", ".")
        git("commit", "--quiet", "-m", f"side {number}")
    git("tag", "-a", "v1", "-m", "one")
    git("checkout", "--quiet", "main")
    git("merge", "--quiet", "--no-edit", "side")
    git("rebase", "--quiet", "main", "side")
    repository.write("d0/f0.txt", "changed\n")
    git("stash", "--quiet")
    git("stash", "pop", "--quiet")
    git("commit", "--quiet", "-a", "--amend", "-m", "amended")
    _look(repository, "loose")
    git("repack", "-a", "-d", "--quiet")
    git("gc", "--quiet", "--prune=now")
    _look(repository, "packed")
    git("clone", "--quiet", "--no-local", str(repository.dir), "clone", where=".")
    git("clone", "--quiet", str(repository.dir), "linked", where=".")
    git("clone", "--quiet", "--bare", str(repository.dir), "bare.git", where=".")
    for name in ("clone", "linked", "bare.git"):
        git("fsck", "--full", "--strict", name=f"{name}: fsck", where=name)
        git("rev-parse", "HEAD", name=f"{name}: HEAD", where=name)
    repository.write("new.txt", "new\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "new")
    git("push", "--quiet", str(place.dir / "bare.git"), "main:main")
    git("fetch", "--quiet", where="clone")
    _look(repository, "afterwards")
    return repository.outcomes


def _look(repository: Repository, when: str) -> None:
    """Everything that can be asked of it."""
    for words in (
        ("fsck", "--full", "--strict"),
        ("for-each-ref",),
        ("ls-files", "--stage"),
        ("status", "--porcelain"),
        ("cat-file", "--batch-check", "--batch-all-objects"),
        ("log", "--all", "--format=%H %T %P %s"),
    ):
        repository.git(*words, name=f"{when}: {words[0]}")
