# SPDX-License-Identifier: Apache-2.0
"""`byteps run --host-discovery-script`: workers follow the hosts that a script names. A shell plays ssh."""

import os
import signal
import time
import unittest

import cluster
import scripted

TRAINER = os.path.join(os.path.dirname(cluster.WORKER), "trainer")
OPTION = "--host-discovery-script"
ASK = '. "$GATES/script"'
"""The script: a file that is changed while the job runs."""
SSH = """sh -c '[ "$0" != down ] && exec sh -c "$1"'"""
"""Any other host than `down` is this machine."""


class Job(cluster.ByRun):
    def __init__(self, first, servers=0, settings=(), least=1, script=f"sh -c '{ASK}'"):
        settings = settings or ["cluster.colocated=all"]
        more = ["--min-workers", str(least), "--max-workers", "4", "--ssh", SSH]
        self.first = first
        super().__init__(["20000", "end", "1"], 5, servers, settings, worker=(TRAINER,), more=more, script=script)

    def _prepare(self):
        env = super()._prepare()
        self.write(self.first)
        return env

    def write(self, script):
        """From now on this is what the script does."""
        path = os.path.join(self.gates, "script")
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(script)
        os.rename(f"{path}.new", path)

    def name(self, *hosts):
        self.write(f"printf '%s\\n' {' '.join(hosts)}")

    def says(self, text, seconds=60):
        self.wait_for(text, None, "err", seconds)


@scripted.unwatched
class Discovery(unittest.TestCase):
    def check(self, job, status=0):
        ends = job.finish()
        self.assertEqual(ends["byteps run"].status, status, cluster.show(ends))
        return ends

    def come_and_go(self):
        with Job("echo a") as job:
            job.wait_for("trains", "worker 0")
            job.name("a:1", "b")
            job.wait_for("joins as 1 of 2", "worker 1")
            job.name("a:2", "b:1")
            job.wait_for("joins as 2 of 3", "worker 2")
            job.name("a:2")
            job.says("host b has no place for worker 1 any more; ending it")
            job.wait_for("reforms as 1 of 2", "worker 2")
            job.name("a")
            job.says("host a has no place for worker 2 any more; ending it")
            job.wait_for("reforms as 0 of 1", "worker 0")
            job.name("a", "c:7")
            for worker in ("worker 1", "worker 2", "worker 3"):  # and no more of them
                job.says(f"host c has a place for {worker}; starting it")
                job.wait_for("of 4", worker)
            job.open("end")
            ends = self.check(job)
            self.assertNotIn("worker 4", ends["byteps run"].err)
            self.assertEqual({line[:10] for line in ends["byteps run"].err.splitlines()}, {"byteps run"})

    def move(self):
        """No host of those that trained is left: the last one goes when another one knows all."""
        with Job("echo a:2") as job:
            job.wait_for("trains", "worker 1")
            job.name("b:1")
            job.says("it names no host that takes part; one goes on until another one has joined")
            job.says("host a has no place for worker 0 any more; ending it")
            job.wait_for("reforms as 0 of 1", "worker 2", "out")
            job.open("end")
            self.check(job)

    def servers(self):
        """Each host has one, which goes with it."""
        with Job("echo a:2; echo b:2", 2, ["cluster.colocated=none"]) as job:
            job.wait_for("trains", "worker 0")
            job.name("a:2")
            job.wait_for("reforms as 1 of 2", "worker 1")
            job.open("end")
            self.check(job)

    def trouble(self):
        """Nothing changes, whatever the script does, and the job ends while it hangs."""
        later = "; going on with the hosts that it has named before"
        no_host = "is not a host; expected NAME or NAME:WORKERS"
        with Job("echo a; echo b") as job:
            job.wait_for("trains", "worker 1")
            for script, text in (
                ("echo c; exit 3", f"it exited with status 3{later}"),
                ("echo a; echo 'b slots=2'", f"line 2: 'b slots=2' {no_host}{later}"),
                ("echo a:0", f"line 1: 'a:0' {no_host}{later}"),
                ("printf 'a\\0b'", f"it has printed a zero byte{later}"),
                ("yes a", f"it has printed 1048576 bytes or more{later}"),
                ("kill -9 $$", f"it was killed by SIGKILL{later}"),
                ("sleep 1000", f"it did not end within 10 s{later}"),
            ):
                job.write(script)
                job.says(f"byteps run: {OPTION}: {text}")
            began = time.monotonic()
            job.open("end")
            ends = self.check(job)
            self.assertLess(time.monotonic() - began, 8, ends)
            self.assertEqual(len(ends["byteps run"].err.splitlines()), 7, ends)

    def unreachable(self):
        with Job("echo a; echo b") as job:
            job.wait_for("trains", "worker 1")
            job.name("a", "b", "down")
            job.says("the connection to host down")
            job.says("starting host down again")
            job.name("a", "b")
            job.says("host down has no place for worker 2 any more; ending it")
            job.open("end")
            self.check(job)

    def too_few(self):
        """It begins once there are enough."""
        with Job("echo a", least=3) as job:
            job.says("places for 1 workers so far, --min-workers is 3")
            job.name("a", "b:2")
            job.wait_for("trains", "worker 2")
            job.open("end")
            self.check(job)

    def never(self):
        with Job("exit 1", settings=["cluster.rendezvous_timeout=2s", "cluster.colocated=all"]) as job:
            err = self.check(job, 1)["byteps run"].err
            self.assertIn("places for 0 workers so far, --min-workers is 1; it exited with status 1", err)
            self.assertIn("places for 0 workers after 2 s (cluster.rendezvous_timeout), --min-workers is 1", err)

    def interrupted(self):
        with Job("echo 'a:x'; sleep 1000") as job:
            time.sleep(1)
            job.job.process.send_signal(signal.SIGTERM)
            self.assertIn("SIGTERM: ending the job", self.check(job, 143)["byteps run"].err)

    def wrong(self):
        with Job("echo 'a:x'") as job:
            err = self.check(job, 1)["byteps run"].err
            self.assertIn(f"{OPTION}: line 1: 'a:x' is not a host; expected NAME or NAME:WORKERS", err)
        with Job("", script="/is/not/there") as job:
            self.assertIn(f"{OPTION} '/is/not/there': it exited with status 127", self.check(job, 1)["byteps run"].err)

    def test_all(self):
        cases = {"come and go": self.come_and_go, "move": self.move, "servers": self.servers, "trouble": self.trouble}
        cases |= {"unreachable": self.unreachable, "too few": self.too_few, "never": self.never}
        cases |= {"interrupted": self.interrupted, "wrong": self.wrong}
        cluster.side_by_side(self, cases)


if __name__ == "__main__":
    unittest.main()
