# SPDX-License-Identifier: Apache-2.0
"""Operations in compiled graphs of PyTorch: see scripts/torch_compile.py."""

import tempfile
import unittest

import scripted

scripted.require("torch")


class Compile(scripted.TestCase):
    framework = "torch"

    def check(self, workers, servers):
        with tempfile.TemporaryDirectory() as cache:  # graphs of other versions are of no use
            env = {"TORCHINDUCTOR_CACHE_DIR": cache}
            self.run_script("torch_compile.py", workers=workers, servers=servers, env=env)

    def test_alone(self):
        self.check(1, 0)

    def test_workers_of_a_host(self):
        self.check(2, 0)

    def test_through_a_server(self):
        self.check(2, 1)


if __name__ == "__main__":
    unittest.main()
