"""The tests of `circles`: `python3 -m unittest scripts.test_circles`, a part of `make test`."""

import unittest
from unittest import mock

from . import circles


def wrong(**files):
    """What is wrong with a crate of these files, each named by its path with `_` for `/`, without `.rs`."""
    return list(circles.wrong({f"crates/x/src/{name.replace('_', '/')}.rs": text for name, text in files.items()}))


class Wrong(unittest.TestCase):
    def test_a_circle_is_told_with_its_arrows(self):
        found = wrong(a="use crate::b::{self, c::D};", b="fn f() {\n    super::a::g();\n}", b_c="")
        self.assertEqual(
            [line.split(",")[0] for line in found],
            ["crates/x/src/a.rs:1 imports from crates/x/src/b.rs", "crates/x/src/b.rs:2 imports from crates/x/src/a.rs"],
        )

    def test_a_circle_may_lead_through_files_of_a_module(self):
        self.assertEqual(len(wrong(a="use crate::b::c;", b="pub mod c;", b_c="use super::d::E;", b_d="use crate::a::F;")), 2)

    def test_what_is_given_on_is_imported_from_the_file_that_has_it(self):
        lib = "mod a;\nmod b;\npub use b::D;"
        self.assertEqual(len(wrong(lib=lib, a="use crate::D;", b="pub use self::c::D;", b_c="use crate::a::E;")), 2)
        self.assertEqual(wrong(lib=lib, a="use crate::D;", b="pub use self::c::D;\nuse crate::a::E;", b_c=""), [])

    def test_circles_within_a_module_are_its_own(self):
        self.assertEqual(wrong(a_mod="use b::C;", a_b="use super::D;\nuse super::e::F;", a_e="use super::b::G;"), [])

    def test_tests_comments_and_other_crates_are_left_out(self):
        tests = "#[cfg(test)]\nmod tests {\n    use crate::a::B;\n}\n"
        for text in (tests, "// use crate::a::B;\n", 'const A: &str = "crate::a::B";\n', "use a::B;\n"):
            self.assertEqual(wrong(a="use crate::b::C;", b=text), [], text)

    def test_an_exception_is_an_arrow_of_a_circle(self):
        arrow = "crates/x/src/a.rs -> crates/x/src/b.rs"
        with mock.patch.dict(circles.ALLOWED, {"for the test": (arrow,)}):
            self.assertEqual(wrong(a="use crate::b::C;", b="use crate::a::D;"), [])
            (error,) = wrong(a="", b="use crate::a::D;")
            self.assertIn(arrow, error)


if __name__ == "__main__":
    unittest.main()
