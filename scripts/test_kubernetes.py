"""Manifests that must be refused, each for its reason, beside those of the repository, which must pass: for scripts/kubernetes.py."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parent / "kubernetes.py"
REDIS = SCRIPT.parent.parent / "examples/kubernetes/redis.yaml"
# A check takes a second or two.
LIMIT_S = 60
VOLUMES = REDIS.with_name("volumes.yaml")


def said_of(old: str, new: str) -> tuple[int, str]:
    """What is said of redis.yaml with one text in the place of another."""
    text = REDIS.read_text()
    assert old in text, old
    with tempfile.TemporaryDirectory() as home:
        changed = pathlib.Path(home) / "redis.yaml"
        changed.write_text(text.replace(old, new, 1))
        done = subprocess.run([sys.executable, SCRIPT, changed, VOLUMES], capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, done.stdout + done.stderr


class Manifests(unittest.TestCase):
    def test_environment_without_the_package_is_said(self) -> None:
        with tempfile.TemporaryDirectory() as target:
            venv = pathlib.Path(target) / "peers/venv"
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=LIMIT_S)
            environment = {**os.environ, "CARGO_TARGET_DIR": target}
            done = subprocess.run([venv / "bin/python", SCRIPT], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("Remedy: scripts/setup.sh lint", done.stderr)

    def test_what_is_in_the_repository_passes(self) -> None:
        done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("documents in", done.stdout)

    def test_what_is_wrong_is_refused(self) -> None:
        for old, new, reason in [
            ("terminationGracePeriodSeconds", "terminationGraceSeconds", "terminationGraceSeconds"),
            ("replicas: 1", "replicas: one", "replicas"),
            ("{name: pool, mountPath: /pool}", "{name: pools, mountPath: /pool}", "a mount of pools"),
            ("storageClassName: forebay-pool", "storageClassName: fast", "no storage class fast"),
            ("matchLabels: {app: redis}", "matchLabels: {app: valkey}", "does not select"),
            ("selector: {app: redis}", "selector: {app: valkey}", "selects no pod"),
            ("forebay:0.1.0", "forebay:9.9.9", "version 9.9.9"),
        ]:
            with self.subTest(new):
                status, said = said_of(old, new)
                self.assertEqual(status, 1, said)
                self.assertIn(reason, said)


if __name__ == "__main__":
    unittest.main()
