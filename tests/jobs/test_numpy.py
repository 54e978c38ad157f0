# SPDX-License-Identifier: Apache-2.0
"""byteps.numpy in whole jobs: values, errors, the life of a job. Each worker checks for itself."""

import os
import unittest

import harness
import scripted

scripted.require("numpy")


class Scripts(scripted.TestCase):
    @scripted.unwatched
    def test_operations_alone(self):
        self.run_script("numpy_ops.py", workers=1, servers=0)

    @scripted.unwatched
    def test_operations_with_two_workers(self):
        self.run_script("numpy_ops.py", workers=2, servers=1)

    def test_operations_with_three_workers_and_two_servers(self):
        self.run_script("numpy_ops.py", workers=3, servers=2)

    @scripted.unwatched
    def test_operations_with_small_partitions(self):
        self.run_script(
            "numpy_ops.py", options=["--set", "worker.partition=4 KiB", "--set", "worker.slice=1 KiB"]
        )

    @scripted.unwatched
    def test_operations_with_the_server_in_a_worker(self):
        self.run_script("numpy_ops.py", workers=2, servers=0)

    @scripted.unwatched
    def test_operations_without_hierarchy(self):
        self.run_script("numpy_ops.py", workers=3, servers=1, options=["--set", "worker.hierarchy=off"])

    @scripted.unwatched
    def test_operations_on_two_hosts(self):
        self.run_on_hosts("a,a,b,b", "numpy_ops.py")

    def test_operations_on_hosts_of_different_sizes(self):
        options = ["--set", "worker.partition=4 KiB", "--set", "worker.slice=1 KiB"]
        self.run_on_hosts("a,a,b", "numpy_ops.py", servers=0, options=options)

    @scripted.unwatched
    def test_arrays_of_other_frameworks(self):
        self.run_script("numpy_arrays.py")

    def test_workers_that_push_in_opposite_orders(self):
        self.run_script(
            "orders.py",
            options=[
                *("--set", "worker.hierarchy=off"),
                *("--set", "server.local=false"),
                *("--set", "server.shards=1"),
            ],
        )

    @scripted.unwatched
    def test_disagreements(self):
        self.run_script("numpy_errors.py", workers=2, servers=1)

    def test_disagreements_of_three(self):
        self.run_script("numpy_errors.py", workers=3, servers=2)

    def test_life(self):
        self.run_script("life.py", workers=2, servers=1)

    @scripted.unwatched
    def test_life_of_three(self):
        self.run_script("life.py", "check_suspend", "check_resume_as_in_the_original", workers=3, servers=2)

    @scripted.unwatched
    def test_life_alone(self):
        self.run_script(
            "life.py",
            "check_repeated",
            "check_suspend",
            "check_resume_as_in_the_original",
            "check_fork",
            "check_threads",
            workers=1,
            servers=0,
            env={"ROUNDS": "100"},
        )


class Example(unittest.TestCase):
    def test_regression(self):
        path = os.path.join(os.environ.get("top_srcdir", "."), "examples", "numpy_regression.py")
        result = harness.run([harness.python(), path], workers=2, servers=1)
        self.assertEqual(result.status, 0, str(result))
        for part in ("worker 0", "worker 1"):
            self.assertEqual(result.lines(part)[-1], "weights [ 2.  -1.   0.5]", str(result))
        self.assertEqual(len(result.lines("worker 0")), 6, str(result))


