# SPDX-License-Identifier: Apache-2.0
"""`byteps trace`: timelines with known moments, what adds up in random ones, refusals, and files that are none."""

import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("BYTEPS_PROGRAM")
PARTS = ("computation", "stages", "queue", "credit", "wire", "others", "sum", "unknown")


def setUpModule():
    if not PROGRAM:
        raise unittest.SkipTest("BYTEPS_PROGRAM is not set: run the tests by 'make check' or ./byteps-env")


class Timeline:
    """What one member writes. Moments are in milliseconds."""

    def __init__(self, member, rank=0, pid=None, job="9f3a", **more):
        self.pid = rank if pid is None else pid
        self.header = {"format": 1, "member": member, "rank": rank, "host": "c", "job": job, "clock_error_us": 12.5,
                       "lost": 0, "tensors": {}, **more}
        self.events = [{"ph": "M", "name": "process_name", "pid": self.pid, "args": {"name": f"{member} (c)"}}]

    def thread(self, tid, name):
        self.events.append({"ph": "M", "name": "thread_name", "pid": self.pid, "tid": tid, "args": {"name": name}})
        return self

    def add(self, category, begin, end, name=None, tid=1, tensor=1, number=0, **args):
        """`number` is that of the round, and of the step."""
        args = {"tensor": tensor, "round": number, "step": number, **args}
        name = f"tensor {tensor}" if name is None else name
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": self.pid, "tid": tid,
                            "ts": round(1000 * begin, 3), "dur": round(1000 * (end - begin), 3), "args": args})
        return self

    def __str__(self):
        events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in self.events)
        head = json.dumps(self.header, separators=(",", ":"))
        return f'{{"displayTimeUnit":"ms",\n "byteps":{head},\n "traceEvents":[\n{events}]}}\n'


def worker(rank=0, **more):
    """Two steps. A slice is held by everything once, and in the second step by little."""
    slices = {"shard": 0, "partition": 0, "offset": 0}
    line = Timeline(f"worker {rank}", rank, tensors={"1": 'layer1."weight"'}, **more)
    line.thread(1, "main").thread(3, "to server 0").add("operation", 10, 30, "layer1").add("wait", 14, 31, tid=2)
    line.add("stage", 10, 15, "local_reduce", partition=0).add("stage", 15, 28, "push_pull", partition=0)
    line.add("credit", 16, 18, "credit", shard=0).add("credit", 16, 18, "credit", shard=1)
    line.add("result", 23, 24, tid=4, shard=0, partition=0, offset=64)  # not the last
    line.add("push", 19, 22, tid=3, **slices).add("result", 26, 28, tid=4, **slices)
    line.add("stage", 28, 30, "local_broadcast", partition=0)
    line.add("operation", 40, 45, "layer1", number=1).add("wait", 41, 45, number=1, tid=2)
    line.add("stage", 40, 45, "push_pull", number=1).add("push", 41, 42.5, number=1, tid=3, **slices)
    return line.add("result", 44, 45, number=1, tid=4, **slices)


def server(ranks=(0,), **more):
    slices = {"shard": 0, "partition": 0, "offset": 0}
    line = Timeline("server 0", 0, 2, **more).thread(1, "shard 0")
    for rank in ranks:
        line.add("receive", 19.2, 22.5, tid=2 + rank, rank=rank, **slices)
        line.add("receive", 41, 42, tid=2 + rank, rank=rank, number=1, **slices)
        line.add("answer", 25, 27, tid=6 + rank, rank=rank, **slices)
    line.add("gather", 20, 24, **slices).add("sum", 24, 25, **slices)
    return line.add("gather", 41, 43, number=1, **slices).add("sum", 43, 43.5, number=1, **slices)


