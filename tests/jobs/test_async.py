# SPDX-License-Identifier: Apache-2.0
"""Asynchronous push_pull in whole jobs: the servers keep a value. Each worker checks for itself."""

import unittest

import scripted

scripted.require("numpy")

SMALL = ["--set", "worker.async=true", "--set", "worker.partition=256 KiB", "--set", "worker.slice=32 KiB"]


class Values(scripted.TestCase):
    def test_alone(self):
        self.run_script("async_values.py", workers=1, servers=0)

    def test_three_workers_and_two_servers(self):
        self.run_script("async_values.py", workers=3, servers=2, options=SMALL)

    def test_staleness(self):
        for bound, name in (("0", "in_step"), ("2", "not_far")):
            with self.subTest(name):
                options = [*SMALL, "--set", f"worker.staleness={bound}"]
                self.run_script("async_values.py", name, workers=3, servers=2, options=options)

    def test_server_in_a_worker(self):
        self.run_script("async_values.py", workers=2, servers=0)

    def test_over_the_network_with_checksums(self):
        options = ["--set", "worker.hierarchy=off", "--set", "server.local=false", "--set", "cluster.checksum=blake2s"]
        self.run_script("async_values.py", workers=2, servers=1, options=[*SMALL, *options])


class Rows(scripted.TestCase):
    def test_alone(self):
        self.run_script("async_rows.py", workers=1, servers=0, options=SMALL)

    def test_three_workers_and_two_servers(self):
        self.run_script("async_rows.py", workers=3, servers=2, options=SMALL)

    def test_staleness(self):
        options = [*SMALL, "--set", "worker.staleness=0"]
        self.run_script("async_rows.py", "in_step", workers=3, servers=2, options=options)


class Torch(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_async.py", workers=1, servers=0, options=SMALL)

    def test_two_workers(self):
        self.run_script("torch_async.py", workers=2, servers=1, env={"BYTEPS_ENABLE_ASYNC": "1"})


if __name__ == "__main__":
    unittest.main()
