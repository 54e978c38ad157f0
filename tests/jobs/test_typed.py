# SPDX-License-Identifier: Apache-2.0
"""Editors and type checkers know the types of the package's interface: nothing in it is without annotations, and mypy
finds in programs what is wrong, and nothing else.
"""

import os
import re
import tempfile
import unittest

import harness

TOP = os.path.abspath(os.environ.get("top_srcdir", "."))
# Of each framework the modules whose interface has annotations.
MODULES = {
    "numpy": ["byteps", "byteps.common", "byteps.numpy"],
    "torch": ["byteps.torch", "byteps.compat.horovod.torch"],
    "tensorflow": [
        "byteps.tensorflow",
        "byteps.keras",
        "byteps.compat.horovod.tensorflow",
        "byteps.compat.horovod.keras",
    ],
    "mxnet": ["byteps.mxnet", "byteps.compat.horovod.mxnet"],
    "jax": ["byteps.jax"],
    "ray": ["byteps.ray"],
}
# The examples for each framework.
EXAMPLES = {
    "numpy": ["numpy_regression.py"],
    "torch": ["elastic.py", "train_fashion_mnist.py"],
    "tensorflow": ["train_keras.py", "train_tensorflow.py"],
    "jax": ["train_jax.py"],
    "mxnet": ["train_mxnet.py"],
}
UNANNOTATED = """
from __future__ import annotations

class Inner:
    def right(self, x: int) -> int: ...
    def wrong(self, x) -> int: ...
    def _private(self, x): ...
    @property
    def size(self): ...
    @staticmethod
    def fixed(x: int): ...

def no_result(x: int): ...

__all__ = ["Inner", "no_result"]
"""
# What a checker is to say of each line: nothing, or at those with "# wrong" that they are.
PROGRAM = """
from typing import Any

import byteps
import byteps.numpy as bps
import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

bps.init(conf="byteps.conf", set={"worker.partition": "8 MiB", "worker.use": ["cuda", "sum"], "worker.credit": 4})
bps.init(set={"worker.partition": object()})  # wrong
bps.declare("x", {"compressor": "onebit", "ef": "vanilla"})
bps.declare("x", 3)  # wrong
assert_type(bps.rank(), int)
assert_type(bps.Average, bps.ReduceOp)


def exchange(array: NDArray[np.float32], state: dict[str, int]) -> None:
    assert_type(bps.push_pull(array, name="x", op=bps.Max), NDArray[np.float32])
    assert_type(bps.push_pull_async(array), bps.Handle[NDArray[np.float32]])
    assert_type(bps.synchronize(bps.push_pull_async_inplace(array)), NDArray[np.float32])
    assert_type(bps.push_pull(3.0), NDArray[Any])
    assert_type(bps.broadcast(array, 0), NDArray[np.float32])
    assert_type(bps.broadcast_object(state), dict[str, int])
    assert_type(bps.empty(3), NDArray[np.float64])
    bps.push_pull(array, op="max")  # wrong
    bps.push_pull()  # wrong


assert_type(byteps.run(bps.size, np=2), list[int])
assert_type(byteps.coded_bytes(), tuple[int, int])
assert_type(byteps.metrics(), dict[str, Any])
byteps.no_such_name  # wrong
with byteps.Scheduler(set={"cluster.workers": 2}) as scheduler:
    assert_type(scheduler.address, str)
"""


class Annotations(unittest.TestCase):
    """What a module offers says what it takes and returns."""

    def unannotated(self, python, *modules, **how):
        script = os.path.join(TOP, "tests", "jobs", "scripts", "unannotated.py")
        done = harness.execute([python, script, *modules], **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_planted(self):
        with tempfile.TemporaryDirectory() as folder:
            write(folder, "byteps.py", UNANNOTATED)
            found = self.unannotated(harness.python(), "byteps", env={**os.environ, "PYTHONPATH": folder})
        inner = ["wrong: x", "size: what it returns", "fixed: what it returns"]
        self.assertEqual(found, [*(f"byteps.Inner.{end}" for end in inner), "byteps.no_result: what it returns"])

    @classmethod
    def add(cls, framework, modules):
        def test(self):
            self.assertEqual(self.unannotated(harness.framework_python(framework), *modules), [])

        setattr(cls, f"test_{framework}", test)


for of_framework in MODULES.items():
    Annotations.add(*of_framework)


class Mypy(unittest.TestCase):
    """What mypy says of programs, with the package as it is installed for them."""

    @classmethod
    def setUpClass(cls):
        if not harness.has_module(harness.python(), "mypy"):
            raise unittest.SkipTest(f"mypy is not installed for {harness.python()}")
        folder = tempfile.TemporaryDirectory(prefix="byteps-typed-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name

    def findings(self, files, python, cwd):
        """Its findings, but for frameworks that have no types."""
        options = ["--check-untyped-defs", f"--cache-dir={self.folder}/cache", f"--python-executable={python}"]
        done = harness.execute([harness.python(), "-m", "mypy", "--no-color-output", *options, *files], cwd=cwd)
        self.assertIn(done.returncode, (0, 1), f"{done.stdout}\n{done.stderr}")
        lines = [line for line in done.stdout.splitlines() if ": error: " in line]
        return [line for line in lines if not re.search(r"\[import-\w+(-\w+)?\]$", line) or '"byteps' in line]

    def test_program(self):
        write(self.folder, "program.py", PROGRAM)
        found = self.findings(["program.py"], harness.framework_python("numpy"), self.folder)
        wrong = [number for number, line in enumerate(PROGRAM.split("\n"), 1) if line.endswith("# wrong")]
        self.assertEqual([int(line.split(":")[1]) for line in found], wrong, "\n".join(found))

    def test_examples(self):
        for framework, names in EXAMPLES.items():
            with self.subTest(framework=framework):
                python = harness.framework_python(framework)
                self.assertEqual(self.findings(names, python, os.path.join(TOP, "examples")), [])


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    unittest.main()
