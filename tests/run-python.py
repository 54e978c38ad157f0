# SPDX-License-Identifier: Apache-2.0
"""Runs one file of unittest tests for make check: exits with 77 if all of them were skipped. The log ends with a line
for each test that was, and with the count of the others as the library check writes it.

A test that hangs despite its own deadlines ends here, and shows where each of its threads was.
"""

import faulthandler
import importlib.util
import os
import re
import signal
import sys
import unittest

SKIPPED = 77
LIMIT = 40 * 60
"""Seconds: many times what any file takes, with sanitizers and on a busy machine."""


def load(path):
    """Imports the file with its own folder first in the path."""
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("tests_of_this_file", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)


def name(test):
    """CLASS.TEST, or CLASS if the class was skipped before its tests."""
    return re.sub(r"^setUp\w+ \(|\btests_of_this_file\.|\)$", "", test.id()).split(" ")[0]


def report(result):
    """Prints the end of the log; returns the status."""
    passed, failures, errors = result.passed + len(result.expectedFailures), len(result.failures), len(result.errors)
    failures += len(result.unexpectedSuccesses)
    for test, reason in result.skipped:
        print(f"SKIP: {name(test)}: {' '.join(reason.split())}")
    checks = passed + failures + errors
    if checks == 0:
        return SKIPPED
    print(f"{100 * passed // checks}%: Checks: {checks}, Failures: {failures}, Errors: {errors}")
    return 0 if result.wasSuccessful() else 1


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: run-python.py FILE")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=sys.stdout)
    try:
        module = load(os.path.abspath(sys.argv[1]))
    except unittest.SkipTest as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    if suite.countTestCases() == 0:
        sys.exit(f"{sys.argv[1]}: no tests in it")
    return report(unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result).run(suite))


if __name__ == "__main__":
    sys.exit(main())
