"""The tests of `wrap`: `python3 -m unittest scripts.test_wrap`, a part of `make test`."""

import unittest

from . import wrap

LONG = " ".join(["word"] * 30)
HAND_WRAPPED = ["Three words here", "and further ones in a line that had room for all of them."]


def of_markdown(*lines):
    return wrap.wrap(list(lines), is_markdown=True)


class Comments(unittest.TestCase):
    def test_a_long_comment_is_wrapped_at_the_margin_with_its_mark(self):
        wrapped = wrap.wrap([f"    /// {LONG}", "    fn f() {}"])
        self.assertTrue(all(len(line) <= wrap.WIDTH and line.startswith("    /// word") for line in wrapped[:-1]))
        self.assertEqual((len(wrapped), wrapped[-1]), (3, "    fn f() {}"))

    def test_code_is_never_wrapped(self):
        lines = [f"let long = {LONG};", "// ```", f"// {LONG}", "// ```"]
        self.assertEqual(wrap.wrap(lines), lines)

    def test_a_promise_begins_a_paragraph(self):
        wrapped = wrap.wrap([f"/// {LONG}", "/// Promise (pool): It holds."])
        self.assertEqual(wrapped[-1], "/// Promise (pool): It holds.")


class Markdown(unittest.TestCase):
    def test_a_long_paragraph_is_wrapped_and_a_ragged_one_too(self):
        self.assertEqual([len(line) for line in of_markdown(LONG)], [99, 49])
        self.assertEqual(of_markdown(*HAND_WRAPPED), [" ".join(HAND_WRAPPED)])

    def test_what_belongs_to_an_item_hangs_under_it(self):
        wrapped = of_markdown("* one", f"* {LONG}", f"12. {LONG}")
        self.assertEqual([line[:6] for line in wrapped], ["* one", "* word", "  word", "12. wo", "    wo"])

    def test_tables_code_headings_and_definitions_stay(self):
        lines = [f"# {LONG}", "", f"| {LONG} |", "", "```", LONG, "```", "", f"[a]: {LONG}", "", f"    {LONG}"]
        self.assertEqual(of_markdown(*lines), lines)

    def test_code_is_measured_whether_it_is_fenced_or_indented(self):
        page = f"text\n\n```sh\n{LONG}\n```\n\n    {LONG}\n"
        self.assertEqual(list(wrap.code_lines(page)), [(4, LONG), (7, LONG)])

    def test_no_line_begins_as_something_else(self):
        for mark in ("*", "+", "7.", "#", "|", ">"):
            line = f"{'x' * 99} {mark} {LONG}"
            self.assertTrue(all(not one.startswith(f"{mark} ") for one in of_markdown(line)), mark)

    def test_a_wrapped_page_is_not_wrapped_again(self):
        wrapped = of_markdown(LONG, "", f"* {LONG}", "", *HAND_WRAPPED)
        self.assertEqual(of_markdown(*wrapped), wrapped)

    def test_pages_of_programs_are_no_business_of_ours(self):
        self.assertTrue("docs/suites.md".startswith(wrap.NOT_OURS))
        self.assertFalse("docs/durability.md".startswith(wrap.NOT_OURS))


class Sentences(unittest.TestCase):
    """A sentence of more than 35 words is named with its paragraph's line."""

    def long(self, *lines):
        return [(number, words) for number, words, _ in wrap.long_sentences("\n".join(lines))]

    def test_a_sentence_over_the_limit_is_found_across_lines(self):
        limit = " ".join(["word"] * wrap.SENTENCE_WORDS)
        self.assertEqual(self.long("# Title", "", f"{limit}.", f"{limit}."), [])
        self.assertEqual(self.long("# Title", "", "Short.", limit, "more."), [(3, wrap.SENTENCE_WORDS + 1)])

    def test_items_are_sentences_of_their_own(self):
        half = " ".join(["word"] * 20)
        self.assertEqual(self.long(f"* {half}", f"* {half}", f"  {half}"), [(2, 40)])
        self.assertEqual(self.long(f"1. {half}.", f"   {half}"), [])

    def test_code_and_links_count_as_they_are_read(self):
        code = f"`{LONG}` ``{LONG}``"
        self.assertEqual(self.long(f"{code} [a word]({'x/' * 40}). **{LONG}.** {LONG}", "", "```", LONG, LONG, "```"), [])
        self.assertEqual(self.long(f"[{LONG}](x.md) {LONG}"), [(1, 60)])

    def test_tables_headings_and_diagrams_have_none(self):
        self.assertEqual(self.long(f"| {LONG} {LONG} |", f"## {LONG} {LONG}", "", f"    {LONG} {LONG}", "", f"├── {LONG} {LONG}"), [])

    def test_a_name_or_code_may_begin_a_sentence(self):
        half = " ".join(["word"] * 20)
        self.assertEqual(self.long(f"{half}. etcd {half}. `x` {half} (so it is.) {half}"), [])
        self.assertEqual(self.long(f"{half}, e.g. {half}"), [(1, 41)])

    def test_whole_site_is_measured(self):
        self.assertTrue("docs/databases/redis.md".startswith(wrap.MEASURED))
        self.assertFalse("lab/legs/README.md".startswith(wrap.MEASURED))


if __name__ == "__main__":
    unittest.main()
