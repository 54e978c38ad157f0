# SPDX-License-Identifier: Apache-2.0
"""Three workers that disagree about a tensor get the same words, and go on together with the next one."""

import os
import shutil
import sys
import tempfile
import unittest

import cluster

sys.path.insert(0, os.path.join(os.path.dirname(cluster.HERE), "plugins"))

import modules  # noqa: E402  (it lies in the folder that was just added)

RANKS = range(3)
PARTITIONS = ["worker.partition=4KiB", "worker.slice=1KiB"]


def push(name, count=100, dtype="float32", op="sum", postscale=1):
    return f"push:{name}:{count}:{dtype}:{op}:{postscale}"


class Case(unittest.TestCase):
    def run_steps(self, steps, settings=(), servers=1, env=()):
        """A job of three workers; {rank: lines} when all have ended in order."""
        with cluster.ByHand(["init", *steps, "leave"], workers=3, servers=servers, settings=settings) as job:
            ends = job.finish()
        text = cluster.show(ends)
        for part, end in ends.items():
            self.assertEqual(end.status, 0, f"{part}\n{text}")
        lines = [ends[f"worker {rank}"].out.splitlines() for rank in RANKS]
        for own in lines:
            self.assertEqual((own[0], own[-1]), ("joined", "left"), text)
        return [own[1:-1] for own in lines], text

    def disagree(self, odd, others, *words, rank=1, settings=(), servers=1):
        """Worker `rank` does `odd`, the others `others`: one error for all, and the next round is right."""
        steps = [f"@{r}:?{odd if r == rank else others}" for r in RANKS]
        steps += [push("after"), push("after")]
        lines, text = self.run_steps(steps, settings, servers)
        for own in lines:
            self.assertEqual(own, lines[0], text)
            self.assertEqual(own[1:], ["after: 6", "after: 6"], text)
            self.assertTrue(own[0].startswith("error: "), text)
            for word in words:
                self.assertIn(word, own[0], text)


class Mismatch(Case):
    def both_kinds(self, odd, others, *words, **how):
        """With few bytes and with several partitions; with a server of its own and without."""
        cases = {
            "one partition": lambda: self.disagree(odd, others, *words, **how),
            "partitions": lambda: self.disagree(odd, others, *words, settings=PARTITIONS, **how),
            "hosted": lambda: self.disagree(odd, others, *words, servers=0, **how),
        }
        cluster.side_by_side(self, cases)

    def test_length(self):
        """Who declares first decides the length, so that the odd one may be in the right."""
        for odd, others in ((5000, 7000), (7000, 5000), (0, 5000), (5000, 0)):
            with self.subTest(odd=odd, others=others):
                words = f"tensor 't': worker 1 pushed {odd} float32, workers 0 and 2 pushed {others} float32"
                self.both_kinds(push("t", odd), push("t", others), words)

    def test_type(self):
        words = "tensor 't': worker 1 pushed 100 int32, workers 0 and 2 pushed 100 float32"
        self.both_kinds(push("t", dtype="int32"), push("t"), words)

    def test_operation(self):
        words = ("tensor 't': worker 1 pushed 100 float32 (max), workers 0 and 2 pushed 100 float32 (sum)",)
        self.both_kinds(push("t", op="max"), push("t"), *words)

    def test_postscale(self):
        words = "worker 1 pushed 100 float32 (sum, postscale 0.5), workers 0 and 2 pushed 100 float32 (sum)"
        self.both_kinds(push("t", postscale=0.5), push("t"), words)

    def test_root(self):
        words = ("worker 1 pushed 100 float32 (broadcast from root 1)", "(broadcast from root 0)")
        self.both_kinds("cast:t:100:1", "cast:t:100:0", *words)

    def test_root_that_does_not_exist(self):
        words = ("root 7 is not a worker of this job (0..2)",)
        self.both_kinds("cast:t:100:7", "cast:t:100:7", *words)

    def test_broadcast_and_sum(self):
        words = "worker 2 pushed 100 float32 (broadcast from root 0), workers 0 and 1 pushed 100 float32 "
        self.both_kinds("cast:t:100:0", push("t"), words, rank=2)

    def test_three_opinions(self):
        steps = [f"@{r}:?{push('t', op=op)}" for r, op in enumerate(("sum", "min", "max"))]
        lines, text = self.run_steps([*steps, push("after")])
        for own in lines:
            self.assertEqual(own, lines[0], text)
            for rank, op in enumerate(("sum", "min", "max")):
                self.assertIn(f"worker {rank} pushed 100 float32 ({op})", own[0])
            self.assertEqual(own[1:], ["after: 6"], text)

    def test_again_and_again(self):
        """Every second round of one tensor fails; the others are right."""
        steps = []
        for _ in range(5):
            steps += [f"@{r}:?{push('t', op='min' if r == 2 else 'sum')}" for r in RANKS] + [push("t")]
        lines, text = self.run_steps(steps, PARTITIONS)
        for own in lines:
            self.assertEqual(own[1::2], ["t: 6"] * 5, text)
            for line in own[0::2]:
                self.assertTrue(line.startswith("error: tensor 't': worker 2 pushed"), text)


