# SPDX-License-Identifier: Apache-2.0
"""Programs for Horovod: its operations, under its names; and its programs as they are, by `byteps run --as horovod`."""

import os
import tempfile
import unittest

import harness
import scripted

scripted.require("torch")


class Horovod(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("horovod_torch.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("horovod_torch.py", workers=3, servers=1)

    def test_process_sets(self):
        self.run_script("horovod_sets.py", workers=3, servers=1)

    def test_operation_that_needs_a_worker_that_has_joined(self):
        for call, kind in (
            ("hvd.allgather(x)", "allgather"),
            ("hvd.broadcast_(x, 0, 'named')", "broadcast"),
            ("hvd.allreduce(x, op=hvd.Max)", "allreduce with op=Max"),
            ("hvd.barrier()", "barrier"),
        ):
            with self.subTest(call):
                program = (
                    "import torch, byteps.compat.horovod.torch as hvd; hvd.init(); x = torch.ones(2)\n"
                    f"if hvd.rank() == 0: {call}\nprint('last', hvd.join())"
                )
                result = harness.run([harness.python(), "-c", program], workers=2, servers=1)
                self.assertNotEqual(result.status, 0, str(result))
                told = "\n".join(result.lines("worker 1", "err"))
                self.assertIn(f"join: worker 0 calls {kind}", told, str(result))
                self.assertNotIn("last", result.out)


class AsHorovod(scripted.TestCase):
    """Programs that have never heard of BytePS."""

    def run_as(self, *arguments, options=(), **how):
        return self.run_script(*arguments, options=["--as", "horovod", *options], **how)

    def run_line(self, line, **how):
        """Run a line of Python in a job of one worker; return the result."""
        return harness.run([harness.python(), "-c", line], workers=1, options=["--as", "horovod"], **how)

    def test_example(self):
        self.run_as("horovod_mnist.py", "--fp16-allreduce", "--gradient-predivide-factor", "2")

    def test_example_with_batches_of_different_numbers(self):
        self.run_as("horovod_mnist.py", "--uneven", workers=3)

    def test_hosts(self):
        command = [harness.python(), "-c", "import horovod.torch as hvd; hvd.init(); print('size', hvd.size())"]
        result = harness.run(command, workers=None, options=["--as", "horovod", "--hosts", "localhost:2"])
        self.assertEqual(result.lines("worker 1"), ["size 2"], str(result))

    def test_before_one_that_is_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/horovod")
            with open(f"{folder}/horovod/__init__.py", "w", encoding="ascii") as file:
                file.write("raise ImportError('the other one')\n")
            path = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
            line = "import horovod.torch as hvd, horovod; print(horovod.__version__, hvd.__name__)"
            result = self.run_line(line, env={"PYTHONPATH": path})
            self.assertEqual(result.lines("worker 0"), ["0.28.1+byteps byteps.compat.horovod.torch"], str(result))
            result = harness.run([harness.python(), "-c", line], workers=1, env={"PYTHONPATH": path})
            self.assertIn("the other one", result.err)

    def test_names(self):
        """The modules that programs import, and refusals."""
        lines = (
            "from horovod.torch.mpi_ops import allreduce_async_; allreduce_async_.__name__",
            "import horovod.torch.elastic; horovod.torch.elastic.TorchState.__name__",
            "from horovod.torch.elastic import ElasticSampler; ElasticSampler.__name__",
            "from horovod.torch.elastic.sampler import ElasticSampler; ElasticSampler.__name__",
            "import horovod.torch.compression as c; c.Compression.fp16.__name__",
            "from horovod.common.exceptions import HorovodInternalError; raise HorovodInternalError('raised')",
            "from horovod.common.process_sets import ProcessSet; ProcessSet.__name__",
            "import importlib.util as u; assert u.find_spec('horovod.torch') is not None",
            "import horovod.spark",
            "from horovod import run",
            "import horovod; horovod.run(print, np=2)",
            "import horovod.runner",
            "import horovod.nothing",
            "import horovod.common.nothing",
            "import horovod.torch as hvd; hvd.nothing",
        )
        text = f"for line in {lines!r}:\n try: exec(line)\n except Exception as error: print(line, '->', error)"
        result = self.run_line(text)
        self.assertEqual(result.status, 0, str(result))
        said = [line.partition("] ")[2] for line in result.out.splitlines()]
        for line, words in zip(
            (lines[5], *lines[8:]),
            (
                "raised",
                "byteps run, or by a launcher",
                "cannot import name 'run'",
                "use byteps.run(function, np=2)",
                "use byteps.run(function, np=2)",
                "of Horovod BytePS has horovod.torch and horovod.tensorflow",
                "horovod.common.nothing is not in the Horovod",
                "has no attribute 'nothing'",
            ),
        ):
            self.assertIn(words, next((each for each in said if each.startswith(f"{line} -> ")), ""), str(result))
        self.assertEqual(len(said), 8, str(result))


if __name__ == "__main__":
    unittest.main()
