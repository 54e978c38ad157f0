# SPDX-License-Identifier: Apache-2.0
"""push_pull of rows in whole jobs. Each worker checks for itself."""

import unittest

import harness
import scripted

scripted.require("numpy")

SMALL = ["--set", "worker.partition=64 KiB", "--set", "worker.slice=16 KiB"]


class Rows(scripted.TestCase):
    def test_alone(self):
        self.run_script("sparse_rows.py", workers=1, servers=0)

    def test_three_workers_and_two_servers(self):
        self.run_script("sparse_rows.py", workers=3, servers=2, options=SMALL)

    def test_server_in_a_worker(self):
        self.run_script("sparse_rows.py", workers=2, servers=0)

    def test_over_the_network_with_checksums(self):
        options = ["--set", "worker.hierarchy=off", "--set", "server.local=false", "--set", "cluster.checksum=blake2s"]
        self.run_script("sparse_rows.py", workers=2, servers=1, options=[*SMALL, *options])


class Torch(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_sparse.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("torch_sparse.py", workers=3, servers=2, options=SMALL)


class TensorFlow(scripted.TestCase):
    framework = "keras"

    def check(self, *checks, workers, servers):
        self.python = harness.framework_python("tensorflow")
        env = {"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
        self.run_script("tensorflow_sparse.py", *checks, workers=workers, servers=servers, options=SMALL, env=env)

    def test_alone(self):
        self.check("check_slices", "check_tape", workers=1, servers=0)

    def test_two_workers(self):
        self.check(workers=2, servers=1)

    def test_three_workers(self):
        self.check("check_slices", "check_sessions", "check_tape", workers=3, servers=2)


class MXNet(scripted.TestCase):
    framework = "mxnet"

    def check(self, *checks, workers, servers):
        self.python = harness.framework_python("mxnet")
        self.run_script("mxnet_sparse.py", *checks, workers=workers, servers=servers, options=SMALL)

    def test_alone(self):
        self.check(workers=1, servers=0)

    def test_two_workers(self):
        self.check("check_arrays", "check_only_rows_travel", workers=2, servers=1)

    def test_three_workers(self):
        self.check(workers=3, servers=2)


if __name__ == "__main__":
    unittest.main()
