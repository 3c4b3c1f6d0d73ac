"""The tests of `build_times`: `python3 -m unittest scripts.test_build_times`, a part of `make test`."""

import tomllib
import unittest

from . import build_times

LOCK = """
[[package]]
name = "redb"
version = "4.1.0"

[[package]]
name = "fjall"
version = "3.0.2"
dependencies = [
 "redb",
]
"""


class Programs(unittest.TestCase):
    def test_each_has_one_dependency_and_peers_the_locked_version(self):
        programs = build_times.dependencies(build_times.versions(LOCK))
        found = {name: tomllib.loads(build_times.manifest(name, line)) for name, (line, _) in programs.items()}
        self.assertTrue(all(list(it["dependencies"]) == [name] for name, it in found.items()))
        self.assertEqual(found["fjall"]["dependencies"]["fjall"], "=3.0.2")
        self.assertIn("workspace", found["redb"])


class Messages(unittest.TestCase):
    def test_the_program_itself_is_no_crate_that_counts(self):
        said = "   Compiling libc v0.2\n   Compiling redb v4.1.0\n   Compiling builds-redb v0.0.0\n    Finished `release`\n"
        self.assertEqual(build_times.compiled(said), 2)


if __name__ == "__main__":
    unittest.main()
