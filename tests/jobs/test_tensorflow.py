# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: push_pull and broadcast as operations."""

import os
import subprocess
import unittest

import harness
import imported
import scripted

PYTHON = harness.framework_python("tensorflow")
OF_C = "all_types floats_of_8_bits empty shape_unknown broadcast questions many_in_one_graph one_name_in_turn"
OF_C += " all_are_in_flight_at_once indexed_slices what_cannot_be_sent disagreement"
"""The checks of which others are what TensorFlow makes of the same operations."""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


class Operations(scripted.TestCase):
    python = PYTHON
    framework = "tensorflow"

    def test_two_workers(self):
        self.run_script("tensorflow_ops.py", *scripted.watched(OF_C), workers=2, servers=1)

    @scripted.unwatched
    def test_collectives(self):
        self.run_script("tensorflow_collectives.py", workers=3, servers=0)


@scripted.unwatched
class Refusals(unittest.TestCase):
    """A TensorFlow that cannot be used is an ImportError of one sentence, with the versions that can."""

    def refused(self, before, *parts, framework=None):
        script = f"{before}\nimport byteps.tensorflow"
        python = imported.interpreter(PYTHON, framework)
        done = subprocess.run([*python, "-c", script], stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        last = done.stderr.splitlines()[-1]
        for part in ("ImportError: ", "BytePS works with TensorFlow 2.13 and later", *parts):
            self.assertIn(part, last, done.stderr)

    def test_too_old(self):
        for version in ("2.12.1", "1.15.0-rc1"):
            before = f"import tensorflow as tf; tf.__version__ = '{version}'"
            self.refused(before, f"this is TensorFlow {version} (", framework="tensorflow")

    def test_loaded_before(self):
        """TensorFlow does not see operations of a library that something else has loaded."""
        load = (
            "import ctypes, byteps._native as native\n"
            "ctypes.CDLL(native.find_plugin('framework_tensorflow', 'TensorFlow'))"
        )
        self.refused(load, "without TensorFlow")

    def test_without_what_it_needs(self):
        """A library of TensorFlow that has no such function: as of one that is too old, or too new."""
        fake = (
            "import ctypes, os, subprocess, sys, tempfile\n"
            "folder = tempfile.mkdtemp()\n"
            "path = os.path.join(folder, 'libtensorflow_framework.so.2')\n"
            "subprocess.run(['cc', '-shared', '-fPIC', '-o', path, '-x', 'c', '/dev/null', '-Wl,--no-as-needed',\n"
            "                '-l:libstdc++.so.6'], check=True)\n"
            "fake = ctypes.CDLL(path)\n"
        )
        self.refused(fake, "has no function TF_NewStatus")


class NoKeras(unittest.TestCase):
    def test_old_keras(self):
        script = "import keras; keras.__version__ = '2.15.0'; import byteps.keras"
        python = imported.interpreter(PYTHON, "tensorflow")
        done = subprocess.run([*python, "-c", script], stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.assertIn("this is Keras 2.15.0; byteps.keras works with Keras 3.0 and later", done.stderr)


if __name__ == "__main__":
    unittest.main()
