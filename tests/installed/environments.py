# SPDX-License-Identifier: Apache-2.0
"""Virtual environments in which a copy of BytePS is tried as users have it: without a variable that names a place."""

import os
import re
import shutil
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
from launched import harness  # noqa: E402

SUM = os.path.join(HERE, "scripts", "sum.py")
BINDIR = os.environ.get("BINDIR", "")
"""Where `make install` has put the program; none: it comes with a wheel."""
PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def output(*command, **how):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **how).stdout.strip()


class Environment:
    """A new virtual environment that has a framework, as `activate` leaves the variables."""

    def __init__(self, framework, *options):
        base = harness.framework_python(framework)
        self.folder = tempfile.mkdtemp(prefix="venv-")
        path = [f"{self.folder}/bin", *filter(None, [BINDIR]), "/usr/bin", "/bin"]
        self.env = {**os.environ, "PATH": ":".join(path), "VIRTUAL_ENV": self.folder}
        output(base, "-m", "venv", *options, self.folder)
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
        environment = Environment(framework, "--without-pip")
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
