"""The tests of `dependencies`: `python3 -m unittest scripts.test_dependencies`, a part of `make test`."""

import unittest

from . import dependencies

README = """
it is 59
crates (`cargo tree -p forebay-store -e normal`), 32 of them for its tables. Without LZ4 it is 58, with
Zstandard 62. Without compression fjall is 41,
redb 2.
"""
FIGURES = [59, 32, 58, 62, 41, 2]


class Figures(unittest.TestCase):
    def test_the_readmes_figures_are_found_across_lines(self):
        self.assertEqual(list(dependencies.stated(README).values()), FIGURES)

    def test_a_figure_that_is_wrong_or_gone_is_told(self):
        counted = dict(zip(dependencies.FIGURES, FIGURES))
        self.assertEqual(dependencies.differences(dependencies.stated(README), counted), [])
        wrong = dependencies.stated(README.replace("41", "40").replace("redb 2", "redb"))
        found = dependencies.differences(wrong, counted)
        self.assertEqual([line.split(": ")[1] for line in found], ["fjall", "redb"])


class Trees(unittest.TestCase):
    def test_a_crate_counts_once_for_each_version(self):
        tree = "syn v3.0.9\nquote v1.0.47\nsyn v2.0.119\nquote v1.0.47 (*)\n\n"
        self.assertEqual(len(dependencies.crates(tree)), 3)

    def test_what_compiles_c_is_told(self):
        self.assertEqual(dependencies.compilers("ring v0.17.14\ncc v1.2.3\naccess v1.0.0\n"), ["cc"])


if __name__ == "__main__":
    unittest.main()
