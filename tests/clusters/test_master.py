# SPDX-License-Identifier: Apache-2.0
"""Jobs of processes that have been given WORLD_SIZE and RANK, and MASTER_ADDR and MASTER_PORT or a shared folder."""

import os
import re
import socket
import tempfile
import time
import unittest

import launched
from launched import BOTH, TRAIN, Case, environment, harness
from testbed.bed import SWITCH

SECRET = {"BYTEPS_SECRET": "as long as it takes, and longer"}
STAY = """
import time, numpy, byteps.numpy as bps
bps.init()
while True:
    bps.push_pull(numpy.ones(1))
    print("together", flush=True)
    time.sleep(0.1)
"""


def setUpModule():
    launched.needs("torch")


class Processes(Case):
    """Workers on hosts of a test bed, where nobody else has the ports."""

    HOSTS = 1

    def setUp(self):
        self.bed = self.make_bed(self.HOSTS)

    def worker(self, host, rank, program=TRAIN, **variables):
        given = {"MASTER_ADDR": "localhost", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": str(rank)}
        return self.bed.popen(host, [harness.python(), program], env=environment(**{**given, **variables}), **BOTH)

    def read_until(self, part, words):
        """The line of its output that has the words."""
        said = []
        for line in part.stdout:
            said.append(line)
            if words in line:
                return line
        self.fail("".join(said))

    def ended(self, *parts):
        """All that they have written, once all are well."""
        texts = [harness.communicate(part)[0] for part in parts]
        self.assertEqual([part.returncode for part in parts], [0] * len(parts), texts)
        return "".join(texts)


class OneHost(Processes):
    def test_with_a_secret_and_without(self):
        for secret in ({}, SECRET):
            with self.subTest(secret):
                text = self.ended(*(self.worker(0, rank, **secret) for rank in range(2)))
                self.check(text, [(0, 2, 0, 2), (1, 2, 1, 2)])

    def test_beside_process_groups_of_pytorch(self):
        group = os.path.join(launched.HERE, "scripts", "group.py")
        text = self.ended(*(self.worker(0, rank, program=group, **SECRET) for rank in range(2)))
        found = re.findall(r"^worker (\d) of 2: (-?[\d.]+)$", text, re.M)
        self.assertEqual((sorted(rank for rank, _ in found), len({total for _, total in found})), (["0", "1"], 1), text)

    def refused(self, words, rank=0, **variables):
        worker = self.worker(0, rank, **variables)
        text = harness.communicate(worker)[0]
        self.assertEqual(worker.returncode, 1, text)
        self.assertIn(words, text)

    def test_no_secret_between_hosts(self):
        for rank in range(2):
            with self.subTest(rank):
                words = "would listen at train-0.train:23457 (by MASTER_ADDR and MASTER_PORT), where other hosts"
                self.refused(words, rank, MASTER_ADDR="train-0.train")
        self.refused("would listen at [fd00::1]:23457", MASTER_ADDR="fd00::1")
        self.refused("(in Kubernetes by secretKeyRef)", MASTER_ADDR="h0")

    def test_no_port(self):
        for port in ("0", "65535", "http"):
            with self.subTest(port):
                self.refused(f"MASTER_PORT = {port}: expected a number from 1 to 65534", 1, MASTER_PORT=port)
        self.refused("all of them MASTER_ADDR and MASTER_PORT", MASTER_PORT="")

    def test_a_port_in_use(self):
        other = self.worker(0, 0, BYTEPS_SET="log.level=debug")
        self.read_until(other, "this process hosts the scheduler at 127.0.0.1:23457")
        self.refused("MASTER_ADDR and MASTER_PORT: listen 127.0.0.1:23457: Address already in use")
        other.kill()
        harness.communicate(other)


class Folder(Processes):
    """Workers that know no address, but a folder; what is left there by others is not believed."""

    HOSTS = 2

    def setUp(self):
        super().setUp()
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(self.folder, "meeting")
        self.note = f"{self.path}.byteps-1"

    def worker(self, host, rank, program=(TRAIN,), **variables):
        given = {"BYTEPS_MEETING_FILE": self.path, "WORLD_SIZE": "2", "RANK": str(rank), **variables}
        return self.bed.popen(host, [harness.python(), *program], env=environment(**given), **BOTH)

    def refused(self, words, rank=1, **variables):
        worker = self.worker(0, rank, ("-c", "import byteps.numpy as bps; bps.init()"), **variables)
        text = harness.communicate(worker)[0]
        self.assertEqual(worker.returncode, 1, text)
        self.assertIn(words, text)

    def read_address(self):
        """The scheduler's, as soon as worker 0 has left it."""
        while not os.path.exists(self.note):
            time.sleep(0.05)
        with open(self.note, encoding="ascii") as file:
            return file.read().split(",")[1]

    def test_two_hosts(self):
        late = self.worker(1, 1)
        self.read_until(late, "waiting for worker 0 to publish the address of the scheduler")
        text = self.ended(late, self.worker(0, 0))
        self.check(text, [(0, 2, 0, 1), (1, 2, 0, 1)])
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_note_that_an_attempt_before_has_left(self):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        with open(self.note, "w", encoding="ascii") as file:
            file.write(f"2,127.0.0.1:{port},{'ab' * 32},earlier")
        os.chmod(self.note, 0o600)
        late = self.worker(0, 1, BYTEPS_LOG_LEVEL="DEBUG")
        self.read_until(late, f"127.0.0.1:{port}: Connection refused")
        self.check(self.ended(late, self.worker(0, 0)), [(0, 2, 0, 2), (1, 2, 1, 2)])

    def test_another_job_with_the_file(self):
        """Its worker 0 is refused as long as this job lives."""
        first, second = self.worker(0, 0, ("-c", STAY)), self.worker(0, 1, ("-c", STAY))
        for worker in (first, second):
            self.read_until(worker, "together")
        self.refused(f"worker 0 of another job uses {self.note}; give each job its own file", 0)
        self.refused("is already complete")
        first.kill()  # what it leaves is replaced
        for worker in (first, second):
            harness.communicate(worker)
        self.assertTrue(os.path.exists(self.note))
        self.check(self.ended(self.worker(0, 0), self.worker(0, 1)), [(0, 2, 0, 2), (1, 2, 1, 2)])

    def test_a_note_whose_address_another_job_has(self):
        other = self.worker(0, 0, ("-c", STAY))
        address = self.read_address()
        mine = f"{self.path}-of-mine"
        with open(f"{mine}.byteps-1", "w", encoding="ascii") as file:
            file.write(f"2,{address},{'ab' * 32},earlier")
        os.chmod(f"{mine}.byteps-1", 0o600)
        words = f"refused by the scheduler at {address} (address from BYTEPS_MEETING_FILE): authentication failed"
        self.refused(words, BYTEPS_MEETING_FILE=mine)
        secret = {"BYTEPS_SECRET": "of both, and long enough"}
        other.kill()
        harness.communicate(other)
        os.unlink(self.note)
        other = self.worker(0, 0, ("-c", STAY), **secret)
        address = self.read_address()
        with open(f"{mine}.byteps-1", "w", encoding="ascii") as file:
            file.write(f"2,{address},-,earlier")
        self.refused("belongs to job 'earlier'", BYTEPS_MEETING_FILE=mine, **secret)
        other.kill()
        harness.communicate(other)

    def test_notes_of_others(self):
        with open(self.note, "w", encoding="ascii") as file:
            file.write("2,127.0.0.1:1,-,-")
        for mode in (0o622, 0o644):
            os.chmod(self.note, mode)
            self.refused(f"{self.note} was not written by worker 0: expected a file of user 0 that no other user "
                         "can read or write (mode 0600)")
        os.chmod(self.note, 0o600)
        os.chown(self.note, 1, 1)
        self.refused(f"{self.note} was not written by worker 0")
        os.unlink(self.note)
        os.mkfifo(self.note)
        self.refused(f"{self.note} was not written by worker 0")
        os.unlink(self.note)
        with open(self.note, "wb") as file:
            file.write(bytes(range(256)) * 4)
        os.chmod(self.note, 0o600)
        self.refused("the note of worker 0 in BYTEPS_MEETING_FILE is not of this version of BytePS")

    def test_no_folder(self):
        nowhere = {"BYTEPS_MEETING_FILE": os.path.join(self.folder, "no", "meeting")}
        self.refused(f"cannot make {self.folder}/no/meeting.byteps-1.", 0, **nowhere)
        self.refused("meeting.byteps-1 does not exist yet", 1, BYTEPS_SET="cluster.rendezvous_timeout=1s", **nowhere)
        self.refused("a path of 9009 characters is too long", 0, BYTEPS_MEETING_FILE=9000 * "a")


class Hosts(Processes):
    """Workers on hosts of a test bed; they may know the first one by another name."""

    HOSTS = 2
    PLACES = [(0, 3, 0, 2), (1, 3, 1, 2), (2, 3, 0, 1)]

    def named(self, address, host, rank, **others):
        return self.worker(host, rank, MASTER_ADDR=address, WORLD_SIZE="3", **SECRET, **others)

    def workers(self, address, **others):
        return [self.named(address, host, rank, **others) for rank, host in enumerate((0, 0, 1))]

    def test_the_name_of_the_host(self):
        self.check(self.ended(*self.workers("h0")), self.PLACES)

    def test_an_address_of_a_service(self):
        """None of the hosts has it, and worker 0 cannot listen there."""
        forward = [harness.python(), os.path.join(launched.HERE, "scripts", "forward.py"), "h0", "23457"]
        service = self.bed.popen(SWITCH, forward, env=environment(), **BOTH)
        self.read_until(service, "ready")
        text = self.ended(*self.workers("switch", JOBS="1"))
        service.kill()
        harness.communicate(service)
        self.check(text, self.PLACES, jobs=1)

    def test_a_name_that_comes_later(self):
        late = self.named("train-0.train", 1, 2)
        line = self.read_until(late, "waiting for the scheduler")
        self.assertIn("train-0.train:23457: resolve train-0.train: ", line)
        self.bed.name_host(0, "train-0.train")
        text = self.ended(late, *(self.named("train-0.train", 0, rank) for rank in range(2)))
        self.check(text, self.PLACES)

    def test_with_a_server(self):
        """It is told where that is as everywhere else."""
        settings = "cluster.servers=1\nworker.hierarchy=off"
        its = f"cluster.workers=3\ncluster.scheduler=h0:23457\n{settings}"
        env = environment(BYTEPS_SET=its, **SECRET)
        server = self.bed.popen(1, [harness.program(), "server"], env=env, **BOTH)
        text = self.ended(server, *self.workers("h0", JOBS="1", BYTEPS_SET=settings))
        self.check(text, self.PLACES, jobs=1)


if __name__ == "__main__":
    unittest.main()
