# SPDX-License-Identifier: Apache-2.0
"""A copy of BytePS as `make install` leaves it, for tests of what is built against it and told nothing else."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import modules

BUILD = os.environ.get("top_builddir", ".")
PKG_CONFIG = os.environ.get("PKG_CONFIG") or "pkg-config"
FLAGS = "-O1 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"


class Case(unittest.TestCase):
    """In each test `work` is a new folder."""

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
    def run_in(cls, folder, *command, status=0, **env):
        env = {**cls.env, **env}
        result = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240)
        if result.returncode != status:
            raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def setUp(self):
        self.work = tempfile.mkdtemp(dir=self.dir)
