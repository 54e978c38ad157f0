# SPDX-License-Identifier: Apache-2.0
"""`byteps plugin bench`: a plugin of each kind beside its reference, installed or in a file, and what is refused."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

import modules

SHORT = ("--bytes", "4KiB", "--rounds", "1")


class PluginBench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def bench(self, *words):
        return subprocess.run(["byteps", "plugin", "bench", *words], capture_output=True, text=True)

    def measured(self, *words):
        result = self.bench(*words, *SHORT, "--json")
        self.assertEqual(result.returncode, 0, result)
        return json.loads(result.stdout)

    def build(self, source, name, fault="NONE"):
        path = os.path.join(self.dir, name)
        return modules.build(os.path.join(modules.HERE, source), path, {"FAULT": fault}, ["-lpthread", "-lm"])

    def check_figures(self, found, kind, plugin, reference, *figures):
        self.assertEqual((found["kind"], found["plugin"], found["reference"]), (kind, plugin, reference))
        told = {row["figure"]: row for row in found["results"]}
        for figure in figures:
            self.assertGreater(told[figure]["ratio"], 0, told)
            self.assertGreater(told[figure]["plugin"], 0, told)

    def test_stage(self):
        path = self.build("stage_faulty.c", "stage_faulty.so")
        self.check_figures(self.measured(path), "stage", "faulty", "memcpy", "sum of float32")

    def test_stage_that_answers_later(self):
        path = modules.build(os.path.join(modules.HERE, "stage_later.c"), f"{self.dir}/stage_later.so")
        self.check_figures(self.measured(path), "stage", "later", "memcpy", "sum of float32")

    def test_reducer(self):
        path = self.build("reducer_faulty.c", "reducer_faulty.so")
        self.check_figures(self.measured(path), "reducer", "faulty", "cpu", "fold float32", "reduce4 float32")

    def test_compressor(self):
        """The one that codes to nearly as many bytes is beside it."""
        found = self.measured("onebit")
        self.check_figures(found, "compressor", "onebit", "topk", "coded, of the bytes", "encode", "decode_add")
        self.check_figures(self.measured("cast"), "compressor", "cast", "lossless", "encode")

    def test_transport(self):
        """Each has its own options."""
        found = self.measured("tcp", "--set", "streams=2")
        self.check_figures(found, "transport", "tcp", "tcp", "there and back", "stream of messages")

    def test_table(self):
        result = self.bench("cpu", *SHORT)
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("reducer cpu beside cpu: medians of 1 rounds, in turn\n", result.stdout)
        self.assertRegex(result.stdout, r"\nfold float32 +4KiB +\S+ \S+ +\S+ \S+ +\d+\.\d\d\n")

    def test_refused(self):
        launcher = self.build("launcher_folder.c", "launcher_folder.so")
        for words, text in (
            ((launcher,), "'folder' is a launcher, which has no work of its own that could be measured"),
            (("nothing_like_it",), "there is no plugin 'nothing_like_it'"),
            (("./nothing.so",), "./nothing.so: cannot be read"),
            (("cpu", "--set", "level"), "--set takes OPTION=VALUE"),
            (("tcp", "--set", "level=1"), "level"),
            (("cpu", "--rounds", "0"), "--rounds takes a number, 1 to 10000"),
            (("cpu", "--bytes", "128MiB"), "at most 64 MiB"),
            (("cpu", "--only", "x"), "--only is for check"),
            ((), "bench takes the name or the file of one plugin"),
        ):
            with self.subTest(words=words):
                result = self.bench(*words)
                self.assertGreater(result.returncode, 0)
                self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
