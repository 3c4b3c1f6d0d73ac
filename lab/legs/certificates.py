"""Certificates for legs, by the commands of docs/legs.md."""

from __future__ import annotations

import pathlib
import subprocess

from suites.place import ROOT

# In the certificate of each leg: they are one machine to those who only look at that.
NAME = "b"


def make(at: pathlib.Path) -> pathlib.Path:
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
    return at
