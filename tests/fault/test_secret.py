# SPDX-License-Identifier: Apache-2.0
"""Who does not know the secret of a job does not get in, and learns nothing; it is made for each job of byteps run."""

import contextlib
import hashlib
import os
import subprocess
import tempfile
import unittest

import cluster
import wire

STEPS = ["init", "loop:grad:5000:enough", "leave"]
LATE = ["@1:gate:late", *STEPS]
SECRET = "the secret of these tests"
KEY = hashlib.sha256(SECRET.encode()).digest()


def port_of(job):
    return int(job.address.rpartition(":")[2])


@contextlib.contextmanager
def variable(value):
    """All that is started meanwhile has this secret in its environment."""
    before = os.environ.get("BYTEPS_SECRET")
    os.environ["BYTEPS_SECRET"] = value
    try:
        yield
    finally:
        os.environ.pop("BYTEPS_SECRET")
        if before is not None:
            os.environ["BYTEPS_SECRET"] = before


def scheduler(*settings, secret=None):
    """What a scheduler says that cannot begin."""
    env = {**os.environ, "BYTEPS_SET": "\n".join(settings)}
    env.pop("BYTEPS_SECRET", None)
    env.update({} if secret is None else {"BYTEPS_SECRET": secret})
    command = [cluster.harness.program(), "scheduler"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=cluster.DEADLINE, check=False)
    return done.returncode, done.stderr


class Secret(unittest.TestCase):
    def ends_well(self, job):
        job.open("enough")
        for part, end in job.finish().items():
            if part != "stranger":
                self.assertEqual(end.status, 0, f"{part}\n{cluster.show(job.now())}")

    def test_strangers_while_a_job_gathers(self):
        """With no secret, another one, and one that says who it is before it has been let in."""
        with variable(SECRET), cluster.ByHand(LATE) as job:
            job.wait_for("at late", "worker 1")
            for secret in (wire.NO_SECRET, hashlib.sha256(b"another secret").digest(), None):
                with self.subTest(secret), wire.connect(port_of(job)) as sock:
                    text = wire.hello(wire.nonce(sock), wire.MEMBER, secret)
                    sock.sendall(text + wire.frame(wire.JOIN, wire.join(job.id)))
                    said = wire.refusal(sock)
                    self.assertTrue(said.startswith(wire.FOREIGN), said)
                    self.assertNotIn(job.id, said)
            job.wait_for("refused 127.0.0.1:", "scheduler", "err")
            job.open("late")
            self.ends_well(job)

    def test_members_with_another_secret(self):
        with variable(SECRET), cluster.ByHand(LATE) as job:
            job.wait_for("at late", "worker 1")
            job.env["BYTEPS_SECRET"] = "another secret than that"
            job.start("worker 1", name="stranger", steps=["init"])
            words = job.wait_for("error: ", "stranger")
            self.assertIn(f"refused by the scheduler at {job.address} (address from ", words)
            self.assertIn(wire.FOREIGN, words)
            self.assertNotIn(job.id, words)
            job.env["BYTEPS_SECRET"] = SECRET
            job.open("late")
            self.ends_well(job)

    def test_a_member_that_knows_it_joins(self):
        """And a scheduler without it is none for a member: the impostor is found before anything is told to it."""
        with variable(SECRET), cluster.ByHand(LATE) as job:
            job.wait_for("at late", "worker 1")
            with wire.connect(port_of(job)) as sock:
                wire.enter(sock, wire.join("another job"), KEY)
                self.assertIn("this scheduler is for job", wire.refusal(sock))
            job.open("late")
            self.ends_well(job)

    def test_from_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".secret") as file:
            file.write(f"\n{SECRET}\n")
            file.flush()
            with cluster.ByHand(LATE, settings=[f"cluster.secret_file={file.name}"]) as job:
                job.wait_for("at late", "worker 1")
                with wire.connect(port_of(job)) as sock:
                    wire.enter(sock, wire.join("another job"), KEY)
                    self.assertIn("this scheduler is for job", wire.refusal(sock))
                job.open("late")
                self.ends_well(job)

    def test_what_is_no_secret(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "secret")
            with open(path, "w", encoding="ascii") as file:
                file.write(SECRET)
            for mode in (0o644, 0o604, 0o620):
                os.chmod(path, mode)
                status, text = scheduler(f"cluster.secret_file={path}")
                self.assertIn("other users can read it", text)
                self.assertNotEqual(status, 0)
                self.assertNotIn(SECRET, text)
            for wrong, words in ((folder, "not a file"), (f"{path}.none", "No such file")):
                status, text = scheduler(f"cluster.secret_file={wrong}")
                self.assertIn("cluster.secret_file = ", text)
                self.assertIn(words, text)
        for secret in ("few bytes", " " * 40 + "one word", "y" * 4097):
            status, text = scheduler(secret=secret)
            self.assertRegex(text, r"BYTEPS_SECRET: the secret has \d+ bytes; expected 16 to 4096")
            self.assertNotIn(secret.strip(), text)

    def test_without_one_no_other_host_is_served(self):
        for address in ("0.0.0.0:0", "192.0.2.1:9000", "[::]:0"):
            status, text = scheduler(f'cluster.scheduler="{address}"')
            self.assertNotEqual(status, 0)
            self.assertIn(f"other hosts can reach {address}, but this job has no secret", text)


class OfByteps(unittest.TestCase):
    """Jobs of byteps run."""

    SHOW = 'printf "secret %s\\n" "$BYTEPS_SECRET"; cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " "; echo'

    def secrets(self, **how):
        result = cluster.harness.run(["sh", "-c", self.SHOW], workers=2, servers=1, **how)
        lines = [result.lines(f"worker {rank}")[0] for rank in range(2)]
        self.assertEqual(lines[0], lines[1])
        secret = lines[0].removeprefix("secret ")
        self.assertEqual(result.out.count(secret), 2, "it is in the command line of a process")
        self.assertNotIn(secret, result.err)
        return secret

    def test_each_job_has_another_one(self):
        one, other = self.secrets(), self.secrets()
        self.assertRegex(one, "^[0-9a-f]{64}$")
        self.assertNotEqual(one, other)

    def test_a_users_own(self):
        self.assertEqual(self.secrets(env={"BYTEPS_SECRET": SECRET}), SECRET)


if __name__ == "__main__":
    unittest.main()
