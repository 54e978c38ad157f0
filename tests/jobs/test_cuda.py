# SPDX-License-Identifier: Apache-2.0
"""Tensors in the memory of CUDA devices, in whole jobs.

The devices are those of the stand-in for the driver (tests/gpu/standin): their memory faults when the host
touches it, and their streams are late. With TEST_GPU=1 they are the GPUs of this machine.
"""

import os
import re
import unittest

import harness
import scripted

scripted.require("numpy")

REAL = os.environ.get("TEST_GPU") == "1"
RACES = os.environ.get("SANITIZER") == "thread"  # what the operations show is enough then
STANDIN = os.path.join(os.environ.get("top_builddir", "."), "tests", "gpu", "standin", ".libs")
KERNELS = os.path.exists(os.path.join(os.environ.get("top_builddir", "."), "reducers", "cuda", "kernels.fatbin"))
USE = ("--set", "worker.use=cuda")
NETWORK = ("--set", "worker.hierarchy=off", "--set", "server.local=false")
SMALL = ("--set", "worker.partition=64 KiB", "--set", "worker.slice=4 KiB")


def environment(**more):
    """For a job whose driver is the stand-in, with what goes wrong there."""
    if REAL:
        return more
    path = [os.path.abspath(STANDIN), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, path)), **more}


class Operations(scripted.TestCase):
    def check_operations(self, *options, **job):
        self.run_script("cuda_ops.py", options=[*USE, *options], env=environment(), **job)

    @scripted.unwatched
    def test_alone(self):
        self.check_operations(workers=1, servers=0)

    def stages_alone(self, check, **more):
        """The stages that the tensors of a check have passed in a job of one worker."""
        options = [*USE, "--set", "log.level=debug"]
        result = self.run_script("cuda_ops.py", check, workers=1, options=options, env=environment(**more))
        return set(re.findall(r"stage (\w+): \d+ tasks", result.err)), result

    @scripted.unwatched
    @unittest.skipUnless(KERNELS, "the reducer was built without nvcc and has no kernels")
    def test_alone_tensors_stay_on_their_device(self):
        stages, _ = self.stages_alone("check_many_at_once")
        self.assertEqual(stages, {"reduce_on_device"})

    @unittest.skipIf(REAL, "the driver takes the kernels")
    def test_alone_without_kernels(self):
        """An old device, say: tensors go through the host, and one line says why."""
        stages, result = self.stages_alone("check_many_at_once", STANDIN_MODULE="200")
        self.assertNotIn("reduce_on_device", stages)
        self.assertEqual(result.err.count("its kernels cannot be used, so that tensors go through the host"), KERNELS)

    @scripted.unwatched
    def test_workers_of_a_host(self):
        self.check_operations(workers=2, servers=0)

    @scripted.unwatched
    def test_through_servers(self):
        self.check_operations(*NETWORK, workers=2, servers=2)

    @scripted.unwatched
    def test_small_partitions(self):
        self.check_operations(*SMALL, workers=2, servers=1)

    @unittest.skipIf(RACES, "two workers show the same races sooner")
    def test_three_workers_and_small_partitions_through_a_server(self):
        self.check_operations(*SMALL, *NETWORK, workers=3, servers=1)

    def test_a_reducer_without_devices(self):
        self.run_script("cuda_ops.py", "without_device", workers=1, servers=0, env=environment())

    def test_the_next_of_the_list(self):
        """The reducer with devices is the second choice, and the first one is not usable."""
        options = [*USE, "--set", 'worker.use=["none", "cuda"]', "--set", "reducers.none.plugin=nothing"]
        result = self.run_script("cuda_ops.py", "check_sizes", options=options, env=environment())
        self.assertIn("using 'cuda'", result.err)


@unittest.skipIf(RACES, "the order of copies is that of the operations")
class Failures(unittest.TestCase):
    def run_lost(self, what, word, *options, workers=2, **more):
        """All workers that live on end by themselves, after they have printed a word."""
        result = harness.run(
            scripted.script("cuda_ops.py", what),
            workers=workers,
            servers=1,
            options=[*USE, *options],
            env=environment(**more),
        )
        self.assertNotEqual(result.status, 0)
        for rank in range(workers - 1):
            self.assertIn(word, "\n".join(result.lines(f"worker {rank}")), str(result))
        return result

    def test_a_worker_is_killed(self):
        self.run_lost("lose_a_worker", "lost", workers=3)

    def test_a_worker_is_killed_over_the_network(self):
        self.run_lost("lose_a_worker", "lost", *NETWORK, workers=3)

    @unittest.skipIf(REAL, "a GPU does not fail when it is told to")
    def test_a_device_fails(self):
        """Both workers' devices fail at some copy: to the device or to the host, early or late."""
        for copy in (2, 3, 4, 9):
            with self.subTest(copy=copy):
                result = self.run_lost("fail_a_device", "failed:", STANDIN_FAILING_COPY=str(copy))
                self.assertRegex(result.out + result.err, "device [01]: .*illegal")

    @unittest.skipIf(REAL or not KERNELS, "needs the stand-in and kernels")
    def test_a_kernel_fails(self):
        """The failure of a device that computes the result itself is told like all others."""
        result = harness.run(
            scripted.script("cuda_ops.py", "fail_a_kernel"),
            workers=1,
            servers=0,
            options=USE,
            env=environment(STANDIN_FAILING_COPY="4"),
        )
        self.assertNotEqual(result.status, 0)
        self.assertRegex("\n".join(result.lines("worker 0")), "failed: .*device 0: .*illegal")

    @unittest.skipIf(REAL, "the driver is there")
    def test_no_driver(self):
        """With the device the only choice the job does not start, and says what to do."""
        result = harness.run(
            scripted.script("cuda_ops.py", "check_sizes"),
            workers=1,
            servers=0,
            options=USE,
            env=environment(STANDIN_INIT="100"),
        )
        self.assertNotEqual(result.status, 0)
        self.assertIn("reducers.cuda: cuda: NVIDIA's driver does not start", result.out + result.err)


if __name__ == "__main__":
    unittest.main()
