# SPDX-License-Identifier: Apache-2.0
"""How programs with TensorFlow and Keras end."""

import os
import unittest

import ended
import harness

PYTHON = harness.framework_python("tensorflow")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


class Ends(ended.TestCase):
    python = PYTHON
    framework = "tensorflow"
    program = "tensorflow_ends.py"
    loops = ("function", "session", "fit")
    error = "tf.errors.InternalError"

    def test_other_backends(self):
        for backend, kind in (("jax", "jax.*JaxRuntimeError"), ("torch", "byteps.*LostError")):
            with self.subTest(backend=backend):
                self.check("fit", "killed", kind, KERAS_BACKEND=backend)


if __name__ == "__main__":
    unittest.main()
