# SPDX-License-Identifier: Apache-2.0
"""Each `make bench-NAME` runs to its end and prints figures, here in as little time as it can."""

import os
import sys
import tempfile
import unittest

BENCH = os.path.join(os.environ["top_srcdir"], "bench")
sys.path += [BENCH, os.path.join(BENCH, "compare")]

import contestants  # noqa: E402  (it lies in a folder that was just added)
import targets  # noqa: E402
import testbed  # noqa: E402  (it lies in the folder that was just added)

ELSEWHERE = {
    "bench-check": "test_instructions.py",
    "bench-compression": "test_compression.py",
    "bench-faults": "test_faults.py",
    "bench-record": "test_instructions.py",
    "bench-slow-links": "test_slow_links.py",
    "bench-stragglers": "test_stragglers.py",
    "bench-verbs": "tests/verbs, in the virtual machine",
}
HERE = {
    "bench-collectives": [
        ["--place", "host", "--workers", "2", "--size", "4KiB", "--only", "all_to_all", "--only", "send",
         "--rounds", "1", "--without", "OpenMPI"],
    ],
    "bench-ddp": [["--place", "host", "--workers", "2", "--millions", "1", "--rounds", "1", "--steps", "1"]],
    "bench-frameworks": [["numpy", "--turns", "1", "--steps", "1"]],
    "bench-host": [["--rounds", "1", "--only", "latency", "--without", "OpenMPI"]],
    "bench-optimum": [["--shape", "2,1", "--model", "MODEL", "--rounds", "1", "--rivals="]],
    "bench-paths": [["--trip", "1ms", "--loss", "0.1", "--rounds", "1", "--mib", "1", "--seconds", "0.5", "--rival="]],
    "bench-priority": [
        ["--only", "urgent", "--place", "loopback", "--scale", "0.01", "--rounds", "1", "--shape", "2,1"],
        ["--only", "model", "--model", "resnet50", "--ratio", "1", "--iterations", "1", "--rounds", "1",
         "--shape", "2,1", "--scale", "0.01"],
    ],
    "bench-sizes": [["--rounds", "1", "--size", "4KiB", "--ranks", "2", "--without", "OpenMPI"]],
    "bench-sweep": [["--shape", "2,1", "--model", "MODEL", "--rounds", "1", "--partition", "256KiB", "--slice", "16KiB",
                     "--credit", "0"]],
}
IN_THE_BED = {"bench-optimum", "bench-paths", "bench-priority", "bench-sweep"}


class Targets(unittest.TestCase):
    def run_all(self, target):
        if target == "bench-ddp" and contestants.Gloo.missing():
            self.skipTest(contestants.Gloo.missing())
        if target in IN_THE_BED:
            try:
                testbed.Testbed(1).close()
            except testbed.Unavailable as reason:
                self.skipTest(str(reason))
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model.txt")
            with open(model, "w", encoding="ascii") as file:
                file.write("a 200000 float32\nb 1 float32\n")
            for flags in HERE[target]:
                text = targets.make(self, target, *[model if flag == "MODEL" else flag for flag in flags])
                self.assertRegex(text, r"\d\.\d", target)

    def test_each(self):
        for target in HERE:
            with self.subTest(target):
                self.run_all(target)

    def test_none_is_left_out(self):
        self.assertEqual(targets.names(), HERE.keys() | ELSEWHERE.keys())


if __name__ == "__main__":
    unittest.main()