class Change(Case):
    """A tensor has another size or type than the last time."""

    blamed = "worker 1"  # of the workers that have left, by one who comes last

    def both_kinds(self, check):
        cases = {
            "one partition": lambda: check((), 1),
            "partitions": lambda: check(PARTITIONS, 1),
            "partitions, hosted": lambda: check(PARTITIONS, 0),
            "hosted": lambda: check((), 0),
        }
        cluster.side_by_side(self, cases)

    def test_all_alike(self):
        """It is another tensor from then on; nothing else notices."""

        def check(settings, servers):
            forms = ((100, "float32"), (9000, "float32"), (9000, "int32"), (0, "float32"), (5000, "float64"))
            steps = [push("t", count, dtype) for count, dtype in 2 * forms for _ in range(2)]
            lines, text = self.run_steps([*steps, push("after")], settings, servers)
            for own in lines:
                counts = [count for count, _ in 2 * forms for _ in range(2)]
                self.assertEqual(own, ["t: 6" if n > 0 else "t: 0" for n in counts] + ["after: 6"], text)

        self.both_kinds(check)

    def test_one_does_not(self):
        """All get the same words; then it goes on with the old size, or with the new one."""

        def check(settings, servers):
            for late in RANKS:
                steps = [push("t", 5000)]
                steps += [f"@{r}:?{push('t', 5000 if r == late else 7000)}" for r in RANKS]
                steps += [push("t", 5000), push("t", 7000), push("t", 7000)]
                lines, text = self.run_steps(steps, settings, servers)
                others = " and ".join(str(r) for r in RANKS if r != late)
                words = f"worker {late} pushed 5000 float32, workers {others} pushed 7000 float32"
                for own in lines:
                    self.assertEqual(own[0], "t: 6", text)
                    self.assertEqual(own[1], f"error: tensor 't': {words}", text)
                    self.assertEqual(own[2:], ["t: 6"] * 3, text)

        self.both_kinds(check)

    def test_one_leaves(self):
        """All who have changed would wait for it; who comes when another has left too hears the same."""
        steps = ["init", push("t"), "@1:leave", "@2:gate:late", f"@0:{push('t', 50)}", f"@2:{push('t', 50)}"]
        with cluster.ByHand([*steps, "@0:leave", "@2:leave"], workers=3) as job:
            for gone in ("worker 1", "worker 0"):
                job.parts[gone].process.wait(cluster.harness.DEADLINE)
            job.open("late")
            ends = job.finish()
        for rank, blamed in ((0, "worker 1"), (2, self.blamed)):
            words = f"error: tensor 't': {blamed} has left the job"
            self.assertRegex(ends[f"worker {rank}"].out, words, cluster.show(ends))

    def test_time_out(self):
        settings = ["cluster.stall_warning=1s", "cluster.stall_timeout=5s"]
        steps = ["init", push("t"), "@1:gate:late", "?" + push("t", 50), push("t", 50), "leave"]
        with cluster.ByHand(steps, workers=3, settings=settings) as job:
            words = "tensor 't': worker 1 did not contribute within 5 s (cluster.stall_timeout)"
            for part in ("worker 0", "worker 2"):
                self.assertRegex(job.wait_for(" s for worker 1", part, "err"), r"tensor 't' has waited \d+ s for")
                self.assertIn(words, job.wait_for("error: ", part))
            job.open("late")  # the others have begun the next round
            self.assertIn(words, job.wait_for("error: ", "worker 1"))
            for part, end in job.finish().items():
                self.assertEqual(end.status, 0, f"{part}\n{cluster.show(job.now())}")


