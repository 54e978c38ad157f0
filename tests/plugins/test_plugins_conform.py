# SPDX-License-Identifier: Apache-2.0
"""The plugins that are built here pass the conformance suite of their kinds."""

import json
import os
import subprocess
import unittest

KINDS = ("transport", "reducer", "compressor", "stage")
DRIVER = os.path.abspath(os.path.join(os.environ.get("top_builddir", "."), "tests", "gpu", "standin", ".libs"))


class Conform(unittest.TestCase):
    def check(self, name, kind, *options, **env):
        command = ["byteps", "plugin", "check", name, "--kind", kind, "--json", "--limit", "60", *options]
        result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
        self.assertIn(result.returncode, (0, 1), result)
        failed = [test for test in json.loads(result.stdout)["tests"] if test["result"] == "failed"]
        self.assertFalse(failed)
        return json.loads(result.stdout)

    @staticmethod
    def plugins():
        listed = json.loads(subprocess.run(["byteps", "plugin", "list", "--json"], capture_output=True).stdout)
        return [(row["name"], row["kind"]) for row in listed if row["kind"] in KINDS and not row["refusal"]]

    def test_all(self):
        names = self.plugins()
        self.assertGreaterEqual(len(names), 10)
        for name, kind in names:
            with self.subTest(name=name, kind=kind):
                self.check(name, kind)

    def test_instruction_sets(self):
        """Those that this machine lacks are refused, and skipped."""
        for isa in ("baseline", "avx2", "avx512", "avx512bf16"):
            with self.subTest(isa=isa):
                self.check("cpu", "reducer", "--set", f"isa={isa}")

    def test_cuda_with_the_stand_in_for_its_driver(self):
        if ("cuda", "reducer") not in self.plugins():
            self.skipTest("the reducer cuda was not built")
        path = ":".join(filter(None, [DRIVER, os.environ.get("LD_LIBRARY_PATH")]))
        found = self.check("cuda", "reducer", LD_LIBRARY_PATH=path)
        skipped = [test["test"] for test in found["tests"] if test["result"] == "skipped"]
        self.assertNotIn("open and close, many times", skipped)

    def test_ways_of_shared_memory(self):
        for option in ("copy=ring", "arena=0"):
            with self.subTest(option=option):
                self.check("ipc", "transport", "--set", option)


if __name__ == "__main__":
    unittest.main()
