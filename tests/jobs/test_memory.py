# SPDX-License-Identifier: Apache-2.0
"""Jobs that begin and end while other threads get and give back shared memory, tests/jobs/memory.c."""

import os
import pathlib
import unittest

import harness

PROGRAM = pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "memory")
PATIENCE = 120.0
"""Seconds after which threads must be waiting for each other."""


class Memory(unittest.TestCase):
    def check_job(self, workers, servers, generations=10, settings=()):
        options = [word for setting in settings for word in ("--set", setting)]
        command = [str(PROGRAM), str(generations)]
        result = harness.run(command, PATIENCE, workers=workers, servers=servers, options=options)
        self.assertEqual(result.status, 0, result)
        for rank in range(workers):
            self.assertEqual(result.lines(f"worker {rank}"), ["memory: ok"], result)

    def test_a_server_of_its_own(self):
        self.check_job(2, 1)

    def test_servers_in_the_workers(self):
        self.check_job(2, 0)

    def test_no_transport_within_the_host(self):
        self.check_job(2, 1, settings=("worker.hierarchy=off", "server.local=false"))

    def test_alone(self):
        self.check_job(1, 0, generations=50)


if __name__ == "__main__":
    unittest.main()
