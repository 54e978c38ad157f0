# SPDX-License-Identifier: Apache-2.0
"""`byteps plugin new` with a copy of BytePS as `make install` leaves it: each kind is built, checked and installed by
the Makefile that it comes with, and nothing else is told where anything lies.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import modules

KINDS = ("compressor", "framework", "reducer", "stage", "transport")
EXPECTED = "expected compressor, framework, reducer, stage or transport"
BUILD = os.environ.get("top_builddir", ".")
PKG_CONFIG = os.environ.get("PKG_CONFIG") or "pkg-config"
FLAGS = "-O1 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"


class New(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which(PKG_CONFIG) is None:
            raise unittest.SkipTest("pkg-config is not installed")
        compiler = " ".join(modules.compiler())
        cls.dir = tempfile.mkdtemp(prefix="byteps-new-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.env = {name: value for name, value in os.environ.items() if not re.match("BYTEPS_|DMLC_|MAKE|MFLAGS", name)}
        cls.run_in(BUILD, "make", "install", f"DESTDIR={cls.dir}")
        (program,) = [os.path.join(folder, "byteps") for folder, _, names in os.walk(cls.dir)
                      if "byteps" in names and os.path.basename(folder) == "bin"]
        prefix = os.path.dirname(os.path.dirname(program))
        folder = cls.run_in(cls.dir, program, "info", "pkg-config").stdout.strip()
        cls.env.update(PATH=":".join([f"{prefix}/bin", os.path.dirname(sys.executable), "/usr/bin", "/bin"]),
                       PKG_CONFIG_PATH=folder, CC=compiler, CFLAGS=FLAGS,
                       PKG_CONFIG=f"{PKG_CONFIG} --define-variable=prefix={prefix}")

    @classmethod
    def run_in(cls, folder, *command, status=0):
        result = subprocess.run(command, cwd=folder, env=cls.env, capture_output=True, text=True, timeout=240)
        if result.returncode != status:
            raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def setUp(self):
        self.work = tempfile.mkdtemp(dir=self.dir)

    def new(self, kind, name):
        self.run_in(self.work, "byteps", "plugin", "new", kind, name)
        return os.path.join(self.work, name)

    def test_each_kind(self):
        for kind in KINDS:
            with self.subTest(kind):
                name = f"own_{kind}"
                folder = self.new(kind, name)
                self.run_in(folder, "make")
                self.run_in(folder, "make", "check")
                self.run_in(folder, "byteps", "plugin", "info", name, status=1)
                self.run_in(folder, "make", "install")
                installed = self.run_in(self.work, "byteps", "plugin", "info", name, "--kind", kind).stdout
                self.assertIn(f"lib/byteps/{kind}_{name}.so\n", installed)
                self.run_in(folder, "make", "uninstall", "clean")
                self.assertNotIn(f"{kind}_{name}.so", os.listdir(folder))
                self.run_in(self.work, "byteps", "plugin", "info", name, status=1)

    def test_a_check_that_fails(self):
        """The test is one of the plugin: another result is seen."""
        folder = self.new("stage", "half")
        with open(os.path.join(folder, "stage_half.c"), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(folder, "stage_half.c"), "w", encoding="utf-8") as file:
            file.write(text.replace("x *= stage->factor;", "x *= 2 * stage->factor;"))
        self.assertIn("1:1: element 0 is 2", self.run_in(folder, "make", "check", status=2).stdout)

    def test_what_is_refused(self):
        os.mkdir(os.path.join(self.work, "taken"))
        for words, text in (
            (("stge", "some"), "unknown kind 'stge'; did you mean 'stage'?"),
            (("nonsense", "some"), f"unknown kind 'nonsense'; {EXPECTED}"),
            (("launcher", "some"), f"there is no template for a launcher; {EXPECTED}"),
            (("stage",), "new takes a kind and a name, and no options"),
            (("stage", "some", "--json"), "new takes a kind and a name, and no options"),
            (("stage", "9times"), "'9times' cannot be the name of a plugin; expected a letter a to z, then"),
            (("stage", "../some"), "'../some' cannot be the name of a plugin"),
            (("stage", "x" * 32), "31 characters at most"),
        ):
            with self.subTest(words):
                self.assertIn(text, self.run_in(self.work, "byteps", "plugin", "new", *words, status=2).stderr)
        result = self.run_in(self.work, "byteps", "plugin", "new", "stage", "taken", status=1)
        self.assertIn("there is a 'taken' here already; take another name or folder", result.stderr)
        self.assertEqual(os.listdir(self.work), ["taken"])


if __name__ == "__main__":
    unittest.main()
