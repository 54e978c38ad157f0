# SPDX-License-Identifier: Apache-2.0
"""init_process_group("byteps"): what uses torch.distributed runs unchanged, tests/jobs/scripts/torch_distributed.py."""

import os
import subprocess
import unittest

import harness
import imported
import scripted

scripted.require("torch")
SCRIPT = os.path.join(os.environ.get("top_srcdir", "."), "tests", "jobs", "scripts", "torch_distributed.py")


class Distributed(unittest.TestCase):
    def run_python(self, *arguments):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        result = subprocess.run(
            [harness.python(), *arguments], env=env, text=True, capture_output=True, timeout=harness.DEADLINE
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout.replace("finefine", "fine\nfine").count("fine")

    def test_torchrun(self):
        torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "4")
        self.assertEqual(self.run_python(*torchrun, SCRIPT, "all_of_them"), 4)

    def test_a_store_alone(self):
        self.assertEqual(self.run_python(SCRIPT, "spawn"), 1)

    def test_byteps_run(self):
        env = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        command = [*imported.interpreter(harness.python(), "torch", env), SCRIPT, "operations", "byteps://"]
        result = harness.run(command, workers=3, servers=1, env=env)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(result.lines("worker 2"), ["fine"], result)


if __name__ == "__main__":
    unittest.main()
