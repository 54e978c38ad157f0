# SPDX-License-Identifier: Apache-2.0
"""Launchers as plugins: one that was built outside of BytePS, which of several is taken, and who opens none."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import modules

sys.path.insert(0, os.path.join(modules.TOP, "tests", "jobs"))

import harness  # noqa: E402  (it lies in the folder that was just added)

SUM_JOB = os.path.join(os.environ.get("top_builddir", "."), "tests", "plugins", "sum_job")
OPENED = r"""
import os, re, byteps.numpy as bps
bps.init()
launchers = set(re.findall(r"/launcher_(\w+)[.]so$", open("/proc/self/maps").read(), re.M))
child = os.fork()
if child == 0:
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    os._exit(any("byteps-1" in os.readlink(path) for path in paths if os.path.exists(path)))
print("opened:", *sorted(launchers), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
bps.shutdown()
"""
# Of torchrun, mpirun and srun, where none of them is.
OTHERS = {"PMI_FD": "x", "TORCHELASTIC_USE_AGENT_STORE": "False", "SLURM_STEP_ID": ""}


class Case(unittest.TestCase):
    def setUp(self):
        harness.program()
        folder = tempfile.TemporaryDirectory(prefix="byteps-launcher-")
        self.addCleanup(folder.cleanup)
        self.dir, self.meeting = folder.name, os.path.join(folder.name, "meeting")
        os.mkdir(self.meeting)
        self.path = os.pathsep.join(filter(None, [self.dir, os.environ.get("BYTEPS_PLUGIN_PATH")]))

    def build(self, **defines):
        modules.build(
            os.path.join(modules.HERE, "launcher_folder.c"), os.path.join(self.dir, "launcher_folder.so"), defines
        )

    def run_job(self, command, **variables):
        """What two processes say that have been started as one of several: [(status, output)]"""
        parts = []
        for rank in range(2):
            env = dict(os.environ, WORLD_SIZE="2", RANK=str(rank), BYTEPS_PLUGIN_PATH=self.path, **variables)
            both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            parts.append(subprocess.Popen(command, env={k: v for k, v in env.items() if v is not None}, **both))
        return [(harness.communicate(part)[0], part.returncode)[::-1] for part in parts]

    def meets(self, *words, **variables):
        """A job that comes about; the text of worker 0 has the words."""
        results = self.run_job([SUM_JOB, "1 2", "10 20"], BYTEPS_SET="log.level=debug", **variables)
        for status, text in results:
            self.assertEqual(status, 0, results)
            self.assertIn("sum: 11 22", text)
        for word in words:
            self.assertIn(word, results[0][1])

    def fails(self, *words, **variables):
        """A job of which both workers say one of the words."""
        settings = "cluster.rendezvous_timeout=1s"
        results = self.run_job([SUM_JOB, "1 2", "10 20"], BYTEPS_SET=settings, FOLDER_OF_JOB=self.meeting, **variables)
        for status, text in results:
            self.assertEqual(status, 1, results)
            self.assertTrue(any(word in text for word in words), results)


class OfAnother(Case):
    """launcher_folder.so, in a folder of BYTEPS_PLUGIN_PATH."""

    def test_it_is_found(self):
        self.build()
        words = ("folder applies (order 1000)", "pmi does not apply (order", "pmix does not apply: none of its")
        self.meets(*words, "the others find it by the folder", FOLDER_OF_JOB=self.meeting, **OTHERS)
        self.meets("the folder is empty again", FOLDER_OF_JOB=self.meeting, **OTHERS)
        self.assertEqual(os.listdir(self.meeting), [])

    def test_a_child_has_nothing_of_it_and_others_are_not_opened(self):
        self.build()
        command = [harness.python(), "-c", OPENED]
        results = self.run_job(command, FOLDER_OF_JOB=self.meeting)
        for status, text in results:
            self.assertEqual((status, text), (0, "opened: folder 0\n"), results)

    def test_the_order(self):
        """Of two that are there the first one by its order, and what users ask for before it."""
        self.build(ORDER=1)
        store = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        words = ("folder applies (order 1)", "tcp_store applies (order 100)", "the others find it by the folder")
        self.meets(*words, FOLDER_OF_JOB=self.meeting, **store)
        store["BYTEPS_MEETING_FILE"] = os.path.join(self.dir, "file")
        self.meets("the others find it by BYTEPS_MEETING_FILE", FOLDER_OF_JOB=self.meeting, **store)
        del store["BYTEPS_MEETING_FILE"]
        self.build(ORDER=1000)
        self.fails("the store of torchrun at 127.0.0.1:1: ", **store)

    def test_it_does_not_recognise_its_variable(self):
        self.build()
        for status, text in self.run_job([SUM_JOB, "1 2", "10 20"], FOLDER_OF_JOB="here"):
            self.assertEqual(status, 1, text)
            self.assertIn("WORLD_SIZE = 2: torchrun has started several processes without a rendezvous", text)

    def test_worker_0_does_not_come(self):
        self.build()
        settings = "cluster.rendezvous_timeout=1s\ncluster.rank=1"
        results = self.run_job([SUM_JOB, "1", "1"], BYTEPS_SET=settings, FOLDER_OF_JOB=self.meeting)
        for status, text in results:
            self.assertEqual(status, 1, text)
            self.assertIn("worker 0 did not publish the address of the scheduler within 1 s "
                          "(cluster.rendezvous_timeout): FOLDER_OF_JOB: ", text)  # fmt: skip

    def test_what_it_may_not_return(self):
        self.build(RETURNS=3)
        says = "launcher folder (launcher), {}: returned 3; allowed are BPS_OK and BPS_ERR_*"
        self.fails(says.format("leave"), says.format("find"))

    def test_nothing_found(self):
        self.build(RETURNS=0)
        self.fails("the note of worker 0 in the folder is not of this version of BytePS", "did not start within")

    def test_it_is_refused(self):
        self.build(PLACE="NULL")
        self.fails("place of its operations is NULL, expected a text; set it in struct bps_launcher_ops")
        modules.build(os.path.join(modules.HERE, "crafted.c"), os.path.join(self.dir, "launcher_folder.so"))
        self.fails("launcher_folder.so: kind in its note is stage, its file name says launcher; rename it to stage_")


class Nobody(Case):
    """Who meets nobody opens none."""

    def test_byteps_run(self):
        self.build()
        env = {"BYTEPS_PLUGIN_PATH": self.path, "FOLDER_OF_JOB": self.meeting, "WORLD_SIZE": "2"}
        result = harness.run([harness.python(), "-c", OPENED], workers=2, env=env)
        self.assertEqual(result.status, 0, result)
        for rank in range(2):
            self.assertEqual(result.lines(f"worker {rank}"), ["opened: 0"], result)

    def test_alone(self):
        self.build()
        variables = {"FOLDER_OF_JOB": self.meeting, "PMI_FD": "0", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "1"}
        env = dict(os.environ, BYTEPS_PLUGIN_PATH=self.path, **variables)
        result = harness.execute([harness.python(), "-c", OPENED], env=env)
        self.assertEqual((result.returncode, result.stdout), (0, "opened: 0\n"), result.stderr)


class Listed(unittest.TestCase):
    def test_those_of_this_build(self):
        result = harness.execute([harness.program(), "plugin", "list"])
        self.assertEqual(result.returncode, 0, result.stderr)
        found = re.findall(r"^ *launcher +(\w+)", result.stdout, re.M)
        self.assertEqual(found, sorted(found))
        for name in found:
            info = harness.execute([harness.program(), "plugin", "info", name, "--kind", "launcher"])
            self.assertEqual((info.returncode, info.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
