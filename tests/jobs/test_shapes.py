# SPDX-License-Identifier: Apache-2.0
"""Jobs of any shape on hosts of their own, with a network of 1 Gbit/s: every bit of every result is right.

(n, k): n hosts with workers, 1 to 3 on each, and k with a server; the more workers host servers, the fewer
these are. The workers, tests/jobs/shapes.c and tests/jobs/stress.c, check what they get.
"""

import os
import random
import sys
import tempfile
import unittest
import unittest.mock

import harness

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench"))

from testbed import Testbed, Unavailable  # noqa: E402  (it lies in the folder that was just added)

FOLDER = os.path.abspath(os.path.join(os.environ.get("top_builddir", "."), "tests", "jobs"))
SMALL = ["worker.partition=1 MiB", "worker.slice=16 KiB"]
HOSTS = 8


class Shapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.program()
        try:
            cls.bed = Testbed(HOSTS, "1gbit")
        except Unavailable as reason:
            raise unittest.SkipTest(str(reason)) from None
        cls.addClassCleanup(cls.bed.close)

    def run_job(self, command, workers, settings, **shape):
        with self.bed.job(command, workers, settings=settings, **shape) as job:
            ends = job.finish(timeout=2 * harness.DEADLINE)
            failed = {name: end.status for name, end in ends.items() if end.status != 0}
            self.assertEqual(failed, {}, job.show())
        self.assertEqual(self.bed.leftovers(), [])
        return ends

    def check(self, workers, settings=SMALL, **shape):
        with tempfile.TemporaryDirectory() as marks:
            ends = self.run_job([os.path.join(FOLDER, "shapes"), marks], workers, settings, **shape)
        ranks = [(host, local) for host, count in enumerate(workers) for local in range(count)]
        for rank, (host, local) in enumerate(ranks):
            end = ends[f"worker {rank}"]
            self.assertEqual(end.host, f"h{host}")
            self.assertEqual(end.out, f"{rank} of {len(ranks)}, here {local} of {workers[host]}\n")
        return ends

    def test_2_1(self):
        self.check([2, 2], servers=1)

    def test_2_2_uneven(self):
        self.check([1, 3], servers=2)

    def test_3_1_uneven(self):
        self.check([2, 1, 3], servers=1)

    def test_4_0(self):
        self.check([1, 1, 1, 1])

    def test_4_0_uneven(self):
        self.check([3, 1, 2, 1])

    def test_4_0_beside_the_workers(self):
        self.check([1, 3, 1, 2], settings=[*SMALL, "cluster.colocated=none"], beside=True)

    def test_ways_to_the_servers(self):
        """What is on the same host shares memory, also inside a worker; to all others there are connections."""
        for colocated, name in (("none", "server"), ("hosts", "the server of worker")):
            with self.subTest(name):
                settings = [*SMALL, f"cluster.colocated={colocated}", "log.level=info"]
                ends = self.check([1, 1, 1], settings=settings, beside=name == "server")
                for rank in range(3):
                    for other in range(3):
                        way = "local" if rank == other else "net"
                        self.assertIn(f"{name} {other} is reached through '{way}'", ends[f"worker {rank}"].err)

    def test_out_of_reach(self):
        """Two containers of one name, which do not hear of each other's sockets: they are hosts of their own."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "byteps")
            with open(program, "x", encoding="utf-8") as script:
                script.write(f'#!/bin/sh\nhostname same && exec "{harness.program()}" "$@"\n')
            os.chmod(program, 0o755)
            worker = ["sh", "-c", 'hostname same && exec "$@"', "sh", os.path.join(FOLDER, "shapes"), folder]
            with unittest.mock.patch.dict(os.environ, BYTEPS_PROGRAM=program):
                ends = self.run_job(worker, [1], ["cluster.colocated=none", "log.level=info"], servers=1)
        said = ends["worker 0"].err
        self.assertIn("server 0 is reached through 'net'", said)
        self.assertNotIn("is on this host", said)

    def test_4_2(self):
        self.check([1, 2, 1, 1], servers=2)

    def test_4_2_beside_and_inside_the_workers(self):
        self.check([1, 1, 2, 1], settings=[*SMALL, "cluster.colocated=all"], servers=2, beside=True)

    def test_4_4(self):
        self.check([1, 2, 3, 1], servers=4)

    def test_server_in_the_first_worker(self):
        self.check([1, 3], settings=[*SMALL, "cluster.colocated=first"])

    def test_hosts_without_workers(self):
        self.check([0, 2, 0, 1], servers=2, server_hosts=[0, 3])

    def test_one_worker_alone(self):
        self.check([1])

    def test_one_worker_and_a_server_far_away(self):
        self.check([1], servers=1)

    def test_one_host(self):
        self.check([3])

    def test_one_host_and_a_server_beside(self):
        self.check([3], beside=True)

    def test_order_of_ranks(self):
        self.check([1, 2, 1], servers=1, settings=[*SMALL, "server.order=rank"])

    def test_the_defaults(self):
        self.check([2, 1], servers=1, settings=[])

    def test_random_operations(self):
        seed = os.environ.get("STRESS_SEED") or str(random.randrange(1 << 32))
        command = [os.path.join(FOLDER, "stress"), seed, "8", "1"]
        with self.subTest(seed=seed):
            self.run_job(command, [1, 3], ["worker.partition=64 KiB", "worker.slice=4 KiB"], servers=1)


if __name__ == "__main__":
    unittest.main()
