# SPDX-License-Identifier: Apache-2.0
"""Job tests whose checks are in scripts: each worker checks for itself and prints "passed N" at its end."""

import importlib.util
import os
import unittest

import harness

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")


def require(*modules):
    """Skip the file of tests unless these modules can be imported."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise unittest.SkipTest(f"{module} is not installed for {harness.python()}")


def script(name, *arguments):
    """The command that runs one of the scripts."""
    return [harness.python(), os.path.join(SCRIPTS, name), *arguments]


class TestCase(unittest.TestCase):
    """Adds run_script()."""

    def run_script(self, name, *arguments, workers=2, servers=1, **how):
        """Run a script as a job; all its workers must come to their end. The rest is as for harness.run()."""
        result = harness.run(script(name, *arguments), workers=workers, servers=servers, **how)
        self.assertEqual(result.status, 0, str(result))
        for rank in range(workers):
            self.assertRegex("\n".join(result.lines(f"worker {rank}")), r"passed [1-9]", str(result))
        return result
