# SPDX-License-Identifier: Apache-2.0
"""byteps.run(): a job for one function, from a program or a notebook."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

import harness

import byteps

harness.program()
SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")
sys.path.append(SCRIPTS)

import py_run  # noqa: E402  (it lies in the folder that was just added)

CLOSURE = """
import byteps, byteps.numpy as bps
def outer(value):
    class Own:
        pass
    def inner():
        bps.init()
        own = Own()
        own.text = f"{value} {bps.rank()}"
        return own
    return inner
print(*[own.text for own in byteps.run(outer("value"), np=2)])
"""
PROGRAM = """
import byteps, sys
class Own:
    def __init__(self, text):
        self.text = text
def called(own):
    return Own(f"{own.text} {sys.argv[1]}")
GUARD print(byteps.run(called, args=(Own("own"),))[0].text)
"""


def run(*args, **kwargs):
    """byteps.run(), and what it has written to standard output and error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        results = byteps.run(*args, **kwargs)
    return results, out.getvalue(), err.getvalue()


def python(*words):
    return harness.execute([harness.python(), *words])


class Results(unittest.TestCase):
    def test_in_order(self):
        how = {"np": 2, "servers": 1, "set": {"worker.partition": "8 KiB"}, "env": {"GREETING": "hello"}}
        results, out, err = run(py_run.sums, (1,), {"more": "more"}, **how)
        self.assertEqual(results, [(0, 2, [3] * 3, "more"), (1, 2, [3] * 3, "more")])
        self.assertEqual(sorted(out.splitlines()), [f"[worker {rank}] rank {rank} says hello" for rank in (0, 1)])
        self.assertEqual(sorted(err.splitlines()), [f"[worker {rank}] some error" for rank in (0, 1)])

    def test_closure(self):
        """Such as a notebook has: there is no file with it."""
        result = python("-c", CLOSURE)
        if harness.has_module(harness.python(), "cloudpickle"):
            self.assertEqual((result.returncode, result.stdout), (0, "value 0 value 1\n"), result.stderr)
        else:
            self.assertIn("TypeError: fn with its arguments cannot be pickled", result.stderr)
            self.assertIn("pip install cloudpickle", result.stderr)

    def test_what_a_program_defines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            for guard, good in (("if __name__ == '__main__': ", True), ("", False)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(PROGRAM.replace("GUARD ", guard))
                result = python(path, "word")
                if good or harness.has_module(harness.python(), "cloudpickle"):
                    self.assertEqual((result.returncode, result.stdout), (0, "own word\n"), result.stderr)
                else:
                    self.assertIn('the call stands below: if __name__ == "__main__":', result.stderr)


class Failures(unittest.TestCase):
    def failure(self, how):
        with self.assertRaises(byteps.WorkerError) as caught:
            run(py_run.ends, (how,), np=2)
        self.assertEqual(caught.exception.rank, 1)
        return str(caught.exception)

    def test_exception(self):
        text = self.failure("exception")
        self.assertRegex(text, r"^worker 1 \(pid \d+\) exited with status 1\nTraceback ")
        self.assertRegex(text, r"py_run\.py.*in ends\n(?s:.*)\nKeyError: 'no such thing'$")

    def test_killed(self):
        self.assertRegex(self.failure("killed"), r"^worker 1 \(pid \d+\) was killed by SIGKILL\nlast words$")

    def test_no_result(self):
        self.assertRegex(self.failure("left"), r"(?s)^worker 1 ended before fn returned\n.*SystemExit: 0$")

    def test_result_that_cannot_be_pickled(self):
        self.assertIn("TypeError: what fn has returned, of type lock, cannot be pickled: ", self.failure("unpicklable"))

    def test_inside_a_worker(self):
        self.assertIn("InvalidError: byteps.run() starts a job, and this process is in one", self.failure("again"))

    def test_after_init(self):
        result = python("-c", "import byteps, byteps.numpy as bps; bps.init(); byteps.run(print)")
        self.assertIn("InvalidError: byteps.run() starts workers, and this process is itself one", result.stderr)

    def test_wrong_arguments(self):
        wrong = [{"np": value} for value in (0, -1, "2", 1.5, True, None)]
        for how in [*wrong, {"servers": -1}, {"env": {"NUMBER": 1}}]:
            with self.subTest(how), self.assertRaisesRegex(byteps.InvalidError, next(iter(how))):
                byteps.run(print, **how)

    def test_wrong_configuration(self):
        with self.assertRaisesRegex(byteps.Error, "ended with status 1:\n(?s:.*)worker.nonsense"):
            run(print, set={"worker.nonsense": 1})


class Interrupts(unittest.TestCase):
    def check(self, number):
        """The caller gets a signal; it and all others of the job end."""
        job = uuid.uuid4().hex[:16]
        command = [harness.python(), "-c", "import byteps, py_run; byteps.run(py_run.sleeps, np=2)"]
        path = f"{os.environ.get('PYTHONPATH', '')}:{SCRIPTS}"
        env = {**os.environ, "BYTEPS_SET": f"cluster.job={job}", "PYTHONPATH": path}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            for _ in range(2):
                self.assertIn("] sleeps", process.stdout.readline())
            process.send_signal(number)
            _, err = harness.communicate(process)
        self.assertEqual(process.returncode, -number, err)
        harness.until(lambda: not harness.processes(job), "end of the job", show=lambda: harness.processes(job))
        return err

    def test_ctrl_c(self):
        self.assertIn("byteps run: SIGINT: ending the job", self.check(signal.SIGINT))

    def test_end_of_the_caller(self):
        """As when a notebook's kernel is started again."""
        self.check(signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
