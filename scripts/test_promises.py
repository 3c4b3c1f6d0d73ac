"""The tests of `promises`: `python3 -m unittest scripts.test_promises`, a part of `make test`."""

import unittest

from . import promises

TEST = """\
/// What it does.
///
/// Promise (pool): A record survives a power cut, byte for byte,
/// and in order.
/// Promise (store): A batch is there whole.
#[test]
#[should_panic = "slow"]
fn a_record_survives() {}
"""


def wrong(**files):
    """What is wrong with files, each named by its path with `_` for `/`, without `.rs`."""
    texts = {f"{name.replace('_', '/')}.rs": text for name, text in files.items()}
    return promises.collect(texts)[1]


class Collected(unittest.TestCase):
    def test_a_promise_spans_lines_and_has_the_name_of_its_test(self):
        found, errors = promises.collect({"tests/crash.rs": TEST})
        self.assertEqual(errors, [])
        self.assertEqual(
            [(one.section, one.sentence) for one in found],
            [
                ("pool", "A record survives a power cut, byte for byte, and in order."),
                ("store", "A batch is there whole."),
            ],
        )
        self.assertEqual(found[0].tests, [promises.Place("tests/crash.rs", "a_record_survives", 3)])

    def test_other_tests_hold_the_same_promises(self):
        other = "//! Promise: as `a_record_survives`.\n#[test]\nfn other() {}\n"
        found, errors = promises.collect({"tests/crash.rs": TEST, "tests/kill.rs": other})
        self.assertEqual(errors, [])
        for one in found:
            self.assertEqual([test.key for test in one.tests], ["a_record_survives", "tests/kill.rs"])

    def test_suites_and_heads_of_test_directories_have_promises(self):
        files = {
            "suites/order.py": '"""Cuts.\n\nPromise (order): A record speaks of a change.\n"""\n',
            "tests/bad/main.rs": "//! Promise (store): A damaged file is refused.\nmod index;\n",
            "tests/bad/index.rs": "#[test]\nfn damaged() {}\n",
        }
        found, errors = promises.collect(files)
        self.assertEqual(errors, [])
        self.assertEqual([one.tests[0].key for one in found], ["suites/order.py", "tests/bad/main.rs"])

    def test_the_page_links_to_the_tests(self):
        found, _ = promises.collect({"tests/crash.rs": TEST})
        page = promises.page(found)
        self.assertIn("- A batch is there whole.\\\n  [`a_record_survives`](../tests/crash.rs)\n", page)


class Wrong(unittest.TestCase):
    def test_a_promise_is_at_a_test(self):
        for item in "fn no_test() {}", '#[test]\n#[ignore = "slow"]\nfn ignored() {}':
            self.assertEqual(
                wrong(src_lib=f"/// Promise (pool): It holds.\n{item}\n#[test]\nfn test() {{}}\n"),
                ["src/lib.rs:1: a promise that is not at a test, or at one that is ignored"],
            )

    def test_a_promise_has_a_section_that_there_is(self):
        for begin in "Promise:", "Promise (sea):":
            (error,) = wrong(tests_a=f"/// {begin} It holds.\n#[test]\nfn test() {{}}\n")
            self.assertIn("section", error)

    def test_a_promise_is_made_once(self):
        self.assertEqual(
            wrong(tests_a=TEST, tests_b="/// Promise (pool): A batch is there whole.\n#[test]\nfn b() {}\n"),
            ["tests/b.rs:1: the same promise as at tests/a.rs:5"],
        )

    def test_a_promise_is_short(self):
        (error,) = wrong(tests_a=f"/// Promise (pool): {'word ' * 36}\n#[test]\nfn test() {{}}\n")
        self.assertIn("more than 35 words", error)

    def test_the_named_test_is_there_alone_and_has_a_promise(self):
        held = "/// Promise: as `a_record_survives`.\n#[test]\nfn other() {}\n"
        self.assertEqual(
            wrong(tests_a=held), ["tests/a.rs:1: as `a_record_survives`, which has no promise or is gone"]
        )
        again = TEST.replace("A ", "One ")
        self.assertEqual(
            wrong(tests_a=TEST, tests_b=again, tests_c=held),
            ["tests/c.rs:1: as `a_record_survives`, which is in tests/a.rs and in tests/b.rs"],
        )

    def test_a_document_names_tests_that_there_are(self):
        text = "`a_record_survives_a_power_cut`, `a_record_that_is_torn_…`, `tests/a.rs`, `crates/gone.rs`"
        files = {"docs/a.md": text, "tests/a.rs": "fn a_record_that_is_torn_is_none() {}"}
        self.assertEqual(
            list(promises.gone(files)),
            ["docs/a.md: `a_record_survives_a_power_cut` is no test", "docs/a.md: `crates/gone.rs` is no file"],
        )


if __name__ == "__main__":
    unittest.main()
