# SPDX-License-Identifier: Apache-2.0
"""What crosses the links of hosts is what `byteps plan` says: one sum per host, and the servers' shares."""

import json
import os
import subprocess
import sys
import unittest

import harness

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench"))

from testbed import Testbed, Unavailable  # noqa: E402  (it lies in the folder that was just added)

WORKER = os.path.abspath(os.path.join(os.environ.get("top_builddir", "."), "tests", "fault", "worker"))
TENSORS, COUNT = 40, 65536
MORE = 0.1
"""Headers, acknowledgements, a packet sent twice: at most this part of the bytes."""


class Traffic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = harness.program()
        if not os.path.exists(WORKER):
            raise unittest.SkipTest(f"{WORKER} has not been built")
        try:
            cls.bed = Testbed(6, "1gbit")
        except Unavailable as reason:
            raise unittest.SkipTest(str(reason)) from None
        cls.addClassCleanup(cls.bed.close)

    def predicted(self, workers, servers, dtype):
        """The bytes that each link carries each way, by `byteps plan`."""
        lines = "".join(f"t{i} {COUNT} {dtype}\n" for i in range(TENSORS))
        command = [
            self.program,
            "plan",
            "--json",
            "-n",
            str(workers),
            "-s",
            str(servers),
            "--model",
            "/dev/stdin",
        ]
        command += ["--bandwidth", "8bit"]
        plan = json.loads(
            subprocess.run(command, input=lines.encode(), check=True, capture_output=True).stdout
        )
        total = plan["model"]["bytes"]
        busy = {("server", s["rank"]): s["busy_seconds"] for s in plan["placement"] if not s["colocated"]}
        busy.update({("host", s["rank"]): s["busy_seconds"] for s in plan["placement"] if s["colocated"]})
        return [busy.get(("host", i), total) for i in range(workers)] + [
            busy["server", i] for i in range(servers)
        ]

    def measured(self, workers, servers, dtype):
        steps = [f"push:t{i}:{COUNT}:{dtype}:sum:1" for i in reversed(range(TENSORS))]
        before = self.bed.counters()
        with self.bed.job([WORKER, "init", *steps, "leave"], workers, servers=servers) as job:
            failed = {name: end.status for name, end in job.finish().items() if end.status != 0}
            self.assertEqual(failed, {}, job.show())
        after = self.bed.counters()
        ways = ("sent", "received")
        return [[after[i][way] - before[i][way] for way in ways] for i in range(len(workers) + servers)]

    def check(self, workers, servers=0, dtype="float32"):
        predicted = self.predicted(len(workers), servers, dtype)
        for link, (want, both) in enumerate(zip(predicted, self.measured(workers, servers, dtype))):
            for got in both:
                self.assertGreater(got, want, f"link {link} of {workers} and {servers}")
                self.assertLess(got, want * (1 + MORE) + 100000, f"link {link} of {workers} and {servers}")

    def test_workers_only(self):
        self.check([1, 1, 1])

    def test_workers_and_a_server(self):
        self.check([1, 1, 1], 1)

    def test_as_many_servers(self):
        self.check([1, 1], 2)

    def test_several_workers_on_a_host(self):
        plugins = subprocess.run([self.program, "plugin", "list"], check=True, capture_output=True).stdout
        if b"ipc" not in plugins:
            self.skipTest("no transport for hosts: each worker sends its own contribution")
        for dtype in ("float32", "bfloat16"):
            with self.subTest(dtype=dtype):
                self.check([2, 1, 3], 2, dtype)


if __name__ == "__main__":
    unittest.main()
