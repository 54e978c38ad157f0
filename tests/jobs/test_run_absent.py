# SPDX-License-Identifier: Apache-2.0
"""`byteps run` with a part that fails before all have joined: the others hear why at once.

They would have an hour to report, far longer than a test lasts: that a job ends shows that nobody has waited for that.
"""

import os
import re
import shlex
import signal
import tempfile
import unittest

import harness

# The jobs here run shells, which do not bear the library of a sanitizer; the program itself needs none.
os.environ.pop("LD_PRELOAD", None)

JOINS = os.path.abspath(os.path.join(os.environ.get("top_builddir", "."), "examples", "push_pull"))
FAILS = f"exec {shlex.quote(harness.python())} -c 'import no_such_module'"
GRACE = ["--grace", "1h"]
DEBUG = ["--set", "log.level=debug"]
"""The scheduler then says who has joined."""


class Case(unittest.TestCase):
    def setUp(self):
        if not os.access(JOINS, os.X_OK):
            self.skipTest(f"{JOINS} is not built")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def job(self, *scripts, options=()):
        """A job with a server, whose workers do these scripts; "joins" is one that takes part in it."""
        cases = "".join(f"{rank}) {script};; " for rank, script in enumerate(scripts))
        script = f"joins() {{ exec {shlex.quote(JOINS)}; }}; case $BYTEPS_LOCAL_RANK in {cases} esac"
        return harness.Job(["sh", "-c", script], workers=len(scripts), servers=1, cwd=self.folder,
                           options=[*GRACE, *options])

    def gate(self, name):
        """A script that goes on once open() has been called."""
        return f"until [ -e {name} ]; do sleep 0.05; done"

    def open(self, name):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
            pass

    def check(self, result, status, cause, others):
        """The first line of `byteps run` names the cause, the error of the others; returns all lines but the last."""
        *said, last = result.lines(None, "err")
        self.assertIn(" failed first: ", last)
        found = re.fullmatch(rf"byteps run: ({cause}); ending the job", said[0])
        self.assertTrue(found, result)
        self.assertEqual(result.status, status, result)
        for rank in others:
            self.assertIn(f"the job cannot start: {found.group(1)}\n", result.err)
            self.assertRegex(result.lines(f"worker {rank}", "err")[-1], rf": {re.escape(found.group(1))}$", result)
        return said


class Worker(Case):
    def test_that_others_wait_for(self):
        with self.job("joins", f"{self.gate('go')}; {FAILS}", options=DEBUG) as job:
            for part in ("worker 0", "server 0"):
                job.wait_for(f"has joined: {part} (", "scheduler", "err")
            self.open("go")
            result = job.wait()
        self.check(result, 1, r"worker 1 \(pid \d+\) exited with status 1", [0])

    def test_before_any_other_has_come(self):
        """Nothing is said but the cause, and how those ended who came for nothing."""
        with self.job(f"{self.gate('go')}; joins", FAILS) as job:
            job.wait_for("ending the job", None, "err")
            self.open("go")
            result = job.wait()
        said = self.check(result, 1, r"worker 1 \(pid \d+\) exited with status 1", [0])
        self.assertEqual(len(said), 2, result)
        self.assertRegex(said[1], r"^byteps run: worker 0 \(pid \d+\) exited with status 1$")
        for part in ("scheduler", "server 0"):
            self.assertEqual(result.lines(part, "err"), [], result)

    def test_killed(self):
        with self.job("joins", "kill -KILL $$") as job:
            result = job.wait()
        self.check(result, 128 + signal.SIGKILL, r"worker 1 \(pid \d+\) was killed by SIGKILL", [0])

    def test_two_at_once(self):
        with self.job(FAILS, "joins", FAILS) as job:
            result = job.wait()
        said = self.check(result, 1, r"worker [02] \(pid \d+\) exited with status 1", [1])
        self.assertEqual(len(said), 3, result)

    def test_that_never_joins_and_ends_well(self):
        with self.job("exit 0", "sleep 1") as job:
            result = job.wait()
        self.assertEqual((result.status, result.err), (0, ""), result)


class Server(Case):
    def test_that_ends_before_any_worker_has_come(self):
        with self.job(*[f"{self.gate('go')}; joins"] * 2, options=DEBUG) as job:
            job.wait_for("has joined: server 0 (", "scheduler", "err")
            os.kill(job.pid("server 0"), signal.SIGKILL)
            job.wait_for("ending the job", None, "err")
            self.open("go")
            result = job.wait()
        self.check(result, 128 + signal.SIGKILL, r"server 0 \(pid \d+\) was killed by SIGKILL", [0, 1])


if __name__ == "__main__":
    unittest.main()
