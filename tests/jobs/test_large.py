# SPDX-License-Identifier: Apache-2.0
"""Tensors of more than 4 GiB, where there is memory for two of them."""

import re
import unittest

import scripted

scripted.require("numpy")

NEEDED = 14 << 20  # KiB: two tensors, the blocks of a server, and room for others


def available():
    """KiB of memory that could be had now."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(re.search(r"MemAvailable: +(\d+) kB", file.read()).group(1))


@unittest.skipIf(available() < NEEDED, f"less than {NEEDED >> 20} GiB of memory are free")
class Large(scripted.TestCase):
    def test_between_workers_of_a_host(self):
        self.run_script("large.py", servers=0)

    def test_through_a_server(self):
        self.run_script("large.py", options=["--set", "worker.hierarchy=off", "--set", "server.local=false"])


if __name__ == "__main__":
    unittest.main()
