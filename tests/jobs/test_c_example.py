# SPDX-License-Identifier: Apache-2.0
"""The C example, examples/push_pull.c, as built by make check: every worker finds all results right."""

import os
import pathlib
import unittest

import harness

PROGRAM = pathlib.Path(os.environ.get("top_builddir", "."), "examples", "push_pull")


class CExample(unittest.TestCase):
    def check_job(self, workers, servers):
        result = harness.run([str(PROGRAM)], workers=workers, servers=servers)
        self.assertEqual(result.status, 0, result)
        for rank in range(workers):
            self.assertEqual(result.lines(f"worker {rank}"), [f"worker {rank} of {workers}: all results are right"])

    def test_one_worker(self):
        self.check_job(1, 0)

    def test_two_workers_and_a_server(self):
        self.check_job(2, 1)

    def test_three_workers_without_a_server(self):
        self.check_job(3, 0)


if __name__ == "__main__":
    unittest.main()
