# SPDX-License-Identifier: Apache-2.0
"""With cluster.encrypt whoever reads along learns neither values nor names."""

import os
import struct
import tempfile
import unittest

import cluster
import test_secret
import wire

NAME = "a_tensor_that_nobody_else_knows"
COUNT = 10000
STEPS = ["init", f"push:{NAME}:{COUNT}:float32:sum:1", "leave"]
ALIKE = "it must be the same on all members"


def pattern(value):
    """How such elements travel."""
    return struct.pack("<16f", *[value] * 16)


@unittest.skipUnless(cluster.TRANSPORT == "tcp", "only what goes over TCP is recorded")
class Encrypted(unittest.TestCase):
    def recorded(self, *settings):
        """The job, and all that its processes have sent: to the scheduler and from it, and between workers."""
        with tempfile.NamedTemporaryFile() as file, test_secret.variable(test_secret.SECRET):
            steps = [f"record:{file.name}", *STEPS]
            settings = ["cluster.colocated=first", *settings]
            late = ("worker 0", "worker 1")
            with cluster.ByHand(steps, servers=0, settings=settings, late=late) as job:
                proxies = [wire.Proxy(test_secret.port_of(job)) for _ in late]
                for part, proxy in zip(late, proxies):
                    job.start(part, scheduler=f"127.0.0.1:{proxy.port}")
                ends = job.finish()
                for proxy in proxies:
                    proxy.close()
            for part, end in ends.items():
                self.assertEqual(end.status, 0, cluster.show(ends))
                if part.startswith("worker"):
                    self.assertIn(f"{NAME}: 3", end.out)
            return job.id, file.read(), b"".join(bytes(p.sent + p.received) for p in proxies)

    def test_neither_values_nor_names(self):
        for encrypts in (False, True):
            with self.subTest(encrypts=encrypts):
                job, between, control = self.recorded(f"cluster.encrypt={str(encrypts).lower()}")
                self.assertGreater(len(between), 3 * 4 * COUNT)
                self.assertIn(wire.GREETING, control)
                self.assertIn(wire.GREETING, between)
                seen = self.assertNotIn if encrypts else self.assertIn
                seen(NAME.encode(), control)
                seen(job.encode(), control)
                seen(b"worker.partition", control)
                for value in (2.0, 3.0):  # of worker 1, and the sum
                    seen(pattern(value), between)

    def test_another_one_there(self):
        """Who has another setting is told so, whichever it is."""
        for here, there in (("false", "true"), ("true", "false")):
            with self.subTest(here), test_secret.variable(test_secret.SECRET):
                settings, extra = [f"cluster.encrypt={there}"], {"worker 1": [f"cluster.encrypt={here}"]}
                with cluster.ByHand(["init"], settings=settings, extra=extra) as job:
                    line = job.wait_for("cluster.encrypt", "worker 1", "any")
                    self.assertIn(f"cluster.encrypt is {here} here, but {there} there; {ALIKE}", line)
                    for part in ("worker 0", "server 0", "scheduler"):
                        job.kill(part)
                    job.finish()


class Right(unittest.TestCase):
    def test_sums(self):
        """On any transport, also of more than one slice, and where workers of a host share memory."""
        steps = ["init", f"push:large:{100 * COUNT}:float32:sum:1", "push:empty:0:float32:sum:1", *STEPS[1:]]
        for ways in ([], ["worker.hierarchy=on"], ["server.local=true"]):
            with self.subTest(ways=ways), test_secret.variable(test_secret.SECRET):
                with cluster.ByHand(steps, settings=["cluster.encrypt=true", *ways]) as job:
                    ends = job.finish()
                for part, end in ends.items():
                    self.assertEqual(end.status, 0, cluster.show(ends))
                    if part.startswith("worker"):
                        self.assertIn(f"large: 3\nempty: 0\n{NAME}: 3", end.out)


class Refused(unittest.TestCase):
    WORDS = "cluster.encrypt = true: there is no secret to derive keys from; give all processes of the job the same "

    def worker(self, **variables):
        """What a worker says that cannot begin."""
        env = {**os.environ, "BYTEPS_SET": "cluster.encrypt=true", **variables}
        env.pop("BYTEPS_SECRET", None)
        command = [cluster.WORKER, "init"]
        done = cluster.subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=cluster.DEADLINE, check=False
        )
        self.assertNotEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    def test_no_secret(self):
        """Whoever starts it: a scheduler, a worker, and workers that would tell each other one in a note."""
        status, text = test_secret.scheduler("cluster.encrypt=true")
        self.assertNotEqual(status, 0)
        self.assertIn(self.WORDS + "BYTEPS_SECRET", text)
        known = "cluster.encrypt=true\ncluster.workers=2\ncluster.scheduler=127.0.0.1:9"
        self.assertIn(self.WORDS, self.worker(BYTEPS_SET=known))
        with tempfile.TemporaryDirectory() as folder:
            note = os.path.join(folder, "note")
            self.assertIn(self.WORDS, self.worker(BYTEPS_MEETING_FILE=note, WORLD_SIZE="2", RANK="0"))
            self.assertFalse(os.path.exists(note))

    def test_checksums_besides(self):
        for kind in ("blake2s", "gmac"):
            settings = ("cluster.encrypt=true", f"cluster.checksum={kind}")
            status, text = test_secret.scheduler(*settings, secret=test_secret.SECRET)
            self.assertNotEqual(status, 0)
            self.assertIn(f'cluster.checksum = "{kind}": redundant, because cluster.encrypt = true', text)


if __name__ == "__main__":
    unittest.main()
