"""The tests of `faults`: `python3 -m unittest scripts.test_faults`, a part of `make test`."""

import unittest

from . import faults


class Sources(unittest.TestCase):
    def test_a_variable_is_named_in_its_one_place_only(self):
        line = 'let on = std::env::var_os("FOREBAY_TEST_FAULTS");\n'
        files = {faults.READER: line, "crates/files/src/boot.rs": "\n" + line}
        self.assertEqual(faults.named(files), ["crates/files/src/boot.rs:2: FOREBAY_TEST_FAULTS"])

    def test_tests_and_comments_may_name_what_they_like(self):
        files = {
            "crates/pool/src/shared/tests/kills.rs": '"FOREBAY_TEST_MEMBER"',
            "crates/files/src/member/tests.rs": '"FOREBAY_TEST_LEDGER"',
            "crates/pool/src/lib.rs": "// FOREBAY_FAILPOINT=NAME",
        }
        self.assertEqual(faults.named(files), [])


class Programs(unittest.TestCase):
    def test_the_names_in_a_program_are_found(self):
        program = b"\x7fELF\xff\x00FOREBAY_BROKENFOREBAY_RUN_DIR\x00FOREBAY_FAILPOINT\x00"
        self.assertEqual(faults.built_in(program), ["FOREBAY_BROKEN", "FOREBAY_FAILPOINT"])


if __name__ == "__main__":
    unittest.main()
