"""What must lose, or the rounds would not see a loss."""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Callable

from lab.programs.session import Failure

from .databases import REDIS
from .epoch import LegsEpoch
from .network import Network


# A machine may be lost right when its disk has all.
TRIES = 5
NOTHING = "it has to lose something"


def loses(network: Network, home: pathlib.Path, rng: random.Random, trial: Callable[[LegsEpoch], None], *, copies: int = 2) -> str:
    """What is wrong if nothing that was acknowledged is ever lost."""
    for number in range(TRIES):
        place = home / f"try-{number}"
        place.mkdir()
        fault = once(network, place, rng, trial, copies)
        if NOTHING not in fault:
            break
    return fault


def once(network: Network, home: pathlib.Path, rng: random.Random, trial: Callable[[LegsEpoch], None], copies: int) -> str:
    epoch = LegsEpoch(REDIS, network, home, rng, copies=copies)
    try:
        trial(epoch)
        epoch.env.pop("FOREBAY_BROKEN", None)
        try:
            epoch.start()
        except Failure as failure:
            # Redis refuses a file with a gap.
            return "" if "Bad file format" in epoch.said.read_text(errors="replace") else f"it does not start: {failure}"
        fault = epoch.record.fault(epoch.running.sessions[0].numbers())
        return "" if "LOST" in fault else f"{NOTHING}: {fault or 'it did not'}"
    except Failure:
        # Otherwise it is not the trial's.
        epoch.check_servers()
        raise
    finally:
        epoch.close()


def both_legs(epoch: LegsEpoch) -> None:
    """Everything that has it goes at once."""
    epoch.start()
    epoch.begin_writing()
    epoch.wait_writes(200)
    for leg in epoch.legs:
        leg.machine.unplug()
    lose_all(epoch)


def one_copy(epoch: LegsEpoch) -> None:
    """One copy is enough, it was said, and the leg with that one goes."""
    epoch.start()
    epoch.legs[0].lose()
    epoch.wait_complete(1)
    epoch.begin_writing()
    epoch.wait_writes(200)
    epoch.legs[1].machine.unplug()
    lose_all(epoch)


def lose_all(epoch: LegsEpoch) -> None:
    epoch.lose_machine(moves=True)
    for leg in epoch.legs:
        leg.lose()
        leg.come_back()
        leg.is_lost = False
    status, said = epoch.forebay("recover", "--pool", str(epoch.pool))
    if status == 0 or "lost" not in said:
        raise Failure(f"a recovery from legs without memory says: {said}")
    epoch.pool.unlink()
    epoch.create_pool(copies=2)


def first_leg_acknowledges(epoch: LegsEpoch) -> None:
    """A broken writer, for which the answer of one leg is enough; that one goes."""
    epoch.env["FOREBAY_BROKEN"] = "legs-ack-first"
    epoch.start()
    epoch.begin_writing()
    kept, gone = epoch.legs
    kept.machine.cut_from(epoch.here)
    time.sleep(0.4)
    gone.lose()
    epoch.lose_machine(moves=True)
    kept.machine.heal()
    epoch.recover(first=True)
    gone.come_back()
    gone.is_lost = False


CONTROLS = {
    "both-legs": lambda *where: loses(*where, both_legs),
    "one-copy": lambda *where: loses(*where, one_copy, copies=1),
    "first-leg-acknowledges": lambda *where: loses(*where, first_leg_acknowledges),
}
