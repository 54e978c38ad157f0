# SPDX-License-Identifier: Apache-2.0
"""MXNet: push_pull and broadcast as operations of its engine."""

import subprocess
import unittest

import harness
import scripted

PYTHON = harness.framework_python("mxnet")


class Operations(scripted.TestCase):
    python = PYTHON
    framework = "mxnet"

    def test_two_workers(self):
        self.run_script("mxnet_ops.py", workers=2, servers=1)


class Refusals(unittest.TestCase):
    """An MXNet that cannot be used is an ImportError of one sentence."""

    def refused(self, before, *parts):
        script = f"{before}\nimport byteps.mxnet"
        done = subprocess.run([PYTHON, "-c", script], stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        last = done.stderr.splitlines()[-1]
        for part in ("ImportError: ", "BytePS works with MXNet 1.9 and later", *parts):
            self.assertIn(part, last, done.stderr)

    def test_too_old(self):
        self.refused("import mxnet; mxnet.__version__ = '1.8.0.post0'", "this is MXNet 1.8.0.post0 (")

    def test_without_what_it_needs(self):
        """A library of MXNet that has no such function: as of one that is too old, or too new."""
        fake = (
            "import ctypes, os, subprocess, sys, tempfile, types\n"
            "path = os.path.join(tempfile.mkdtemp(), 'libmxnet.so')\n"
            "subprocess.run(['cc', '-shared', '-fPIC', '-o', path, '-x', 'c', '/dev/null'], check=True)\n"
            "library = ctypes.CDLL(path)\n"
            "fake = types.ModuleType('mxnet')\n"
            "fake.__version__, fake.__file__ = '2.0.0', path\n"
            "sys.modules['mxnet'] = fake\n"
        )
        self.refused(fake, "has no function MXEnginePushAsyncND")


if __name__ == "__main__":
    unittest.main()
