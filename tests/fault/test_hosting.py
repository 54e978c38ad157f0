# SPDX-License-Identifier: Apache-2.0
"""Servers inside worker processes, on one host and on several: who serves, what it gets, its loss."""

import os
import re
import subprocess
import unittest

import cluster

# Hosts are UTS namespaces here, entered by programs that do not bear the library of a sanitizer.
os.environ.pop("LD_PRELOAD", None)

STEPS = ["init", "push:warm:1000:float32:sum:1", "push:big:3000000:float32:average:1", "gate:end", "leave"]
SETTINGS = ["log.level=info", "server.shards=2", "cluster.peer_timeout=30s"]
BESIDE = r"(?m)(worker|server) (\d+) \(host \S+, pid \d+\) sums ([\d.]+) % of the bytes in 2 shards$"


def namespaces():
    """Skips the test where hosts cannot be made."""
    try:
        subprocess.run(["unshare", "--uts", "hostname", "x"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        raise unittest.SkipTest(f"no UTS namespaces here: {error}") from None


def shares(job):
    """{"worker 0": percent} as the scheduler has told them."""
    job.wait_for("is complete", "scheduler", "err")
    return {
        f"{role} {rank}": float(share) for role, rank, share in re.findall(BESIDE, job.now()["scheduler"].err)
    }


class Case(unittest.TestCase):
    def check(self, expected, hosts=None, workers=3, servers=0, settings=(), extra=None):
        """Runs a whole job; `hosts` are those of its workers, then of its servers."""
        settings = [*SETTINGS, *settings]
        with cluster.ByHand(STEPS, workers, servers, settings, hosts=hosts, extra=extra) as job:
            for rank in range(workers):
                job.wait_for("at end", f"worker {rank}")
            job.open("end")
            ends = job.finish()
            text = cluster.show(ends)
            self.assertEqual(shares(job), expected, text)
            self.assertEqual(
                {part: end.status for part, end in ends.items()}, {part: 0 for part in ends}, text
            )
            for rank in range(workers):
                out = ends[f"worker {rank}"].out
                self.assertIn(f"warm: {workers * (workers + 1) // 2}\n", out, text)
                self.assertIn(f"big: {(workers + 1) / 2:g}\n", out, text)


class OneHost(Case):
    def test_policies(self):
        def policy(word, expected, servers=0):
            return lambda: self.check(expected, servers=servers, settings=[f"cluster.colocated={word}"])

        half, third = 50.0, 33.3
        cluster.side_by_side(
            self,
            {
                "auto": policy("auto", {"worker 0": 100.0}),
                "auto with servers": policy("auto", {"server 0": half, "server 1": half}, 2),
                "none": policy("none", {"server 0": 100.0}, 1),
                "first": policy("first", {"worker 0": 100.0}),
                "first with a server": policy("first", {"worker 0": half, "server 0": half}, 1),
                "hosts": policy("hosts", {"worker 0": 100.0}),
                "hosts with a server": policy("hosts", {"server 0": 100.0}, 1),
                "all": policy("all", {f"worker {rank}": third for rank in range(3)}),
                "all with a server": policy(
                    "all", {**{f"worker {r}": 25.0 for r in range(3)}, "server 0": 25.0}, 1
                ),
            },
        )

    def test_again_and_again(self):
        """The process of a worker hosts a new server in each generation."""
        settings = ["cluster.colocated=all", "cluster.stay=true", "server.shards=1"]
        with cluster.ByRun(["cycles:8:5000:all"], 3, 0, settings) as job:
            job.open("all.8")
            ends = job.finish()
            self.assertEqual(ends["byteps run"].status, 0, cluster.show(ends))


class Hosts(Case):
    @classmethod
    def setUpClass(cls):
        namespaces()

    def test_shares(self):
        def shape(expected, hosts, servers=0, **how):
            return lambda: self.check(expected, hosts, len(hosts) - servers, servers, **how)

        def fast(part):
            return {"extra": {part: ["server.bandwidth=3"]}}

        half, third = 50.0, 33.3
        cluster.side_by_side(
            self,
            {
                "(2, 0)": shape({"worker 0": half, "worker 1": half}, "ab"),
                "(2, 0), uneven": shape({"worker 0": 100.0, "worker 3": 0.0}, "aaab"),
                "(2, 1)": shape({"worker 0": 25.0, "worker 1": 25.0, "server 0": half}, "abc", 1),
                "(2, 2)": shape({"server 0": half, "server 1": half}, "abcd", 2),
                "(3, 1)": shape(
                    {"worker 0": 20.0, "worker 1": 20.0, "worker 2": 20.0, "server 0": 40.0}, "abcd", 1
                ),
                "(3, 1), uneven": shape(
                    {"worker 0": third, "worker 1": 0.0, "worker 3": third, "server 0": third}, "abbcd", 1
                ),
                "a server beside a worker": shape(
                    {"worker 1": third, "worker 2": third, "server 0": third}, "abca", 1
                ),
                "two servers on a host": shape(
                    {"worker 0": 25.0, "worker 1": 25.0, "server 0": 25.0, "server 1": 25.0}, "abcc", 2
                ),
                "one host, a server elsewhere": shape({"server 0": 100.0}, "aab", 1),
                "one host, a server elsewhere and one here": shape(
                    {"worker 0": 100.0, "server 0": 0.0}, "aab", 1, settings=["cluster.colocated=first"]
                ),
                "a fast host": shape(
                    {"worker 0": 0.0, "worker 1": 0.0, "server 0": 25.0, "server 1": 75.0},
                    "abcd",
                    2,
                    settings=["cluster.colocated=all"],
                    **fast("server 1"),
                ),
            },
        )


    def test_shares_of_sums(self):
        """Where a host sends one sum, it counts once however many workers it has."""
        command = [cluster.harness.program(), "plugin", "list"]
        plugins = subprocess.run(command, check=True, capture_output=True)
        if b"ipc" not in plugins.stdout:
            self.skipTest("no transport for hosts")
        settings = ["worker.hierarchy=on"]
        shares_of_3_1 = {"worker 0": 20.0, "worker 1": 20.0, "worker 3": 20.0, "server 0": 40.0}
        self.check({"worker 0": 50.0, "worker 3": 50.0}, "aaab", 4, 0, settings)
        self.check(shares_of_3_1, "abbcd", 4, 1, settings)


class Lost(unittest.TestCase):
    def lose(self, victim, phase):
        steps = {
            "idle": ["init", "push:warm:8:float32:sum:1", "gate:idle", "loop:grad:4000000:never"],
            "push": ["init", "loop:grad:4000000:never"],
            # The victim has left, but it waits for the others, who may still need its shards.
            "left": ["init", "push:warm:8:float32:sum:1", "@0:gate:idle", "@1:gate:idle", "leave"],
        }[phase]
        settings = [*SETTINGS, "cluster.colocated=all", "log.level=debug"]
        with cluster.ByHand(steps, 3, 0, settings) as job:
            others = [f"worker {rank}" for rank in range(3) if f"worker {rank}" != victim]
            for part in others:
                job.wait_for("grad runs" if phase == "push" else "at idle", part)
            if phase == "left":
                job.wait_for("warm: ", victim)
            job.kill(victim)
            for part in others:
                line = job.wait_for("was lost", part, "err")
                self.assertRegex(
                    line, rf"({victim} \(host \S+, pid \d+\)|the server of {victim} at \S+) was lost"
                )
            if phase != "push":
                job.open("idle")
            ends = job.finish()
            for part in others:
                self.assertGreater(ends[part].status, 0, cluster.show(ends))
            self.assertNotEqual(ends["scheduler"].status, 0, cluster.show(ends))

    def test_any_of_them(self):
        cases = {
            f"{v} in {p}": lambda v=v, p=p: self.lose(v, p)
            for v in ("worker 0", "worker 2")
            for p in ("idle", "push")
        }
        cluster.side_by_side(self, {**cases, "worker 2 that has left": lambda: self.lose("worker 2", "left")})


if __name__ == "__main__":
    unittest.main()