TABLE = """\
Milliseconds of each step, of 1 worker

  step     time computation  stages   queue  credit    wire  others     sum
     0     30.0        13.0     4.0     2.0     2.0     6.5     1.5     1.0
     1      5.0         1.0     0.0     0.0     0.0     2.5     1.0     0.5
  mean     17.5         7.0     2.0     1.0     1.0     4.5     1.3     0.7
     %    100.0        40.0    11.4     5.7     5.7    25.7     7.2     4.3
"""
WITHOUT_SERVER = """\
Milliseconds of each step, of 1 worker

  step     time computation  stages   queue  credit    wire  others     sum
     0     30.0        13.0     4.0     2.0     2.0     9.0     0.0     0.0
     1      5.0         1.0     0.0     0.0     0.0     4.0     0.0     0.0
  mean     17.5         7.0     2.0     1.0     1.0     6.5     0.0     0.0
     %    100.0        40.0    11.4     5.7     5.7    37.2     0.0     0.0

The files of servers are missing, for 2 of the 2 slices that ended what was
waited for: there 'wire' and 'credit' contain waiting for other workers, and
sums.
"""


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="byteps-trace-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def trace(self, *args):
        return subprocess.run([PROGRAM, "trace", *args], cwd=self.folder, env=dict(os.environ, LC_ALL="C"),
                              capture_output=True, timeout=120, check=False)

    def good(self, *args):
        result = self.trace(*args)
        self.assertEqual((result.returncode, result.stderr.decode()), (0, ""))
        return result.stdout.decode()

    def bad(self, message, *args, status=1):
        result = self.trace(*args)
        self.assertEqual((result.returncode, result.stderr.decode(), result.stdout), (status, message, b""))

    def write(self, **files):
        for name, text in files.items():
            (self.folder / name).write_text(str(text), encoding="utf-8")
        return list(files)

    def show(self, **files):
        return json.loads(self.good("show", "--json", *self.write(**files)))


