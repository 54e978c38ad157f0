# SPDX-License-Identifier: Apache-2.0
"""bps.init() as programs call it: what it refuses, and what it warns about."""

import os
import subprocess
import unittest

import harness

SIZES = (
    "import byteps, byteps._basics as bps, os; bps.init({}); "
    "os.write(1, b'%d of %d\\n' % (bps.rank(), bps.size()))"  # at once, as others write there, too
)
LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE")


def script(arguments=""):
    """The command of a program that joins a job and says who it is."""
    return [harness.python(), "-c", SIZES.format(arguments)]


class Case(unittest.TestCase):
    def start(self, arguments="", **variables):
        """Runs the program without `byteps run`, where no other launcher has left its variables."""
        env = {k: v for k, v in os.environ.items() if k not in LAUNCHED and not k.startswith("SLURM_")}
        return harness.execute(script(arguments), env={**env, **variables})

    def good(self, arguments="", **variables):
        """Its standard error, once it was alone."""
        result = self.start(arguments, **variables)
        self.assertEqual((result.returncode, result.stdout), (0, "0 of 1\n"), result.stderr)
        return result.stderr

    def refused(self, *words, error="ConfigurationError", arguments="", **variables):
        """The last line of its traceback has all the words."""
        result = self.start(arguments, **variables)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        last = result.stderr.splitlines()[-1]
        for word in (error, *words):
            self.assertIn(word, last)


class Launchers(Case):
    """A process that another launcher has started as one of several does not train alone unless told to."""

    def test_one_of_several(self):
        """Their launchers have left no place to meet here."""
        command = "`byteps run -n 2 -- python3 train.py`"
        for name in ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
            with self.subTest(name):
                self.refused(f"{name} = 2: ", command, "cluster.workers = 1", **{name: "2"})

    def test_really_alone(self):
        alone = "set={'cluster.workers': 1}"
        batch = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
        self.assertEqual(self.good(alone, WORLD_SIZE="2"), "")
        self.assertEqual(self.good(WORLD_SIZE="2", BYTEPS_SET="cluster.workers=1"), "")
        self.assertEqual(self.good(WORLD_SIZE="1", OMPI_COMM_WORLD_SIZE="1"), "")
        self.assertEqual(self.good(**batch), "")

    def test_a_job_of_byteps(self):
        for workers in (1, 2):
            result = harness.run(script(), workers=workers, env={"WORLD_SIZE": "5", "SLURM_NTASKS": "5"})
            self.assertEqual(result.status, 0, result)
            for rank in range(workers):
                self.assertEqual(result.lines(f"worker {rank}"), [f"{rank} of {workers}"])


