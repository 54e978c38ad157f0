# SPDX-License-Identifier: Apache-2.0
"""`byteps bench`: what it prints for people and programs, on a job of its own and in one that is there; bad input."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import harness

for folder in ("bench", os.path.join("tests", "plugins")):
    sys.path.append(os.path.join(os.environ["top_srcdir"], folder))

import modules  # noqa: E402  (it lies in a folder that was just added)
from testbed import Testbed, Unavailable  # noqa: E402  (as well)
from testbed.training import TITLES  # noqa: E402

QUICK = ["--rounds", "2", "--bytes", "4KiB"]
LIST = subprocess.run([harness.program(), "plugin", "list"], capture_output=True, encoding="utf-8", check=True).stdout
SUBJECTS = ["push_pull", "transport", "reducer"] + ["compressor"] * ("\ncompressor " in LIST)


class Bench(unittest.TestCase):
    def bench(self, *args):
        command = [harness.program(), "bench", *args]
        return harness.execute(command)

    def measured(self, *args):
        result = self.bench("push_pull", "--json", *args)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return json.loads(result.stdout)

    def test_json(self):
        for shape in ([], ["-n", "3", "-s", "1"], ["-n", "1"], ["--alloc"]):
            with self.subTest(shape):
                found = self.measured(*QUICK, *shape)
                self.assertEqual(found["workers"], int(shape[1]) if shape[:1] == ["-n"] else 2)
                self.assertEqual((found["benchmark"], found["rounds"]), ("push_pull", 2))
                self.assertEqual(found["shared_memory"], "--alloc" in shape)
                (row,) = found["results"]
                self.assertEqual(
                    (row["name"], row["dtype"], row["tensors"], row["bytes"]), ("4KiB", "float32", 1, 4096)
                )
                for times in (row["seconds"], row["copy_seconds"]):
                    self.assertTrue(0 < times["fastest"] <= times["median"] <= times["slowest"], times)
                self.assertGreater(row["ratio_to_copy"], 0)
                rate, n = row["algorithm_bytes_per_second"], found["workers"]
                self.assertAlmostEqual(rate * row["seconds"]["median"], row["bytes"])
                self.assertAlmostEqual(row["bus_bytes_per_second"] / rate, 2 * (n - 1) / n)
                self.assertAlmostEqual(row["summed_bytes_per_second"] / rate, n)

    def test_model(self):
        found = self.measured("--rounds", "1", "--model", "resnet50", "--bytes", "1MiB")
        self.assertEqual(
            [(row["name"], row["tensors"], row["bytes"]) for row in found["results"]],
            [("resnet50", 161, 102228128), ("1MiB", 1, 1 << 20)],
        )

    def test_types(self):
        """A size is in bytes; a model has the same elements in each type. The sums are right, or the bench fails."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as model:
            print("first 1000 float32\nsecond 7 float32", file=model, flush=True)
            found = self.measured(
                *("--rounds", "1", "--bytes", "4KiB", "--model", model.name, "-n", "3"),
                *("--dtype", "bfloat16", "--dtype", "float16", "--dtype", "float32"),
            )
        self.assertEqual(
            [(row["dtype"], row["bytes"]) for row in found["results"]],
            [("float32", 4096), ("float16", 4096), ("bfloat16", 4096)]
            + [("float32", 4028), ("float16", 2014), ("bfloat16", 2014)],
        )

    def test_settings_reach_the_servers(self):
        shards = ["--set", "server.shards=3", "--set", "log.level=info"]
        result = self.bench("push_pull", *QUICK, "-s", "1", *shards, "--set", "worker.hierarchy=off")
        self.assertEqual(result.returncode, 0, result)
        self.assertRegex(result.stderr, "serving 2 workers, .*, 3 shards here")

    def test_range(self):
        found = self.measured("--rounds", "1", "--min", "1KiB", "--max", "20KiB", "--bytes", "4")
        self.assertEqual([row["bytes"] for row in found["results"]], [4, 1 << 10, 4 << 10, 16 << 10])

    def test_table(self):
        result = self.bench("push_pull", *QUICK)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        self.assertIn("2 workers, 2 on this host; 2 rounds\n", result.stdout)
        times, rates = r"( +[0-9.]+ [mu]?s){3}", r"( +[0-9.]+ [kMG]?B){3}"
        self.assertRegex(result.stdout, rf"\n4KiB +float32 +1 +4\.096 kB{times}{rates} +[0-9.]+\n")

    def test_in_a_job(self):
        """Only rank 0 prints."""
        result = harness.run([harness.program(), "bench", "push_pull", *QUICK], workers=3, servers=1)
        self.assertEqual(result.status, 0, result)
        self.assertIn("3 workers", result.lines("worker 0")[0])
        self.assertEqual(result.lines("worker 1") + result.lines("worker 2"), [])

    def test_shape_of_a_job_that_is_there(self):
        result = harness.run([harness.program(), "bench", "push_pull", "-n", "2"], workers=2)
        self.assertNotEqual(result.status, 0, result)
        self.assertIn("--workers, --servers and --testbed are for a job of its own", result.err)

    def test_bad_input(self):
        cases = {
            (): (2, "say what to measure: push_pull, transport, reducer, compressor or train"),
            ("nothing",): (2, '"nothing" cannot be measured; expected push_pull, transport, reducer, compressor or'),
            ("push_pull", "twice"): (2, '"twice" is not expected'),
            ("push_pull", "--bytes", "6"): (2, "--bytes 6: expected a multiple of 4 bytes up to 1 TiB"),
            ("push_pull", "--min", "1MiB", "--max", "1KiB"): (2, "--min 1MiB is more than --max 1KiB"),
            ("reducer", "--max", "much"): (2, '--max "much": expected a multiple of 4 bytes up to 1 TiB'),
            ("push_pull", "--rate", "1Gbit"): (2, "--rate is for --testbed"),
            ("push_pull", "--slow", "1=1Mbit"): (2, "--slow is for --testbed"),
            ("push_pull", "--testbed", "--slow", "1"): (2, "'1' is not HOST=RATE, such as 1=100mbit"),
            ("push_pull", "--beside", "ddp"): (2, "--beside is for train"),
            ("train", "--beside", "others"): (2, '--beside "others": expected ddp'),
            ("train", "--testbed"): (2, "train with --testbed needs --beside ddp"),
            ("transport", "--testbed"): (2, "--testbed is for push_pull or train"),
            ("push_pull", "--testbed", "-n", "1"): (1, "there is nothing to send between fewer than 2 workers"),
            ("push_pull", "--dtype", "int8"): (2, '--dtype "int8": expected float32, float16 or bfloat16'),
            ("reducer", "--dtype", "float16"): (2, "--dtype is for push_pull"),
            ("push_pull", "--rounds", "0"): (2, "--rounds 0: expected a number from 1 to 10000"),
            ("push_pull", "--model", "nothing"): (1, 'there is neither a model nor a file "nothing"'),
            ("push_pull", "--workers", "0"): (2, "--workers: '0': out of range; expected 1..32768"),
            ("train", "--bytes", "4KiB"): (2, "--bytes is for push_pull or transport or reducer or compressor"),
            ("transport", "--workers", "4"): (2, "--workers is for push_pull or train"),
            ("reducer", "--alloc"): (2, "--alloc is for push_pull"),
            ("reducer", "--compressor", "onebit"): (2, "--compressor is for compressor"),
            ("compressor", "--compressor", "none"): (1, "there is no compressor 'none'"),
            ("compressor", "--set", "compressors.a.plugin=none"): (1, "compressors.a: there is no compressor 'none'"),
            ("reducer", "--set", "server.use=none"): (1, "none"),
            ("push_pull", "--wrong"): (2, "unknown or ambiguous option '--wrong'"),
            ("push_pull", "--set", "worker.slise=1"): (1, "did you mean worker.slice?"),
        }
        for words, (status, text) in cases.items():
            with self.subTest(words):
                result = self.bench(*words)
                self.assertEqual((result.returncode, result.stdout), (status, ""), result)
                self.assertIn(text, result.stderr)

    def test_reducer(self):
        """Every type and step is there, and the table has the same rows."""
        result = self.bench("reducer", *QUICK, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        found = json.loads(result.stdout)
        self.assertEqual((found["benchmark"], found["reducer"]), ("reducer", "sum"))
        types = [row["dtype"] for row in found["results"]]
        self.assertIn("bfloat16", types)
        for row in found["results"]:
            self.assertEqual(set(row["bytes_per_second"]), {"copy", "fold", "reduce", "reduce4", "finish"})
            self.assertTrue(all(rate > 0 for rate in row["bytes_per_second"].values()), row)
            self.assertEqual((row["bytes"], row["ratio_to_plain_loop"]["copy"]), (4096, 1))
        table = self.bench("reducer", *QUICK).stdout
        self.assertEqual([line.split()[1] for line in table.splitlines() if line.startswith("4KiB ")], types)

    @unittest.skipUnless("compressor" in SUBJECTS, "needs a compressor")
    def test_compressor(self):
        """Of all that are installed, of an entry, or of those that are named; what they save and lose."""
        result = self.bench("compressor", *QUICK, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        found = json.loads(result.stdout)
        self.assertEqual(found["benchmark"], "compressor")
        self.assertIn("onebit", [row["compressor"] for row in found["results"]])
        for row in found["results"]:
            self.assertEqual(set(row["bytes_per_second"]), {"copy", "encode", "decode", "decode_add"})
            self.assertTrue(all(rate > 0 for rate in row["bytes_per_second"].values()), row)
            self.assertEqual((row["bytes"], row["ratio_to_copy"]["copy"]), (4096, 1))
            self.assertEqual(row["coded_share"], row["coded_bytes"] / row["bytes"])
            self.assertLess(row["coded_share"], 1)
        (row,) = (row for row in found["results"] if row["compressor"] == "onebit")
        self.assertEqual(row["coded_bytes"], 4 + 1024 // 8)
        self.assertAlmostEqual(row["relative_error"], 0.6, delta=0.03)
        for to, coded, error in (
            ("float16", 2048, 2e-4),
            ("bfloat16", 2048, 1.7e-3),
            ("float8_e4m3", 1024 + 4 * 4, 0.026),
            ("float8_e5m2", 1024 + 4 * 4, 0.052),
        ):
            entry = ("--set", "compressors.c.plugin=cast", "--set", f"compressors.c.to={to}")
            (row,) = json.loads(self.bench("compressor", *QUICK, "--json", *entry).stdout)["results"]
            self.assertEqual(row["coded_bytes"], coded)
            self.assertAlmostEqual(row["relative_error"], error, delta=error / 10)
        for bits, error in ((8, 0.0065), (4, 0.115), (2, 0.71)):
            entry = ("--set", "compressors.c.plugin=block", "--set", f"compressors.c.bits={bits}")
            (row,) = json.loads(self.bench("compressor", *QUICK, "--json", *entry).stdout)["results"]
            self.assertEqual(row["coded_bytes"], 4 * 4 + 128 * bits)
            self.assertAlmostEqual(row["relative_error"], error, delta=error / 5)
        entry = ("--set", "compressors.c.plugin=dithering")
        (row,) = json.loads(self.bench("compressor", *QUICK, "--json", *entry).stdout)["results"]
        self.assertEqual(row["coded_bytes"], 4 + 1 + 1024)
        self.assertAlmostEqual(row["relative_error"], 0.012, delta=0.003)
        for k, kept, indices, error in (("0.01", 10, 11, 0.96), ("100", 100, 66, 0.75)):
            entry = ("--set", "compressors.c.plugin=topk", "--set", f"compressors.c.k={k}")
            (row,) = json.loads(self.bench("compressor", *QUICK, "--json", *entry).stdout)["results"]
            self.assertEqual(row["coded_bytes"], 4 + indices + 4 * kept)
            self.assertAlmostEqual(row["relative_error"], error, delta=0.02)
        entry = ("--set", "compressors.c.plugin=randomk", "--set", "compressors.c.k=0.5")
        (row,) = json.loads(self.bench("compressor", *QUICK, "--json", *entry).stdout)["results"]
        self.assertEqual(row["coded_bytes"], 8 + 4 * 512)
        self.assertAlmostEqual(row["relative_error"], 0.5**0.5, delta=0.05)
        for row in found["results"]:
            if row["compressor"] == "lossless":
                self.assertEqual(row["relative_error"], 0)
        entry = ("--set", "compressors.small.plugin=onebit", "--set", "compressors.small.scaling=no")
        both = (*entry, "--compressor", "onebit", "--compressor", "small")
        for words, names in ((entry, ["small"]), (both, ["onebit", "small"])):
            result = self.bench("compressor", *QUICK, *words)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result)
            self.assertEqual(re.findall("^compressor (.*): plugin onebit", result.stdout, re.MULTILINE), names)
            self.assertEqual(result.stdout.count("\n4KiB "), len(names))

    def test_wrong_compressor(self):
        """What does not keep what the interface promises is not measured."""
        fence = "touches memory outside its buffers"
        for defines, text in (
            ({}, None),
            ({"BOUND": "bytes/2"}, fence),
            ({"CODED": "(bytes+1)"}, "has coded more bytes than its bound() says"),
            ({"DECODED": "(bytes+1)"}, fence),
            ({"DECODED": "(bytes/2)"}, "decodes the same bytes to other elements, or not to all"),
            ({"TAKEN": "false"}, "refuses what it has coded itself"),
            ({"ADDED": "2*from[i]"}, "adds something else than it decodes"),
            ({"ADDED": "from[i+1]"}, fence),
            ({"DIFFERS": "1"}, 'codes other bytes than with isa = "baseline"'),
        ):
            with self.subTest(defines), tempfile.TemporaryDirectory() as folder:
                modules.build_wrong_compressor(folder, **defines)
                path = os.pathsep.join(filter(None, [folder, os.environ.get("BYTEPS_PLUGIN_PATH")]))
                command = [harness.program(), "bench", "compressor", *QUICK, "--compressor", "wrong", "--json"]
                result = harness.execute(command, env=dict(os.environ, BYTEPS_PLUGIN_PATH=path))
                self.assertEqual(result.returncode, 1 if text else 0, result)
                self.assertEqual(result.stderr, f"byteps bench: compressor wrong {text}\n" if text else "")

    def test_testbed(self):
        try:
            Testbed(1).close()
        except Unavailable as reason:
            self.skipTest(str(reason))
        shape = ["--testbed", "-n", "3", "-s", "1", "--rate", "100Mbit", "--rounds", "1"]
        found = self.measured(*shape, "--bytes", "256KiB", "--set", "server.shards=1")
        self.assertEqual((found["workers"], found["workers_on_first_host"], found["servers"]), (3, 1, 1))
        self.assertTrue(0 < found["stream_bytes_per_second"] < 100e6 / 8, found)
        (row,) = found["results"]
        optimum = 2 * 3 * 2 * row["bytes"] / ((9 + 3 - 2) * found["stream_bytes_per_second"])
        self.assertAlmostEqual(row["optimum_seconds"], optimum)
        self.assertAlmostEqual(row["ratio_to_optimum"], row["seconds"]["median"] / optimum)
        self.assertTrue(0 <= row["idle_share"] <= 1, row)
        table = self.bench("push_pull", *shape, "--bytes", "256KiB")
        self.assertEqual((table.returncode, table.stderr), (0, ""), table)
        self.assertRegex(table.stdout, r"\n256KiB +float32 +262144( +[0-9.]+ ms){4} +[0-9.]+ +\d+ %\n$")

    def test_no_testbed(self):
        """Without root, or with a network that cannot be."""
        nobody = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        if harness.execute([*nobody, harness.program(), "--version"]).returncode == 0:
            result = harness.execute([*nobody, harness.program(), "bench", "push_pull", "--testbed"])
            self.assertEqual((result.returncode, result.stdout), (1, ""), result)
            self.assertEqual(result.stderr, "testbed: network namespaces need root\n")
        result = self.bench("push_pull", "--testbed", "--rate", "fast")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result)
        self.assertIn("'fast' is not a rate such as 100mbit or 1gbit, or none", result.stderr)

    def bench_with_python(self, args, *words):
        """`byteps bench` with this Python, started with these words, as the python3 of the PATH."""
        with tempfile.TemporaryDirectory() as folder:
            python = os.path.join(folder, "python3")
            with open(python, "w", encoding="utf-8") as script:
                print(f"#!/bin/sh\nexec {sys.executable} {' '.join(words)} \"$@\"", file=script)
            os.chmod(python, 0o755)
            env = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
            command = [harness.program(), "bench", *args]
            return harness.execute(command, env=env)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
    def test_train(self):
        """The ratios are those of the only round."""
        words = ["train", "--rounds", "1", "--set", "worker.partition=1MiB"]
        result = self.bench_with_python([*words, "-n", "2", "-s", "1", "--json"])
        self.assertEqual(result.returncode, 0, result)
        found = json.loads(result.stdout)
        self.assertEqual((found["benchmark"], found["workers"], found["rounds"]), ("train", 2, 1))
        rates = found["images_per_second"]
        for name, other in (("ratio_to_alone", "alone"), ("ratio_to_without_communication", "without_communication")):
            self.assertAlmostEqual(found[name], rates["with_communication"] / rates[other])
        self.assertTrue(0 < found["waiting_share"] < 1, found)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
    def test_train_beside(self):
        """On one host nothing is shaped: the bound is the computation."""
        result = self.bench_with_python(["train", "--rounds", "1", "--beside", "ddp", "-n", "2"])
        self.assertEqual(result.returncode, 0, result)
        row = r"( +\d+ ms){3}( +[0-9.]+){2} +\d+ %\n"
        rows = "".join(f"{title} *{row}" for title in TITLES)
        self.assertRegex(result.stdout, rf"(?s)bound: the computation alone.*{rows}.*DDP over gloo\n[^\n]*/[^\n]*\n$")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
    def test_train_on_testbed(self):
        """The links carry what the formulas say, and the ratios are those to the bound."""
        try:
            Testbed(1).close()
        except Unavailable as reason:
            self.skipTest(str(reason))
        words = ["train", "--testbed", "--beside", "ddp", "-n", "2", "-s", "1", "--rate", "500Mbit"]
        words += ["--slow", "2=250Mbit"]
        result = self.bench_with_python([*words, "--rounds", "1", "--json"])
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        found = json.loads(result.stdout)
        self.assertEqual((found["workers"], found["servers"], found["hosts"]), (2, 1, ["h0", "h1", "h2"]))
        self.assertEqual(found["bytes"], 4 * sum(count for _, count in found["tensors"]))
        compute = found["ways"]["without_communication"]["seconds"]["median"]
        self.assertAlmostEqual(found["bound_seconds"], compute + found["optimum_seconds"])
        for name, way in found["ways"].items():
            self.assertAlmostEqual(way["ratio_to_bound"], way["seconds"]["median"] / found["bound_seconds"])
            ddp = found["ways"]["ddp"]["seconds"]["median"]
            self.assertAlmostEqual(way["ratio_to_ddp"], way["seconds"]["median"] / ddp)
            sent = [host["sent"] / found["bytes"] for host in way["bytes"]]
            for worker in sent[:2]:  # of two, each sends all of its bytes once, whoever sums them
                self.assertAlmostEqual(worker, float(name != "without_communication"), delta=0.05)
        self.assertLess(found["ways"]["ddp"]["bytes"][2]["sent"], 0.01 * found["bytes"])

    def test_no_train(self):
        """Said once, before a job is started."""
        result = self.bench_with_python(["train"], "-S")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result)
        self.assertRegex(result.stderr, r"^byteps bench: train needs PyTorch, which .* pip install torch\n$")

    def plotted(self, subject, file, *words):
        return self.bench_with_python([subject, *QUICK, "--json", "--plot", file], *words)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "needs matplotlib")
    def test_plot(self):
        for subject in SUBJECTS:
            with self.subTest(subject), tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "picture.png")
                result = self.plotted(subject, file)
                self.assertEqual((result.returncode, result.stderr), (0, ""), result)
                self.assertEqual(json.loads(result.stdout)["benchmark"], subject)
                self.assertEqual(os.listdir(folder), ["picture.png"])
                with open(file, "rb") as picture:
                    self.assertEqual(picture.read(8), b"\x89PNG\r\n\x1a\n")

    def test_no_plot(self):
        """Said before anything is measured; nothing is written."""
        with tempfile.TemporaryDirectory() as folder:
            inside = os.path.join(folder, "picture.png")
            for file, words, text in (
                (inside, ["-S"], "--plot needs matplotlib, which"),
                (os.path.join(folder, "none", "picture.png"), [], "picture.png cannot be written"),
                (os.path.join(folder, "picture.gif"), [], "expected a name that ends with .png, .svg or .pdf"),
            ):
                if "-S" not in words and not importlib.util.find_spec("matplotlib"):
                    continue
                for subject in SUBJECTS:
                    with self.subTest(file, subject=subject):
                        result = self.plotted(subject, file, *words)
                        self.assertEqual((result.returncode, result.stdout), (1, ""), result)
                        self.assertIn(text, result.stderr)
            self.assertEqual(os.listdir(folder), [])

    def test_full_device(self):
        with open(os.path.join("/dev", "full"), "w", encoding="ascii") as full:
            command = [harness.program(), "bench", "--help"]
            result = harness.execute(command, stdout=full)
        self.assertEqual(result.returncode, 1)
        self.assertIn("byteps bench: cannot write standard output", result.stderr)


if __name__ == "__main__":
    unittest.main()
