# SPDX-License-Identifier: Apache-2.0
"""What `make install` has left works as users find it: in a virtual environment of each framework, under each launcher.
`make installcheck` runs this.
"""

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import unittest

from environments import SUM, Case, Environment, harness, launched, output  # the first, for the path of others

import test_slurm
from launched import AS_ROOT

FRAMEWORKS = {"torch": "torch", "numpy": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "jax": "jax",
              "mxnet": "mxnet"}
"""Each part of the package, and whose virtual environment has what it needs."""


def free_port():
    """A port behind which another one is free, where the scheduler listens; no connection of others leaves by these."""
    while True:
        port = random.randrange(12000, 30000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port


class Packages(Case):
    def test_frameworks(self):
        """Each in an environment that was told of the package, by plain Python."""
        for part, framework in FRAMEWORKS.items():
            with self.subTest(part):
                environment = self.make(framework)
                self.assertIn(os.path.join(environment.packages, "byteps.pth"), environment.install())
                self.check(self.execute(environment.env, "python3", SUM, part), 1)

    def test_run(self):
        """An environment that was not told: `byteps run` tells it."""
        env = self.make("torch").env
        self.check(self.execute(env, "byteps", "run", "-n", "2", "--", "python3", SUM, "torch"), 2)

    def test_path(self):
        """The folder has nothing else, and what it has says of itself what pip shows."""
        environment = self.make("torch")
        folder = self.execute(environment.env, "byteps", "python", "--path").strip()
        names = sorted(os.listdir(folder))
        self.assertEqual([re.sub(r"-[\d.rc]*\d", "", name) for name in names], ["byteps", "byteps_c.dist-info"])
        environment.install()
        version = environment.python("import importlib.metadata as m; print(m.version('byteps-c'))")
        self.assertEqual(f"byteps {version}", output("byteps", "--version", env=environment.env))
        self.assertIn("finds", environment.install())
        self.execute(environment.env, "byteps", "python", "--remove")
        self.assertFalse(os.path.exists(os.path.join(environment.packages, "byteps.pth")))

    def test_another_package(self):
        """One of the same name that comes first is told of."""
        environment = self.make("torch")
        other = os.path.join(environment.packages, "byteps")
        os.mkdir(other)
        with open(os.path.join(other, "__init__.py"), "w", encoding="utf-8"):
            pass
        result = subprocess.run(["byteps", "python", "--install"], env=environment.env, check=False, **launched.BOTH)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(f"imports byteps from {other}, which comes before", result.stdout)


class Launchers(Case):
    """Of NumPy, as what they do is the same for every framework."""

    @classmethod
    def setUpClass(cls):
        environment = Environment("torch", "--without-pip")
        cls.addClassCleanup(environment.remove)
        environment.install()
        cls.env = environment.env

    def needs(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not installed")

    def test_torchrun(self):
        torchrun = ("python3", "-m", "torch.distributed.run", "--nproc-per-node", "2")
        self.check(self.execute(self.env, *torchrun, SUM, "numpy", OMP_NUM_THREADS="1"), 2)

    def test_mpirun(self):
        for program in ("mpirun.openmpi", "mpirun.mpich"):
            with self.subTest(program):
                self.needs(program)
                options = ("--oversubscribe", "--bind-to", "none") if program.endswith("openmpi") else ()
                self.check(self.execute(self.env, program, *options, "-n", "2", "python3", SUM, "numpy", **AS_ROOT), 2)

    def test_srun(self):
        test_slurm.setUpModule()
        bed = launched.bed_of(test_slurm.NODES)
        self.addCleanup(bed.close)
        slurm = test_slurm.Slurm(bed)
        self.addCleanup(slurm.stop)
        slurm.start()
        step = slurm.popen("srun", "-N2", "python3", SUM, "numpy", PATH=self.env["PATH"])
        self.check(harness.communicate(step)[0], 2)

    def test_by_hand(self):
        """MASTER_ADDR and its like, as PyTorch has them."""
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free_port()}", "WORLD_SIZE": "2"}
        command = ("python3", SUM, "numpy")
        workers = [subprocess.Popen(command, env={**self.env, **meeting, "RANK": rank}, **launched.BOTH)
                   for rank in "01"]
        self.check("".join(harness.communicate(worker)[0] for worker in workers), 2)


if __name__ == "__main__":
    unittest.main()