class Queue(Case):
    """A round fails while its tensor is on top of the queue to a shard and has no credit: what is behind it goes on.

    The first credit is 64 KiB: the middle one and a slice of the big one leave room for a small one and not for the
    next slice.
    """

    MIDDLE, BIG, SMALL = 6144, 1 << 22, 256

    def behind(self, servers):
        def begin(name, count, op="sum"):
            return f"begin:{name}:{count}:float32:{op}"

        small = [f"s{i}" for i in range(8)]
        first = [begin("middle", self.MIDDLE), begin("big", self.BIG)] + [begin(s, self.SMALL) for s in small]
        second = [begin(s, self.SMALL) for s in small] + [begin("big", self.BIG, "max")]
        steps = ["init", *(f"@0:{step}" for step in first), *(f"@1:{step}" for step in second)]
        steps += [f"await:{s}" for s in small] + ["?await:big", "@1:" + begin("middle", self.MIDDLE), "await:middle"]
        settings = ["server.shards=1", "worker.slice=32KiB"]
        with cluster.ByHand([*steps, "leave"], servers=servers, settings=settings) as job:
            ends = job.finish()
        text = cluster.show(ends)
        for rank in range(2):
            end = ends[f"worker {rank}"]
            self.assertEqual(end.status, 0, text)
            lines = end.out.splitlines()
            self.assertEqual(lines[1:9], [f"{s}: 3" for s in small], text)
            self.assertIn("tensor 'big': worker 1 pushed 4194304 float32 (max), worker 0 ", lines[9], text)
            self.assertEqual(lines[10:], ["middle: 3", "left"], text)

    def test_small_behind_big(self):
        for servers in (0, 1):
            for turn in range(3):
                with self.subTest(servers=servers, turn=turn):
                    self.behind(servers)


class Stage(Case):
    """One worker's stage fails: all workers hear of it."""

    GRAPH = 'worker.graph=({ stage = "nanguard"; }, { stage = "push_pull"; use = "net"; })'
    WHO = "worker 1"
    HOSTS = None

    def test_nan_on_one_worker(self):
        folder = tempfile.mkdtemp(prefix="byteps-stage-")
        self.addCleanup(shutil.rmtree, folder)
        modules.build_example("nanguard", folder)
        path = os.pathsep.join(filter(None, [folder, os.environ.get("BYTEPS_PLUGIN_PATH")]))
        for count, servers in ((3000, 0), (3000, 1), (100, 0), (100, 1)):
            with self.subTest(count=count, servers=servers):
                steps = ["init", *(f"@{r}:?{f'nan:t:{count}' if r == 1 else push('t', count)}" for r in RANKS)]
                steps += [push("t", count), "leave"]
                self.nan(steps, [*PARTITIONS, self.GRAPH], path, servers)

    def nan(self, steps, settings, path, servers):
        before = os.environ.get("BYTEPS_PLUGIN_PATH")
        os.environ["BYTEPS_PLUGIN_PATH"] = path
        try:
            job = cluster.ByHand(steps, workers=3, servers=servers, settings=settings, hosts=self.HOSTS)
        finally:
            os.environ["BYTEPS_PLUGIN_PATH"] = before or ""
        with job:
            ends = job.finish()
        text = cluster.show(ends)
        for rank in RANKS:
            own = ends[f"worker {rank}"]
            self.assertEqual(own.status, 0, text)
            words = rf"(?m)^error: tensor 't': {self.WHO}: stage nanguard: .*element 2 of t is NaN"
            self.assertRegex(own.out, words, text)
            self.assertIn("\nt: 6\n", own.out, text)


