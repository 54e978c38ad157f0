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

    def check(self, workers, servers):
        self.run_script("torch_compile.py", workers=workers, servers=servers, env=self.env)

    def test_alone(self):
        self.check(1, 0)

    def test_workers_of_a_host(self):
        self.check(2, 0)

    def test_through_a_server(self):
        self.check(2, 1)


if __name__ == "__main__":
    unittest.main()
