# SPDX-License-Identifier: Apache-2.0
"""JAX: push_pull and broadcast in compiled functions and outside of them."""

import subprocess
import unittest

import harness
import imported
import scripted

PYTHON = harness.framework_python("jax")
OF_C = "types shapes trees broadcast all_are_in_flight_at_once refusals one_name_twice failure_of_another_operation"
"""The checks of which others are what JAX makes of the same operations."""


class Operations(scripted.TestCase):
    python = PYTHON
    framework = "jax"

    def test_two_workers(self):
        self.run_script("jax_ops.py", *scripted.watched(OF_C), workers=2, servers=1)


@scripted.unwatched
class Refusals(unittest.TestCase):
    def test_too_old(self):
        script = "import jax; jax.__version__ = '0.6.2'; import byteps.jax"
        python = imported.interpreter(PYTHON, "jax")
        done = subprocess.run([*python, "-c", script], stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("ImportError: this is JAX 0.6.2 (", done.stderr)
        self.assertIn("BytePS works with JAX 0.7 and later", done.stderr)


if __name__ == "__main__":
    unittest.main()
