# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on each of its backends: training against training without BytePS, callbacks, saved models."""

import os
import pathlib
import re
import unittest

import harness
import imported
import scripted

PYTHON = harness.framework_python("tensorflow")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train_keras.py"
IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist")
# What the backend, or the size of the job, has a part in; the rest is the same code.
OF_A_BACKEND = """
    fit train_on_batch compiled clipping accumulation compression mixed_precision mixed_policy models_that_differ
    values
""".split()


class Training(scripted.TestCase):
    python = PYTHON
    framework = "keras"

    def train(self, backend, *checks, **how):
        needed = "keras" if backend == "tensorflow" else backend
        if not harness.has_module(PYTHON, needed):
            self.skipTest(f"{needed} is not installed for {PYTHON}")
        chosen = [f"check_{name}" for name in checks]
        self.run_script("keras_train.py", *chosen, env={"KERAS_BACKEND": backend}, **how)

    def test_alone(self):
        self.train("tensorflow", *OF_A_BACKEND, workers=1, servers=0)

    def test_tensorflow(self):
        self.train("tensorflow", workers=2, servers=1)

    def test_torch(self):
        self.framework = "keras on torch"
        self.train("torch", *OF_A_BACKEND, workers=2, servers=1)

    def test_jax(self):
        self.train("jax", *OF_A_BACKEND, workers=2, servers=1)


class Elastic(scripted.TestCase):
    python = PYTHON

    def check(self, backend, *checks, **how):
        if not harness.has_module(PYTHON, "keras" if backend == "tensorflow" else backend):
            self.skipTest(f"{backend} is not installed for {PYTHON}")
        options = ["--set", "cluster.min_workers=1"]
        self.run_script("keras_elastic_state.py", *checks, options=options, env={"KERAS_BACKEND": backend}, **how)

    def test_tensorflow(self):
        self.framework = "keras"
        self.check("tensorflow")

    def test_torch(self):
        self.framework = "keras on torch"
        self.check("torch")

    def test_jax(self):
        self.framework = "keras"
        self.check("jax", "refuses_jax", workers=1, servers=0)


@unittest.skipUnless(IMAGES.is_dir(), "the Debian package dataset-fashion-mnist is not installed")
class Example(unittest.TestCase):
    """examples/train_keras.py; what it trains with is tested above, on each of the backends."""

    def test_two_workers(self):
        if not harness.has_module(PYTHON, "tensorflow"):
            self.skipTest(f"tensorflow is not installed for {PYTHON}")
        env = {"KERAS_BACKEND": "tensorflow", "OMP_NUM_THREADS": "1"}
        python = imported.interpreter(PYTHON, "keras", env)
        command = [*python, str(EXAMPLE), "--epochs", "1", "--limit", "3200", "--lr", "0.1"]
        result = harness.run(command, workers=2, servers=1, env=env)
        self.assertEqual(result.status, 0, result)
        text = "\n".join(result.lines("worker 0"))
        self.assertIn("workers         2, all with the same weights at the end", text)
        accuracy = float(re.search(r"test accuracy   ([\d.]+) %", text).group(1))
        self.assertGreater(accuracy, 50, result)
        self.assertEqual(result.lines("worker 1"), [])


if __name__ == "__main__":
    unittest.main()
