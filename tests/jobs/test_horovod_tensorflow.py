# SPDX-License-Identifier: Apache-2.0
"""Programs for Horovod in TensorFlow and Keras: its operations, and its programs as they are."""

import os
import unittest

import harness
import scripted

PYTHON = harness.framework_python("tensorflow")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


class Horovod(scripted.TestCase):
    python = PYTHON
    framework = "tensorflow"

    def test_three_workers(self):
        self.run_script("horovod_tensorflow.py", workers=3, servers=0)

    def test_process_sets(self):
        self.run_script("horovod_tensorflow_sets.py", workers=3, servers=1)

    def test_process_sets_in_keras_on_other_backends(self):
        for backend in ("torch", "jax"):
            if harness.has_module(PYTHON, backend):
                with self.subTest(backend):
                    env = {"KERAS_BACKEND": backend}
                    self.run_script("horovod_tensorflow_sets.py", "check_fit", workers=3, servers=1, env=env)

    def test_program_as_it_is(self):
        self.run_script("horovod_tensorflow_program.py", options=["--as", "horovod"])

    def test_names(self):
        """The modules that programs import, and refusals."""
        program = "\n".join(
            (
                "from horovod.tensorflow.mpi_ops import allgather, size",
                "from horovod.tensorflow import join, elastic",
                "import horovod.tensorflow.elastic as e; e.TensorFlowState, e.run",
                "import horovod.tensorflow.keras.elastic as e; e.KerasState, e.CommitStateCallback",
                "from horovod.keras.elastic import KerasState",
                "from horovod.keras.callbacks import LearningRateWarmupCallback",
                "from horovod.tensorflow.compression import Compression; Compression.fp16",
                "import byteps.tensorflow as bps",
                "try: bps.alltoall(None)",
                "except NotImplementedError as error: print(error)",
            )
        )
        result = harness.run([PYTHON, "-c", program], workers=1, options=["--as", "horovod"])
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("instead: byteps.compat.horovod.tensorflow.alltoall", result.out)


if __name__ == "__main__":
    unittest.main()
