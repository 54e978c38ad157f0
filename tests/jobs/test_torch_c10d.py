# SPDX-License-Identifier: Apache-2.0
"""A sample of PyTorch's own tests of torch.distributed, over BytePS; `make check-c10d` runs all of them."""

import os
import subprocess
import tempfile
import unittest

import harness
import scripted

scripted.require("torch", "expecttest")
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "c10d.py")
# One of each operation, in the form that asks most of it.
SAMPLE = """
test_accumulate_gradients_no_sync_allreduce_with_then_hook test_all_gather_coalesced_complex
test_all_gather_coalesced_with_empty test_all_gather_object_default_pg test_all_reduce_coalesced_full_group_max
test_all_reduce_full_group_product test_all_to_all_complex test_all_to_all_single_unequal_split_complex test_barrier
test_broadcast test_ddp_create_graph test_ddp_grad_div_uneven_inputs test_ddp_hook_parity_powerSGD
test_ddp_logging_data_cpu test_DistributedDataParallelCPU_grad_is_view test_gather test_reduce_max test_reduce_sum_twice
test_scatter_complex test_scatter_object_list test_sparse_all_reduce_sum test_static_graph_api_cpu
""".split()


class Cases(unittest.TestCase):
    def test_sample(self):
        with tempfile.NamedTemporaryFile("r") as log:
            command = [harness.python(), PROGRAM, "-n", "3", "--no-gloo", "--verbose", "--log", log.name]
            command += ["--", *SAMPLE]
            result = subprocess.run(command, text=True, capture_output=True, timeout=harness.DEADLINE)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr + log.read())
        self.assertEqual(result.stdout.count(": passed"), len(SAMPLE), result.stdout)


if __name__ == "__main__":
    unittest.main()
