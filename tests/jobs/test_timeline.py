# SPDX-License-Identifier: Apache-2.0
"""The timelines that the members of a job write: all that there was, in its order, on one clock, with its names."""

import collections
import json
import os
import subprocess
import tempfile
import unittest

import harness
import scripted

scripted.require("numpy")

SIZES = (30000, 200, 0, 150000)
"""Elements of the tensors of a step, float32."""
STEPS = 5
PROGRAM = f"""
import os, sys, time
import numpy, byteps.numpy as bps

def step():
    handles = [bps.push_pull_async(t, name=f"g{{i}}") for i, t in enumerate(tensors)]
    for handle in handles:
        bps.synchronize(handle)

bps.init()
tensors = [numpy.ones(n, "float32") for n in {SIZES}]
bps.broadcast(numpy.ones(5000), root_rank=0, name="start")
for _ in range({STEPS}):
    step()
if len(sys.argv) > 1:  # the job goes on until all timelines are there
    file, deadline = sys.argv[1].replace("%", str(bps.rank())), time.monotonic() + 60
    while bps.push_pull(numpy.array([float(os.path.exists(file))]), name="there", op=bps.Sum)[0] < bps.size():
        assert time.monotonic() < deadline
        step()
if os.environ.get("DIES") == str(bps.rank()):
    os.kill(os.getpid(), 9)
bps.push_pull(numpy.ones(7))
bps.barrier()
bps.shutdown()
print("passed 1")
"""
LATER = '[ $BYTEPS_LOCAL_RANK = 1 ] && exec unshare --time --monotonic 100000 --boottime 100000 "$@"; exec "$@"'
"""Worker 1 lives in a time of its own."""
SLICES = ("push", "receive", "answer", "result")
APART = ["--set", "worker.hierarchy=off", "--set", "worker.partition=64 KiB", "--set", "worker.slice=8 KiB"]


def spans(timeline, category):
    return [e for e in timeline["traceEvents"] if e["ph"] == "X" and e["cat"] == category]


def slice_of(event):
    args = event["args"]
    return args["tensor"], args["round"], args["partition"], args["offset"]


class Case(scripted.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_job(self, *arguments, before=(), options=APART, workers=2, servers=1, env=None, file=None):
        """The timelines by member, of a job that went well."""
        command = [*before, harness.python(), "-c", PROGRAM, *arguments]
        options = [*options, *(["--set", f"trace.file={file}"] if file else [])]
        self.run_command(command, workers=workers, servers=servers, options=options, env=env or {})
        return self.read()

    def read(self):
        timelines = {}
        for name in sorted(os.listdir(self.folder)):
            with open(os.path.join(self.folder, name)) as file:
                timeline = json.load(file)
            timelines[timeline["byteps"]["member"]] = timeline
            self.assertEqual(timeline["byteps"]["lost"], 0)
        self.assertEqual(len({t["byteps"]["job"] for t in timelines.values()}), 1)
        return timelines

    def path(self, name="t.json"):
        return os.path.join(self.folder, name)


class Timeline(Case):
    def check_slices(self, timelines, workers, servers):
        """What one end has sent the other one has received, in this order."""
        members = [timelines[f"server {i}"] for i in range(servers)]
        error = sum(t["byteps"]["clock_error_us"] for t in timelines.values()) + 1
        for rank in range(workers):
            mine = timelines[f"worker {rank}"]
            places = {c: {slice_of(e): e for e in spans(mine, c)} for c in ("push", "result")}
            for category in ("receive", "answer"):
                events = [e for t in members for e in spans(t, category) if e["args"]["rank"] == rank]
                places[category] = {slice_of(e): e for e in events}
            sums = {slice_of(e): e for t in members for e in spans(t, "sum")}
            payload = {k for k, e in places["push"].items() if e["args"]["bytes"] > 0}
            self.assertGreater(len(payload), STEPS * 10)
            self.assertEqual(payload, set(places["receive"]))
            self.assertEqual(set(places["result"]), set(places["answer"]))
            for key in payload:
                push, receive, answer, result = (places[c][key] for c in SLICES)
                moments = [push["ts"], receive["ts"] + receive["dur"], sums[key]["ts"], answer["ts"]]
                moments.append(result["ts"] + result["dur"])
                for earlier, later in zip(moments, moments[1:]):
                    self.assertLessEqual(earlier, later + error, (key, moments))

    def test_everything_is_there_in_its_order(self):
        timelines = self.run_job(file=self.path(), servers=2)
        self.check_slices(timelines, 2, 2)
        for rank in range(2):
            mine = timelines[f"worker {rank}"]
            names = collections.Counter(e["name"] for e in spans(mine, "operation"))
            expected = {f"byteps.g{i}": STEPS for i in range(len(SIZES))}
            expected.update({"byteps.start": 1, "unnamed 0": 1, "barrier 0": 1})
            self.assertEqual(names, expected)
            self.assertEqual(collections.Counter(e["name"] for e in spans(mine, "wait")), expected)
            self.assertEqual({e["name"] for e in spans(mine, "stage")}, {"push_pull"})
            steps = collections.Counter(e["args"]["step"] for e in spans(mine, "operation"))
            self.assertEqual(sorted(steps), list(range(STEPS)))
            for i, size in enumerate(SIZES):
                pushes = [e["args"] for e in spans(mine, "push") if e["name"] == f"byteps.g{i}"]
                for step in range(STEPS):
                    self.assertEqual(sum(a["bytes"] for a in pushes if a["step"] == step), size * 4)

    def test_clocks_that_differ(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "--time", "true"], check=False).returncode != 0:
            self.skipTest("needs root and time namespaces")
        timelines = self.run_job(before=("sh", "-c", LATER, "sh"), file=self.path())
        self.check_slices(timelines, 2, 1)

    def test_variables_of_the_original(self):
        env = {
            "BYTEPS_TRACE_ON": "1",
            "BYTEPS_TRACE_DIR": os.path.join(self.folder, "a", "b"),
            "BYTEPS_TRACE_START_STEP": "2",
            "BYTEPS_TRACE_END_STEP": "3",
        }
        self.folder = env["BYTEPS_TRACE_DIR"]
        timelines = self.run_job(self.path("worker-%.json"), env=env)
        self.assertEqual(sorted(os.listdir(self.folder)), ["server-0.json", "worker-0.json", "worker-1.json"])
        for member, timeline in timelines.items():
            events = [e for e in timeline["traceEvents"] if e["ph"] == "X"]
            self.assertEqual({e["args"]["step"] for e in events}, {2, 3}, member)

    def test_variable_of_bytescheduler(self):
        self.run_job(env={"BYTESCHEDULER_TIMELINE": self.path()}, workers=1, servers=0, options=[])
        self.assertEqual(os.listdir(self.folder), ["t.worker-0.json"])

    def test_workers_of_one_host(self):
        timelines = self.run_job(file=self.path(), options=[], servers=0)
        for rank in range(2):
            stages = {e["name"] for e in spans(timelines[f"worker {rank}"], "stage")}
            self.assertIn("local_reduce", stages)
            events = timelines[f"worker {rank}"]["traceEvents"]
            self.assertEqual([e for e in events if "unfinished" in e.get("args", {})], [])

    def test_a_job_that_fails(self):
        options = [*APART, "--set", f"trace.file={self.path()}"]
        command = [harness.python(), "-c", PROGRAM]
        result = harness.run(command, workers=2, servers=1, options=options, env={"DIES": "1"})
        self.assertNotEqual(result.status, 0)
        timelines = self.read()
        named = [e for e in spans(timelines["worker 0"], "operation") if e["name"].startswith("byteps.")]
        self.assertEqual(len(named), 1 + STEPS * len(SIZES), str(result))  # the last one may not have begun
        self.assertNotIn("worker 1", timelines)

    def test_a_file_that_cannot_be_written(self):
        options = ["--set", "trace.file=/proc/no/such/t.json"]
        result = harness.run([harness.python(), "-c", PROGRAM], workers=2, servers=1, options=options)
        self.assertNotEqual(result.status, 0)
        reason = "trace.file = /proc/no/such/t.json: the timeline cannot be written to /proc/no/such/:"
        self.assertIn(reason, str(result))

