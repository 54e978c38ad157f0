# SPDX-License-Identifier: Apache-2.0
"""Programs for Horovod: its operations, under its names."""

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


if __name__ == "__main__":
    unittest.main()
