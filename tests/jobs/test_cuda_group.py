# SPDX-License-Identifier: Apache-2.0
"""The devices of a host sum among themselves, in whole jobs, with stand-ins for the driver and for NCCL
(tests/gpu/standin): that refuses two ranks on one device, and ranks that do not give it the same in the same order.
With TEST_GPU=1 they are NCCL and the GPUs of this machine, as many as a test needs.
"""

import ctypes
import os
import unittest

import harness
import scripted

scripted.require("numpy")

REAL = os.environ.get("TEST_GPU") == "1"
KERNELS = os.path.exists(os.path.join(os.environ.get("top_builddir", "."), "reducers", "cuda", "kernels.fatbin"))
STANDINS = os.path.abspath(os.path.join(os.environ.get("top_builddir", "."), "tests", "gpu", "standin"))
USE = ("--set", "worker.use=cuda", "--set", "log.level=info")
SMALL = ("--set", "worker.partition=64 KiB", "--set", "worker.slice=4 KiB")
FORMED = "sum among themselves through NCCL"
ON_HOST = "tensors on devices are summed by the host: "


def devices():
    """How many there are to test with."""
    if not REAL:
        return 4
    count, driver = ctypes.c_int(), ctypes.CDLL("libcuda.so.1")
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def needs_devices(count):
    return unittest.skipIf(devices() < count, f"needs {count} GPUs")


def environment(nccl=True, **more):
    if REAL:
        return more
    folders = [os.path.join(STANDINS, ".libs")]
    folders += [os.path.join(STANDINS, "nccl", ".libs")] if nccl else []
    folders += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    return {"LD_LIBRARY_PATH": ":".join(folders), "STANDIN_DEVICES": "4", **more}


class Group(scripted.TestCase):
    def check_group(self, workers, *options, servers=0, **more):
        if devices() < workers:
            self.skipTest(f"needs {workers} GPUs")
        result = self.run_script(
            "cuda_ops.py", workers=workers, servers=servers, options=[*USE, *options], env=environment(**more)
        )
        self.assertIn(f"the devices of {workers} workers of this host {FORMED}", result.err)

    @scripted.unwatched
    def test_two_workers(self):
        self.check_group(2)

    @scripted.unwatched
    def test_three_workers(self):
        self.check_group(3)

    @scripted.unwatched
    def test_four_workers_and_small_partitions(self):
        self.check_group(4, *SMALL)

    def test_what_nccl_would_round(self):
        for workers in range(2, 1 + min(devices(), 3)):
            script = scripted.script("cuda_ops.py", "check_rounded_once")
            result = harness.run(script, workers=workers, servers=0, options=[*USE, *SMALL], env=environment())
            self.assertEqual(result.status, 0, str(result))
            if KERNELS:
                self.assertIn(FORMED, result.err)
                self.assertNotIn("is summed by the host", result.err)
            else:
                self.assertIn("is summed by the host", result.err)

    def test_one_step_at_a_time(self):
        self.check_group(2, *SMALL, BYTEPS_NCCL_GROUP_SIZE="1")

    def check_hosts(self, hosts, groups, *options):
        if REAL:
            self.skipTest("needs stand-ins")
        result = self.run_on_hosts(hosts, "cuda_ops.py", options=[*USE, *options], env=environment())
        for size in groups:
            self.assertIn(f"the devices of {size} workers of this host {FORMED}", result.err)

    @scripted.unwatched
    def test_two_hosts(self):
        self.check_hosts("a,a,b,b", [2])

    @scripted.unwatched
    def test_two_hosts_that_do_not_round(self):
        self.check_hosts("a,a,b,b", [2], "--set", "worker.round_on_host=false")

    def test_hosts_of_different_sizes(self):
        self.check_hosts("a,a,a,b", [3], *SMALL)


