# SPDX-License-Identifier: Apache-2.0
"""Elastic training with MXNet: a worker is killed, another one comes, and no step is lost or made twice."""

import os
import re
import unittest

import cluster
import harness
import scripted

PYTHON = harness.framework_python("mxnet")
SETTINGS = ["cluster.peer_timeout=10s", "cluster.min_workers=1", "cluster.max_workers=4"]


class Elastic(unittest.TestCase):
    def check(self, ends, workers):
        """All of these have made the same steps, each once, and have learned the same."""
        text, said = cluster.show(ends), set()
        for part in workers:
            self.assertEqual(ends[part].status, 0, f"{part}\n{text}")
            said.add(re.search(r"is at (\d+) of (\d+) with (\w+), as \d of (\d)", ends[part].out).groups())
        self.assertEqual(len(said), 1, text)
        ((steps, counted, _, count),) = said
        self.assertEqual(steps, counted, text)
        self.assertEqual(count, str(len(workers)), text)

    def train(self, way):
        """One of three is killed between the gradients of a step, and another one comes."""
        command = scripted.script("mxnet_elastic.py", way, python=PYTHON, framework="mxnet")
        with cluster.ByHand([], settings=SETTINGS, worker=command, workers=3, servers=1) as job:
            job.wait_for("trains", "worker 0")
            job.open("die")
            job.wait_for("goes on as 1 of 2", "worker 2")
            os.remove(os.path.join(job.gates, "die"))
            job.start("worker 1", name="another")
            job.wait_for("goes on as 2 of 3", "another")
            job.wait_for("trains", "another")
            job.open("end")
            self.check(job.finish(), ["worker 0", "worker 2", "another"])

    def test_step(self):
        self.train("step")

    def test_clip(self):
        self.train("clip")


if __name__ == "__main__":
    unittest.main()