class Leaving(Case):
    """A worker leaves in order while the others still push: no hang, and everybody knows who it was."""

    GONE = "worker 1"

    def leave(self, servers):
        steps = ["init", push("t"), "@1:leave", "@0:" + push("t"), "@2:" + push("t"), "@0:leave", "@2:leave"]
        with cluster.ByHand(steps, workers=3, servers=servers) as job:
            ends = job.finish()
        text = cluster.show(ends)
        self.assertEqual(ends["worker 1"].status, 0, text)
        for rank in (0, 2):
            self.assertEqual(ends[f"worker {rank}"].status, 3, text)
            words = rf"error: tensor 't': {self.GONE} has left the job"
            self.assertRegex(ends[f"worker {rank}"].out, words, text)

    def test_in_order(self):
        cluster.side_by_side(self, {"own server": lambda: self.leave(1), "hosted": lambda: self.leave(0)})

    def abandon(self, servers):
        """It shuts down while a tensor of its own is in flight that the others never push."""
        steps = ["init", push("t"), "@1:start:mine:100", "@1:leave", push("t")]
        with cluster.ByHand(steps, workers=3, servers=servers) as job:
            ends = job.finish()
        text = cluster.show(ends)
        for rank in RANKS:
            self.assertEqual(ends[f"worker {rank}"].status, 3, text)
            words = r"worker 1 \(host \S+, pid \d+\) gave up: it shut down while tensor 'mine' was in flight"
            self.assertRegex(ends[f"worker {rank}"].out, words, text)

    def test_with_something_in_flight(self):
        cluster.side_by_side(self, {"own server": lambda: self.abandon(1), "hosted": lambda: self.abandon(0)})

    def exit(self, servers):
        """It ends without a word."""
        steps = ["init", push("t"), "@1:gate:go", "@0:" + push("t"), "@2:" + push("t")]
        with cluster.ByHand(steps, workers=3, servers=servers) as job:
            job.wait_for("at go", "worker 1")
            job.open("go")
            ends = job.finish()
        text = cluster.show(ends)
        for rank in (0, 2):
            self.assertEqual(ends[f"worker {rank}"].status, 3, text)
            self.assertRegex(ends[f"worker {rank}"].out, r"error: .*worker 1.*tensor 't' was in flight", text)

    def test_without_a_word(self):
        cluster.side_by_side(self, {"own server": lambda: self.exit(1), "hosted": lambda: self.exit(0)})


class Stall(Case):
    """Two workers wait for a third one that lives but does not push: they are told whom they wait for."""

    def test_time_out(self):
        """And so is that one, when it comes to it."""
        settings = ["cluster.stall_warning=1s", "cluster.stall_timeout=6s"]
        steps = ["init", "@1:gate:late", "?" + push("t"), "leave"]
        with cluster.ByHand(steps, workers=3, settings=settings) as job:
            for part in ("worker 0", "worker 2"):
                line = job.wait_for(" s for worker 1", part, "err")
                self.assertRegex(line, r"tensor 't' has waited \d+ s for")
                line = job.wait_for("error: ", part)
                words = "tensor 't': worker 1 did not contribute within 6 s (cluster.stall_timeout)"
                self.assertIn(words, line)
            job.open("late")
            self.assertIn(words, job.wait_for("error: ", "worker 1"))
            for part, end in job.finish().items():
                self.assertEqual(end.status, 0, f"{part}\n{cluster.show(job.now())}")


if __name__ == "__main__":
    unittest.main()
