# SPDX-License-Identifier: Apache-2.0
"""Gradients in shared memory: see scripts/torch_shared.py."""

import unittest

import scripted

scripted.require("torch")


class Shared(scripted.TestCase):
    framework = "torch"

    def test_workers_of_a_host(self):
        self.run_script("torch_shared.py", "yes", workers=2, servers=0)

    def test_where_it_is_of_no_use(self):
        self.run_script("torch_shared.py", "no", "check_where_gradients_are", workers=1, servers=0)
        options = ["--set", "worker.hierarchy=off"]
        self.run_script("torch_shared.py", "no", "check_where_gradients_are", workers=2, servers=1, options=options)


if __name__ == "__main__":
    unittest.main()
