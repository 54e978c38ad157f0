# SPDX-License-Identifier: Apache-2.0
"""Compressors whose bytes depend on the elements, in whole jobs. See scripts/coded_entropy_ops.py."""

import unittest

import scripted

scripted.require("numpy")

OPTIONS = ["--set", 'worker.graph = ( { stage = "push_pull"; } )', "--set", "server.order=rank"]
NETWORK = ["--set", "server.local=false", "--set", "worker.partition=64 KiB"]


class Scripts(scripted.TestCase):
    def test_two_workers(self):
        self.run_script("coded_entropy_ops.py", workers=2, servers=1, options=OPTIONS)

    def test_three_workers_over_the_network(self):
        self.run_script("coded_entropy_ops.py", workers=3, servers=1, options=[*OPTIONS, *NETWORK])


if __name__ == "__main__":
    unittest.main()
