# SPDX-License-Identifier: Apache-2.0
"""Operations in compiled graphs of PyTorch: see scripts/torch_compile.py."""

import tempfile
import unittest

import scripted

scripted.require("torch")


class Compile(scripted.TestCase):
    """Its workers start afresh: PyTorch's compiler was seen to take longer in forked ones."""

    @classmethod
    def setUpClass(cls):
        cache = tempfile.TemporaryDirectory()  # graphs of other versions are of no use
        cls.addClassCleanup(cache.cleanup)
        cls.env = {"TORCHINDUCTOR_CACHE_DIR": cache.name}

    def check(self, *names, **layout):
        self.run_script("torch_compile.py", *names, env=self.env, **layout)

    def test_all(self):
        self.check(workers=2, servers=1)

    def test_alone(self):
        self.check("check_results", "check_in_place", "check_errors", workers=1, servers=0)


if __name__ == "__main__":
    unittest.main()
