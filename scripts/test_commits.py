"""The tests of `commits`: `python3 -m unittest scripts.test_commits`, a part of `make test`."""

import pathlib
import tempfile
import unittest

from . import commits

LONGEST = "s" * commits.WIDTH


class Subjects(unittest.TestCase):
    def test_a_subject_that_is_too_long_is_named_with_its_commit(self):
        found = commits.too_long([("1a2b", LONGEST), ("3c4d", LONGEST + "!")])
        self.assertEqual(len(found), 1)
        self.assertIn("3c4d: its subject has 73 characters", found[0])


class Repository(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.root = pathlib.Path(self.temporary.name)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        return commits.git(*who, *words, root=self.root)

    def commit(self, *paragraphs):
        messages = [word for paragraph in paragraphs for word in ("-m", paragraph)]
        self.git("commit", "--quiet", "--allow-empty", *messages)
        return self.git("rev-parse", "--short", "HEAD").strip()

    def test_commits_that_a_revision_has_are_left_out_and_so_are_bodies(self):
        first = self.commit(LONGEST + " of what is published")
        second = self.commit("a subject\twith a tab", LONGEST * 3)
        self.assertEqual(commits.since(first, self.root), [(second, "a subject\twith a tab")])

    def test_a_subject_in_two_lines_counts_as_one(self):
        first = self.commit("the first")
        self.commit(f"{LONGEST}\n{LONGEST}")
        [(_, subject)] = commits.since(first, self.root)
        self.assertEqual(len(commits.too_long([("", subject)])), 1)

    def test_merges_are_left_out(self):
        first = self.commit("the first")
        self.git("switch", "--quiet", "--create", "aside")
        aside = self.commit("aside")
        self.git("switch", "--quiet", "main")
        main = self.commit("on main")
        self.git("merge", "--quiet", "--no-edit", "-m", LONGEST + " merged", "aside")
        found = {commit for commit, _ in commits.since(first, self.root)}
        self.assertEqual(found, {aside, main})

    def test_a_revision_that_is_not_there_is_told(self):
        self.commit("the first")
        self.assertTrue(commits.has("main", self.root))
        self.assertFalse(commits.has("origin/main", self.root))
