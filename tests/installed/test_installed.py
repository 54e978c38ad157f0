# SPDX-License-Identifier: Apache-2.0
"""What `make install` has left works as users find it: in a virtual environment of each framework, under each launcher,
without a variable that names a place. `make installcheck` runs this; BINDIR is where the program lies.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path += [os.path.join(TOP, "tests", "clusters")]

for name in [name for name in os.environ if re.match("BYTEPS_|DMLC_|PYTHONPATH$|LD_LIBRARY_PATH$", name)]:
    del os.environ[name]

import launched  # noqa: E402  (it is found by the line above, and takes the environment as it is then)
import test_slurm  # noqa: E402
from launched import AS_ROOT, harness  # noqa: E402

SUM = os.path.join(HERE, "scripts", "sum.py")
BINDIR = os.environ["BINDIR"]
FRAMEWORKS = {"torch": "torch", "numpy": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "jax": "jax",
              "mxnet": "mxnet"}
"""Each part of the package, and whose virtual environment has what it needs."""
PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def output(*command, **how):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **how).stdout.strip()


class Environment:
    """A new virtual environment that has a framework, as `activate` leaves the variables."""

    def __init__(self, framework):
        base = harness.framework_python(framework)
        self.folder = tempfile.mkdtemp(prefix="venv-")
        self.env = {**os.environ, "PATH": f"{self.folder}/bin:{BINDIR}:/usr/bin:/bin", "VIRTUAL_ENV": self.folder}
        output(base, "-m", "venv", "--without-pip", self.folder)
        self.packages = self.python(PURELIB)
        with open(os.path.join(self.packages, "frameworks.pth"), "w", encoding="utf-8") as file:
            file.write(output(base, "-c", PURELIB) + "\n")

    def python(self, program):
        return output("python3", "-c", program, env=self.env)

    def install(self):
        return output("byteps", "python", "--install", env=self.env)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Case(unittest.TestCase):
    def make(self, framework):
        environment = Environment(framework)
        self.addCleanup(environment.remove)
        return environment

    def execute(self, env, *command, **variables):
        process = subprocess.Popen(command, env={**env, **variables}, **launched.BOTH)
        text = harness.communicate(process)[0]
        self.assertEqual(process.returncode, 0, text)
        return text

    def check(self, text, workers):
        """All workers have the sum of all."""
        lines = re.findall(r"worker (\d+) of (\d+): \[([^]]*)\]", text)
        wanted = [(f"{rank}", f"{workers}", ", ".join(3 * [f"{workers}.0"])) for rank in range(workers)]
        self.assertEqual(sorted(lines), wanted, text)


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
        self.assertEqual([re.sub(r"-[\d.]*\d", "", name) for name in names], ["byteps", "byteps_c.dist-info"])
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
        environment = Environment("torch")
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
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}", "WORLD_SIZE": "2"}
        command = ("python3", SUM, "numpy")
        workers = [subprocess.Popen(command, env={**self.env, **meeting, "RANK": rank}, **launched.BOTH)
                   for rank in "01"]
        self.check("".join(harness.communicate(worker)[0] for worker in workers), 2)


if __name__ == "__main__":
    unittest.main()
