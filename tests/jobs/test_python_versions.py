# SPDX-License-Identifier: Apache-2.0
"""The one extension file in every CPython from 3.8 on that this machine has."""

import glob
import os
import shutil
import subprocess
import unittest

import harness

SCRIPT = """
import ctypes, sys
import byteps
import byteps._basics as bps
from byteps._native import bps as native

bps.init()
assert (bps.rank(), bps.size()) == (0, 1)
memory = (ctypes.c_float * 4)(1, 2, 3, 4)
tensor = (ctypes.addressof(memory), (4,), native.dtypes["float32"], memory)
handle = bps.Handle(native.push_pull(tensor, None, "x", bps.Sum, 0, 2.0, 1.0), memory)
assert list(bps.synchronize(handle)) == [2, 4, 6, 8] and bps.poll(handle)


class NoCapsule:
    def __dlpack__(self, **keywords):
        return 5


for wrong in ("text", 7, None, (1, 2), (0, (4,), 99, None), NoCapsule()):
    try:
        native.push_pull(wrong, None, None, 0, 0, 1.0, 1.0)
        sys.exit(f"{wrong!r} was accepted")
    except TypeError:
        pass
try:
    shifted = (tensor[0] + 4, (2,), tensor[2], memory)
    native.push_pull((tensor[0], (2,), *tensor[2:]), shifted, None, 0, 0, 1.0, 1.0)
    sys.exit("an overlap was accepted")
except ValueError as error:
    assert "memory" in str(error)
try:
    native.conf("no.such_key")
    sys.exit("no exception")
except ValueError as error:
    assert isinstance(error, byteps.Error) and "no.such_key" in str(error)
bps.barrier()
bps.shutdown()
print("fine", sys.version_info[:2])
"""


FREE_THREADED = """
import sysconfig

ask = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else ask(name)
import byteps
"""


def interpreters():
    """One interpreter of each version from 3.8 on."""
    found = {}
    names = [shutil.which(f"python3.{minor}") for minor in range(8, 20)]
    if "PYENV_ROOT" in os.environ:
        names += glob.glob(os.path.join(os.environ["PYENV_ROOT"], "versions/3.*/bin/python3"))
    for path in filter(None, names):
        question = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
        result = subprocess.run([path, "-c", question], capture_output=True, text=True, check=False)
        implementation, *version = result.stdout.split() or [""]
        if implementation == "cpython" and (number := tuple(map(int, version))) >= (3, 8):
            found.setdefault(number, path)
    return found


class Versions(unittest.TestCase):
    def test_every_version(self):
        found = interpreters()
        if not found:
            self.skipTest("no other Python was found")
        for version, path in sorted(found.items()):
            with self.subTest(version=version):
                result = harness.execute([path, "-c", SCRIPT])
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertIn(f"fine {version}", result.stdout)

    def test_free_threaded(self):
        """Its layout of objects is another: the extension is not even opened. One that says so stands in for it."""
        result = harness.execute([harness.python(), "-c", FREE_THREADED])
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        last = result.stderr.splitlines()[-1]
        self.assertRegex(last, r"^ImportError: this is a free-threaded Python .*; use a Python [0-9.]+ with the GIL$")


if __name__ == "__main__":
    unittest.main()
