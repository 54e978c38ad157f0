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
EQUAL = [65536] * 40
"""Elements of the tensors, in the order of the forward pass."""
WIDTHS = (512, 1024, 1024, 1024, 1024, 32)
PERCEPTRON = [count for pair in zip(WIDTHS, WIDTHS[1:]) for count in (pair[0] * pair[1], pair[1])]
MORE = 0.1
"""Headers, acknowledgements, a packet sent twice, all that the start and the end of a job take: this part at most."""
MORE_IN_A_STEP = 0.03
"""The same without start and end."""
STEPS = 2


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

    def predicted(self, counts, workers, servers, dtype="float32"):
        """The bytes that each link carries each way, by `byteps plan`."""
        lines = "".join(f"t{i} {count} {dtype}\n" for i, count in enumerate(counts))
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

    def measured(self, counts, workers, servers, dtype="float32", steps=1):
        """What each link has carried in a job of so many steps: [bytes sent, bytes received]."""
        pushes = [f"push:t{i}:{count}:{dtype}:sum:1" for i, count in reversed(list(enumerate(counts)))]
        before = self.bed.counters()
        with self.bed.job([WORKER, "init", *pushes * steps, "leave"], workers, servers=servers) as job:
            failed = {name: end.status for name, end in job.finish().items() if end.status != 0}
            self.assertEqual(failed, {}, job.show())
        after = self.bed.counters()
        ways = ("sent", "received")
        return [[after[i][way] - before[i][way] for way in ways] for i in range(len(workers) + servers)]

    def check(self, workers, servers=0, dtype="float32"):
        predicted = self.predicted(EQUAL, len(workers), servers, dtype)
        for link, (want, both) in enumerate(zip(predicted, self.measured(EQUAL, workers, servers, dtype))):
            for got in both:
                self.assertGreater(got, want, f"link {link} of {workers} and {servers}")
                self.assertLess(got, want * (1 + MORE) + 100000, f"link {link} of {workers} and {servers}")

    def check_steps(self, workers, servers):
        """What a step costs each link, whatever the start and the end of a job cost; equal hosts may change places."""
        short, long = (self.measured(PERCEPTRON, [1] * workers, servers, steps=n) for n in (1, 1 + STEPS))
        predicted = self.predicted(PERCEPTRON, workers, servers)
        for way in range(2):
            found = [(b[way] - a[way]) / STEPS for a, b in zip(short, long)]
            for hosts in (slice(workers), slice(workers, None)):
                for want, got in zip(sorted(predicted[hosts]), sorted(found[hosts])):
                    self.assertGreaterEqual(got, want, (predicted, found))
                    self.assertLess(got, want * (1 + MORE_IN_A_STEP), (predicted, found))

    def test_steps_of_a_training(self):
        for servers in (2, 1, 0):
            with self.subTest(servers=servers):
                self.check_steps(4, servers)

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
