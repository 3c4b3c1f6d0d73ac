"""The .deb for arm64: installed before the databases' lives, which then run with what it installed, and purged after them."""

from __future__ import annotations

from lab.systemd.image import Failure
from lab.systemd.machine import Machine

FILES = (
    *("/usr/bin/forebay", "/usr/lib/forebay/libforebay.so", "/etc/forebay/forebay.toml", "/usr/lib/systemd/system/forebay-recover@.service"),
    *("/usr/share/man/man1/forebay-run.1.gz", "/usr/share/bash-completion/completions/forebay"),
)
# What must not outlive the package; pools lie on the second disk.
LEFT = " ".join((
    *FILES,
    *("/usr/lib/forebay", "/usr/share/doc/forebay", "/etc/forebay", "/var/lib/forebay", "/run/forebay", "/dev/shm/forebay*", "/tmp/forebay*"),
))


def install(machine: Machine) -> None:
    """By dpkg. To it the C library is not installed: all of Debian was only unpacked."""
    machine.sh("dpkg -i --force-depends /lab/forebay.deb 2>&1")
    machine.sh("; ".join(f"[ -s '{file}' ] || {{ echo {file} is not installed; exit 1; }}" for file in FILES))
    doctor = machine.sh("forebay doctor --dir /data --beside /fast")
    if "aarch64" not in doctor or "/fast" not in doctor:
        raise Failure(f"forebay doctor does not see this machine: {doctor}")
    print(f"package  installed; doctor says:\n{doctor}", flush=True)


def purge(machine: Machine) -> None:
    """The package refuses while anything is in use; nothing of it may be left."""
    machine.sh("dpkg --purge forebay 2>&1")
    left = machine.sh(f"shopt -s nullglob; for one in {LEFT}; do [ ! -e $one ] || echo $one; done")
    if left:
        raise Failure(f"the package is purged, and this is left of it: {left}")
    print("package  purged, nothing of it is left", flush=True)
