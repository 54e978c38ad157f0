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


def install(folder):
    """Installs the build below a folder. Returns (the prefix there, an environment that finds nothing else)."""
    env = {name: value for name, value in os.environ.items() if not re.match("BYTEPS_|DMLC_|MAKE|MFLAGS", name)}
    run_in(BUILD, env, "make", "install", f"DESTDIR={folder}")
    (program,) = [os.path.join(place, "byteps") for place, _, names in os.walk(folder)
                  if "byteps" in names and os.path.basename(place) == "bin"]
    prefix = os.path.dirname(os.path.dirname(program))
    path = [f"{prefix}/bin", os.path.dirname(sys.executable), "/usr/bin", "/bin"]
    env.update(PATH=":".join(path), PKG_CONFIG=f"{PKG_CONFIG} --define-variable=prefix={prefix}",
               PKG_CONFIG_PATH=run_in(folder, env, program, "info", "pkg-config").stdout.strip())
    return prefix, env


def run_in(folder, env, *command, status=0):
    result = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240)
    if result.returncode != status:
        raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result


class Case(unittest.TestCase):
    """In each test `work` is a new folder."""

    @classmethod
    def setUpClass(cls):
        if shutil.which(PKG_CONFIG) is None:
            raise unittest.SkipTest("pkg-config is not installed")
        compiler = " ".join(modules.compiler())
        cls.dir = tempfile.mkdtemp(prefix="byteps-new-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.env = {**install(cls.dir)[1], "CC": compiler, "CFLAGS": FLAGS}

    @classmethod
    def run_in(cls, folder, *command, status=0, **env):
        return run_in(folder, {**cls.env, **env}, *command, status=status)

    def setUp(self):
        self.work = tempfile.mkdtemp(dir=self.dir)
