"""The tests of `links`: `python3 -m unittest scripts.test_links`, a part of `make test`."""

import pathlib
import tempfile
import unittest

from . import links


class Unlisted(unittest.TestCase):
    def test_a_page_links_to_pages_of_the_site_alone(self):
        with tempfile.TemporaryDirectory() as made:
            here = pathlib.Path(made).resolve()
            (here / "SUMMARY.md").write_text("- [A](a.md)\n- [B](in/b.md)\n")
            (here / "in").mkdir()
            (here / "a.md").write_text("[B](in/b.md#part), [c](c.md), [d](https://example.org/d.md), [f](f.py)\n```\n[e](e.md)\n```\n")
            (here / "in" / "b.md").write_text("[A](../a.md), [c](../c.md#it)")
            found = list(links.unlisted(here / "SUMMARY.md"))
        self.assertEqual(found, [(here / "a.md", "c.md"), (here / "in" / "b.md", "../c.md#it")])


if __name__ == "__main__":
    unittest.main()
