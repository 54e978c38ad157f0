# SPDX-License-Identifier: Apache-2.0
"""push_pull, broadcast and their other names in byteps.torch."""

import unittest

import scripted

scripted.require("torch")


class Operations(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_ops.py", workers=1, servers=0)

    def test_two_workers(self):
        self.run_script("torch_ops.py", workers=2, servers=1)

    def test_three_workers_and_two_servers(self):
        self.run_script("torch_ops.py", workers=3, servers=2)

    def test_without_hierarchy(self):
        self.run_script("torch_ops.py", workers=2, servers=1, options=["--set", "worker.hierarchy=off"])

    def test_two_hosts(self):
        self.run_on_hosts("a,a,b", "torch_ops.py")


if __name__ == "__main__":
    unittest.main()
