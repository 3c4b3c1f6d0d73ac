"""What is tried: the options of containers that people give, each with what a run has to say under it."""

from __future__ import annotations

import json
import pathlib

from .databases import ETCD, POSTGRES, REDIS, Served
from .life import Trial

# Lies beside the volumes: filters that forbid what some runtimes' do.
SECCOMP = "no-filters.json"


def seccomp(scratch: pathlib.Path) -> None:
    """A filter under which no process gets one of its own, nor an agent its rights."""
    forbidden = {"names": ["seccomp", "kcmp", "pidfd_getfd", "process_vm_readv"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    (scratch / SECCOMP).write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [forbidden]}))


def all_trials(scratch: pathlib.Path) -> list[tuple[Trial, tuple[Served, ...]]]:
    """Each trial, and the databases that go through it."""
    both = (REDIS, POSTGRES)
    read_only = ("--read-only", "--read-only-tmpfs=false")
    uid_map = ("--uidmap", "0:200000:65536", "--gidmap", "0:200000:65536")
    confined = ("--cap-drop", "all", "--security-opt", "no-new-privileges", *read_only)
    no_filters = ("--security-opt", f"seccomp={scratch / SECCOMP}")
    return [
        (Trial("default", restarts=True), both),
        (Trial("--cap-drop all", ("--cap-drop", "all")), both),
        (Trial("no-new-privileges", ("--security-opt", "no-new-privileges")), both),
        (Trial("--read-only, tmpfs of podman", ("--read-only",)), both),
        (Trial("as Kubernetes confines", (*confined, "--tmpfs", "/tmp", "--user", "999:999"), has_group=True), (REDIS,)),
        (Trial("--shm-size 64m, pool there", ("--shm-size", "64m"), pool="shm"), both),
        (Trial("--shm-size 1m", ("--shm-size", "1m")), (REDIS,)),
        # PostgreSQL itself needs one of them.
        (Trial("--shm-size 4m", ("--shm-size", "4m")), (POSTGRES,)),
        (Trial("no /dev/shm", ("--ipc", "none")), both),
        (Trial("no volume: data and pool in its own layer", pool="layer"), both),
        (Trial("--uidmap", uid_map), both),
        (Trial("--init", ("--init",)), both),
        (Trial("filters forbidden", no_filters), (REDIS,)),
        (Trial("pool on a volume in memory", pool="memory"), both),
        (Trial("default", says=r"no agent can serve[^:]*: [^:]*", is_plain=True), (ETCD,)),
        (Trial("--cap-add SYS_PTRACE", ("--cap-add", "SYS_PTRACE")), (ETCD,)),
        (Trial("filters forbidden", no_filters, says=r"no agent can serve[^:]*: [^:]*", is_plain=True), (ETCD,)),
    ]