class Show(Case):
    def test_table(self):
        self.assertEqual(self.good("show", *self.write(w=worker(), s=server())), TABLE)

    def test_without_the_server(self):
        self.assertEqual(self.good("show", *self.write(w=worker())), WITHOUT_SERVER)

    def test_merged(self):
        self.good("merge", "-o", "all", *self.write(w=worker(), s=server()))
        self.assertEqual(self.good("show", "all"), TABLE)

    def test_workers(self):
        late = worker(1)
        for event in late.events:
            if event["name"] == "layer1" and event["args"]["step"] == 1:
                event["dur"] += 2000
        text = self.good("show", "--workers", "--steps", "1..1", *self.write(a=worker(), b=late, s=server((0, 1))))
        self.assertIn("\nworker 0\n", text)
        self.assertRegex(text, r"\nworker 1\n.*\n +1 +7\.0 +3\.0 ")
        text = self.good("show", "a", "b", "s")
        self.assertIn("the mean of 2 workers", text)
        self.assertRegex(text, r"\n +1 +6\.0 +2\.0 ")

    def test_json(self):
        out = self.show(w=worker(), s=server())
        first = {"time": 30e6, "computation": 13e6, "stages": 4e6, "queue": 2e6, "credit": 2e6, "wire": 6.5e6,
                 "others": 1.5e6, "sum": 1e6, "unknown": 0}
        self.assertEqual(out["steps"][0], {"step": 0, "workers": 1, "ns": first})
        self.assertEqual(out["workers"][0]["steps"][0]["ns"], first)
        self.assertEqual((out["slices"], out["slices_without_server"], out["lost"]), (2, 0, 0))
        self.assertEqual(out["mean"]["ns"]["time"], 17.5e6)

    def test_several_wait_at_once(self):
        """The first one counts until it ends."""
        line = Timeline("worker 0").add("operation", 0, 10).add("operation", 0, 20, tensor=2)
        line.add("stage", 0, 10, "local_reduce").add("stage", 0, 20, "push_pull", tensor=2)
        line.add("wait", 5, 10).add("wait", 6, 18, tensor=2).add("wait", 7, 9)
        ns = self.show(w=line)["steps"][0]["ns"]
        self.assertEqual([ns[part] for part in PARTS], [7e6, 5e6, 0, 0, 8e6, 0, 0, 0])

    def test_programs_that_are_called_back(self):
        line = Timeline("worker 0").add("operation", 0, 10).add("operation", 4, 16, tensor=2)
        line.add("stage", 0, 10, "push_pull").add("stage", 4, 16, "local_reduce", tensor=2)
        line.add("operation", 20, 21, number=1)
        steps = self.show(w=line)["steps"]
        self.assertEqual([steps[0]["ns"][part] for part in PARTS], [8e6, 12e6, 0, 0, 0, 0, 0, 0])
        self.assertEqual([steps[1]["ns"][part] for part in PARTS], [0, 0, 0, 0, 0, 0, 0, 1e6])

    def test_nothing_is_known_of_what_is_waited_for(self):
        text = self.good("show", *self.write(w=Timeline("worker 0").add("operation", 0, 9).add("wait", 1, 9, number=5)))
        self.assertRegex(text, r"sum unknown\n +0 +9\.0 +1\.0 .* 8\.0\n")
        self.assertIn("\n'unknown': ", text)

    def test_a_broadcast_that_another_one_pushes(self):
        line = Timeline("worker 0").add("operation", 0, 10).add("wait", 0, 10).add("stage", 1, 10, "push_pull")
        line.add("result", 8, 10, shard=0)
        ns = self.show(w=line, s=Timeline("server 0", pid=1).add("gather", 6, 7))["steps"][0]["ns"]
        self.assertEqual([ns[part] for part in PARTS], [0, 1e6, 0, 0, 3e6, 6e6, 0, 0])

    def test_a_partition_that_a_worker_of_the_same_host_pushes(self):
        line = Timeline("worker 0").add("operation", 10, 30).add("wait", 12, 30).add("result", 19, 20, shard=0)
        line.add("stage", 10, 12, "local_reduce", partition=1).add("stage", 12, 29, "local_broadcast", partition=1)
        slices = {"partition": 1, "offset": 0, "shard": 1}
        other = Timeline("worker 1", 1).add("operation", 10, 30).add("stage", 13, 27, "push_pull", partition=1)
        other.add("push", 15, 17, **slices).add("credit", 13.5, 14.5, shard=1).add("result", 26, 27, **slices)
        first = self.show(w=line, v=other)["workers"][0]["steps"][0]["ns"]
        self.assertEqual([first[part] for part in PARTS], [2e6, 4e6, 1e6, 1e6, 12e6, 0, 0, 0])
        other.header["host"] = "d"
        first = self.show(w=line, v=other)["workers"][0]["steps"][0]["ns"]
        self.assertEqual([first[part] for part in PARTS], [2e6, 10e6, 0, 0, 8e6, 0, 0, 0])

    def test_credit_that_others_hold(self):
        """What counts is that of this worker at this shard: received there, and not complete."""
        line = Timeline("worker 0").add("operation", 0, 40).add("wait", 0, 40).add("stage", 0, 40, "push_pull")
        line.add("push", 1, 2, shard=0, partition=0, offset=0).add("push", 1, 3, shard=0, partition=0, offset=64)
        line.add("push", 2, 4, shard=1, partition=1, offset=0).add("push", 30, 32, shard=0, partition=2, offset=0)
        line.add("credit", 5, 12, shard=0).add("credit", 20, 28, shard=0).add("result", 38, 40, shard=0, partition=2)
        shard = Timeline("server 0", pid=7)
        shard.add("receive", 2, 6, rank=0, partition=0, offset=0).add("gather", 1, 9, partition=0, offset=0)
        shard.add("receive", 3, 4, rank=0, partition=0, offset=64).add("gather", 4, 8, partition=0, offset=64)
        shard.add("receive", 2, 5, rank=0, partition=1).add("gather", 5, 28, partition=1)  # at another one
        shard.add("gather", 4, 12, partition=9)  # of others
        shard.add("receive", 31, 32, rank=0, partition=2).add("gather", 20, 33, partition=2)  # before it has come
        files = {"w": line, "s": shard, "v": Timeline("worker 1", 1).add("push", 0, 1, shard=0, partition=9)}
        ns = self.show(**files)["steps"][0]["ns"]
        self.assertEqual([ns[part] for part in PARTS], [0, 0, 15e6, 11e6, 9e6, 5e6, 0, 0])
        shard.add("receive", 20, 21, rank=0, partition=3).add("gather", 21, 40, partition=3)
        line.add("push", 19, 20, shard=0, partition=3)
        ns = self.show(**files)["steps"][0]["ns"]
        self.assertEqual([ns[part] for part in PARTS], [0, 0, 15e6, 4e6, 9e6, 12e6, 0, 0])

    def test_notes(self):
        line = worker(lost=3, clock_error_us=250)
        text = self.good("show", *self.write(w=line, s=server()))
        self.assertIn("\n3 events were lost where they were recorded.\n", text)
        self.assertIn("\nThe clocks of the members agree within 0.2 ms only", text)

    def test_steps(self):
        self.write(w=worker(), s=server())
        for steps in ("1..1", "1", "1..99"):
            self.assertNotRegex(self.good("show", "--steps", steps, "w", "s"), r"\n +0 ")
        self.bad("byteps trace: none of the steps 7..9 is there; the steps are 0..1\n", "show", "--steps", "7..9", "w")
        for steps in ("9..7", "..", "1..", "a", "1..2x", "-1", "99999999999999999999"):
            self.bad(f"byteps trace: --steps {steps}: expected FROM..TO, such as 10..19\n"
                     "Try 'byteps trace --help'.\n", "show", f"--steps={steps}", "w", status=2)

    def test_no_step(self):
        self.bad("byteps trace: no step is in the file: expected operations of a worker\n", "show",
                 *self.write(s=server()))

    def test_random_ones_add_up(self):
        generator = random.Random(5)
        for _ in range(15):
            files = {"w": random_worker(generator), "v": random_worker(generator, 1), "s": random_server(generator)}
            out = self.show(**files)
            rows = [row["ns"] for table in (out, *out["workers"]) for row in table["steps"]]
            rows += [table["mean"]["ns"] for table in (out, *out["workers"])]
            for row in rows:
                self.assertEqual(sum(row[part] for part in PARTS), row["time"])
                self.assertTrue(all(row[part] >= 0 for part in PARTS), row)
            lines = [line.split() for line in self.good("show", *files).splitlines() if line[:6].strip()]
            cells = [[round(10 * float(cell)) for cell in line[1:]] for line in lines if line[0][0] in "0123456789m%"]
            self.assertEqual([row[0] for row in cells], [sum(row[1:]) for row in cells])


