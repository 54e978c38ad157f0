# SPDX-License-Identifier: Apache-2.0
"""Runs one file of unittest tests for make check: exits with 77 if all of them were skipped.

A test that hangs despite its own deadlines ends here, and shows where each of its threads was.
"""

import faulthandler
import importlib.util
import os
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


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: run-python.py FILE")
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=sys.stdout)
    try:
        module = load(os.path.abspath(sys.argv[1]))
    except unittest.SkipTest as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    if suite.countTestCases() == 0:
        sys.exit(f"{sys.argv[1]}: no tests in it")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    if not result.wasSuccessful():
        return 1
    return SKIPPED if len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
