"""What happens while a database writes, before its machine is lost: each scene by its name.

Promise (programs): Redis, PostgreSQL and SQLite whose pool is in other machines' memory have every
acknowledged transaction after losses of their machine, of a leg, and of the network between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lab.programs.session import Failure

from .epoch import LegsEpoch

# Moments at which the writer's process dies, and how often each may have been passed before.
MOMENTS = {"legs:change": 3, "legs:change-written": 4, "legs:returning": 1, "legs:copied-part": 16, "legs:write-begun": 400}


def calm(epoch: LegsEpoch) -> None:
    """Nothing but writes."""
    epoch.wait_writes(epoch.rng.randrange(1, 200))


def leg_lost(epoch: LegsEpoch) -> None:
    """A leg's machine goes, and writes go on."""
    epoch.wait_complete()
    epoch.rng.choice(epoch.legs).lose()
    time.sleep(epoch.rng.uniform(0.0, 3.5))


def leg_returns(epoch: LegsEpoch) -> None:
    """A leg's machine goes, comes back empty, and is brought up to date: then the other one goes."""
    epoch.wait_complete()
    first, second = epoch.rng.sample(epoch.legs, 2)
    first.lose()
    # From then on it is known to be out.
    epoch.wait_complete(1)
    first.come_back()
    first.is_lost = False
    epoch.wait_complete()
    epoch.wait_writes(epoch.rng.randrange(1, 50))
    if epoch.rng.random() < 0.5:
        second.lose()
        time.sleep(epoch.rng.uniform(0.0, 0.5))


def lost_during_copy(epoch: LegsEpoch) -> None:
    """A leg that came back is being made complete."""
    epoch.wait_complete()
    leg = epoch.rng.choice(epoch.legs)
    leg.lose()
    epoch.wait_complete(1)
    leg.come_back()
    leg.is_lost = False
    time.sleep(epoch.rng.uniform(0.0, 2.5))


def network_cut(epoch: LegsEpoch) -> None:
    """Nothing gets to a leg, or from it, or both."""
    cut(epoch, epoch.rng.choice(epoch.legs))
    time.sleep(epoch.rng.uniform(0.0, 3.5))


def network_heals(epoch: LegsEpoch) -> None:
    """The same, for a while."""
    cut(epoch, epoch.rng.choice(epoch.legs))
    time.sleep(epoch.rng.uniform(0.0, 3.5))
    heal(epoch)
    time.sleep(epoch.rng.uniform(0.0, 3.0))


def network_flaps(epoch: LegsEpoch) -> None:
    """Now one leg is cut off, now the other one, now both, now none."""
    for _ in range(epoch.rng.randrange(3, 9)):
        for leg in epoch.legs:
            if epoch.rng.random() < 0.4:
                cut(epoch, leg)
        time.sleep(epoch.rng.uniform(0.05, 1.2))
        heal(epoch)


def cut_from_all(epoch: LegsEpoch) -> None:
    """No leg can be reached any more: what is acknowledged is in the files."""
    for leg in epoch.legs:
        cut(epoch, leg)
        time.sleep(epoch.rng.uniform(0.0, 0.5))
    time.sleep(epoch.rng.uniform(0.0, 5.0))
    if epoch.rng.random() < 0.5:
        heal(epoch)
        time.sleep(epoch.rng.uniform(0.0, 2.0))


def leg_paused(epoch: LegsEpoch) -> None:
    """A leg does not answer for a while."""
    leg = epoch.rng.choice(epoch.legs)
    leg.pause()
    time.sleep(epoch.rng.uniform(0.0, 3.5))
    leg.go_on()
    time.sleep(epoch.rng.uniform(0.0, 2.5))


def leg_and_machine(epoch: LegsEpoch) -> None:
    """A leg goes in the moment in which the machine goes; the other one was behind, perhaps."""
    epoch.wait_complete()
    epoch.wait_writes(epoch.rng.randrange(1, 100))
    kept, gone = epoch.rng.sample(epoch.legs, 2)
    if epoch.rng.random() < 0.5:
        cut(epoch, kept)
        time.sleep(epoch.rng.uniform(0.0, 0.6))
    gone.lose()


