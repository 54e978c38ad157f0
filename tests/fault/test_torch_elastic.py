# SPDX-License-Identifier: Apache-2.0
"""Elastic training with PyTorch: workers are killed, others come, and no step is lost or made twice."""

import os
import re
import unittest

import cluster
import harness
import imported
import scripted

scripted.require("torch")
SETTINGS = ["cluster.peer_timeout=10s", "cluster.min_workers=1", "cluster.max_workers=4", "worker.hierarchy=auto"]


class Elastic(unittest.TestCase):
    def job(self, way, program="torch_elastic.py", **how):
        command = scripted.script(program, way, framework="torch")
        return cluster.ByHand([], settings=SETTINGS, worker=command, **how)

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

    def test_one_is_killed_and_one_joins(self):
        for way in ("optimizer", "parallel", "accumulate"):
            with self.subTest(way), self.job(way, workers=3, servers=1) as job:
                job.wait_for("trains", "worker 0")
                job.kill_and_wait("worker 1")
                job.wait_for("goes on as 1 of 2", "worker 2")
                job.start("worker 1", name="another")
                job.wait_for("goes on as 2 of 3", "another")
                job.wait_for("trains", "another")
                job.open("end")
                self.check(job.finish(), ["worker 0", "worker 2", "another"])

    def test_rare_synchronisation(self):
        """Also with something in flight when one is lost, the global parameters are the same everywhere."""
        for way in ("local", "streaming", "alone"):
            with self.subTest(way), self.job(way, "torch_diloco_elastic.py", workers=3, servers=1) as job:
                job.wait_for("trains", "worker 2")
                job.kill_and_wait("worker 0" if way == "alone" else "worker 1")
                job.wait_for("goes on as 1 of 2", "worker 2")
                job.wait_for("trains", "worker 2")
                job.start("worker 1", name="another")
                job.wait_for("goes on as 2 of 3", "another")
                job.wait_for("trains", "another")
                job.open("end")
                self.check(job.finish(), ["worker 1" if way == "alone" else "worker 0", "worker 2", "another"])

    def test_the_first_is_lost_while_others_join(self):
        """Those who have learned something are the first, whoever comes and goes."""
        with self.job("optimizer", workers=2, servers=1) as job:
            job.wait_for("trains", "worker 0")
            for name in ("another", "third"):
                job.start("worker 2", name=name)
            job.wait_for("joins", "another")
            job.kill_and_wait("worker 0")
            for part in ("worker 1", "another", "third"):
                job.wait_for(" of 3", part)
                job.wait_for("trains", part)
            job.open("end")
            self.check(job.finish(), ["worker 1", "another", "third"])

    def example(self):
        """The path of examples/elastic.py; skips the test without the images."""
        if not os.path.isdir("/usr/share/datasets/fashion-mnist"):
            self.skipTest("the images are in the Debian package dataset-fashion-mnist")
        return os.path.join(os.environ.get("top_srcdir", "."), "examples", "elastic.py")

    def test_example(self):
        """As it says: a worker is killed, and byteps run starts another one."""
        command = [*imported.interpreter(harness.python(), "torch", None), self.example()]
        options = ["--epochs", "2", "--limit", "1000"]
        with cluster.ByRun(options, 2, 1, worker=command, more=["--min-workers", "1"]) as job:
            job.wait_for("2 workers go on in epoch 1, after 0 steps", "worker 0")
            job.kill_and_wait("worker 1")
            job.wait_for("1 workers go on", "worker 0")
            ends = job.finish()
        text = cluster.show(ends)
        self.assertEqual(ends["byteps run"].status, 0, text)
        self.assertRegex(text, r"epoch 2/2 .* test accuracy [3-9]\d\.", text)

    def test_example_kills_at_random(self):
        """By itself it kills any process of its job, and all workers that are left have learned the same."""
        options = ["--epochs", "2", "--limit", "9000", "--kill-every", "2", "--kills", "3"]
        ended = harness.execute([harness.python(), self.example(), *options])
        text = f"status {ended.returncode}\n{ended.stdout}{ended.stderr}"
        self.assertEqual(ended.returncode, 0, text)
        self.assertRegex(ended.stdout, r"killed: .*[1-3] times", text)
        self.assertRegex(ended.stdout, r"\d workers ended after \d+ steps .* test accuracy [6-9]\d\.", text)


if __name__ == "__main__":
    unittest.main()
