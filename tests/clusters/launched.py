# SPDX-License-Identifier: Apache-2.0
"""What tests of jobs that other launchers start have in common."""

import os
import re
import shlex
import stat
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path += [os.path.join(TOP, "tests", "jobs"), os.path.join(TOP, "bench")]

import documents  # noqa: E402  (they lie in the folders that were just added)
import harness  # noqa: E402
from testbed import Testbed, kernel  # noqa: E402
from testbed.bed import LAUNCHER  # noqa: E402

TRAIN = os.path.join(HERE, "scripts", "train.py")
BOTH = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Called as mpirun calls ssh, on one host of a test bed to reach another, which can be entered from outside.
AGENT = """\
#!/bin/sh
while case $1 in -o) shift ;; -*) true ;; *) false ;; esac; do shift; done
address=$(getent hosts "$1")
address=${{address%% *}}
shift
exec nsenter --target {outside} --mount --net --uts -- \\
    {python} {launcher} exec --bed {bed} "h$((${{address##*.}} - 1))" -- /bin/sh -c "$*"
"""


def launch_agent(bed, folder):
    """The path of a program for mpirun to reach the hosts of a bed by."""
    agent = os.path.join(folder, "agent")
    parts = {"outside": os.getpid(), "python": sys.executable, "launcher": LAUNCHER, "bed": bed.name}
    with open(agent, "w", encoding="ascii") as file:
        file.write(AGENT.format(**{name: shlex.quote(str(part)) for name, part in parts.items()}))
    os.chmod(agent, stat.S_IRWXU)
    return agent


def needs(module):
    """Skips the tests where the interpreter of scripts does not find a module."""
    if not harness.has_module(harness.python(), module):
        raise unittest.SkipTest(f"{module} is not installed")


def environment(**variables):
    return {**os.environ, "OMP_NUM_THREADS": "1", **variables}


def execute(command, **variables):
    """Its status, and all that it has written."""
    result = subprocess.Popen(command, env=environment(**variables), **BOTH)
    text = harness.communicate(result)[0]
    return result.returncode, text


def bed_of(hosts):
    """A test bed; skips the tests where there can be none."""
    try:
        return Testbed(hosts=hosts)
    except kernel.Unavailable as error:
        raise unittest.SkipTest(str(error)) from None


def documented(need, folder):
    """The blocks of docs/clusters.md for a cluster of this kind; writes scripts, and a python3, to the folder."""
    with open(os.path.join(TOP, "docs", "clusters.md"), encoding="utf-8") as file:
        sections = documents.read(file.read(), "clusters.md")
    for section in sections:
        if section.script:
            with open(os.path.join(folder, section.script), "w", encoding="utf-8") as file:
                file.write(section.code)
    python = os.path.join(folder, "python3")
    with open(python, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {harness.python()} "$@"\n')
    os.chmod(python, 0o755)
    return [block for section in sections for block in section.commands if block.need == need]


class Case(unittest.TestCase):
    def follow(self, need, folder, popen):
        """Runs each block by popen(command, PATH=...), in the folder, where its scripts are found."""
        blocks = documented(need, folder)
        self.assertTrue(blocks)
        for block in blocks:
            with self.subTest(block.place):
                path = f"{folder}:{os.environ['PATH']}"
                shell = popen(["sh", "-ec", f"cd {folder}\n{block.text}"], PATH=path)
                text = harness.communicate(shell)[0]
                self.assertEqual((shell.returncode, block.missing(text)), (0, []), text)

    def check(self, text, places, jobs=2):
        """All workers, [(rank, size, local rank, local size)], have learnt the same in each of the jobs."""
        found = re.findall(r"^worker (\d+) of (\d+), (\d+) of (\d+): (\w+)$", text, re.M)
        self.assertEqual(sorted(tuple(map(int, line[:4])) for line in found), sorted(places * jobs), text)
        self.assertEqual(len({line[4] for line in found}), 1, text)

    def make_bed(self, hosts):
        """A test bed, which goes away with the test."""
        bed = bed_of(hosts)
        self.addCleanup(bed.close)
        return bed
