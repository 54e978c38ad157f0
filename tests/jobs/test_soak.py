# SPDX-License-Identifier: Apache-2.0
"""The jobs of soak-jobs, some of which have failed once; and what `make soak` does with one that fails."""

import os
import random
import unittest

import harness
import scripted
import soak

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "soak-jobs")


def recorded():
    """The jobs of the list, without those that need root where we are not; fewer where a sanitizer watches."""
    with open(LIST, encoding="utf-8") as file:
        jobs = [soak.Job.parse(line) for line in file if not line.startswith("#")]
    jobs = [job for job in jobs if not job.hosts or os.geteuid() == 0]
    return jobs[::3] if scripted.WATCHED else jobs


class Soak(unittest.TestCase):
    def setUp(self):
        harness.program()

    def test_recorded(self):
        for job in recorded():
            with self.subTest(str(job)):
                soak.run(job)

    def test_lines(self):
        """A line says all of a job."""
        source = random.Random(1)
        for _ in range(100):
            line = str(soak.Job.draw(source))
            self.assertEqual(str(soak.Job.parse(line)), line)

    def test_failure(self):
        with self.assertRaisesRegex(AssertionError, "worker.nothing"):
            soak.run(soak.Job.parse("-n 2 -s 0 --set worker.nothing=1 -- 1 2 1"))


if __name__ == "__main__":
    unittest.main()
