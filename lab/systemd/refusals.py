"""Units that `forebay enable` refuses, each in a sentence and with nothing changed, and those that look alike and are taken."""

from __future__ import annotations

from .image import Failure
from .lives import LISTED
from .machine import Machine

# By name: the unit's [Service], what the sentence has. %s is a server that is there.
SERVER = "/usr/bin/redis-server /etc/redis/redis.conf --port 7777 --dir /srv/db --daemonize no --supervised no"
OWN = {
    "several": (f"ExecStart=/bin/true\nExecStart={SERVER}\nType=oneshot", "oneshot"),
    # These systemd itself does not load.
    "two": (f"Type=simple\nExecStart={SERVER} ; /bin/true", "bad-setting"),
    "twice": (f"Type=simple\nExecStart={SERVER}\nExecStart={SERVER}", "bad-setting"),
    "pipe": (f"ExecStart=|{SERVER}", "bad-setting"),
    "at": (f"ExecStart=@{SERVER}", "prefix @"),
    "plus": (f"ExecStart=+{SERVER}", "prefix +"),
    "bang": (f"ExecStart=!{SERVER}", "prefix !"),
    "bangs": (f"ExecStart=!!{SERVER}", "prefix !"),
    "forking": ("Type=forking\nExecStart=/usr/bin/redis-server /etc/redis/redis.conf", "Type=forking"),
    "dynamic": (f"DynamicUser=yes\nExecStart={SERVER}", "DynamicUser"),
    "killed": (f"SystemCallFilter=~reboot:kill\nExecStart={SERVER}", ":kill"),
    "absent": ("ExecStart=/usr/bin/no-such-server", "no such program"),
}
# Prefixes that change nothing of what matters; a closed sandbox with limits; one in which runs cannot see each other's tables; a
# server that makes itself the unit's main process.
TAKEN = {
    "minus": f"ExecStart=-{SERVER}",
    "colon": f"ExecStart=:{SERVER}",
    "boxed": f"MemoryMax=256M\nTasksMax=64\nLimitNOFILE=512\nPrivateTmp=yes\nPrivateDevices=yes\nPrivateUsers=yes\nPrivateIPC=yes\nProtectSystem=strict\n"
    f"ReadWritePaths=/srv/db /var/log/redis\nProtectHome=yes\nProcSubset=pid\nProtectProc=invisible\nNoNewPrivileges=yes\nRestrictAddressFamilies=AF_INET\nExecStart={SERVER}",
    "blind": f"TemporaryFileSystem=/dev/shm:ro\nExecStart={SERVER}",
    "itself": f"Type=notify\nNotifyAccess=all\nExecStart=/bin/sh -c 'systemd-notify --ready MAINPID=$$$$; exec {SERVER}'",
}
# These are of Type=simple: they count as started before they answer.
ANSWERS = "for i in $(seq 240); do [ \"$(redis-cli -p 7777 ping 2>&1)\" = PONG ] && break; sleep 0.25; done"
OPTIONS = "--pool /fast/refused.pool --profile redis --data /srv/db --size 32MiB"


def write_unit(machine: Machine, name: str, text: str) -> None:
    machine.sh(f"cat >/etc/systemd/system/{name}.service <<'END'\n[Service]\nUser=redis\n{text}\nEND\nsystemctl daemon-reload")


def refused(machine: Machine, unit: str, words: str, options: str = OPTIONS) -> None:
    before = machine.sh(LISTED)
    status, said = machine.ask(f"forebay enable {unit} {options} --yes")
    if status not in (1, 2) or words not in said:
        raise Failure(f"forebay enable {unit}: {words!r} is not in what it says (status {status}): {said}")
    if machine.sh(LISTED) != before:
        raise Failure(f"forebay enable {unit} was refused, and changed something: {machine.sh(LISTED)}\nbefore: {before}")
    print(f"refused  {unit}: {said.splitlines()[-1]}", flush=True)


def run(machine: Machine) -> None:
    machine.sh("install -d -o redis -m 750 /srv/db")
    refused(machine, "no-such-unit", "no such unit")
    refused(machine, "redis-server.socket", "no service")
    refused(machine, "redis-server@", "a template")
    refused(machine, "postgresql", "postgresql@15-main")
    refused(machine, "postgresql@15-other", "pg_lsclusters", "--pool /fast/refused.pool")
    for name, (text, words) in OWN.items():
        write_unit(machine, name, text)
        refused(machine, name, words)
    masked(machine)
    drop_ins(machine)
    for name, text in TAKEN.items():
        taken(machine, name, text)
    instance(machine)


def masked(machine: Machine) -> None:
    machine.sh("systemctl -q disable --now redis-server; systemctl -q mask redis-server")
    refused(machine, "redis-server", "masked", "--pool /fast/refused.pool")
    machine.sh("systemctl -q unmask redis-server; systemctl -q enable --now redis-server")


def drop_ins(machine: Machine) -> None:
    """Somebody else's that sets the command; one that does not is no reason; one that systemd has not read is."""
    write_unit(machine, "theirs", f"ExecStart={SERVER}")
    directory = "/etc/systemd/system/theirs.service.d"
    machine.sh(f"mkdir -p {directory}; printf '[Service]\\nExecStart=\\nExecStart=/bin/true\\n' >{directory}/override.conf; systemctl daemon-reload")
    refused(machine, "theirs", "override.conf")
    machine.sh(f"rm {directory}/override.conf; systemctl daemon-reload; systemctl start theirs")
    # A unit that does not run, systemd would read anew.
    machine.sh(f"printf '[Service]\\nNice=5\\n' >{directory}/override.conf")
    refused(machine, "theirs", "systemctl daemon-reload")
    machine.sh("systemctl stop theirs; systemctl daemon-reload; rm -rf /srv/db/*")
    machine.sh(f"printf '[Service]\\nNice=5\\n' >{directory}/zz-forebay.conf; systemctl daemon-reload")
    refused(machine, "theirs", "not written by forebay")
    machine.sh(f"rm {directory}/zz-forebay.conf; systemctl daemon-reload")
    switched(machine, "theirs")


def taken(machine: Machine, name: str, text: str) -> None:
    write_unit(machine, name, text)
    switched(machine, name)


def instance(machine: Machine) -> None:
    machine.sh("cat >/etc/systemd/system/mine@.service <<'END'\n[Service]\nUser=redis\nExecStart=" + SERVER.replace("7777", "%i") + "\nEND\nsystemctl daemon-reload")
    switched(machine, "mine@7777")


def switched(machine: Machine, unit: str) -> None:
    """On and off again, and nothing is left but what was there."""
    find = "find /etc/systemd | sort"
    before = machine.sh(find)
    machine.sh(f"forebay enable {unit} {OPTIONS} --yes")
    machine.sh(f"{ANSWERS}; redis-cli -p 7777 set a b")
    machine.sh(f"forebay disable {unit} --yes; {ANSWERS}; test \"$(redis-cli -p 7777 get a)\" = b; systemctl stop {unit}")
    if machine.sh(find) != before:
        raise Failure(f"{unit} was switched on and off, and leaves files: {machine.sh(find)}\nbefore: {before}")
    machine.sh("forebay pool remove /fast/refused.pool; rm -rf /srv/db/*")
    print(f"taken    {unit}: on, off with the proof, and nothing is left", flush=True)
