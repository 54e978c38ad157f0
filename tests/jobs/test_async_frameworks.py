# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training with TensorFlow, Keras and MXNet. Each worker checks for itself."""

import unittest

import harness
import scripted

IN_STEP = ["worker.staleness=0", "cluster.min_workers=1"]  # and elastic


class OfVirtualEnvironment(scripted.TestCase):
    """A framework that has a virtual environment of its own."""

    def check(self, environment, name, *checks, backend=None, settings=(), workers=2, servers=1):
        self.python = harness.framework_python(environment)
        if backend not in (None, "tensorflow") and not harness.has_module(self.python, backend):
            self.skipTest(f"{backend} is not installed for {self.python}")
        options = [word for setting in settings for word in ("--set", setting)]
        env = {"BYTEPS_ENABLE_ASYNC": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if backend is not None:
            env["KERAS_BACKEND"] = backend
        self.run_script(name, *checks, workers=workers, servers=servers, options=options, env=env)


class TensorFlow(OfVirtualEnvironment):
    framework = "tensorflow"

    def test_two_workers(self):
        self.check("tensorflow", "tensorflow_async.py")


class Keras(OfVirtualEnvironment):
    framework = "keras"

    def test_tensorflow(self):
        self.check("tensorflow", "keras_async.py", backend="tensorflow")
        self.check("tensorflow", "keras_async.py", "in_step", "after_reform", backend="tensorflow", settings=IN_STEP)

    def test_torch(self):
        self.framework = "keras on torch"
        self.check("tensorflow", "keras_async.py", backend="torch")

    def test_jax(self):
        self.check("tensorflow", "keras_async.py", "refuses_jax", backend="jax", workers=1, servers=0)


class MXNet(OfVirtualEnvironment):
    framework = "mxnet"

    def test_two_workers(self):
        self.check("mxnet", "mxnet_async.py")
        self.check("mxnet", "mxnet_async.py", "in_step", settings=IN_STEP[:1])
        self.check("mxnet", "mxnet_async.py", "after_reform", settings=IN_STEP)


if __name__ == "__main__":
    unittest.main()