class Torchrun(unittest.TestCase):
    """With the scheduler's address, the processes of torchrun are workers of one job."""

    def start(self, *arguments, lines, fds=()):
        env = {k: v for k, v in os.environ.items() if k not in LAUNCHED}
        env["BYTEPS_SET"] = "\n".join(["cluster.workers=2", "cluster.servers=1", *lines])
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(arguments, env=env, text=True, pass_fds=fds, **both)

    def test_two_processes(self):
        if not harness.has_module(harness.python(), "torch"):
            self.skipTest("torch is not installed")
        reading, writing = os.pipe()
        scheduler = [harness.program(), "scheduler", "--announce", str(writing)]
        parts = [self.start(*scheduler, lines=["cluster.role=scheduler"], fds=[writing])]
        os.close(writing)
        with open(reading, encoding="ascii") as announced:
            where = f"cluster.scheduler={announced.readline().strip()}"
        parts.append(self.start(harness.program(), "server", lines=[where, "cluster.role=server"]))
        torchrun = [harness.python(), "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
        parts.append(self.start(*torchrun, *script(), lines=[where]))
        said = [harness.communicate(part)[0] for part in parts]
        self.assertEqual([part.returncode for part in parts], [0, 0, 0], said)
        self.assertEqual(sorted(line for line in said[2].splitlines() if " of " in line), ["0 of 2", "1 of 2"], said)


class Settings(Case):
    """init(set=...) takes what Python has for the values of a configuration."""

    def test_single_values(self):
        for key, value, text in (
            ("worker.threads", "2", "2"),
            ("server.bandwidth", "0.5", "0.5"),
            ("log.hide_time", "True", "true"),
            ("worker.partition", "'8 MiB'", "8 MiB"),
            ("affinity.sysfs", "__import__('pathlib').Path('/sys')", "/sys"),
        ):
            with self.subTest(key):
                code = f"import byteps._basics as bps; bps.init(set={{{key!r}: {value}}}); "
                result = harness.execute([harness.python(), "-c", code + f"print(bps._bps.conf({key!r}))"])
                self.assertEqual((result.returncode, result.stdout), (0, text + "\n"), result.stderr)

    def test_lists(self):
        self.good("set={'worker.use': ['sum', 'cuda']}")
        self.good("set={'worker.use': ('sum',)}")
        for name in ('a"b', "no\\thing", "a, b"):  # reaches the checks as it was written
            shown = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
            with self.subTest(name):
                self.refused(f"worker.use = {shown}: ", arguments=f"set={{'worker.use': {['sum', name]!r}}}")
        self.refused("worker.partition", "a list is not allowed here", arguments="set={'worker.partition': [1, 2]}")

    def test_other_types(self):
        for value, name in (
            ("None", "NoneType"),
            ("{'partition': 4096}", "dict"),
            ("['sum', None]", "NoneType"),
            ("[['sum']]", "list"),
            ("b'sum'", "bytes"),
        ):
            with self.subTest(value):
                words = ("set: worker.use = ", f"{name} is not a supported type; expected a string, a number")
                self.refused(*words, error="TypeError", arguments=f"set={{'worker.use': {value}}}")


class OldVariables(Case):
    """Those of the original: nothing that a program asks for is passed over in silence."""

    def test_other_results(self):
        self.refused('BYTEPS_INTRA_COMPRESSOR = "dgc": ', "no compression", BYTEPS_INTRA_COMPRESSOR="dgc")
        self.assertEqual(self.good(BYTEPS_INTRA_COMPRESSOR="none"), "")
        result = harness.run(script(), workers=2, servers=0, env={"BYTEPS_INTRA_COMPRESSOR": "dgc"})
        self.assertNotEqual(result.status, 0)
        self.assertIn('BYTEPS_INTRA_COMPRESSOR = "dgc": ', result.err)

    def test_beyond_a_limit(self):
        said = self.good(BYTEPS_PARTITION_BYTES="2147483647")
        self.assertRegex(said, r"BYTEPS_PARTITION_BYTES = 2147483647 exceeds the limit and is taken as 1073741824\n$")
        self.refused("--set: worker.partition", "out of range", arguments="set={'worker.partition': 2147483647}")

    def test_without_effect(self):
        """One process of the job tells it, once."""
        again = "import byteps._basics as bps; bps.init(); bps.shutdown(); bps.init()"
        env = {"BYTEPS_NCCL_NUM_RINGS": "2", "BYTEPS_PARTITION_BYTES": "2147483647"}
        result = harness.run([harness.python(), "-c", again], workers=2, servers=1, env=env)
        self.assertEqual(result.status, 0, result)
        for words in ("BYTEPS_NCCL_NUM_RINGS is set, but has no effect", "taken as 1073741824"):
            self.assertEqual([words in line for line in result.lines("worker 0", "err")].count(True), 1, result)
            self.assertEqual(result.err.count(words), 1, result)

    def test_rdma(self):
        code = "import byteps._basics as bps; bps.init(); print(bps._bps.conf('transports.net.plugin'))"
        env = {**os.environ, "DMLC_ENABLE_RDMA": "1"}
        self.assertEqual(harness.execute([harness.python(), "-c", code], env=env).stdout, "verbs\n")


if __name__ == "__main__":
    unittest.main()
