# SPDX-License-Identifier: Apache-2.0
"""`byteps run --min-workers`: a job goes on without workers and servers that are lost, and others take their place."""

import os
import re
import signal
import time
import unittest

import cluster
import scripted

TRAINER = os.path.join(os.path.dirname(cluster.WORKER), "trainer")
STEPS = ["20000", "end", "1"]
END = r"(was killed by SIGKILL|exited with status \d+)"
GOES_ON = rf"byteps run: {{}} \(pid \d+(, host \S+)?\) {END}; the job goes on without it"
AGAIN = "byteps run: starting {} again"
HOSTS_2 = "localhost:1,127.0.0.1:1"
LATER = 'if [ -e "$GATES/later" ]; then {}; fi; exec "$0" "$@"'
"""What another worker does that is started once this gate is open."""


@scripted.unwatched
class ByRun(unittest.TestCase):
    def job(self, workers=2, servers=1, least=1, settings=(), later=None, hosts=None):
        worker = ("sh", "-c", LATER.format(later), TRAINER) if later else (TRAINER,)
        more = ["--min-workers", str(least), "--max-workers", "4"]
        return cluster.ByRun(STEPS, workers, servers, settings, hosts=hosts, worker=worker, more=more)

    def check(self, job, lines):
        """All has ended well, and `byteps run` has said only this. Returns what the workers are at."""
        ends = job.finish()
        text = cluster.show(ends)
        self.assertEqual(ends["byteps run"].status, 0, text)
        self.assertRegex(ends["byteps run"].err, r"\A" + r"\n".join(lines) + r"\Z", text)
        found = {m for end in ends.values() for m in re.findall(r"is at (\d+ after \d+ steps), as \d of", end.out)}
        return found

    def worker(self, victim, servers, hosts=None):
        """Another one is in its place, and has learned the same."""
        settings = [f"cluster.colocated={'none' if servers else 'all'}"]
        with self.job(3, servers, settings=settings, hosts=hosts) as job:
            other = "worker 2" if victim == "worker 0" else "worker 0"
            job.wait_for("trains", victim)
            job.kill_and_wait(victim)
            job.wait_for("of 2 at step", other)
            job.wait_for("joins as 2 of 3", victim)
            job.wait_for("of 3 at step", other)
            job.open("end")
            said = self.check(job, [GOES_ON.format(victim), AGAIN.format(victim)])
            self.assertEqual(len(said), 1, said)

    def server(self):
        with self.job(2, 2, settings=["cluster.colocated=none"]) as job:
            job.wait_for("trains", "worker 0")
            job.kill_and_wait("server 1")
            job.wait_for("reforms as 0 of 2", "worker 0")
            job.wait_for("reforms as 1 of 2", "worker 1")
            job.open("end")
            self.check(job, [GOES_ON.format("server 1"), AGAIN.format("server 1")])

    def kill_both(self, job):
        """Before another one can come."""
        for pid in [job.pid("worker 0"), job.pid("worker 1")]:
            os.kill(pid, signal.SIGKILL)

    def last(self):
        with self.job() as job:
            job.wait_for("trains", "worker 1")
            self.kill_both(job)
            own = job.finish()["byteps run"]
            self.assertEqual(own.status, 137, own)
            self.assertRegex(own.err, r"worker \d failed first: killed by SIGKILL", own)

    def too_few(self, hosts=None):
        """The status is that of the one that was lost, not of those that could not go on without it."""
        later, settings = "sleep 1; exit 7", ["cluster.rendezvous_timeout=3s"]
        with self.job(least=2, settings=settings, later=later, hosts=hosts) as job:
            job.wait_for("trains", "worker 1")
            job.open("later")
            job.kill_and_wait("worker 1")
            ends = job.finish()
            own = ends["byteps run"]
            self.assertEqual(own.status, 137, own)
            self.assertRegex(own.err, GOES_ON.format("worker 1"), own)
            self.assertIn(" failed first: killed by SIGKILL", own.err, own)
            self.assertIn("error: the job did not start within 3 s", ends["worker 0"].out)

    def given_up(self):
        with self.job(later="exit 7") as job:
            job.wait_for("trains", "worker 1")
            job.open("later")
            began = time.monotonic()
            job.kill_and_wait("worker 1")
            job.wait_for("worker 1 has failed 5 times within 60 s; it is not started again", None, "err")
            self.assertGreater(time.monotonic() - began, 15)
            job.open("end")
            lines = [*[GOES_ON.format("worker 1"), AGAIN.format("worker 1")] * 4, GOES_ON.format("worker 1")]
            self.check(job, [*lines, r"byteps run: worker 1 has failed 5 times .*"])

    def too_late(self, hosts=None):
        """The others end before it joins: there is no use in it any more."""
        with self.job(later="sleep 1000", hosts=hosts) as job:
            job.wait_for("trains", "worker 1")
            job.open("later")
            job.kill_and_wait("worker 1")
            job.wait_for("starting worker 1 again", None, "err")
            job.open("end")
            self.check(job, [GOES_ON.format("worker 1"), AGAIN.format("worker 1")])

    def gathered_without(self, hosts=None):
        """The same, and the others have gathered once more while it was on its way."""
        with self.job(3, 1, later="sleep 1000", hosts=hosts) as job:
            for worker in range(3):
                job.wait_for("trains", f"worker {worker}")
            job.open("later")
            job.kill_and_wait("worker 1")
            job.wait_for("starting worker 1 again", None, "err")
            job.kill_and_wait("worker 2")
            job.wait_for("of 1 at step", "worker 0")
            job.open("end")
            own = job.finish()["byteps run"]
            self.assertEqual(own.status, 0, own)

    def server_and_scheduler(self):
        """Another scheduler does not wait for a server that is known to have ended."""
        settings = ["cluster.colocated=none", "cluster.rendezvous_timeout=600s", "log.level=info"]
        with self.job(2, 2, settings=settings) as job:
            for worker in range(2):
                job.wait_for("trains", f"worker {worker}")
            server = job.pid("server 1")
            job.kill("scheduler")
            os.kill(server, signal.SIGKILL)
            job.wait_for("has taken over", "scheduler", "err")
            job.wait_for("reforms as 0 of 2", "worker 0")
            job.open("end")
            own = job.finish()["byteps run"]
            self.assertEqual(own.status, 0, own)

    def host(self):
        """All of a host is lost, and started again there."""
        with self.job(2, 2, settings=["cluster.colocated=none"], hosts=HOSTS_2) as job:
            job.wait_for("trains", "worker 1")
            with open(f"/proc/{job.pid('worker 1')}/stat", encoding="utf-8") as file:
                os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
            job.wait_for(AGAIN.format("host 127.0.0.1"), None, "err", 40)
            job.wait_for("of 2 at step", "worker 0", "out", 40)
            job.open("end")
            ends = job.finish()
            own, host = ends["byteps run"], "host 127.0.0.1"
            self.assertEqual(own.status, 0, cluster.show(ends))
            self.assertRegex(own.err, rf"the connection to {host} \(pid \d+\) .*; the job goes on without it", own)
            self.assertIn(AGAIN.format(host), own.err, own)

    def hosts_last(self):
        """The hosts do not know of each other: none is left."""
        with self.job(hosts=HOSTS_2) as job:
            job.wait_for("trains", "worker 1")
            self.kill_both(job)
            own = job.finish()["byteps run"]
            self.assertEqual(own.status, 137, own)
            self.assertRegex(own.err, r"worker \d on host \S+ failed first: killed by SIGKILL", own)

    def at_end(self):
        """One that is about to be started when the others end."""
        with self.job() as job:
            job.wait_for("trains", "worker 1")
            job.kill_and_wait("worker 1")
            job.wait_for("goes on without it", None, "err")
            job.open("end")
            job.wait_for("is at", "worker 0")
            ends = job.finish()
            self.assertEqual(ends["byteps run"].status, 0, cluster.show(ends))

    def test_all(self):
        cases = {"server": self.server, "last": self.last, "too few": self.too_few, "given up": self.given_up}
        cases |= {"too late": self.too_late, "at end": self.at_end, "host": self.host, "hosts, last": self.hosts_last}
        cases["hosts, too few"] = lambda: self.too_few(HOSTS_2)
        cases["gathered without"] = self.gathered_without
        cases["hosts, gathered without"] = lambda: self.gathered_without("localhost:1,127.0.0.1:2")
        cases["server and scheduler"] = self.server_and_scheduler
        cases["hosts, too late"] = lambda: self.too_late(HOSTS_2)
        cases["hosts, worker"] = lambda: self.worker("worker 2", 1, "localhost:1,127.0.0.1:2")
        for victim in ("worker 0", "worker 2"):
            for servers in (0, 1):
                cases[f"{victim}, {servers}"] = lambda v=victim, s=servers: self.worker(v, s)
        cluster.side_by_side(self, cases)


if __name__ == "__main__":
    unittest.main()