class Losses(unittest.TestCase):
    """Worker 1 does not do its part; worker 0 must hear of it."""

    def lines(self, how, **options):
        result = harness.run(scripted.script("lost.py", how), workers=2, servers=1, **options)
        self.assertNotEqual(result.status, 0, str(result))
        self.assertNotIn("no exception", result.out, str(result))
        return result

    def test_exception(self):
        result = self.lines("raise")
        self.assertRegex("\n".join(result.lines("worker 0")), "^LostError: .*worker 1", str(result))
        self.assertIn("ValueError: planted", result.err)

    def test_early_end(self):
        result = self.lines("return")
        self.assertRegex("\n".join(result.lines("worker 0")), "^LostError: .*worker 1", str(result))

    def test_kill(self):
        result = self.lines("kill")
        self.assertRegex("\n".join(result.lines("worker 0")), "^LostError: .*worker 1", str(result))

    def test_kill_of_one_that_is_waited_for(self):
        result = self.lines("kill late", options=["--set", "worker.hierarchy=off", "--set", "server.local=false"])
        self.assertRegex("\n".join(result.lines("worker 0")), "^LostError: .*worker 1", str(result))

    def test_names_that_never_meet(self):
        # One server finds out about both; leaders among the workers would do it one after the other.
        result = self.lines("name", options=["--set", "cluster.stall_timeout=2 s", "--set", "worker.hierarchy=off"])
        text = result.out + result.err
        self.assertIn("byteps.mine", text)
        self.assertIn("byteps.theirs", text)

    def test_a_barrier_meets_a_tensor(self):
        """What has no name of the user's says what it is."""
        result = self.lines("barrier", options=["--set", "cluster.stall_timeout=2 s", "--set", "worker.hierarchy=off"])
        text = result.out + result.err
        self.assertIn("tensor 'barrier.0 (call 1 of the barrier)': worker 1 did not contribute", text)
        self.assertIn("tensor 'unnamed.0 (call 1 without a name)': worker 0 did not contribute", text)


class Names(unittest.TestCase):
    """Those that are used once only are kept as long as the job; whoever makes one in each step is told."""

    PROGRAM = (
        "import numpy as np, byteps.numpy as bps\n"
        "bps.init()\n"
        "for i in range(10_001): bps.push_pull(np.ones(1), name={0}), bps.push_pull(np.ones(1), name='loss')\n"
    )

    @scripted.unwatched
    def test_one_in_each_step(self):
        for name, said in (("f'step.{i}'", 1), ("None", 0)):
            command = [harness.python(), "-c", self.PROGRAM.format(name)]
            result = harness.run(command, workers=2, servers=0)
            self.assertEqual(result.status, 0, result)
            self.assertEqual(result.err.count("most were used only once"), 2 * said, result)


class Processes(unittest.TestCase):
    """Single processes, without byteps run."""

    def python(self, code, **how):
        return harness.execute([harness.python(), "-c", code], **how)

    def test_no_configuration_at_all(self):
        result = self.python(
            "import numpy as np, byteps.numpy as bps\n"
            "bps.init(); assert bps.size() == 1 and bps.rank() == 0\n"
            "assert bps.push_pull(np.ones(3), False).tolist() == [1, 1, 1]\n"
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_before_init(self):
        result = self.python("import byteps.numpy as bps; bps.rank()")
        self.assertIn("NotInitializedError: BytePS has not been initialized; use bps.init().", result.stderr)

    def test_wrong_setting(self):
        result = self.python("import byteps.numpy as bps; bps.init(set={'worker.partiton': '4 MiB'})")
        self.assertIn("byteps._errors.ConfigurationError", result.stderr)
        self.assertIn("worker.partition", result.stderr)

    def test_bytes_that_are_not_utf8(self):
        """An error that quotes them is the one that it is about."""
        env = {**os.environb, b"BYTEPS_CONF": b"/no/\xff.conf"}
        result = self.python("import byteps.numpy as bps; bps.init()", env=env)
        self.assertIn("byteps._errors.ConfigurationError: /no/?.conf: ", result.stderr)

    def test_exit_with_operations_in_flight(self):
        result = self.python(
            "import numpy as np, byteps.numpy as bps\n"
            "bps.init()\n"
            "handles = [bps.push_pull_async(np.ones(100000)) for _ in range(50)]\n"
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_missing_extension(self):
        result = self.python("import byteps", env={**os.environ, "BYTEPS_PLUGIN_PATH": "/nowhere"})
        if result.returncode != 0:  # unless the same version is installed
            self.assertIn("framework_python.so not found in /nowhere", result.stderr)


if __name__ == "__main__":
    unittest.main()
