# SPDX-License-Identifier: Apache-2.0
"""The operations of collectives.h, by tests/jobs/collectives.c: what each rank gets, and who is told of differences."""

import os
import pathlib
import re
import unittest

import harness
import scripted

PROGRAM = str(pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "collectives"))
SMALL = ["worker.partition=64 KiB", "worker.slice=16 KiB"]


def run(*arguments, workers, servers, settings):
    options = [word for setting in settings for word in ("--set", setting)]
    return harness.run([PROGRAM, *arguments], workers=workers, servers=servers, options=options)


class Collectives(unittest.TestCase):
    def test_results(self):
        for workers, servers, settings in (
            (1, 0, []),
            (2, 0, SMALL),
            (3, 1, []),
            (4, 2, [*SMALL, "server.order=rank"]),
            (5, 0, ["worker.hierarchy=off"]),
        ):
            with self.subTest(workers=workers, servers=servers):
                result = run("all", workers=workers, servers=servers, settings=settings)
                self.assertEqual(result.status, 0, result)
                for rank in range(workers):
                    self.assertEqual(result.lines(f"worker {rank}"), ["fine"], result)

    def test_differences(self):
        """All are told the same, and the job goes on."""
        for what, odd, others in (
            ("kind", "float32 (all_to_all", "float32 (gather to root 0)"),
            ("push_pull", "40000 float32 (sum", "float32 (scatter from root 0)"),
            ("type", "int32 (all_to_all", "float32 (all_to_all"),
            ("root", "float32 (scatter from root 1)", "float32 (scatter from root 0)"),
            ("op", "float32 (reduce_scatter by min", "float32 (reduce_scatter by sum"),
            ("count", "float32 (all_gather", "float32 (all_gather"),
            ("broadcast", "10 float32 (broadcast from root 0)", "40000 float32 (broadcast from root 0)"),
            ("uneven", "10 float32 (all_gather from worker 2)", "40000 float32 (all_gather from worker 2)"),
        ):
            with self.subTest(what):
                result = run("differ", what, workers=3, servers=1, settings=[*SMALL, "worker.hierarchy=off"])
                self.assertEqual(result.status, 0, result)
                said = {result.lines(f"worker {rank}")[0].split("; shape #")[0] for rank in range(3)}
                self.assertEqual(len(said), 1, result)
                text = said.pop()
                self.assertIn(f"worker 1 pushed {odd}", text)
                self.assertIn(f"pushed {others}", text)

    @unittest.skipIf(os.geteuid() != 0, "needs root for hosts of their own names")
    def test_a_root_sends_a_broadcast_once(self):
        """The shards of the others hand it on: its own, too, would make it 1.5 times as much."""
        command = ["sh", "-c", scripted.ON_HOSTS, "sh", PROGRAM, "broadcasts"]
        with harness.Job(
            command, options=["--set", "log.level=info"], workers=4, servers=0, env={"HOSTS": "a,b,c,d"}
        ) as job:
            result = job.wait()
        self.assertEqual(result.status, 0, result)
        sent = re.findall(r"worker/0 transports\.net .*: bytes_sent (\d+)", result.err)
        self.assertLess(max(map(int, sent)), 1.1 * 5 * 2000000)


if __name__ == "__main__":
    unittest.main()
