# SPDX-License-Identifier: Apache-2.0
"""What is to be seen of a job that does not go on: every thread of every process, and what is queued."""

import os
import shutil
import sys
import unittest

import harness

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fault"))

import cluster  # noqa: E402  (it lies in the folder that was just added)

MOMENT = 1.0
"""Seconds: a deadline that is over before these jobs are."""
WAITING = ["init", "@0:begin:alone:100:float32:sum", "gate:never"]


@unittest.skipUnless(shutil.which("gdb"), "needs gdb")
class Hanging(unittest.TestCase):
    def check_text(self, text, *roles):
        for words in ("alone: id 1, round 0", "state BPS_TASK_WAITING", "queued 0, starved false", "wait_at (name="):
            self.assertIn(words, text)
        for words in ("push", "sent 1, answered 0", "round 0: slices 1, complete 0", *roles):
            self.assertIn(words, text)
        self.assertRegex(text, r"(?m)^#\d+ .*\bbps_loop_run ")

    def test_job_of_byteps_run(self):
        options = ["--set", "worker.hierarchy=off", "--set", "server.local=false"]
        with harness.Job([cluster.WORKER, *WAITING], workers=2, servers=1, options=options) as job:
            for rank in range(2):
                job.wait_for("at never", f"worker {rank}")
            with self.assertRaises(AssertionError) as caught:
                job.wait(MOMENT)
        self.check_text(str(caught.exception), "bps_server_run", "bps_run_loop")
        self.assertEqual(harness.processes(job.id), {})

    def test_job_by_hand(self):
        with cluster.ByHand(WAITING) as job:
            for rank in range(2):
                job.wait_for("at never", f"worker {rank}")
            text = job.stacks()
        self.check_text(text, "bps_server_run")

    def test_command(self):
        with self.assertRaises(AssertionError) as caught:
            harness.execute(["sh", "-c", "sleep 100; true"], timeout=MOMENT)
        for words in ("sleep 100", "nanosleep", "wait"):
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
