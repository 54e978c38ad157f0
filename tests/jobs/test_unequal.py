# SPDX-License-Identifier: Apache-2.0
"""A link that is slower than the others, or becomes so: its host gets less to sum, and results stay what they are."""

import os
import sys
import tempfile
import unittest

import harness

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench"))

from testbed import Testbed, Unavailable  # noqa: E402  (it lies in the folder that was just added)

FAST, SLOW = "100mbit", "30mbit"
MOVED = "so that tensors move"
WORKER = """
import os, sys, numpy
import byteps.numpy as bps

ELEMENTS, TENSORS = 100_000, 12
bps.init()
each = [numpy.empty(ELEMENTS + i, numpy.float32) for i in range(TENSORS)]
step, over = 0, 0
while not over:
    for i, tensor in enumerate(each):
        tensor.fill(bps.rank() + i + step % 7)
    handles = [bps.push_pull_async(tensor, op=bps.Sum, name=f"t{i}") for i, tensor in enumerate(each)]
    for i, handle in enumerate(handles):
        found = bps.synchronize(handle)
        expected = bps.size() * (bps.size() - 1) / 2 + bps.size() * (i + step % 7)
        assert (found == expected).all(), (step, i, found, expected)
    over = bps.push_pull(numpy.array([os.path.exists(sys.argv[1])], numpy.float32), op=bps.Sum, name="over")[0]
    step += 1
print("right in all steps")
bps.shutdown()
"""


class Links(unittest.TestCase):
    def setUp(self):
        harness.program()
        try:
            self.bed = Testbed(3, FAST)
        except Unavailable as reason:
            self.skipTest(str(reason))
        self.addCleanup(self.bed.close)

    def test_one_becomes_slow(self):
        with tempfile.TemporaryDirectory() as folder:
            over = os.path.join(folder, "over")
            command = [harness.python(), "-c", WORKER, over]
            with self.bed.job(command, [1, 1, 1], settings=["log.level=info"]) as job:
                job.wait_for("is complete", "scheduler", "err")
                self.bed.shape(2, SLOW)
                job.wait_for(MOVED, "scheduler", "err")
                with open(over, "w", encoding="utf-8"):
                    pass
                ends = job.finish()
        for rank in range(3):
            self.assertEqual((ends[f"worker {rank}"].status, ends[f"worker {rank}"].out), (0, "right in all steps\n"))
        shares = ends["scheduler"].err.rpartition(MOVED)[2]
        percent = [float(shares.partition(f"worker {rank} (")[2].partition("sums ")[2].split()[0]) for rank in range(3)]
        self.assertLess(percent[2], min(percent[:2]), shares)

    def test_what_is_told_counts(self):
        """Where the configuration says how fast links are, nothing is found out."""
        settings = ["log.level=info", "server.bandwidth=1"]
        with tempfile.TemporaryDirectory() as folder:
            command = [harness.python(), "-c", WORKER, folder]  # one step
            told = {1: ["server.bandwidth=0.5"]}
            with self.bed.job(command, [1, 1, 1], settings=settings, host_settings=told) as job:
                ends = job.finish()
        said = ends["scheduler"].err
        self.assertNotIn(MOVED, said)
        self.assertRegex(said, r"worker 1 \(.*\) sums 0.0 % of the bytes")


if __name__ == "__main__":
    unittest.main()