def random_worker(generator, rank=0):
    line = Timeline(f"worker {rank}", rank)
    for _ in range(200):
        add_random(line, generator, ("operation", "wait", "stage", "credit", "push", "result"), rank)
    return line


def random_server(generator):
    line = Timeline("server 0", pid=7)
    for _ in range(200):
        add_random(line, generator, ("receive", "gather", "sum", "answer"), generator.randrange(2))
    return line


def add_random(line, generator, categories, rank):
    category = generator.choice(categories)
    begin, length = generator.uniform(-5, 100), generator.choice((0, 1, 10, 60)) * generator.random()
    name = generator.choice(("push_pull", "local_reduce")) if category == "stage" else None
    line.add(category, begin, begin + length, name, tensor=generator.randrange(3), number=generator.randrange(4),
             partition=generator.randrange(2), offset=64 * generator.randrange(2), shard=generator.randrange(2),
             rank=rank)


class Merge(Case):
    def merged(self, **files):
        self.good("merge", "-o", "all.json", *self.write(**files))
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([*files, "all.json"]))
        return json.loads((self.folder / "all.json").read_text())

    def test_result(self):
        line = server()
        out = self.merged(w=worker(), s=line)
        self.assertEqual(out["byteps"], {
            "format": 1, "job": "9f3a", "tensors": {"1": 'layer1."weight"'}, "members": [
                {"member": "worker 0", "rank": 0, "host": "c", "clock_error_us": 12.5, "lost": 0, "pid": 0},
                {"member": "server 0", "rank": 0, "host": "c", "clock_error_us": 12.5, "lost": 0, "pid": 2}]})
        expected = [dict(event, name='layer1."weight"') if event["name"] == "tensor 1" else event
                    for event in worker().events + line.events]
        arrows = [event for event in out["traceEvents"] if event.get("cat") == "flow"]
        self.assertEqual([event for event in out["traceEvents"] if event.get("cat") != "flow"
                          and "(2)" not in str(event)], expected)
        places = {(arrow["name"], arrow["ph"], arrow["pid"], arrow["tid"], arrow["ts"]) for arrow in arrows}
        self.assertEqual(places, {("result", "s", 2, 6, 25000), ("result", "f", 0, 4, 26000),
                                  ("push", "s", 0, 3, 19000), ("push", "f", 2, 2, 19200),
                                  ("push", "s", 0, 3, 41000), ("push", "f", 2, 2, 41000)})
        self.assertEqual({arrow["id"]: arrow["name"] for arrow in arrows}, {1: "result", 2: "push", 3: "push"})
        self.assertEqual({arrow["ph"]: arrow.get("bp") for arrow in arrows}, {"s": None, "f": "e"})

    def test_standard_output_and_what_is_no_file(self):
        self.write(w=worker())
        text = self.good("merge", "w")
        self.assertEqual(json.loads(text)["byteps"]["job"], "9f3a")
        self.assertEqual(self.good("merge", "-o", "/dev/stdout", "w"), text)
        self.good("merge", "-o", "w", "w")
        self.assertEqual((self.folder / "w").read_text(), text)

    def test_terminal(self):
        main, side = os.openpty()
        self.write(w=worker())
        result = subprocess.run([PROGRAM, "trace", "merge", self.folder / "w"], stdout=side, stderr=subprocess.PIPE,
                                timeout=60, check=False)
        os.close(main)
        os.close(side)
        self.assertEqual((result.returncode, result.stderr.decode().splitlines()[0]),
                         (2, "byteps trace: standard output is a terminal; name a file with -o OUT"))

    def test_numbers_that_collide(self):
        out = self.merged(w=worker(), s=server(), v=Timeline("worker 1", 1, pid=0).add("operation", 1, 2))
        self.assertEqual([member["pid"] for member in out["byteps"]["members"]], [0, 2, 1])
        self.assertEqual([event["pid"] for event in out["traceEvents"] if "worker 1 (c)" in str(event)], [1])
        self.assertEqual(len(json.loads(self.good("show", "--json", "all.json"))["workers"]), 2)

    def test_events_that_overlap(self):
        """They get further rows of the thread; what lies in another one stays."""
        line = Timeline("worker 0").thread(1, "operations").thread(5, "last")
        line.add("operation", 0, 10).add("operation", 5, 15, tensor=2).add("operation", 6, 9, tensor=3)
        line.add("operation", 12, 20, tensor=4).add("operation", 7, 12, tensor=5)
        events = self.merged(w=line)["traceEvents"]
        self.assertEqual([event["tid"] for event in events if event["ph"] == "X"], [1, 6, 1, 1, 6])
        self.assertEqual([event["args"]["name"] for event in events if event["name"] == "thread_name"],
                         ["operations", "last", "operations (2)"])

    def test_merging_again_changes_nothing(self):
        first = self.merged(w=worker(), s=server())
        self.good("merge", "-o", "again", "all.json")
        self.assertEqual(json.loads((self.folder / "again").read_text()), first)

    def test_nothing_is_left(self):
        self.write(w=worker())
        os.mkdir(self.folder / "d")
        self.bad("byteps trace: cannot write d: Is a directory\n", "merge", "-o", "d", "w")
        self.bad("byteps trace: cannot write no/file: No such file or directory\n", "merge", "-o", "no/file", "w")
        self.bad("byteps trace: cannot write /dev/full: No space left on device\n", "merge", "-o", "/dev/full", "w")
        self.assertEqual(sorted(os.listdir(self.folder)), ["d", "w"])


