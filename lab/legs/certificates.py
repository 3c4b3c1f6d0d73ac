"""What legs are encrypted by: certificates, by the commands of docs/legs.md, or a pre-shared key."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import subprocess

from suites.place import ROOT

# In the certificate of each leg: they are one machine to those who only look at that.
NAME = "b"


# Whose key it is.
USER = "lab"


@dataclasses.dataclass(frozen=True)
class LegTls:
    """What an address has for TLS, and a server's options."""

    user: str
    query: str
    options: list[str]


def by_certificates(at: pathlib.Path) -> LegTls:
    """Makes `client` and `leg-b` in a new directory."""
    at.mkdir()
    text = (ROOT / "docs/legs.md").read_text(encoding="utf-8")
    commands = text.split("<!-- certificates -->")[1].split("```sh\n")[1].split("```")[0]
    done = subprocess.run(["sh", "-ec", commands], cwd=at, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"openssl: {done.stderr}")
    # The database's user, whichever that is, owns the pool's file.
    at.chmod(0o755)
    for path in (at / "client").iterdir():
        path.chmod(0o644)
    options = ["--tls=require", "--tls-verify-peer", "--tls-certificates", str(at / "leg-b")]
    return LegTls("", f"tls-certificates={at / 'client'}&tls-hostname={NAME}", options)


def by_key(at: pathlib.Path, rng: random.Random) -> LegTls:
    """Makes a file with a key in a new directory."""
    at.mkdir()
    at.chmod(0o755)
    keys = at / "keys.psk"
    keys.write_text(f"{USER}:{rng.randbytes(32).hex()}\n")
    keys.chmod(0o644)
    return LegTls(f"{USER}@", f"tls-psk-file={keys}", ["--tls=require", "--tls-psk", str(keys)])
