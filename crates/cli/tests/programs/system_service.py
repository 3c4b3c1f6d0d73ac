"""Runs a command under the filter of system calls that Debian's unit of Redis has
(SystemCallFilter=@system-service, without @privileged and @resources), which answers a refused call with
EPERM, or kills: system_service.py eperm|kill COMMAND..."""

import ctypes
import os
import subprocess
import sys

ALLOW, KILL_PROCESS, EPERM = 0x7FFF0000, 0x80000000, 0x00050001
PR_SET_NO_NEW_PRIVS = 38


def calls(name, seen):
    """The system calls of one of systemd's sets."""
    if name in seen:
        return set()
    seen.add(name)
    command = ["systemd-analyze", "syscall-filter", name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    found = set()
    for word in (line.strip() for line in lines):
        if word.startswith("@"):
            found |= calls(word, seen)
        elif word and not word.startswith("#"):
            found.add(word)
    return found


refused = calls("@privileged", set()) | calls("@resources", set())
allowed = calls("@system-service", set()) - refused | calls("@default", set())
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p
seccomp.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
seccomp.seccomp_load.argtypes = [ctypes.c_void_p]
context = seccomp.seccomp_init({"eperm": EPERM, "kill": KILL_PROCESS}[sys.argv[1]])
for call in allowed:
    number = seccomp.seccomp_syscall_resolve_name(call.encode())
    if number >= 0:
        seccomp.seccomp_rule_add(context, ALLOW, number, 0)
ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
if seccomp.seccomp_load(context) != 0:
    sys.exit("the filter cannot be loaded")
os.execvp(sys.argv[2], sys.argv[2:])