def machine_paused(epoch: LegsEpoch) -> None:
    """The machine stands still for longer than a leg may take to answer, and goes on with all its legs."""
    epoch.wait_complete()
    before = epoch.said.stat().st_size
    epoch.here.pause()
    time.sleep(epoch.rng.uniform(0.1, 4.0))
    epoch.here.go_on()
    epoch.wait_writes(epoch.rng.randrange(1, 100))
    said = epoch.said.read_text(errors="replace")[before:]
    if "lost its leg" in said or epoch.complete() != len(epoch.legs):
        raise Failure(f"after a pause it has lost a leg: {said}")


def writer_dies(epoch: LegsEpoch) -> None:
    """The process that writes the legs dies at a moment, as a leg goes and returns."""
    leg = epoch.rng.choice(epoch.legs)
    leg.pause()
    time.sleep(2.3)
    leg.go_on()
    deadline = time.monotonic() + epoch.rng.uniform(0.5, 3.0)
    while time.monotonic() < deadline and epoch.running.process.poll() is None:
        time.sleep(0.02)


def cut(epoch: LegsEpoch, leg) -> None:
    """One way, or both."""
    ways = epoch.rng.randrange(1, 4)
    if ways & 1:
        leg.machine.cut_from(epoch.here)
    if ways & 2:
        epoch.here.cut_from(leg.machine)


def heal(epoch: LegsEpoch) -> None:
    for machine in (epoch.here, *(leg.machine for leg in epoch.legs if not leg.is_lost)):
        machine.heal()


SCENES: dict[str, Callable[[LegsEpoch], None]] = {
    scene.__name__.replace("_", "-"): scene
    for scene in (
        calm,
        leg_lost,
        leg_returns,
        lost_during_copy,
        network_cut,
        network_heals,
        network_flaps,
        cut_from_all,
        leg_paused,
        leg_and_machine,
        machine_paused,
        writer_dies,
    )
}
# How the machine ends: lost, or its processes are killed in the same boot.
ENDS = ("lost", "lost", "lost", "lost", "killed", "supervisor")


def play(epoch: LegsEpoch, scene: str, end: str) -> int:
    """One round: starts, checks, and plays a scene amid writes, then the machine ends: how many writes it acknowledged."""
    rng = epoch.rng
    epoch.env.pop("FOREBAY_FAILPOINT", None)
    if scene == "writer-dies":
        name = rng.choice(sorted(MOMENTS))
        epoch.env["FOREBAY_FAILPOINT"] = f"{name}={rng.randrange(1, MOMENTS[name] + 1)}:die"
    try:
        epoch.start()
        epoch.check()
        epoch.begin_writing()
        SCENES[scene](epoch)
    except Failure as failure:
        # One that dies at a moment may do so before it acknowledges anything, or while it starts. The next round looks for all.
        has_ended = epoch.running is None or epoch.running.process.poll() is not None
        if scene != "writer-dies" or not has_ended or "LOST" in str(failure):
            raise
    epoch.check_servers()
    if epoch.running is None:
        epoch.here.kill()
    acknowledged = end_machine(epoch, end) if epoch.running else 0
    epoch.env.pop("FOREBAY_FAILPOINT", None)
    heal(epoch)
    come_back_first = rng.random() < 0.5
    lost = [leg for leg in epoch.legs if leg.is_lost]
    if come_back_first:
        for leg in lost:
            # Its memory is lost all the same.
            leg.come_back()
    epoch.recover(first=rng.random() < 0.5)
    for leg in lost:
        if not come_back_first:
            leg.come_back()
        leg.is_lost = False
    return acknowledged


def end_machine(epoch: LegsEpoch, end: str) -> int:
    if end == "lost":
        return epoch.lose_machine(moves=epoch.rng.random() < 0.5)
    if end == "supervisor":
        epoch.running.kill([epoch.running.process.pid])
        time.sleep(epoch.rng.uniform(0.0, 0.5))
    else:
        epoch.here.pause()
    epoch.running.stop()
    return epoch.note()
