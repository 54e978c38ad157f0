# SPDX-License-Identifier: Apache-2.0
"""Loops as users of PyTorch write them, and lists of parameters that are not the same on all workers."""

import unittest

import harness
import scripted

scripted.require("torch")


class Loops(scripted.TestCase):
    framework = "torch"

    def test_loops(self):
        for workers, servers in ((1, 0), (2, 1), (3, 1)):
            with self.subTest(workers=workers):
                self.run_script("torch_loops.py", workers=workers, servers=servers)

    def test_lists_of_parameters_that_differ(self):
        result = harness.run(self.script("torch_differ.py"), workers=2, servers=1)
        for rank in range(2):
            lines = result.lines(f"worker {rank}")
            self.assertEqual(len(lines), 7, str(result))
            for line, what in zip(lines, ["broadcast", "parallel", "state", "step"]):
                self.assertRegex(line, f"^{what}: .*differ", str(result))
            number = f"^number: .*some have made 0 steps .* others 1, this one {1 - rank}"
            self.assertRegex(lines[4], number, str(result))
            frozen = "^frozen: parameter 'bias' requires gradients on some workers and is frozen on others"
            self.assertRegex(lines[5], frozen, str(result))


if __name__ == "__main__":
    unittest.main()
