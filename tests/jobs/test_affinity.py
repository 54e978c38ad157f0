# SPDX-License-Identifier: Apache-2.0
"""The section `affinity`: what `byteps info` says of machines of all shapes, and what is bound here."""

import json
import os
import re
import sys
import tempfile
import unittest

import harness

os.environ.pop(
    "LD_PRELOAD", None
)  # of a sanitizer: the workers here are other programs, and byteps needs none

PROGRAM = harness.program()
SHAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "unit", "topologies")
ALLOWED = sorted(os.sched_getaffinity(0))
PRINT_CORES = [sys.executable, "-S", "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]


def info(*settings):
    args = [arg for setting in settings for arg in ("--set", setting)]
    done = harness.execute([PROGRAM, "info", "--json", *args])
    done.check_returncode()
    return json.loads(done.stdout)


def build(shape, folder):
    """Makes a directory like /sys of a file with lines "PATH: TEXT"."""
    with open(os.path.join(SHAPES, shape), encoding="utf-8") as file:
        for line in file:
            path, colon, text = line.partition(": ")
            if colon and not line.startswith("#"):
                path = os.path.join(folder, path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as out:
                    out.write(text)


class Info(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = os.path.join(directory.name, "sys")

    def info(self, shape, *settings):
        build(shape, self.folder)
        return info(f"affinity.sysfs={self.folder}", *settings)

    def assertHas(self, found, expected):
        self.assertEqual({key: found.get(key) for key in expected}, expected, found)

    def test_one_node_is_not_mentioned(self):
        for shape in ("one_node", "one_place", "no_numa"):
            with self.subTest(shape):
                found = self.info(shape)
                self.assertFalse(
                    [key for key in found if key.startswith(("numa", "worker", "server_shard", "affinity"))]
                )

    def test_two_sockets(self):
        found = self.info("two_sockets", "transports.net.interface=bond0")
        self.assertHas(
            found,
            {
                "numa_node_0": "cores 0-11,24-35, 64.0 GiB",
                "worker_0_process": "cores 0-47, not bound",
                "worker_0_threads": "cores 12-23,36-47, memory of node 1",
                "server_shard_0": "cores 12-23,36-47, memory of node 1",
                "server_shard_7": "cores 12-23,36-47, memory of node 1",
            },
        )
        self.assertRegex(
            found["numa_node_1"], r"^cores 12-23,36-47, 64.0 GiB, interfaces (?=.*\beth0\b).*\bbond0\b"
        )

    def test_workers_are_bound_on_demand(self):
        settings = ["cluster.local_size=4", "cluster.workers=4", "cluster.scheduler=127.0.0.1:1"]
        found = self.info("two_sockets", "affinity.numa=on", *settings)
        self.assertHas(
            found,
            {
                "worker_0_process": "cores 0-5,24-29, memory of node 0",
                "worker_0_threads": "cores 0-5,24-29, memory of node 0",
                "worker_3_process": "cores 18-23,42-47, memory of node 1",
                "server_shard_0": "cores 0-11,24-35, memory of node 0",
                "server_shard_4": "cores 12-23,36-47, memory of node 1",
            },
        )
        found = self.info(
            "two_sockets", "affinity.numa=on", "affinity.quota=2", "affinity.root_quota=3", *settings
        )
        self.assertEqual(found["worker_2_process"], "cores 12-13,36-37, memory of node 1")
        self.assertEqual(found["worker_3_process"], "cores 18-20,42-44, memory of node 1")

    def test_off(self):
        found = self.info("two_sockets", "affinity.numa=off", "cluster.local_size=2")
        self.assertHas(
            found,
            {
                "worker_1_process": "cores 0-47, not bound",
                "worker_1_threads": "cores 0-47, not bound",
                "server_shard_0": "cores 0-47, not bound",
            },
        )

    def test_lists_of_cores(self):
        settings = ["affinity.cores=0-3:12-15", "affinity.server_cores=4:16,17", "cluster.local_size=2"]
        found = self.info("two_sockets", *settings)
        self.assertHas(
            found,
            {
                "worker_0_process": "cores 0-3",
                "worker_1_process": "cores 12-15",
                "worker_1_threads": "cores 12-15, memory of node 1",
                "server_shard_0": "cores 4, memory of node 0",
                "server_shard_1": "cores 16-17, memory of node 1",
                "server_shard_2": "cores 4, memory of node 0",
            },
        )

    def test_memory_is_elsewhere(self):
        found = self.info("memory_only", "cluster.local_size=2")
        self.assertHas(
            found,
            {
                "numa_node_1": "cores 4-7, no memory",
                "worker_1_threads": "cores 4-7, memory of node 2",
            },
        )
        self.assertRegex(found["numa_node_2"], "^no cores, 64.0 GiB")

    def test_errors(self):
        for shape, settings, text in (
            (
                "offline",
                ["affinity.cores=0-3"],
                'affinity.cores = "0-3": this machine has no core 3; it has 0-2,4,7-15',
            ),
            (
                "offline",
                ["affinity.server_cores=64"],
                'affinity.server_cores = "64": this machine has no core 64',
            ),
            (
                "no_numa",
                ["affinity.avoid=0-9"],
                'affinity.avoid = "0-9": no core is left; this process may use 0-3',
            ),
        ):
            with self.subTest(shape=shape, settings=settings):
                self.assertIn(text, self.info(shape, *settings)["affinity"])
        found = self.info("one_node", "affinity.cores=0:1", "cluster.local_size=3")
        self.assertEqual(
            found["worker_2_threads"],
            'affinity.cores = "0:1": 2 lists, but this is the worker of local rank 2; expected a list for each of the '
            "3 workers here, or one for all",
        )
        found = self.info("one_node", "affinity.cores=0,1", "affinity.avoid=0,1")
        self.assertEqual(
            found["worker_0_threads"],
            'affinity.cores = "0,1": this process may use none of these cores, but 2-7 (by its affinity, its cgroup, '
            "and affinity.avoid)",
        )


class Jobs(unittest.TestCase):
    """On this machine, whatever it is like: the cores are those that this process may use."""

    def cores(self, *settings, workers=2, env=None):
        options = [arg for setting in settings for arg in ("--set", setting)]
        result = harness.run(PRINT_CORES, workers=workers, options=options, env=env)
        self.assertEqual((result.status, result.err), (0, ""), result)
        return [json.loads(result.lines(f"worker {rank}")[0]) for rank in range(workers)]

    def test_nothing_is_bound_without_being_asked(self):
        self.assertEqual(self.cores(), [ALLOWED, ALLOWED])

    def test_processes_are_bound_to_their_cores(self):
        first, last = ALLOWED[0], ALLOWED[-1]
        self.assertEqual(self.cores(f"affinity.cores={first}"), [[first], [first]])
        self.assertEqual(self.cores(f"affinity.cores={first}:{last}"), [[first], [last]])
        env = {"BYTEPS_VISIBLE_CPU_CORES": f"{last}:{first}"}
        self.assertEqual(self.cores(env=env), [[last], [first]])

    def test_one_node_is_not_divided(self):
        if os.path.exists("/sys/devices/system/node/node1"):
            self.skipTest("this machine has several nodes")
        self.assertEqual(self.cores("affinity.numa=on"), [ALLOWED, ALLOWED])
        self.assertEqual(self.cores(env={"BYTEPS_NUMA_ON": "1"}), [ALLOWED, ALLOWED])

    def test_wrong_cores_end_the_job(self):
        result = harness.run(["true"], workers=2, options=["--set", "affinity.cores=8191"])
        self.assertEqual(result.status, 1, result)
        self.assertIn('affinity.cores = "8191": this machine has no core 8191; it has', result.err)

    def test_launch_binds_as_well(self):
        env = dict(
            os.environ, DMLC_ROLE="worker", DMLC_NUM_WORKER="1", DMLC_WORKER_ID="0", BYTEPS_LOCAL_SIZE="2"
        )
        env["BYTEPS_VISIBLE_CPU_CORES"] = f"{ALLOWED[0]}:{ALLOWED[-1]}"
        for force in ("0", "1"):
            with self.subTest(force=force):
                env.update(BYTEPS_FORCE_DISTRIBUTED=force, DMLC_NUM_SERVER="1")
                env.update(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT="1")
                done = harness.execute([PROGRAM, "launch", *PRINT_CORES], env=env)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                # They write to the same pipe, so that their lines may mingle.
                found = sorted(json.loads(text) for text in re.findall(r"\[[^]]*\]", done.stdout))
                self.assertEqual(found, [[ALLOWED[0]], [ALLOWED[-1]]])

    def test_threads_of_a_server(self):
        """A job whose shards are bound sums as before, and its server's threads are where they should be."""
        core = ALLOWED[-1]
        program = os.path.join(os.environ.get("top_builddir", "."), "examples", "push_pull")
        if not os.access(program, os.X_OK):
            self.skipTest("examples/push_pull is not built")
        result = harness.run(
            [program],
            workers=2,
            servers=1,
            options=[
                "--set",
                f"affinity.server_cores={core}",
                "--set",
                "server.shards=2",
                "--set",
                "log.level=info",
            ],
        )
        self.assertEqual(result.status, 0, result)
        lines = [line for line in result.lines("server 0", "err") if f"affinity: shard: cores {core}" in line]
        self.assertEqual(len(lines), 2, result)


if __name__ == "__main__":
    unittest.main()
