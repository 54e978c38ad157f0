# SPDX-License-Identifier: Apache-2.0
"""Random operations from many threads of several workers, tests/jobs/stress.c, in jobs of many shapes.

Every run draws a new plan; a failure prints its seed, which STRESS_SEED repeats. Small partitions and slices make
many of them out of little data.
"""

import os
import pathlib
import random
import unittest

import harness

PROGRAM = pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "stress")
SMALL = ("worker.partition=64 KiB", "worker.slice=4 KiB")


class Stress(unittest.TestCase):
    def check_job(self, workers, servers, settings=SMALL, steps=8, generations=2):
        seed = os.environ.get("STRESS_SEED") or str(random.randrange(1 << 32))
        options = [word for setting in settings for word in ("--set", setting)]
        command = [str(PROGRAM), seed, str(steps), str(generations)]
        result = harness.run(command, workers=workers, servers=servers, options=options)
        self.assertEqual(result.status, 0, f"seed {seed}\n{result}")
        for rank in range(workers):
            self.assertEqual(result.lines(f"worker {rank}"), ["stress: ok"], f"seed {seed}")

    def test_one_worker_alone(self):
        self.check_job(1, 0)

    def test_one_worker_and_a_server(self):
        self.check_job(1, 1)

    def test_two_workers_with_the_defaults(self):
        self.check_job(2, 1, settings=())

    def test_three_workers_without_a_server(self):
        self.check_job(3, 0)

    def test_many_generations(self):
        self.check_job(2, 2, steps=2, generations=8)

    def test_several_lanes_and_shards(self):
        self.check_job(3, 2, (*SMALL, "transports.net.streams=4", "server.shards=2"))

    def test_order_of_ranks(self):
        self.check_job(3, 1, (*SMALL, "server.order=rank", "transports.net.streams=2"))

    def test_tiny_slices(self):
        self.check_job(4, 2, ("worker.partition=128", "worker.slice=64"), steps=3, generations=1)


if __name__ == "__main__":
    unittest.main()
