# SPDX-License-Identifier: Apache-2.0
"""A wheel of this build works in an environment that has a framework and nothing else of BytePS. `make installcheck`
runs this; BUILDDIR is the folder of the build.
"""

import os
import shutil
import subprocess
import tempfile
import unittest

from environments import SUM, TOP, Case, Environment, harness, launched

BUILDDIR = os.environ["BUILDDIR"]


class Wheel(Case):
    @classmethod
    def setUpClass(cls):
        if not harness.has_module(harness.python(), "auditwheel"):
            raise unittest.SkipTest("auditwheel is not installed")
        cls.folder = tempfile.mkdtemp(prefix="wheel-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        environment = Environment("torch")
        cls.addClassCleanup(environment.remove)
        cls.env, cls.packages = environment.env, environment.packages
        options = ("--no-deps", "--no-build-isolation", "--config-settings", f"builddir={BUILDDIR}", "-w", cls.folder)
        cls.pip(harness.python(), "wheel", TOP, *options)
        (cls.name,) = os.listdir(cls.folder)
        cls.pip("python3", "install", "--no-index", "--no-deps", os.path.join(cls.folder, cls.name), env=cls.env)

    @staticmethod
    def pip(python, *words, env=None):
        made = subprocess.run([python, "-m", "pip", *words], env=env, check=False, **launched.BOTH)
        if made.returncode != 0:
            raise AssertionError(made.stdout)

    def pkg_config(self):
        return self.execute(self.env, "byteps", "info", "pkg-config").strip()

    def test_name(self):
        """One for every Python."""
        self.assertRegex(self.name, r"^byteps_c-[\d.rc]+-py3-none-manylinux_2_\d+_x86_64\.whl$")

    def test_jobs(self):
        text = self.execute(self.env, "byteps", "run", "-n", "2", "-s", "1", "--", "python3", SUM, "torch")
        self.check(text, 2)
        self.assertIn(f"package in {self.packages}/byteps", text)
        torchrun = ("python3", "-m", "torch.distributed.run", "--nproc-per-node", "2")
        self.check(self.execute(self.env, *torchrun, SUM, "numpy", OMP_NUM_THREADS="1"), 2)

    def test_program(self):
        """What it has with it is in the package; the manual and completions are where man and shells look."""
        folder = os.path.join(self.packages, "byteps", "_install")
        self.assertEqual(self.execute(self.env, "byteps", "info", "plugins").strip(), f"{folder}/lib/byteps")
        self.assertEqual(self.execute(self.env, "byteps", "info", "python package").strip(), self.packages)
        self.assertIn("resnet50", self.execute(self.env, "byteps", "info", "models"))
        self.execute(self.env, "byteps", "plan", "--workers", "2", "--model", "resnet50")
        for name in ("man/man1/byteps.1", "bash-completion/completions/byteps", "zsh/site-functions/_byteps"):
            self.assertTrue(os.path.exists(f"{self.env['VIRTUAL_ENV']}/share/{name}"), name)
        self.assertIn("Usage: byteps launch", self.execute(self.env, "bpslaunch", "--help"))

    def test_a_program_in_c(self):
        """It finds the library by itself."""
        program = os.path.join(self.folder, "push_pull")
        source = os.path.join(TOP, "examples", "push_pull.c")
        build = f'${{CC:-cc}} -o {program} {source} $(pkg-config --cflags --libs byteps)'
        self.execute(self.env, "sh", "-ec", build, PKG_CONFIG_PATH=self.pkg_config())
        self.execute(self.env, program)
        self.execute(self.env, "byteps", "run", "-n", "2", "--", program)

    def test_a_plugin(self):
        """One that is built against the headers of the wheel."""
        stage = os.path.join(self.folder, "stage_clip")
        shutil.copytree(os.path.join(TOP, "examples", "stage_clip"), stage)
        self.execute(self.env, "make", "-C", stage, PKG_CONFIG_PATH=self.pkg_config(), MAKEFLAGS="")
        self.assertIn("clip", self.execute(self.env, "byteps", "plugin", "info", "clip", BYTEPS_PLUGIN_PATH=stage))


if __name__ == "__main__":
    unittest.main()
