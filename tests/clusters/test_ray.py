# SPDX-License-Identifier: Apache-2.0
"""Trainings of Ray Train on a cluster of Ray: two nodes for workers, two for servers, the hosts of a test bed."""

import json
import os
import re
import shutil
import tempfile
import unittest

import launched
from launched import TRAIN, Case, environment, harness

RAY = os.path.join(os.path.dirname(harness.python()), "ray")
PORT = 6379
LONG = unittest.skipUnless(os.environ.get("ALL_CLUSTER_TESTS"), "a training of Ray begins slowly")
NODES = ["gpu_node", "gpu_node", "cpu_node", "cpu_node"]
"""What each is for, by a resource of that name."""


def setUpModule():
    launched.needs("torch")
    launched.needs("ray.train")


class Cluster:
    """A cluster of Ray on the hosts of a bed; h0 has its head."""

    def __init__(self, bed):
        self.bed = bed
        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # names of sockets may have no more letters
        self.session = os.path.join(self.folder, "s")  # each node has one of its own at this place
        os.mkdir(self.session)
        self.nodes = []
        self.env = environment(RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0", RAY_COLOR_PREFIX="0")
        self.env.update(RAY_AUTH_MODE="disabled", BYTEPS_LOG_LEVEL="INFO")
        self.address = f"{bed.address(0)}:{PORT}"

    def start(self):
        """The head first, then the others, all at once."""
        self.node(0, "--head", f"--port={PORT}", f"--temp-dir={self.session}")
        self.wait_for(0)
        for host in range(1, len(NODES)):
            self.node(host, f"--address={self.address}")
        for host in range(1, len(NODES)):
            self.wait_for(host)

    def node(self, host, *options):
        resources = f"--resources={json.dumps({NODES[host]: 2})}"
        options += ("--block", "--num-cpus=2", "--num-gpus=0", resources, "--object-store-memory=80000000")
        options += (f"--node-ip-address={self.bed.address(host)}",)
        alone = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', self.session]
        alone = alone if host > 0 else []  # programs of users on h0 look there
        with open(self.log(host), "w", encoding="utf-8") as log:
            command = [*alone, RAY, "start", *options]
            self.nodes.append(self.bed.popen(host, command, env=self.env, stdout=log, stderr=log))

    def log(self, host):
        return os.path.join(self.folder, f"node-{host}.log")

    def wait_for(self, host):
        def said():
            with open(self.log(host), encoding="utf-8") as file:
                return file.read()

        node = self.nodes[host]
        harness.until(lambda: "Ray runtime started" in said() or node.poll() is not None, f"node {host}", show=said)
        if node.poll() is not None:
            raise AssertionError(said())

    def close(self):
        for node in reversed(self.nodes):
            node.terminate()
        for node in reversed(self.nodes):
            harness.communicate(node)
        shutil.rmtree(self.folder, ignore_errors=True)


class Trainings(Case):
    @classmethod
    def setUpClass(cls):
        cls.bed = launched.bed_of(len(NODES))
        cls.addClassCleanup(cls.bed.close)
        cls.cluster = Cluster(cls.bed)
        cls.addClassCleanup(cls.cluster.close)
        cls.cluster.start()

    def popen(self, command, **variables):
        """A program of a user, on h0."""
        env = {**self.cluster.env, "RAY_ADDRESS": self.cluster.address, **variables}
        return self.bed.popen(0, command, env=env, **launched.BOTH)

    def fit(self, workers=2, servers=1, **config):
        """What the program and its actors have said, each line with the address of its node unless that is h0."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(launched.HERE, "scripts", "ray_train.py")
            config = {"workers": workers, "servers": servers, "program": TRAIN, **config}
            driver = self.popen([harness.python(), program, folder, json.dumps(config)])
            text = harness.communicate(driver)[0]
        self.assertEqual(driver.returncode, 0, text)
        return text

    def ends_well(self, places, jobs=2, **config):
        text = self.fit(workers=len(places), **config)
        for words in ("the training has ended well", "all is free"):
            self.assertIn(words, text)
        self.check(re.sub(r"^\(RayTrainWorker [^)]*\) ", "", text, flags=re.M), places, jobs)
        return text

    def test_as_documented(self):
        with tempfile.TemporaryDirectory() as folder:
            self.follow("ray", folder, lambda command, **how: self.popen(command, **how))

    @LONG
    def test_servers_on_nodes_of_their_own(self):
        text = self.ends_well([(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)], servers=2)
        servers = re.findall(r"^\(BytePSServer pid=\d+, ip=([\d.]+)\) .*: serving 4 workers, epoch 2", text, re.M)
        self.assertEqual(sorted(servers), [self.bed.address(2), self.bed.address(3)], text)

    @LONG
    def test_no_servers_and_a_job_that_is_left_open(self):
        self.ends_well([(0, 2, 0, 2), (1, 2, 1, 2)], servers=0, stays=True)

    @LONG
    def test_a_worker_dies(self):
        self.assertIn("was lost", self.ends_well([(0, 2, 0, 2), (1, 2, 1, 2)], kill=1))

    @LONG
    def test_a_server_dies(self):
        self.assertRegex(self.ends_well([(0, 2, 0, 2), (1, 2, 1, 2)], kill="server"), "server 0 .* was lost")

    @LONG
    def test_a_worker_has_an_error(self):
        text = self.fit(**{"raise": 1})
        self.assertIn("the training has failed", text)
        self.assertIn("as a user's mistake does", text)
        self.assertIn("all is free", text)

    @LONG
    def test_no_room(self):
        text = self.fit(cores=3)
        self.assertIn("servers=1 with {'CPU': 3, 'cpu_node': 1} each, every one on one node, have", text)


if __name__ == "__main__":
    unittest.main()
