# SPDX-License-Identifier: Apache-2.0
"""Jobs whose rounds end without the slowest worker. Each worker checks for itself."""

import tempfile
import unittest

import scripted

scripted.require("numpy")

GRAPH = (
    '({stage="local_reduce"}, {stage="compress"; use="top"; when="name ~ *coded"}, {stage="push_pull"}, '
    '{stage="local_broadcast"})'
)
OPTIONS = [
    "server.quorum=n-1", "worker.partition=256 KiB", "worker.slice=32 KiB", f"worker.graph={GRAPH}",
    "compressors.top.plugin=topk", "compressors.top.k=1", "compressors.top.feedback=true",
]


class Quorum(scripted.TestCase):
    def run_rounds(self, servers, *more):
        options = [word for option in (*OPTIONS, *more) for word in ("--set", option)]
        with tempfile.TemporaryDirectory() as folder:
            self.run_script("quorum_rounds.py", workers=4, servers=servers, options=options, env={"FOLDER": folder})

    def test_two_servers(self):
        self.run_rounds(2)

    def test_server_in_a_worker(self):
        self.run_rounds(0, "server.local=false", "server.order=rank", "cluster.checksum=blake2s")


class Torch(scripted.TestCase):
    framework = "torch"

    def test_optimizer(self):
        options = ["--set", "server.quorum=n-1"]
        with tempfile.TemporaryDirectory() as folder:
            self.run_script("torch_quorum.py", workers=3, servers=1, options=options, env={"FOLDER": folder})


if __name__ == "__main__":
    unittest.main()