class Refused(Case):
    def test_files_that_do_not_belong_together(self):
        self.write(a=worker(), b=worker(1, job="0b0b"), c=worker())
        for command in ("merge", "show"):
            self.bad('byteps trace: a and b are of different jobs: "9f3a" and "0b0b"; give the files of one job\n',
                     command, "a", "b")
            self.bad('byteps trace: a and c are both of "worker 0"; expected one file of each member\n',
                     command, "a", "c")

    def test_files_that_are_none(self):
        ending = "; expected a timeline that a member of a job or 'byteps trace merge' has written"
        whole = "expected a timeline, which is a"
        for text, message in (
            ("", f"f: it is truncated; {whole} whole JSON object"),
            (str(worker())[:-4], f"f: it is truncated; {whole} whole JSON object"),
            (str(worker())[:900], f"f: it is truncated; {whole} whole JSON object"),
            ("\n[]", f"f:2: not JSON: it does not begin with {{; {whole} JSON object"),
            ("{}{", f"f:1: not JSON: unexpected text after the last }}; {whole} JSON object"),
            ('{"a":1,,}', f"f:1: not JSON: expected a key and a value after a comma, or }}; {whole} JSON object"),
            ("{}", 'f: there is no "byteps"' + ending),
            ('{"byteps":{"format":1}}', 'f: its "byteps" has no format or no job' + ending),
            ('{"byteps":{"format":2,"job":"a"}}', "f: its format is 2; this program reads format 1"),
            ('{"byteps":{"format":1,"job":"a"}}', "f: a member has no name or no rank" + ending),
            ('{"byteps":{"format":1,"job":"a","member":"worker 0","rank":0}}',
             'f: there is no "traceEvents"; expected a timeline'),
            (str(worker()).replace('"rank":0', '"rank":1e999'),
             f"f:2: not JSON: real number overflow near '1e999'; {whole} JSON object"),
            (str(worker()).replace('"traceEvents":[', '"traceEvents":[\n{"ph":NaN},'),
             f"f:4: not JSON: invalid token near 'NaN'; {whole} JSON object"),
        ):
            with self.subTest(text[:40]):
                self.bad(f"byteps trace: {message}\n", "show", *self.write(f=text))
        self.bad("byteps trace: cannot open nowhere: No such file or directory\n", "show", "nowhere")

    def test_events_that_are_none(self):
        for change, why in (
            ({"dur": -1}, "its dur is not a number of microseconds from 0 on"),
            ({"ts": 1e300}, "its ts is not a number of microseconds"),
            ({"ts": "1"}, "its ts is not a number of microseconds"),
            ({"pid": -1}, "it has no ph, name, pid or tid as an event has"),
            ({"pid": 5}, "it is a worker's, but its pid is not that of a worker"),
            ({"args": []}, "its tensor and round are not numbers from 0 on"),
            ({"args": {"tensor": 1, "round": 1, "step": -1}}, "its step is not a number from 0 on"),
            ({"cat": "answer", "args": {"tensor": 1, "round": 1}}, "its rank is not a number from 0 on"),
        ):
            line = worker()
            line.events += 3 * [{**line.events[3], **change}]
            result = self.trace("show", *self.write(f=line, s=server()))
            self.assertEqual((result.stdout.decode(), result.returncode), (TABLE, 0))
            self.assertEqual(result.stderr.decode(), f"byteps trace: f: 3 events ignored; that of line 22, as {why}\n")

    def test_usage(self):
        for message, args in (
            ("no command given; expected merge or show", []),
            ("unknown command 'shwo'; did you mean 'show'?", ["shwo"]),
            ("unknown command 'x'; expected merge or show", ["x"]),
            ("show needs the files of a job's members", ["show"]),
            ("show takes no --output", ["show", "-o", "a", "b"]),
            ("merge takes no --steps", ["merge", "--steps", "1..2", "b"]),
            ("unknown or ambiguous option '--jsn'", ["show", "--jsn"]),
        ):
            self.bad(f"byteps trace: {message}\nTry 'byteps trace --help'.\n", *args, status=2)

    def test_foreign_bytes(self):
        """Whatever the bytes are, there is a result or a message."""
        generator = random.Random(11)
        files = [str(worker()), str(server()), None]
        self.good("merge", "-o", "all", *self.write(w=files[0], s=files[1]))
        files[2] = (self.folder / "all").read_text()
        words = ["1e300", "-1", "9223372036854775807", "99999999999999999999", "null", "[]", "{}", '"', "\\", "\0", ",",
                 "[" * 3000, '{"a":' * 3000, "1.5", '"\\ud800"', "\x7f", "4294967296", "}", "]", "true"]
        for i in range(120):
            text = generator.choice(files)
            for _ in range(generator.choice((1, 1, 2, 5))):
                at, length = generator.randrange(len(text)), generator.choice((0, 1, 3, 30))
                marks = [k for k, c in enumerate(text) if c == ":"]
                if generator.random() < 0.6 and marks:
                    at = generator.choice(marks) + 1
                    length = len(text[at:].split(",")[0].split("}")[0])
                text = text[:at] + generator.choice([*words, text[at : at + 200]]) + text[at + length :]
            self.write(f=text)
            for args in (["show", "f"], ["merge", "-o", "/dev/null", "f"]):
                result = self.trace(*args)
                self.assertIn(result.returncode, (0, 1), (i, args, result.stderr))
                self.assertEqual(result.returncode == 1 and not result.stderr, False)
                self.assertNotIn(b"Sanitizer", result.stderr)
                self.assertNotIn(b"runtime error", result.stderr)


if __name__ == "__main__":
    unittest.main()
