# SPDX-License-Identifier: Apache-2.0
"""Training with other frameworks than PyTorch whose gradients are coded on the network: against the formulas."""

import os
import unittest

import harness
import scripted

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


class Coded(scripted.TestCase):
    def check(self, framework, script, venv=None, **env):
        self.framework = framework
        self.python = harness.framework_python(venv or framework)  # or the test is skipped, for the others may be there
        off = ["--set", "worker.hierarchy=off"]
        self.run_script(script, workers=2, servers=1, options=off, env={"GROUPS": "1,1", **env})

    def test_mxnet(self):
        self.check("mxnet", "mxnet_coded.py")

    def test_tensorflow(self):
        self.check("tensorflow", "tensorflow_coded.py")

    def test_jax(self):
        self.check("jax", "jax_coded.py")

    def test_keras(self):
        for backend in ("tensorflow", "torch", "jax"):
            with self.subTest(backend=backend):
                self.check("keras", "keras_coded.py", venv="tensorflow", KERAS_BACKEND=backend)


if __name__ == "__main__":
    unittest.main()
