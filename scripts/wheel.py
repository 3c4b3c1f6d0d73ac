#!/usr/bin/env python3
"""Makes the wheel of the Python package forebay, in target/wheels, by maturin: `make wheel`.

    wheel.py                         as it ships
    wheel.py --profile dev --check   compiled as tests are, and tried

--check installs the wheel into a fresh environment without the network. There it runs the example
of docs/store-python.md and of the package's README, and asks `python -m forebay.migrate` for help.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "crates/store-python"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
MATURIN = TARGET / "peers/venv/bin/maturin"
# Each document with an example, and what that prints.
EXAMPLES = {ROOT / "docs/store-python.md": "b'apple' b'3'\n", PACKAGE / "README.md": "b'apple' b'3'\n"}
PARTS = ("__init__.py", "__init__.pyi", "_forebay.abi3.so", "migrate.py", "py.typed")
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")


class CheckFailed(Exception):
    """What is wrong with the wheel."""


def build(profile: str) -> pathlib.Path:
    """Makes the wheel; maturin's own output goes to standard error."""
    if not MATURIN.exists():
        raise CheckFailed(f"{MATURIN} is not there: scripts/setup.sh wheel")
    wheels = TARGET / "wheels"
    locked = ["--locked"] if os.environ.get("CI") else []
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=TARGET) as made:
        command = [MATURIN, "build", "--quiet", "--profile", profile, "--out", made, "--manifest-path", PACKAGE / "Cargo.toml", *locked]
        subprocess.run(command, check=True, stdout=sys.stderr)
        (wheel,) = pathlib.Path(made).glob("*.whl")
        wheels.mkdir(exist_ok=True)
        return wheel.replace(wheels / wheel.name)


def check_parts(wheel: pathlib.Path):
    """One wheel for all versions of Python, with the types and both licences."""
    if "-cp39-abi3-" not in wheel.name:
        raise CheckFailed(f"{wheel.name} is for some versions of Python only: is pyo3's abi3-py39 on (Cargo.toml)?")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for name in [f"forebay/{part}" for part in PARTS]:
        if name not in names:
            raise CheckFailed(f"{wheel.name} lacks {name}: {', '.join(names)}")
    for licence in LICENCES:
        if not any(name.endswith(f".dist-info/licenses/{licence}") for name in names):
            raise CheckFailed(f"{wheel.name} lacks {licence}: {', '.join(names)}")


def check(wheel: pathlib.Path):
    check_parts(wheel)
    # On a disk: the pool of the examples is one there.
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=TARGET) as made:
        subprocess.run([sys.executable, "-m", "venv", pathlib.Path(made, "venv")], check=True)
        python = pathlib.Path(made, "venv/bin/python")
        # Nothing of this environment, nor of the sources.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

        def run(*command, cwd=made):
            ran = subprocess.run([python, *command], cwd=cwd, env=environment, capture_output=True, text=True)
            if ran.returncode != 0:
                raise CheckFailed(f"{' '.join(map(str, command))[:200]}: exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")
            return ran.stdout

        run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel)
        for document, printed in EXAMPLES.items():
            (example,) = re.findall(r"^```python\n(import .*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
            with tempfile.TemporaryDirectory(dir=made) as place:
                said = run("-c", example, cwd=place)
            if said != printed:
                raise CheckFailed(f"the example of {document.name} prints {said!r}, not {printed!r}")
        said = run("-m", "forebay.migrate", "--help")
        if "leveldb" not in said:
            raise CheckFailed(f"python -m forebay.migrate --help says {said!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="release", help="cargo's (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="install the wheel and try it")
    options = parser.parse_args()
    try:
        wheel = build(options.profile)
        if options.check:
            check(wheel)
    except (CheckFailed, subprocess.CalledProcessError) as error:
        print(f"wheel.py: error: {error}", file=sys.stderr)
        return 1
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
