"""Two machines at once: one takes the pool over while the other one is alive, cut off from some legs, or paused.

The volume is attached to the new machine only: the old one gets errors from it. What the old one acknowledged in all its life, the new
one has; and it acknowledges nothing any more once the new one has taken over. The waits are those that ship.

Promise (programs): A machine that takes over from one that is alive, cut off or paused has all that
this one acknowledged, which acknowledges nothing afterwards.
"""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Callable

from lab.programs.session import Failure

from .databases import REDIS
from .epoch import LegsEpoch, OnMachine
from .network import Network

# The old machine goes on for so long after it was succeeded.
AFTER_S = 4.0


def taken_over(network: Network, home: pathlib.Path, rng: random.Random, trial: Callable[[LegsEpoch], None]) -> str:
    epoch = LegsEpoch(REDIS, network, home, rng)
    epoch.env = {}
    try:
        epoch.start()
        epoch.begin_writing()
        epoch.wait_writes(100)
        trial(epoch)
        return ""
    except Failure:
        # Otherwise it is not the trial's.
        epoch.check_servers()
        raise
    finally:
        epoch.close()


# When it was over with the old machine, and the numbers that its successor began with.
Succession = tuple[float, set[int]]


def succeed(epoch: LegsEpoch) -> tuple[OnMachine, Succession]:
    """The other machine takes over, and has all: the old machine's program, and how it was succeeded."""
    old = epoch.running
    epoch.volume.move()
    epoch.here = epoch.there
    status, said = epoch.forebay("recover", "--pool", str(epoch.pool))
    if status != 0:
        raise Failure(f"the takeover is refused: {said}")
    over = time.monotonic()
    epoch.note()
    epoch.start()
    epoch.check()
    return old, (over, set(epoch.running.sessions[0].numbers()))


def check_silent(old: OnMachine, succession: Succession) -> None:
    """The old machine acknowledged nothing after that, but what the legs had before: a program that stood still says so when it goes on."""
    over, there = succession
    acknowledged = list(old.sessions[0].acknowledged.items())
    late = [number for number, when in acknowledged if when > over and number not in there]
    if late:
        raise Failure(f"the old machine acknowledged {len(late)} writes after it was succeeded: LOST")


def alive(epoch: LegsEpoch, cut: Callable[[LegsEpoch], None]) -> None:
    """The old machine writes all the time."""
    cut(epoch)
    old, succession = succeed(epoch)
    epoch.begin_writing()
    time.sleep(AFTER_S)
    check_silent(old, succession)
    # It reaches the legs again, and its successor is lost then.
    old.machine.heal()
    for leg in epoch.legs:
        leg.machine.heal()
    time.sleep(AFTER_S)
    check_silent(old, succession)
    lose_successor(epoch, old)


def lose_successor(epoch: LegsEpoch, old: OnMachine) -> None:
    """Nothing that the successor acknowledged may hang on the old machine's writes."""
    epoch.wait_writes(10)
    old.machine.kill()
    epoch.lose_machine(moves=False)
    epoch.recover(first=True)
    epoch.start()
    epoch.check()


def none_cut(epoch: LegsEpoch) -> None:
    """It reaches all legs."""


def one_cut(epoch: LegsEpoch) -> None:
    """It reaches one leg, and has to do without the other one."""
    epoch.legs[0].machine.cut_from(epoch.here)
    epoch.here.cut_from(epoch.legs[0].machine)


def answers_cut(epoch: LegsEpoch) -> None:
    """What it sends to a leg arrives, and no answer comes."""
    epoch.here.cut_from(epoch.legs[0].machine)


def all_cut(epoch: LegsEpoch) -> None:
    for leg in epoch.legs:
        leg.machine.cut_from(epoch.here)


def paused(epoch: LegsEpoch) -> None:
    """The old machine stands still for longer than a takeover, and goes on."""
    epoch.here.pause()
    old, succession = succeed(epoch)
    epoch.begin_writing()
    time.sleep(1.0)
    old.machine.go_on()
    # Before it can have looked: its successor is lost right then.
    time.sleep(epoch.rng.uniform(0.0, 0.5))
    lose_successor(epoch, old)
    check_silent(old, succession)


def refused(epoch: LegsEpoch) -> None:
    """Who does not reach all legs of the set is refused, and the old machine does not notice."""
    epoch.there.cut_from(epoch.legs[1].machine)
    at_home, epoch.here = epoch.here, epoch.there
    status, said = epoch.forebay("pool", "status", str(epoch.pool))
    if status == 0 or "--lost-leg" not in said:
        raise Failure(f"a leg cannot be reached, and it says: {said}")
    status, said = epoch.forebay("recover", "--pool", str(epoch.pool))
    epoch.here = at_home
    if status == 0 or "--lost-leg" not in said:
        raise Failure(f"it is not refused: {said}")
    epoch.wait_writes(50)
    epoch.wait_complete()
    epoch.there.heal()
    epoch.lose_machine(moves=True)
    epoch.recover(first=True)
    epoch.start()
    epoch.check()


TRIALS = {
    "alive": lambda *where: taken_over(*where, lambda epoch: alive(epoch, none_cut)),
    "one-cut": lambda *where: taken_over(*where, lambda epoch: alive(epoch, one_cut)),
    "answers-cut": lambda *where: taken_over(*where, lambda epoch: alive(epoch, answers_cut)),
    "all-cut": lambda *where: taken_over(*where, lambda epoch: alive(epoch, all_cut)),
    "paused": lambda *where: taken_over(*where, paused),
    "refused": lambda *where: taken_over(*where, refused),
}
