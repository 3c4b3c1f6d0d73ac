"""The tests of `names`: `python3 -m unittest scripts.test_names`, a part of `make test`."""

import unittest
from unittest import mock

from . import names


def defined(**files):
    """Where names are defined, in files that are each named by a path with `_` for `/`, without `.rs`."""
    return dict(names.defined({f"{name.replace('_', '/')}.rs": text for name, text in files.items()}))


class Defined(unittest.TestCase):
    def test_all_kinds_of_types_are_found_with_their_places(self):
        text = "pub struct A;\npub(crate) enum B {}\nunion C {}\nunsafe trait D {}\ntype E = u8;\nfn f() {\n    struct G;\n}\n"
        self.assertEqual(
            defined(src_a=text),
            {name: [f"src/a.rs:{line}"] for name, line in zip("ABCDEG", (1, 2, 3, 4, 5, 7))},
        )

    def test_what_an_impl_gives_to_a_trait_is_no_name(self):
        self.assertEqual(defined(src_a="impl Iterator for A {\n    type Item = u8;\n}\n"), {})

    def test_comments_and_strings_are_no_code(self):
        self.assertEqual(defined(src_a='/// struct A;\n/* struct B; */ const C: &str = "\nstruct D;";\n'), {})

    def test_tests_are_left_out_with_their_files(self):
        inline = "#[cfg(test)]\nmod tests {\n    struct A;\n    fn f() { {} }\n}\nstruct B;\n#[cfg(test)]\nstruct C;\n"
        self.assertEqual(defined(src_a=inline), {"B": ["src/a.rs:6"]})
        files = {"src_a": "#[cfg(test)]\nmod b;\nmod c;\n", "src_a_b": "struct B;\n", "src_a_c": "struct C;\n"}
        self.assertEqual(defined(**files), {"C": ["src/a/c.rs:1"]})


@mock.patch.dict(names.ALLOWED, {"tests": ("Row",)}, clear=True)
class Wrong(unittest.TestCase):
    def test_a_name_is_defined_once(self):
        (error,) = names.wrong(defined(src_a="struct A;\nstruct Row;\n", src_b="enum A {}\nstruct Row;\n"))
        self.assertTrue(error.startswith("A is defined 2 times: src/a.rs:1, src/b.rs:1"), error)

    def test_an_exception_that_is_not_needed_goes(self):
        (error,) = names.wrong(defined(src_a="struct Row;\n"))
        self.assertIn("Row is not defined several times any more", error)


class NamedTests(unittest.TestCase):
    def test_a_test_is_found_by_its_attribute_with_its_line(self):
        text = """
proptest! {
    #[test]
    fn values_are_kept(value in any::<u8>()) {}
}
#[test] // It waits.
#[should_panic(expected = "an [index]")]
fn it_panics() {}
#[test]
/// Promise (pool): A sentence.
pub(super) fn it_is_called() {}
/// #[test]
fn no_test() {}
"""
        self.assertEqual(
            list(names.named_tests({"a.rs": text})),
            [("a.rs:4", "values_are_kept"), ("a.rs:8", "it_panics"), ("a.rs:11", "it_is_called")],
        )

    def test_a_name_of_more_than_60_characters_is_named_with_its_length(self):
        found = [("a.rs:1", "a" * 60), ("a.rs:2", "b" * 61)]
        (error,) = names.too_long(found)
        self.assertTrue(error.startswith(f"a.rs:2: {'b' * 61} has 61 characters, of at most 60"), error)


class NamelessHeads(unittest.TestCase):
    def test_a_head_that_begins_with_a_clause_is_named_with_its_line(self):
        for head in ("Which legs a pool is read from.", "As whom a command works."):
            (error,) = names.nameless_heads({"src/a.rs": f"#![no_std]\n//! {head}\n"})
            self.assertTrue(error.startswith(f"src/a.rs:2: the head begins with '{head.split()[0]}'"), error)

    def test_a_head_of_a_noun_or_a_sentence_passes(self):
        for head in ("The choice of legs.", "Whole files.", "Asks each leg what it has."):
            self.assertEqual(list(names.nameless_heads({"src/a.rs": f"//! {head}\n//! What follows is free.\n"})), [])

    def test_a_file_without_a_head_and_a_comment_in_it_pass(self):
        self.assertEqual(list(names.nameless_heads({"src/a.rs": "/// What it is.\nstruct A; // How it is.\n"})), [])


if __name__ == "__main__":
    unittest.main()
