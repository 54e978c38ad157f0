# SPDX-License-Identifier: Apache-2.0
"""`byteps plan`: times by the published formulas, shares by the real placement, models, bad input."""

import json
import os
import random
import re
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("BYTEPS_PROGRAM")
MODELS = {
    "resnet50": (161, 25557032),
    "vgg16": (32, 138357544),
    "bert-base": (206, 110106428),
    "bert-large": (398, 336226108),
    "gpt2": (148, 124439808),
}


def setUpModule():
    if not PROGRAM:
        raise unittest.SkipTest("BYTEPS_PROGRAM is not set: run the tests by 'make check' or ./byteps-env")


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="byteps-plan-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def byteps(self, *args, **variables):
        return subprocess.run(
            [PROGRAM, *args],
            env=dict(os.environ, LC_ALL="C", **variables),
            cwd=self.folder,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def good(self, *args, **variables):
        result = self.byteps(*args, **variables)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return result.stdout.decode()

    def plan(self, *args, **variables):
        return json.loads(self.good("plan", "--json", *args, **variables))

    def bad(self, message, *args, status=1, **variables):
        result = self.byteps(*args, **variables)
        self.assertEqual((result.returncode, result.stderr.decode(), result.stdout), (status, message, b""))

    def write(self, content, name="m.txt"):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return name


class Models(Case):
    def test_totals(self):
        for name, (tensors, elements) in MODELS.items():
            expected = {"name": name, "tensors": tensors, "elements": elements, "bytes": 4 * elements}
            self.assertEqual(self.plan("--model", name)["model"], expected)

    def test_bert_without_its_heads(self):
        with open(os.path.join(os.environ["BYTEPS_MODEL_PATH"], "bert-large.txt"), encoding="ascii") as file:
            lines = [line.split() for line in file if not line.startswith("#")]
        body = [int(count) for name, count, _ in lines if not name.startswith("heads.")]
        self.assertEqual((len(body), sum(body)), (391, 335141888))

    def test_file(self):
        name = self.write("# a model\n\n a 10 float32 # first\r\nb\t3\tint64\nempty 0 bool\nlast 1 bfloat16")
        model = self.plan("--model", name)["model"]
        self.assertEqual(model, {"name": "m.txt", "tensors": 4, "elements": 14, "bytes": 66})

    def test_installed_name_is_stronger_than_a_file(self):
        self.write("a 1 float32\n", "vgg16")
        self.assertEqual(self.plan("--model", "vgg16")["model"]["tensors"], 32)
        self.assertEqual(self.plan("--model", "./vgg16")["model"]["tensors"], 1)

    def test_path_of_models(self):
        self.write("a 1 float32\n", "own.txt")
        self.assertEqual(
            self.plan("--model", "own", BYTEPS_MODEL_PATH=":/nowhere::" + self.folder)["model"]["elements"], 1
        )
        self.assertIn(b"own", self.byteps("info", BYTEPS_MODEL_PATH=self.folder).stdout)


class Times(Case):
    def test_formulas(self):
        for n, k in ((1, 0), (2, 0), (2, 1), (2, 2), (3, 1), (4, 0), (4, 2), (4, 4), (8, 3), (3, 7), (1, 2)):
            with self.subTest(n=n, k=k):
                plan = self.plan("-n", str(n), "-s", str(k), "--model", "vgg16", "--bandwidth", "25 Gbit/s")
                once = 8 * 553430176 / 25e9
                seconds = plan["seconds"]
                best = once if k >= n else 2 * n * (n - 1) / (n * n + k * n - 2 * k) * once
                self.assertAlmostEqual(seconds["ideal"], best)
                self.assertAlmostEqual(seconds["ring"], 2 * (n - 1) / n * once)
                if k == 0:
                    self.assertIsNone(seconds["servers_only"])
                else:
                    self.assertAlmostEqual(seconds["servers_only"], max(n / k, 1) * once)
                self.assertGreaterEqual(seconds["placed"], seconds["ideal"] - 1e-9)
                self.assertLess(seconds["placed"], 1.005 * seconds["ideal"] + 1e-9)

    def test_shares(self):
        for model in MODELS:
            for n, k in ((2, 1), (3, 1), (4, 0), (4, 2)):
                with self.subTest(model=model, n=n, k=k):
                    plan = self.plan("-n", str(n), "-s", str(k), "--model", model)
                    servers = plan["placement"]
                    self.assertEqual([server["colocated"] for server in servers], n * [True] + k * [False])
                    self.assertEqual([server["rank"] for server in servers], [*range(n), *range(k)])
                    self.assertEqual(sum(server["bytes"] for server in servers), plan["model"]["bytes"])
                    self.assertEqual(sum(server["partitions"] for server in servers), plan["partitions"])
                    self.assertAlmostEqual(
                        max(server["busy_seconds"] for server in servers), plan["seconds"]["placed"]
                    )
                    for server in servers:
                        divisor = n * n + k * n - 2 * k
                        ideal = (n - k) / divisor if server["colocated"] else 2 * (n - 1) / divisor
                        self.assertAlmostEqual(server["ideal_share"], ideal)
                        self.assertLess(abs(server["share"] - ideal) * plan["model"]["bytes"], 1 << 17)
                        self.assertEqual(sum(server["shards"]), server["bytes"])

    def test_small_models(self):
        """Of 1 MB and more: one tensor alone, LeNet, many of one size, and of any."""
        some = random.Random(3)
        models = {
            "one": [1 << 18],
            "lenet": [150, 6, 2400, 16, 48000, 120, 10080, 84, 400000, 500, 5000, 10],
            "equal": [3000] * 100,
            "any": [int(2 ** some.uniform(0, 17)) for _ in range(60)] + [100000],
        }
        for name, counts in models.items():
            lines = "".join(f"{i} {count} float32\n" for i, count in enumerate(counts))
            file = self.write(lines)
            for n, k in ((2, 1), (4, 4), (4, 2), (3, 2), (16, 0), (16, 15), (16, 16), (5, 16)):
                with self.subTest(model=name, n=n, k=k):
                    plan = self.plan("-n", str(n), "-s", str(k), "--model", f"./{file}")
                    self.assertLess(plan["seconds"]["placed"], 1.02 * plan["seconds"]["ideal"])

    def test_bandwidths(self):
        name = self.write("a 1000000 uint8\n")
        for text, bits in (
            ("10Gbit", 1e10),
            ("10 Gbit/s", 1e10),
            ("10gbit", 1e10),
            ("0.5GB", 4e9),
            ("1.5 MiB/s", 1.5 * 8 * 1048576),
            ("800kbit", 8e5),
            ("1 Tbit", 1e12),
            ("1bit", 1),
            ("125 MB/s", 1e9),
            ("2kB", 16e3),
        ):
            self.assertEqual(self.plan("--model", name, "--bandwidth", text)["bandwidth"], bits)

    def test_unequal_links(self):
        """The least time in which what links have left, after their own gradients, has room for the sums of all."""

        def room(t, n, rates, once):
            all_of = [(once if i < n else 0, n - 2 if i < n else n) for i in range(len(rates))]
            return sum(max(0, t * rate - own) / more for rate, (own, more) in zip(rates, all_of))

        bits = 8 * 4 * MODELS["vgg16"][1]
        for n, text, rates in (
            (3, "10Gbit,10Gbit,5Gbit", [10, 10, 5, 5]),
            (4, "4x100Gbit, 25Gbit", [100] * 4 + [25] * 2),
            (4, "3x1Gbit,100Mbit,1Gbit", [1] * 3 + [0.1, 1]),
        ):
            with self.subTest(text):
                k = len(rates) - n
                args = ("-n", str(n), "-s", str(k), "--model", "vgg16", "--bandwidth", text)
                plan = self.plan(*args)
                seconds = plan["seconds"]
                self.assertEqual(plan["bandwidth"], [rate * 1e9 for rate in rates])
                self.assertAlmostEqual(seconds["ring"], 2 * (n - 1) / n * bits / min(rates[:n]) / 1e9)
                own = bits / min(rates[:n]) / 1e9
                only = max(own, n * bits / sum(rates[n:]) / 1e9)
                self.assertAlmostEqual(seconds["servers_only"], only)
                low, high = own, only
                for _ in range(60):
                    middle = (low + high) / 2
                    if room(middle, n, [rate * 1e9 for rate in rates], bits) < bits:
                        low = middle
                    else:
                        high = middle
                self.assertAlmostEqual(seconds["ideal"], high)
                self.assertLess(seconds["placed"], 1.005 * seconds["ideal"])
                self.assertRegex(self.good("plan", *args), r"; \S+ [GM]bit/s to \S+ Gbit/s each way; ")

    def test_configuration(self):
        name = self.write("a 1000 float32\n")
        plan = self.plan(
            "--model",
            name,
            "--set",
            "cluster.workers=3",
            "--set",
            "worker.partition=1 KiB",
            "--set",
            "server.shards=3",
            "--set",
            "cluster.colocated=first",
        )
        self.assertEqual((plan["workers"], plan["partition"], plan["partitions"]), (3, 1024, 4))
        self.assertEqual([server["rank"] for server in plan["placement"]], [0])
        self.assertEqual(len(plan["placement"][0]["shards"]), 3)
        self.assertEqual(plan["placement"][0]["share"], 1)

    def test_text(self):
        text = self.good("plan", "-n", "4", "-s", "2", "--model", "resnet50")
        self.assertIn(
            "resnet50: 161 tensors, 25557032 elements, 102.2 MB in 361 partitions of at most 4 MiB\n", text
        )
        self.assertIn("4 hosts with workers, 2 with servers only; 10 Gbit/s each way; ", text)
        self.assertRegex(text, r"\n  servers only +163\.6 ms\n  ring all-reduce +122\.7 ms\n")
        self.assertRegex(text, r"\n  this placement, ideal +98\.14 ms\n")
        self.assertEqual(len(re.findall(r"\n  colocated, host \d ", text)), 4)
        self.assertEqual(len(re.findall(r"\n  server \d ", text)), 2)

    def test_elsewhere(self):
        args = (
            "--model",
            "resnet50",
            "--bandwidth",
            "1Gbit",
            "--set",
            "cluster.workers=2",
            "--set",
            "cluster.role=scheduler",
        )
        plan = self.plan(*args)
        for command in ("graph", "info"):
            self.assertEqual(json.loads(self.good(command, "--json", *args))["placement"], plan)
        text = self.good("plan", *args)
        self.assertTrue(self.good("graph", "--explain", *args).endswith("\n\n" + text))
        self.assertTrue(self.good("info", *args).endswith("\n\n" + text))


class Compare(Case):
    """Several numbers of further servers: each line is the plan of that number."""

    N = 5
    COMMON = ("-n", str(N), "--model", "resnet50", "--bandwidth", "10Gbit")

    def rows(self, servers, *args):
        return self.plan(*self.COMMON, "--servers", servers, *args)

    def test_times(self):
        rows = self.rows("0..4,6, 7")
        self.assertEqual([row["servers"] for row in rows], [0, 1, 2, 3, 4, 6, 7])
        none = rows[0]["seconds"]["placed"]
        for row, above in zip(rows, [None, *rows]):
            with self.subTest(k=row["servers"]):
                plan = self.plan(*self.COMMON, "-s", str(row["servers"]))
                placed = plan["seconds"]["placed"]
                self.assertEqual((row["workers"], row["seconds"]), (self.N, plan["seconds"]))
                self.assertAlmostEqual(row["times_as_fast"]["as_ring"], plan["seconds"]["ring"] / placed)
                self.assertAlmostEqual(row["times_as_fast"]["as_no_server"], none / placed)
                self.assert_saved(row, above)
                self.assert_idle(row, plan)
                self.assertEqual(
                    row["step"], {"seconds": placed, "per_hour": 3600 / placed, "cost_per_1000": None}
                )
                self.assertFalse(row["least_cost"])

    def test_best(self):
        """The mark has the fewest servers that take at most 5 % longer than the fastest row."""
        cases = ((8, "0..8", 8), (8, "0,2,4", 4), (64, "40..80", 58), (2, "0..3", 0), (1, "0..2", 0))
        for n, servers, expected in cases:
            with self.subTest(n=n, servers=servers):
                rows = self.plan("-n", str(n), "--servers", servers, "--model", "vgg16")
                times = [row["seconds"]["placed"] for row in rows]
                near = next(row for row in rows if row["seconds"]["placed"] <= 1.05 * min(times))
                self.assertEqual(([row for row in rows if row["near_best"]], near["servers"]), ([near], expected))
                for row, time in zip(rows, times):
                    if min(times) > 0:
                        self.assertAlmostEqual(row["times_best"], time / min(times))
                    else:
                        self.assertIsNone(row["times_best"])

    def test_best_step(self):
        """With computation the mark is about steps: what a push_pull hides behind needs no servers."""
        for compute, overlap, expected in ((25, (), 5), (1000, (), 0), (100, ("--overlap",), 3)):
            rows = self.rows("0..5", "--compute", f"{compute}ms", *overlap)
            self.assertEqual([row["servers"] for row in rows if row["near_best"]], [expected])
            self.assertEqual(rows[5]["times_best"], 1)

    def assert_saved(self, row, above):
        saved, share = row["each_saves"]["seconds"], row["each_saves"]["share"]
        if above is None:
            self.assertEqual((saved, share), (None, None))
            return
        before = above["seconds"]["placed"]
        each = (before - row["seconds"]["placed"]) / (row["servers"] - above["servers"])
        self.assertAlmostEqual(saved, each)
        self.assertAlmostEqual(share, each / before)

    def assert_idle(self, row, plan):
        """Links of workers that host no server are busy with their own gradients."""
        seconds, placement = plan["seconds"], plan["placement"]
        own = 8 * plan["model"]["bytes"] / plan["bandwidth"]
        near = [server["busy_seconds"] for server in placement if server["colocated"]] or [own]
        far = [server["busy_seconds"] for server in placement if not server["colocated"]]
        self.assertAlmostEqual(row["idle"]["workers"], 1 - sum(near) / len(near) / seconds["placed"])
        if far:
            self.assertAlmostEqual(row["idle"]["servers"], 1 - sum(far) / len(far) / seconds["placed"])
        else:
            self.assertIsNone(row["idle"]["servers"])

    def test_without_zero(self):
        """The line of k = 0 need not be shown to be compared with; where no worker serves there is none."""
        none = self.plan(*self.COMMON, "-s", "0")["seconds"]["placed"]
        for row in self.rows("2..3"):
            self.assertAlmostEqual(row["times_as_fast"]["as_no_server"], none / row["seconds"]["placed"])
        for row in self.rows("2..3", "--set", "cluster.colocated=none"):
            self.assertIsNone(row["times_as_fast"]["as_no_server"])

    def test_enough(self):
        """From k = n on a push_pull takes once the bytes; with one or two workers, from the first."""
        for n, servers, expected in (
            (5, "0..9", 5),
            (5, "0,3,8,9", 8),
            (5, "0..4", None),
            (2, "0..3", 0),
            (1, "0..2", 0),
        ):
            rows = self.plan("-n", str(n), "--servers", servers, "--model", "vgg16")
            marked = [row["servers"] for row in rows if row["enough"]]
            self.assertEqual(marked, [] if expected is None else [expected])

    def test_costs(self):
        for prices, compute, overlap in (
            ((12, 2.5), None, False),
            ((12, 2.5), 0.025, False),
            ((1, 3), 0.025, False),
            ((12, 2.5), 0.1, True),
            ((1, 0), 0.01, True),
        ):
            with self.subTest(prices=prices, compute=compute, overlap=overlap):
                args = ["--worker-price", str(prices[0]), "--price", str(prices[1])]
                args += [] if compute is None else ["--compute", f"{compute * 1000:g}ms"]
                rows = self.rows("0..7", *args, *(["--overlap"] if overlap else []))
                for row in rows:
                    own, placed = compute or 0, row["seconds"]["placed"]
                    step = max(own, placed) if overlap else own + placed
                    cost = 1000 * step / 3600 * (self.N * prices[0] + row["servers"] * prices[1])
                    self.assertAlmostEqual(row["step"]["seconds"], step)
                    self.assertAlmostEqual(row["step"]["per_hour"], 3600 / step, places=3)
                    self.assertAlmostEqual(row["step"]["cost_per_1000"], cost)
                cheapest = min(rows, key=lambda row: round(row["step"]["cost_per_1000"], 9))
                self.assertEqual([row for row in rows if row["least_cost"]], [cheapest])

    def test_links(self):
        """Where servers have slower links, more of them are needed, and workers sum as well until there are."""
        own = 8 * 4 * MODELS["resnet50"][1] / 100e9
        rows = self.plan(
            "-n", "4", "--servers", "4,15..17", "--model", "resnet50", "--bandwidth", "4x100Gbit,25Gbit"
        )
        self.assertAlmostEqual(rows[0]["seconds"]["ideal"], 4 / 3 * own)
        self.assertAlmostEqual(rows[2]["seconds"]["ideal"], own)
        self.assertEqual([row["servers"] for row in rows if row["enough"]], [16])

    def test_text(self):
        args = ("--servers", "0..6", "--price", "2.5", "--worker-price", "12", "--compute", "25ms")
        text = self.good("plan", *self.COMMON, *args)
        rows = self.plan(*self.COMMON, *args)
        lines = text.splitlines()
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertEqual(lines[0], "resnet50: 161 tensors, 25557032 elements, 102.2 MB")
        self.assertIn("a step: 25 ms of computation, and push_pull after it", lines)
        table = [line for line in lines if re.match(r" +\d+ ", line)]
        self.assertEqual(len(table), 7)
        for line, row in zip(table, rows):
            words = line.split()
            self.assertEqual(words[0], str(row["servers"]))
            self.assertEqual(words[1], f"{1000 * row['seconds']['placed']:.1f}")
            self.assertEqual(words[3], f"{row['times_best']:.2f}")
            self.assertEqual(words[7], f"{100 * (1 - row['idle']['workers']):.1f}")
            self.assertEqual(words[9], f"{row['step']['per_hour']:.0f}")
            self.assertEqual(words[10], f"{row['step']['cost_per_1000']:.3f}")
            marks = "".join(
                sign for sign, name in (("*", "least_cost"), ("~", "near_best"), ("+", "enough")) if row[name]
            )
            self.assertEqual(words[11:], [marks] if marks else [])
        self.assertRegex(text, r"\n\* least cost: \d further servers, [\d.]+ for 1000 steps\n")
        self.assertRegex(text, r"\n~ the fewest within 5 % of the best time of a step: \d further servers, [\d.]+ ms\n")
        self.assertTrue(
            text.endswith(
                "\n+ more than 5 do not help: the links of workers carry their own gradients only\n"
            )
        )
        self.assertNotIn("cost", self.good("plan", *self.COMMON, "--servers", "0..6"))

    def test_nothing_to_send(self):
        name = self.write("empty 0 float32\n")
        prices = ("--price", "1", "--worker-price", "1")
        for row in self.plan("-n", "4", "--servers", "0..5", "--model", name, *prices):
            self.assertEqual((row["step"]["per_hour"], row["step"]["cost_per_1000"]), (None, 0))
        self.assertNotRegex(self.good("plan", "-n", "4", "-s", "0..5", "--model", name, *prices), "nan|inf")

    def test_bad_numbers(self):
        rising = "expected rising numbers such as 0..8 or 0,2,4"
        for servers, message in (
            ("8..0", f"0 comes after 8; {rising}"),
            ("0,4,2", f"2 comes after 4; {rising}"),
            ("0..4,4", f"4 comes after 4; {rising}"),
            ("0..", '"" is not a number of servers; expected 0..16384'),
            ("0,,2", '"" is not a number of servers; expected 0..16384'),
            ("0..x", '"x" is not a number of servers; expected 0..16384'),
            ("0..2..4", '"2..4" is not a number of servers; expected 0..16384'),
            ("-1..4", "-1 is not a number of servers; expected 0..16384"),
            ("0,16385", "16385 is not a number of servers; expected 0..16384"),
            ("0..1024", "too many numbers; expected at most 1024, give some of them such as 0,64,128"),
        ):
            with self.subTest(servers):
                message = f'byteps plan: --servers "{servers}": {message}\n{Bad.HINT}'
                self.bad(message, "plan", "--model", "vgg16", f"--servers={servers}", status=2)

    def test_bad_options(self):
        price = "not a price; expected a number of 0..1000000000, for an hour of a host"
        time = "not a time; expected a number with a unit (us, ms, s), such as 25ms"
        several = "is for several numbers of servers; expected --servers with them, such as 0..8"
        for message, args in (
            (f"--price -1: {price}", ["-s", "0..2", "--price=-1"]),
            (f'--worker-price "nan": {price}', ["-s", "0..2", "--worker-price", "nan"]),
            (f'--compute "fast": {time}', ["-s", "0..2", "--compute", "fast"]),
            (
                "--price needs --worker-price: a step costs its time on all hosts",
                ["-s", "0..2", "--price", "1"],
            ),
            (
                "--worker-price needs --price: a step costs its time on all hosts",
                ["-s", "0,2", "--worker-price", "1"],
            ),
            (
                "--overlap needs --compute, the time of what push_pull is hidden behind",
                ["-s", "0,1", "--overlap"],
            ),
            (f"--compute {several}", ["-s", "2", "--compute", "25ms"]),
            (f"--worker-price {several}", ["--price", "1", "--worker-price", "1"]),
            (
                "--compress is for one number of servers; expected --servers with one, such as 1",
                ["-s", "1..2", "--compress", "onebit"],
            ),
        ):
            with self.subTest(message):
                self.bad(f"byteps plan: {message}\n{Bad.HINT}", "plan", "--model", "vgg16", *args, status=2)
        self.bad(
            'byteps plan: --set: cluster.colocated = "none": the job would have no server, because '
            "cluster.servers = 0; expected auto, first, hosts or all\n",
            *("plan", "-n", "2", "-s", "0..2", "--model", "vgg16", "--set", "cluster.colocated=none"),
        )


class Compress(Case):
    """Shares of bytes and limits; how fast coding is differs between machines."""

    def coding(self, word, *args):
        plan = self.plan("-n", "4", "-s", "2", "--compress", word, *args)
        return plan, plan["coding"]

    def test_limits(self):
        plan, coding = self.coding("onebit", "--model", "resnet50", "--set", "server.shards=2")
        share = coding["bytes"] / plan["model"]["bytes"]
        self.assertAlmostEqual(share, 1 / 32, delta=0.001)
        limits = coding["limits"]
        self.assertEqual(sorted(limits), ["host", "network", "server", "worker"])
        self.assertAlmostEqual(limits["network"], share * plan["seconds"]["placed"], delta=1e-6)
        self.assertGreater(min(limits.values()), 0)
        self.assertEqual(coding["seconds"], max(limits.values()))
        self.assertEqual(coding["shards"], 2)

    def test_whether_it_pays(self):
        for rate, pays in (("1Mbit", True), ("1000Tbit", False)):
            plan, coding = self.coding("cast", "--model", "vgg16", "--bandwidth", rate)
            self.assertEqual(coding["pays"], pays)
            text = self.good(
                *("plan", "-n", "4", "-s", "2", "--model", "vgg16", "--bandwidth", rate, "--compress", "cast")
            )
            verdict = r"coding pays: .* network" if pays else r"coding does not pay: .* coding"
            self.assertRegex(text, r"\n  coded, 553\.4 MB are 276\.7 MB \(0\.5\); (.|\n)*" + verdict + "\n$")

    def test_types(self):
        """Half precision is coded from float32; other types than floating point cross the network as they are."""
        name = self.write("a 1000000 bfloat16\nb 1000000 float64\nc 1000000 int32\n")
        _, coding = self.coding("plugin=cast; to=bfloat16", "--model", name)
        self.assertAlmostEqual(coding["bytes"], 2e6 + 2e6 + 4e6, delta=1e3)

    def test_words(self):
        """A plugin, a text, and a member of the configuration, which is stronger than a plugin of that name."""
        for word, *args in (
            ["plugin=block; bits=4"],
            ["mine", "--set", "compressors.mine.plugin=block", "--set", "compressors.mine.bits=4"],
            ["cast", "--set", "compressors.cast.plugin=block", "--set", "compressors.cast.bits=4"],
        ):
            text = self.coding(word, "--model", "resnet50", *args)[1]["text"]
            self.assertRegex(text, "^plugin=block; feedback=false; .*bits=4")
        feedback = self.coding("plugin=topk; feedback=true; momentum=nesterov", "--model", "resnet50")[1]
        self.assertIn("feedback=true; momentum=nesterov", feedback["text"])

    def test_bad(self):
        for word, message in (
            ("nope", "there is no compressor 'nope'"),
            ("plugin=", "'plugin=' names no compressor; expected plugin=NAME; OPTION=VALUE"),
            ("plugin=onebit; foo=3", "coding.foo: unknown key; expected one of scaling, isa"),
        ):
            result = self.byteps("plan", "--model", "resnet50", "--compress", word)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertTrue(result.stderr.startswith(b"byteps plan: --compress: coding: "), result.stderr)
            self.assertIn(message, result.stderr.decode())


class Bad(Case):
    HINT = "Try 'byteps plan --help'.\n"

    def test_usage(self):
        self.assertIn("Usage: byteps plan", self.good("plan", "--help"))
        rates = "a number and bit, kbit, Mbit, Gbit, Tbit or kB, MB, GB, KiB, MiB, GiB, per second, such as 10Gbit"
        for message, args in (
            (
                "no model given; expected --model with a file or one of bert-base, bert-large, gpt2, resnet50, vgg16",
                [],
            ),
            ("unknown or ambiguous option '--modle'", ["--modle", "x"]),
            ("option '--model' needs a value", ["--model"]),
            ("option '-n' needs a value", ["-n"]),
            ("'more' is not expected", ["--model", "vgg16", "more"]),
            ("--workers 0: not a number; expected 1..32768", ["-n", "0"]),
            ('--workers "two": not a number; expected 1..32768', ["--workers", "two"]),
            ('--workers "99999999999999999999": not a number; expected 1..32768', ["-n", "9" * 20]),
            ("--servers -1: not a number; expected 0..16384", ["-s", "-1"]),
            ('--servers "": not a number; expected 0..16384', ["-s", ""]),
        ):
            self.bad(f"byteps plan: {message}\n{self.HINT}", "plan", *args, status=2)
        for rate in (
            "",
            "10",
            "Gbit",
            "10 Gb",
            "10Gbit/h",
            "10GBit/",
            "-1Gbit",
            "1e5Gbit",
            "0Gbit",
            "10gB",
            "1..5Gbit",
            "nan",
            "10Gbit/ss",
            "9" * 70 + "Gbit",
            "99999999999Tbit",
        ):
            result = self.byteps("plan", "--model", "vgg16", "--bandwidth", rate)
            self.assertEqual(result.returncode, 2, rate)
            self.assertTrue(
                result.stderr.decode().endswith(f": not a bandwidth; expected {rates}\n{self.HINT}"), rate
            )

    def test_lists_of_bandwidths(self):
        for rates, message in (
            ("1Gbit,x", '"1Gbit,x": "x" is not a bandwidth; expected a number and bit, kbit, '),
            ("1Gbit,", '"1Gbit,": "" is not a bandwidth; expected '),
            ("0x1Gbit", '"0x1Gbit": not a bandwidth; expected '),
            ("99999999x1Gbit", '"99999999x1Gbit": not a bandwidth; expected '),
            ("x1Gbit", '"x1Gbit": not a bandwidth; expected '),
            (
                "2x1Gbit,3x2Gbit",
                '"2x1Gbit,3x2Gbit": for 5 hosts; expected one for each of 3 at most, those with workers first',
            ),
            (
                ",".join(257 * ["1Gbit"]),
                ": too many bandwidths; expected at most 256, write equal ones as 8x10Gbit",
            ),
        ):
            with self.subTest(rates):
                result = self.byteps("plan", "-n", "2", "-s", "1", "--model", "vgg16", "--bandwidth", rates)
                self.assertEqual((result.returncode, result.stdout), (2, b""))
                self.assertRegex(result.stderr.decode(), "^byteps plan: --bandwidth .*" + re.escape(message))

    def test_shapes(self):
        self.bad(
            'byteps plan: --set: cluster.colocated = "none": the job would have no server, because '
            "cluster.servers = 0; expected auto, first, hosts or all\n",
            "plan",
            "-n",
            "2",
            "--model",
            "vgg16",
            "--set",
            "cluster.colocated=none",
        )
        self.bad(
            "byteps plan: 16384 servers with 2 shards each are too many; expected at most 16384 shards "
            "together, lower server.shards\n",
            "plan",
            "-n",
            "2",
            "-s",
            "16384",
            "--model",
            "vgg16",
            "--set",
            "server.shards=2",
        )
        name = self.write("a 4000000000 float32\n")
        self.bad(
            "byteps plan: tensor 'a' would have 250000000 partitions; expected at most 262144, raise "
            "worker.partition\n",
            "plan",
            "--model",
            name,
            "--set",
            "worker.partition=64",
        )

    def test_files(self):
        expected = "expected NAME COUNT TYPE, such as 'fc.weight 2048000 float32'"
        for message, text in (
            ("m.txt: there is no tensor in it; expected lines NAME COUNT TYPE", "# nothing\n\n"),
            (f"m.txt:2: the count is missing; {expected}", "# x\na\n"),
            (f"m.txt:1: the data type is missing; {expected}", "a 5"),
            (f'm.txt:1: unexpected "more"; {expected}', "a 5 float32 more\n"),
            ('m.txt:1: "five" is not a count; expected the number of elements', "a five float32\n"),
            ("m.txt:1: -5 is not a count; expected the number of elements", "a -5 float32\n"),
            ('m.txt:1: "1.5" is not a count; expected the number of elements', "a 1.5 float32\n"),
            (
                'm.txt:1: "99999999999999999999" is not a count; expected the number of elements',
                "a 99999999999999999999 float32\n",
            ),
            ('m.txt:1: unknown data type "flaot32"; did you mean float32?', "a 1 flaot32\n"),
            (
                'm.txt:1: unknown data type "complex"; expected float32, float64, float16, uint8, '
                "int32, int8, int64, bfloat16, int16, bool, float8_e4m3fn, "
                "float8_e5m2",
                "a 1 complex\n",
            ),
            ('m.txt:3: tensor "a" is already in line 1', "a 1 float32\nb 1 float32\na 2 float32\n"),
            (
                "m.txt:1: 70368744177664 elements are too large; a tensor has at most 70368744177664 bytes",
                "a 70368744177664 float32\n",
            ),
            ("m.txt:1: the name has 1024 bytes; expected at most 1023", "n" * 1024 + " 1 float32\n"),
            ("m.txt:2: the line is too long; expected at most 4096 bytes", "a 1 float32\n" + " " * 5000),
            ("m.txt:1: a zero byte; expected text, is this a list of tensors?", b"a 1 \0float32\n"),
            (
                "m.txt:2: a zero byte; expected text, is this a list of tensors?",
                b"a 1 float32\nb 1 float32\0",
            ),
        ):
            with self.subTest(message):
                self.bad(f"byteps plan: {message}\n", "plan", "--model", self.write(text))
        self.bad(
            'byteps plan: there is neither a model nor a file "alexnet"; installed models: bert-base, '
            "bert-large, gpt2, resnet50, vgg16\n",
            "plan",
            "--model",
            "alexnet",
        )
        self.bad("byteps plan: ./x: cannot be opened: No such file or directory\n", "plan", "--model", "./x")
        self.bad("byteps plan: .: cannot be read: Is a directory\n", "plan", "--model", ".")
        self.bad(
            "byteps plan: /dev/zero:1: a zero byte; expected text, is this a list of tensors?\n",
            "plan",
            "--model",
            "/dev/zero",
        )

    def test_options_of_other_commands(self):
        for command in ("graph", "info"):
            self.bad(
                f"byteps {command}: --bandwidth needs --model\nTry 'byteps {command} --help'.\n",
                command,
                "--bandwidth",
                "1Gbit",
                status=2,
            )
        self.bad(
            "byteps graph: --model needs --explain or --json\nTry 'byteps graph --help'.\n",
            "graph",
            "--dot",
            "--model",
            "vgg16",
            status=2,
        )

    def test_random_files(self):
        """Whatever is in a file: a plan, or one line that tells where it is wrong."""
        chance = random.Random(11)
        words = [
            b"a",
            b"b.weight",
            b"1",
            b"77",
            b"0",
            b"float32",
            b"bool",
            b"#",
            b"\n",
            b"\n",
            b" ",
            b"\t",
            b"\0",
            b"-1",
            b"999999999999",
            b"\xff\xfe",
            b"%s%n",
            b"\r",
            b"\x1b[31m",
        ]
        for _ in range(60):
            text = b"".join(
                chance.choice(words) + chance.choice([b"", b" "]) for _ in range(chance.randrange(1, 40))
            )
            result = self.byteps("plan", "--model", self.write(text), "--json")
            error = result.stderr.decode(errors="replace")
            if result.returncode == 0:
                self.assertEqual((error, json.loads(result.stdout)["model"]["name"]), ("", "m.txt"))
            else:
                self.assertEqual((result.returncode, result.stdout), (1, b""), text)
                self.assertRegex(error, r"^byteps plan: (m\.txt:\d+|m\.txt): [^\x00-\x1f\x7f]+\n$", text)


if __name__ == "__main__":
    unittest.main()