class Host(scripted.TestCase):
    """Where there can be no group, the same is done through the host, and the log says why."""

    def check_host(self, reason, *options, workers=2, **more):
        result = self.run_script(
            "cuda_ops.py", workers=workers, servers=0, options=[*USE, *options], env=environment(**more)
        )
        self.assertRegex(result.err, ON_HOST + reason)
        self.assertNotIn(FORMED, result.err)

    @scripted.unwatched
    @unittest.skipIf(REAL, "needs stand-ins")
    def test_one_device(self):
        self.check_host("workers 0 and 1 have the same device", STANDIN_DEVICES="1")

    @unittest.skipIf(REAL, "needs stand-ins")
    def test_two_workers_on_each_device(self):
        self.check_host("workers 0 and 2 have the same device", workers=4, STANDIN_DEVICES="2")

    @unittest.skipIf(REAL, "needs stand-ins")
    def test_no_nccl(self):
        try:
            ctypes.CDLL("libnccl.so.2")
            self.skipTest("this machine has NCCL")
        except OSError:
            pass
        self.check_host("libnccl.so.2 was not found", nccl=False)

    @scripted.unwatched
    @needs_devices(2)
    def test_off(self):
        self.check_host("worker.device_groups = off", "--set", "worker.device_groups=off")

    @scripted.unwatched
    @needs_devices(2)
    def test_the_order_of_ranks(self):
        self.check_host("server.order = rank", "--set", "server.order=rank")

    @scripted.unwatched
    @unittest.skipIf(REAL, "needs stand-ins")
    def test_a_communicator_that_does_not_come_about(self):
        reason = "worker 1: device 1: NCCL: communicator: unhandled system error"
        self.check_host(reason, STANDIN_NCCL_INIT="2", STANDIN_NCCL_RANK="1")

    @scripted.unwatched
    @unittest.skipIf(REAL or not KERNELS, "needs stand-ins and kernels")
    def test_no_memory_for_what_nccl_would_round(self):
        self.check_host(r"worker ([01]): device \1: memory for its group: out of memory", STANDIN_LARGEST="15000000")

    @unittest.skipIf(REAL, "needs stand-ins")
    def test_a_group_that_must_be(self):
        script = scripted.script("cuda_ops.py", "check_sizes")
        result = harness.run(
            script,
            workers=2,
            servers=0,
            options=[*USE, "--set", "worker.device_groups=on"],
            env=environment(STANDIN_DEVICES="1"),
        )
        self.assertNotEqual(result.status, 0)
        words = "worker.device_groups = on, but the devices of this host form no group: workers 0 and 1 have the same"
        self.assertIn(words, result.out + result.err)


class Failures(unittest.TestCase):
    def run_lost(self, what, word, *options, workers=2, survivors=2, **more):
        """The workers that live on end by themselves, after they have printed a word."""
        result = harness.run(
            scripted.script("cuda_ops.py", what),
            workers=workers,
            servers=0,
            options=[*USE, *options],
            env=environment(**more),
        )
        self.assertNotEqual(result.status, 0)
        for rank in range(survivors):
            self.assertIn(word, "\n".join(result.lines(f"worker {rank}")), str(result))
        return result

    @needs_devices(3)
    def test_a_worker_is_killed(self):
        self.run_lost("lose_a_worker", "lost", workers=3)

    @unittest.skipIf(REAL, "needs stand-ins")
    def test_an_operation_fails(self):
        """The others hear of it, or that the worker is gone."""
        for rank in ("0", "1"):
            with self.subTest(rank=rank):
                words = f"worker {rank}: device {rank}: NCCL: operation: unhandled system error"
                result = self.run_lost("lose_a_batch", "failed:", STANDIN_NCCL_FAIL="3", STANDIN_NCCL_RANK=rank)
                self.assertIn(words, "\n".join(result.lines(f"worker {rank}")), str(result))

    @unittest.skipIf(REAL, "needs stand-ins")
    def test_an_operation_never_ends(self):
        limit = ("--set", "cluster.stall_timeout=2 s")
        result = self.run_lost("lose_a_batch", "failed:", *limit, STANDIN_NCCL_HANG="3", STANDIN_NCCL_RANK="1")
        self.assertIn("has not finished a step of the group for 2 s", result.out + result.err)


if __name__ == "__main__":
    unittest.main()
