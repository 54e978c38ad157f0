# SPDX-License-Identifier: Apache-2.0
"""A hundred times init, push_pull and shutdown in one process: the hundredth leaves as much as the tenth."""

import os
import time
import unittest

import cluster

CYCLES = 100
COUNT = 600_000  # elements
SLACK = 1024  # KiB
NAMES = ("descriptors", "threads", "mappings", "KiB")

# What is freed is given back: else whether the heap keeps a tensor of 2.4 MB depends on what lies behind it.
os.environ["GLIBC_TUNABLES"] = "glibc.malloc.mmap_threshold=131072"


class Leaks(unittest.TestCase):
    def held(self, job, part, cycle):
        """What a part says that it holds."""
        return [int(word) for word in job.wait_for(f"cycle {cycle}: ", part).split()[2:]]

    def services(self, job):
        """The same for those that stay, as seen from outside."""
        found = {}
        for part in job.parts:
            if not part.startswith("worker"):
                pid = job.pid(part)
                with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
                    maps = sum(1 for _ in file)
                threads = len(os.listdir(f"/proc/{pid}/task"))
                found[part] = [cluster.descriptors(pid), threads, maps, cluster.resident(pid)]
        return found

    def compare(self, part, early, late):
        for name, before, after in zip(NAMES, early, late):
            if name == "KiB":
                if not os.environ.get("SANITIZER"):
                    self.assertLess(after, before + SLACK, f"{part}: {name}")
            elif name != "mappings" or not os.environ.get("SANITIZER"):
                # The kernel joins neighbouring mappings or not: a few more are no leak, one each cycle is.
                self.assertLessEqual(after, before + (10 if name == "mappings" else 0), f"{part}: {name}")

    def settled(self, job, early):
        """services(), when none has more descriptors and threads than before; or after a while: they learn later than
        the workers that a cycle is over."""
        end = time.monotonic() + 10
        while True:
            late = self.services(job)
            more = [part for part in late for before, after in zip(early[part][:2], late[part]) if after > before]
            if not more or time.monotonic() > end:
                return late
            time.sleep(0.1)

    def cycle(self, servers):
        workers = ("worker 0", "worker 1")
        steps = [f"cycles:{CYCLES}:{COUNT}:cycle"]
        settings = ["cluster.stay=true", "server.shards=2"]
        with cluster.ByHand(steps, servers=servers, settings=settings) as job:
            early = {**{part: self.held(job, part, 10) for part in workers}, **self.services(job)}
            job.open("cycle.10")
            late = {**{part: self.held(job, part, CYCLES) for part in workers}, **self.settled(job, early)}
            job.open(f"cycle.{CYCLES}")
            for part, before in early.items():
                self.compare(part, before, late[part])
            for part in workers:
                self.assertEqual(job.parts[part].process.wait(cluster.DEADLINE), 0, cluster.show(job.now()))

    def test_own_server(self):
        self.cycle(1)

    def test_server_in_worker_0(self):
        self.cycle(0)


if __name__ == "__main__":
    unittest.main()
