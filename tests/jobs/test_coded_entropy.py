# SPDX-License-Identifier: Apache-2.0
"""Compressors whose bytes depend on the elements, in whole jobs. See scripts/coded_entropy_ops.py."""

import unittest

import harness
import scripted

scripted.require("numpy")

OPTIONS = ["--set", 'worker.graph = ( { stage = "push_pull"; } )', "--set", "server.order=rank"]
NETWORK = ["--set", "server.local=false", "--set", "worker.partition=64 KiB"]


def missing(method):
    """Why the compressor lossless cannot be used with a library; None: it can."""
    words = ["bench", "compressor", "--bytes", "4KiB", "--rounds", "1", "--set", "compressors.c.plugin=lossless"]
    result = harness.execute([harness.program(), *words, "--set", f"compressors.c.method={method}"])
    return None if result.returncode == 0 else f"needs {method}"


class Scripts(scripted.TestCase):
    def test_two_workers(self):
        self.run_script("coded_entropy_ops.py", workers=2, servers=1, options=OPTIONS)

    def test_three_workers_over_the_network(self):
        self.run_script("coded_entropy_ops.py", workers=3, servers=1, options=[*OPTIONS, *NETWORK])

    def check_lossless(self, method, workers):
        why = missing(method)
        if why:
            self.skipTest(why)
        options = [*OPTIONS, *(NETWORK if workers > 2 else [])]
        self.run_script(
            "coded_entropy_ops.py", "lossless", workers=workers, servers=1, options=options, env={"METHOD": method}
        )

    def test_lossless_by_zstd(self):
        self.check_lossless("zstd", 3)

    def test_lossless_by_lz4(self):
        self.check_lossless("lz4", 2)


if __name__ == "__main__":
    unittest.main()