@scripted.unwatched
@unittest.skipUnless(harness.has_module(harness.python(), "torch"), "torch is not installed")
class Steps(Case):
    """What a program or its optimizer says is a step; rounds of a tensor would tell others."""

    framework = "torch"

    def steps(self, which, *, settings=()):
        """Of each tensor of worker 0 the steps that its operations are in."""
        options = ["--set", f"trace.file={self.path()}", *settings]
        self.run_script("torch_steps.py", which, options=options)
        found = collections.defaultdict(list)
        for event in spans(self.read()["worker 0"], "operation"):
            found[event["name"].removeprefix("byteps.Gradient.")].append(event["args"]["step"])
        return dict(found)

    def test_a_layer_that_is_frozen_for_a_while(self):
        found = self.steps("frozen")
        self.assertEqual(found["one.0.weight"], [0, 1, 4, 5])
        self.assertEqual(found["one.1.weight"], [0, 1, 2, 3, 4, 5])
        self.assertEqual(found["byteps.metric"], [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6])

    def test_some_steps_only(self):
        found = self.steps("frozen", settings=["--set", "trace.from=3", "--set", "trace.to=4"])
        self.assertEqual((found["one.0.weight"], found["one.1.weight"]), ([4], [3, 4]))
        self.assertEqual(found["byteps.metric"], [3, 3, 4, 4])

    def test_steps_that_end_while_gradients_are_on_their_way(self):
        found = self.steps("cross_barrier")
        self.assertEqual((found["one.0.weight"], found["one.1.weight"]), ([0, 1, 2, 3, 4, 5],) * 2)

    def test_a_module_that_reduces_gradients(self):
        found = self.steps("parallel")
        self.assertEqual((found["0.weight"], found["1.weight"]), ([0, 1, 4, 5], [0, 1, 2, 3, 4, 5]))

    def test_two_optimizers(self):
        found = self.steps("two")
        self.assertEqual((found["one.0.weight"], found["two.0.weight"]), ([0, 1, 2, 3, 4, 5], [2, 4, 6, 6, 7]))

    def test_a_program_that_decides(self):
        self.assertEqual(self.steps("program")["one.0.weight"], [1, 1, 2, 2, 3, 3])


if __name__ == "__main__":
    unittest.main()
