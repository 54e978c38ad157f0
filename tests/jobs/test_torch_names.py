# SPDX-License-Identifier: Apache-2.0
"""Programs written for the original BytePS or for Horovod find their names in byteps.torch."""

import unittest

import scripted

scripted.require("torch")


class Names(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_names.py", workers=1, servers=0)

    def test_two_workers(self):
        self.run_script("torch_names.py", workers=2, servers=1)

    def test_hosts_of_equal_and_of_different_sizes(self):
        for hosts in ("a,b,a,b", "a,b,b"):
            with self.subTest(hosts=hosts):
                self.run_on_hosts(hosts, "torch_names.py", "check_hosts")


if __name__ == "__main__":
    unittest.main()
