# SPDX-License-Identifier: Apache-2.0
"""How programs with JAX end."""

import unittest

import ended
import harness

PYTHON = harness.framework_python("jax")


class Ends(ended.TestCase):
    python = PYTHON
    framework = "jax"
    program = "jax_ends.py"
    loops = ("compiled", "eager", "scanned")
    error = "JaxRuntimeError"

    def test_in_the_middle_of_a_program(self):
        """A callback of the user's ends its worker while gradients of the same program are in flight."""
        for end in ("killed", "exception"):
            with self.subTest(end=end):
                self.check("callback", end)


if __name__ == "__main__":
    unittest.main()
