"""The databases, as containers have them: how numbers are written, acknowledged and read again. The scripts are lab/systemd's, without the change of the user."""

from __future__ import annotations

import dataclasses

from ..systemd import databases as units


@dataclasses.dataclass(frozen=True)
class Served:
    """A database in a container; its texts are scripts of that, but for the names."""

    name: str
    image: str
    pool: str
    # What its status shows when it absorbs.
    absorbed: str
    is_ready: str
    # Writes the numbers from {first} to {last}, and prints each when it is acknowledged.
    write: str
    # Prints all numbers that it has, a line each.
    read: str
    # Begins a log that was not there while the entry script made the cluster: what several servers in turn had open may be plain until then.
    begin_log: str = "true"

    def writing(self, first: int, last: int = units.MANY) -> str:
        return self.write.format(first=first, last=last)


def served(unit: units.Database, **more: str) -> Served:
    """A unit's database, whose client needs no other user here."""
    here = {field: getattr(unit, field).replace("runuser -u postgres -- ", "") for field in ("is_ready", "write", "read")}
    return Served(unit.name, f"localhost/{unit.name}", f"/pool/{unit.name}.pool", unit.absorbed, **here, **more)


REDIS = served(units.REDIS)
POSTGRES = served(units.POSTGRES, begin_log="psql -qAtXc 'select pg_switch_wal()'")
ETCD = served(units.ETCD)
