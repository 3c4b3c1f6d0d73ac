"""Rounds of a variant, some on each database: what the loops of cuts have in common."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Protocol

from .. import processes
from ..place import memory_dir
from ..report import Case, Result
from .disk import why_not

SOUND = "sound"


@dataclasses.dataclass(frozen=True)
class Variant:
    """What is cut."""

    name: str
    # True: it has to lose something, or the loop would not see it.
    must_lose: bool = dataclasses.field(default=False, kw_only=True)
    # Rounds, as a part of those asked for.
    share: float = dataclasses.field(default=1.0, kw_only=True)


class Epoch(Protocol):
    """What is set up once, for some rounds."""

    # In words, of the last round.
    about: str
    # Transactions, in the last round.
    acknowledged: int
    # What a loop counts besides, in all rounds.
    counted: int

    def round(self, number: int) -> list[str]:
        """Writes, cuts, recovers: what is wrong then."""

    def keep(self, to: pathlib.Path, faults: list[str]) -> None:
        """Copies what is there, for who looks for the reason."""

    def close(self) -> None:
        """Gives back what it has."""


@dataclasses.dataclass
class Tally:
    """What came of a variant's rounds."""

    variant: Variant
    done: int = 0
    lost: int = 0
    acknowledged: int = 0
    counted: int = 0

    @property
    def bad(self) -> str:
        return f"{self.lost} bad" + (" (it has to lose some)" if self.variant.must_lose else "")


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of cuts."""

    name: str
    about: str
    variants: Sequence[Variant]
    # Sets up an epoch of a variant in a directory, by the seed and the number of its first round.
    begin: Callable[[Variant, pathlib.Path, int, int], Epoch]
    # What is said of a variant's rounds, and of the loop.
    summary: Callable[[Variant, Tally], str]
    note: str
    # At most so many rounds of an epoch, and at least so many of a variant.
    rounds_of_one: int
    rounds_min: int = 3
    # Programs that are not installed.
    lacking: Callable[[], list[str]] = list

    def run(self, number: int, seed: int, only: str | None, keep: pathlib.Path | None) -> Result:
        """`number` rounds of each variant (of the one named `only`)."""
        result = Result(self.name, self.about)
        if why := why_not():
            result.missing = why
        elif lacking := self.lacking():
            result.missing = f"{', '.join(lacking)} not installed: scripts/setup.sh suites"
        if result.missing:
            return result
        result.notes.append(f"seed {seed}; {self.note}")
        for variant in self.variants:
            if only in (None, variant.name):
                tally = self._run(variant, max(self.rounds_min, round(number * variant.share)), seed, keep, result)
                result.notes.append(f"{variant.name}: {self.summary(variant, tally)}")
        return result

    def _run(self, variant: Variant, rounds: int, seed: int, keep: pathlib.Path | None, result: Result) -> Tally:
        """`rounds` of a variant, some on what is set up in a directory, and none on it after a bad one."""
        tally = Tally(variant)
        while tally.done < rounds:
            home = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=memory_dir()))
            try:
                epoch = self.begin(variant, home, seed, tally.done)
                try:
                    for number in range(tally.done, min(rounds, tally.done + self.rounds_of_one)):
                        faults = epoch.round(number)
                        tally.done += 1
                        tally.acknowledged += epoch.acknowledged
                        if not variant.must_lose:
                            found = "; ".join(faults) or SOUND
                            result.cases.append(Case(f"{variant.name}, round {number}, {epoch.about}", [SOUND], [found]))
                        if faults:
                            tally.lost += 1
                            processes.say(f"{self.name}: {variant.name}: round {number} ({epoch.about}): BAD: {'; '.join(faults)[:400]}")
                            if keep:
                                epoch.keep(keep / f"{variant.name.replace(' ', '-')}-{seed}-{number}", faults)
                            break
                finally:
                    epoch.close()
                    tally.counted += epoch.counted
            finally:
                shutil.rmtree(home, ignore_errors=True)
            processes.say(f"{self.name}: {variant.name}: {tally.done} of {rounds}, {tally.lost} bad, {tally.acknowledged:,} transactions acknowledged")
        if variant.must_lose:
            found = "loses" if tally.lost else "loses nothing"
            result.cases.append(Case(f"{variant.name}: {rounds} rounds", ["loses"], [found]))
        return tally
