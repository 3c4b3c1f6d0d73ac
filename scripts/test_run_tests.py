"""The tests of `run_tests`: `python3 -m unittest scripts.test_run_tests`, a part of `make test`."""

import json
import pathlib
import sys
import tempfile
import unittest

from . import promises, run_tests

ROOT = pathlib.Path("/house")


def message(package, *, test=True, executable="/house/target/a"):
    """A line of cargo's messages about the test `a` of a package."""
    target = {"kind": ["test"], "name": "a"}
    manifest = f"/house/{package}/Cargo.toml"
    return json.dumps({"manifest_path": manifest, "target": target, "profile": {"test": test}, "executable": executable})


class Found(unittest.TestCase):
    def test_a_program_of_tests_has_its_package_and_a_name(self):
        program = run_tests.program_of(message("crates/pool"), ROOT)
        self.assertEqual((program.name, program.package), ("crates/pool: test a", ROOT / "crates/pool"))

    def test_what_is_no_program_of_tests_is_passed_over(self):
        for line in ("warning: no JSON", message("crates/pool", executable=None), message("crates/pool", test=False)):
            self.assertIsNone(run_tests.program_of(line, ROOT), line)

    def test_programs_that_start_servers_begin_first(self):
        late = {name: run_tests.is_late(run_tests.program_of(message(name), ROOT), ROOT) for name in ("crates/cli", "crates/pool")}
        self.assertEqual(late, {"crates/cli": False, "crates/pool": True})


class Chosen(unittest.TestCase):
    def test_each_program_is_a_short_or_a_long_one_and_all_are_both(self):
        programs = [run_tests.Program(None, None, name) for name in ("crates/cli: test run_redis", *run_tests.LONG)]
        short, long = (run_tests.chosen(programs, tests) for tests in ("short", "long"))
        self.assertEqual((len(short), long), (1, programs[1:]))
        self.assertEqual(run_tests.chosen(programs, "all"), programs)

    def test_a_long_program_is_one_that_the_tree_has(self):
        root = pathlib.Path(__file__).resolve().parent.parent
        for name in run_tests.LONG:
            package, _, test = name.partition(": test ")
            self.assertTrue(list((root / package / "tests").glob(f"{test}*")), name)

    def test_a_file_belongs_to_a_long_program_or_to_none(self):
        paths = ("lab/cli/tests/demo.rs", "lab/cli/tests/bench/main.rs", "lab/cli/tests/device.rs", "lab/bench/tests/demo.rs")
        self.assertEqual([run_tests.is_long(path) for path in paths], [True, True, False, False])

    def test_no_promise_is_left_to_the_long_programs(self):
        made = [place for _, place, _ in promises.places(promises.tracked())]
        self.assertTrue(made)
        self.assertEqual([str(place) for place in made if run_tests.is_long(place.path)], [])

    def test_an_unknown_kind_ends_the_run(self):
        with self.assertRaises(SystemExit):
            run_tests.chosen([], "quick")


class Run(unittest.TestCase):
    def test_output_and_status_of_a_program_are_told(self):
        program = run_tests.Program(pathlib.Path(sys.executable), pathlib.Path("."), "python")
        ran = run_tests.run(program)
        self.assertEqual((ran.status, run_tests.how(ran)), (0, "ok"))

    def test_a_failure_and_a_signal_are_told_apart(self):
        def how(status):
            return run_tests.how(run_tests.Ran(None, "", status, 0.0))

        self.assertEqual((how(101), how(-9)), ("FAILED (101)", "killed by SIGKILL"))

    def test_failed_tests_are_those_that_the_program_names(self):
        output = "test a::b ... ok\ntest a::c ... FAILED\n\nfailures:\n    a::c\n"
        failed = run_tests.failed_tests(run_tests.Ran(None, output, run_tests.TESTS_FAILED, 0.0))
        self.assertEqual(failed, ["a::c"])
        self.assertEqual(run_tests.failed_tests(run_tests.Ran(None, output, -6, 0.0)), [])


class Repeat(unittest.TestCase):
    def ran(self, directory, passes_alone):
        """A program that failed in one test, which does or does not pass when it is repeated."""
        executable = pathlib.Path(directory) / "program"
        executable.write_text(f'#!/bin/sh\n[ "$*" = "--exact a" ] && exit {0 if passes_alone else 101}\nexit 3\n')
        executable.chmod(0o755)
        program = run_tests.Program(executable, pathlib.Path(directory), "program")
        return run_tests.Ran(program, "\nfailures:\n    a\n", run_tests.TESTS_FAILED, 0.0)

    def test_a_test_that_passes_alone_has_not_failed_for_good(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertEqual(run_tests.repeat([self.ran(directory, True)]), [])

    def test_one_that_fails_again_has_and_so_has_a_program_that_died(self):
        with tempfile.TemporaryDirectory() as directory:
            failed = [self.ran(directory, False)]
            self.assertEqual(run_tests.repeat(failed), failed)
        died = [run_tests.Ran(None, "", -6, 0.0)]
        self.assertEqual(run_tests.repeat(died), died)

    def test_of_many_that_failed_none_is_repeated(self):
        failed = [run_tests.Ran(None, "", run_tests.TESTS_FAILED, 0.0)] * (run_tests.REPEATED_MAX + 1)
        self.assertEqual(run_tests.repeat(failed), failed)


if __name__ == "__main__":
    unittest.main()
