# SPDX-License-Identifier: Apache-2.0
"""reduce, reduce_scatter, all_gather, gather, scatter and all_to_all in Python, and process groups. Each worker checks
for itself."""

import unittest

import scripted

scripted.require("numpy")

SMALL = ["--set", "worker.partition=64 KiB", "--set", "worker.slice=16 KiB"]


class Arrays(scripted.TestCase):
    def test_alone(self):
        self.run_script("numpy_collectives.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("numpy_collectives.py", workers=3, servers=1, options=SMALL)

    def test_process_groups(self):
        for workers, servers in ((1, 0), (3, 0), (3, 1)):
            self.run_script("process_groups.py", workers=workers, servers=servers, env={"FRAMEWORK": "numpy"})


class Tensors(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_collectives.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("torch_collectives.py", workers=3, servers=1, options=SMALL)

    def test_process_groups(self):
        self.run_script("process_groups.py", workers=3, servers=0, env={"FRAMEWORK": "torch"})


if __name__ == "__main__":
    unittest.main()
