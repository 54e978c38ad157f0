# SPDX-License-Identifier: Apache-2.0
"""`byteps plugin list` and `info` on a binding: which frameworks it serves, and what the python3 of the PATH has."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import modules

PROGRAM = os.environ.get("BYTEPS_PROGRAM")
SOURCE = """
#include <byteps/framework.h>
BPS_PLUGIN_NOTE(BPS_KIND_FRAMEWORK, "odd", "3.1");
BPS_FRAMEWORK_NOTE("first", "2.13");
BPS_FRAMEWORK_NOTE("second", "0");
"""


def setUpModule():
    if not PROGRAM:
        raise unittest.SkipTest("BYTEPS_PROGRAM is not set: run the tests by 'make check' or ./byteps-env")


class Serves(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="byteps-plugins-")
        self.addCleanup(shutil.rmtree, self.dir)
        source = os.path.join(self.dir, "odd.c")
        with open(source, "w", encoding="ascii") as file:
            file.write(SOURCE)
        modules.build(source, os.path.join(self.dir, "framework_odd.so"))

    def run_plugin(self, *words, path):
        env = dict(os.environ, BYTEPS_PLUGIN_PATH=self.dir, PATH=path, LC_ALL="C")
        return subprocess.run([PROGRAM, "plugin", *words], env=env, capture_output=True, text=True, timeout=120)

    def stand_in(self, script):
        """A folder with a python3 that does what a shell script says."""
        folder = tempfile.mkdtemp(dir=self.dir)
        path = os.path.join(folder, "python3")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, stat.S_IRWXU)
        return f"{folder}:/usr/bin:/bin"

    def answer(self, first, second):
        """What is said of the two frameworks if python3 answers so: lines of text, and objects of JSON."""
        return self.both(self.stand_in(f"printf '/opt/python3\\n{first}\\n{second}\\n'"))

    def both(self, path):
        text = self.run_plugin("list", path=path)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        rows = json.loads(self.run_plugin("list", "--json", path=path).stdout)
        (row,) = [row for row in rows if row["name"] == "odd"]
        lines = [line.strip() for line in text.stdout.splitlines() if re.match(" +serves (first|second)", line)]
        info = self.run_plugin("info", "odd", path=path)
        self.assertEqual([line in info.stdout for line in lines], [True, True], info.stdout)
        return sorted(lines), sorted(row["serves"], key=lambda one: one["module"])

    def test_found(self):
        lines, objects = self.answer("2.13.1+cpu", "0.4")
        self.assertEqual(lines[0], "serves first 2.13 or later: 2.13.1+cpu found for /opt/python3")
        self.assertEqual(lines[1], "serves second: 0.4 found for /opt/python3")
        first = {"module": "first", "oldest": "2.13", "python": "/opt/python3", "found": "2.13.1+cpu", "problem": None}
        self.assertEqual(objects[0], first)
        second = {"module": "second", "oldest": None, "python": "/opt/python3", "found": "0.4", "problem": None}
        self.assertEqual(objects[1], second)

    def test_too_old(self):
        for version in ("2.9.3", "2.12", "1.99", "2"):
            lines, objects = self.answer(version, "0.4")
            self.assertEqual(
                lines[0], f"serves first 2.13 or later: {version} found for /opt/python3, which is too old"
            )
            self.assertEqual(objects[0]["problem"], "too old")
        for version in ("2.13", "2.21.0", "3.0", "10.1", "2.13rc1"):
            self.assertIsNone(self.answer(version, "0.4")[1][0]["problem"], version)

    def test_not_installed(self):
        lines, objects = self.answer("-", "?")
        self.assertEqual(lines[0], "serves first 2.13 or later: not installed for /opt/python3")
        self.assertEqual(lines[1], "serves second: a version that is not recorded found for /opt/python3")
        self.assertEqual([(one["found"], one["problem"]) for one in objects], [(None, "not installed"), (None, None)])

    def test_no_answer(self):
        for script in ("exit 3", "echo /opt/python3", "yes", "kill -9 $$", "printf '/opt/python3\\n2.13'"):
            with self.subTest(script=script):
                lines, objects = self.both(self.stand_in(script))
                self.assertEqual(lines[1], "serves second: the python3 of the PATH does not report its packages")
                self.assertEqual(objects[1]["problem"], "the python3 of the PATH does not report its packages")
                self.assertIsNone(objects[1]["python"])

    def test_no_python(self):
        lines, _ = self.both(self.dir)
        self.assertEqual(lines[1], "serves second: there is no python3 in the PATH")

    def test_what_cannot_be_printed(self):
        lines, _ = self.answer("2.\\033[31m13", "\\302\\240")
        self.assertEqual(lines[0], "serves first 2.13 or later: 2.?[31m13 found for /opt/python3, which is too old")

    def test_a_real_python(self):
        folder = tempfile.mkdtemp(dir=self.dir)
        os.symlink(sys.executable, os.path.join(folder, "python3"))
        lines, _ = self.both(f"{folder}:/usr/bin:/bin")
        self.assertRegex(lines[0], "^serves first 2.13 or later: not installed for /")


class OurBindings(unittest.TestCase):
    def test_oldest_tensorflow(self):
        """The note and the package say the same."""
        path = os.path.join(modules.TOP, "frameworks", "tensorflow", "_library.py")
        with open(path, encoding="utf-8") as file:
            major, minor = re.search(r"_OLDEST, _TESTED = \((\d+), (\d+)\)", file.read()).groups()
        rows = json.loads(subprocess.run([PROGRAM, "plugin", "list", "--json"], capture_output=True, check=True).stdout)
        oldest = {one["module"]: one["oldest"] for row in rows for one in row.get("serves", ())}
        if "tensorflow" not in oldest:
            self.skipTest("built without the binding for TensorFlow")
        self.assertEqual(oldest["tensorflow"], f"{major}.{minor}")


if __name__ == "__main__":
    unittest.main()
