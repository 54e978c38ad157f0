# SPDX-License-Identifier: Apache-2.0
"""Jobs of torchrun, which knows nothing of BytePS: its store is where the workers meet."""

import contextlib
import datetime
import os
import re
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

import launched
from launched import BOTH, TRAIN, Case, environment, harness


def setUpModule():
    launched.needs("torch")


def torchrun(*arguments):
    return [harness.python(), "-m", "torch.distributed.run", *arguments]


class OneHost(Case):
    def run_job(self, *arguments, **variables):
        return launched.execute(torchrun(*arguments), **variables)

    def test_as_users_type_it(self):
        places = [(0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3)]
        for options in ((), ("--standalone",)):
            with self.subTest(options):
                status, text = self.run_job(*options, "--nproc-per-node", "3", TRAIN)
                self.assertEqual(status, 0, text)
                self.check(text, places)

    def test_ports(self):
        settings = "cluster.ports=23000-23099\nlog.level=debug"
        status, text = self.run_job("--nproc-per-node", "2", TRAIN, BYTEPS_SET=settings, JOBS="1")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"hosts the scheduler at 127\.0\.0\.1:230\d\d;")

    def test_beside_process_groups_of_pytorch(self):
        status, text = self.run_job("--nproc-per-node", "2", os.path.join(launched.HERE, "scripts", "group.py"))
        self.assertEqual(status, 0, text)
        found = re.findall(r"^worker (\d) of 2: (-?[\d.]+)$", text, re.M)
        self.assertEqual((sorted(rank for rank, _ in found), len({sum_ for _, sum_ in found})), (["0", "1"], 1), text)

    def test_a_killed_worker(self):
        for restarts, status in ((0, 1), (1, 0)):
            with self.subTest(restarts):
                options = ("--nproc-per-node", "2", "--max-restarts", str(restarts))
                found, text = self.run_job(*options, TRAIN, KILL="1", JOBS="1")
                self.assertEqual(found, status, text)
                self.assertRegex(text, r"LostError: worker 1 \(host \S+, pid \d+\) was lost")
                self.check(text, [(0, 2, 0, 2), (1, 2, 1, 2)] if restarts else [], jobs=1) if restarts else None

    def test_the_host_of_the_scheduler_is_killed(self):
        status, text = self.run_job("--nproc-per-node", "2", "--max-restarts", "1", TRAIN, KILL="0", JOBS="1")
        self.assertEqual(status, 0, text)
        self.assertIn("the scheduler", text)
        self.check(text, [(0, 2, 0, 2), (1, 2, 1, 2)], jobs=1)

    def test_a_worker_that_does_not_come(self):
        code = "import os, byteps.torch as bps\nif os.environ['RANK'] != '%s': bps.init()"
        for absent, words in (
            ("0", r"worker 0 did not publish .* within 2 s \(cluster.rendezvous_timeout\): the store"),
            ("1", r"the job did not start within 2 s: missing"),
        ):
            with self.subTest(absent):
                program = ("--no-python", harness.python(), "-c", code % absent)
                settings = "cluster.rendezvous_timeout=2 s"
                status, text = self.run_job("--nproc-per-node", "2", *program, BYTEPS_SET=settings)
                self.assertEqual(status, 1, text)
                self.assertRegex(text, words)


class Elastic(Case):
    """A job with cluster.min_workers."""

    SETTINGS = "cluster.min_workers=1\ncluster.max_workers=4\ncluster.colocated=all"
    PROGRAM = os.path.join(launched.HERE, "scripts", "elastic.py")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.end = os.path.join(folder.name, "end")

    def open_end(self):
        with open(self.end, "x", encoding="ascii"):
            pass

    @contextlib.contextmanager
    def started(self, *arguments, **variables):
        """A torchrun, and a function that waits until it has said something so often."""
        env = environment(BYTEPS_SET=self.SETTINGS, END=self.end, **variables)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        agent = subprocess.Popen(torchrun(*arguments, self.PROGRAM), env=env, **pipes)
        reader = harness._Reader(agent.stdout)

        def wait_for(text, times=1):
            harness.until(lambda: reader.text().count(text) >= times, text, 60, reader.text)

        try:
            yield agent, wait_for
        finally:
            agent.terminate()  # it ends its workers
            agent.wait(60)
            reader.join()

    def test_a_killed_worker(self):
        """torchrun ends the others while they reform, and all of them begin a new job."""
        options = ("--standalone", "--nproc-per-node", "3", "--max-restarts", "1")
        with self.started(*options, KILL="1") as (agent, wait_for):
            wait_for("trains as 2 of 3", 2)
            self.open_end()
            self.assertEqual(agent.wait(60), 0)

    def test_a_host_that_is_lost(self):
        """The others go on without it; their torchrun waits for the lost one when they have ended."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            endpoint = f"127.0.0.1:{free.getsockname()[1]}"
        options = ("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "7",
                   "--rdzv-conf")  # fmt: skip
        with self.started(*options, "is_host=1,last_call_timeout=5") as (_, wait_for_first):
            with self.started(*options, "is_host=0,last_call_timeout=5") as (second, wait_for_second):
                wait_for_second("trains as 1 of 2")
                second.terminate()
                wait_for_first("reforms as 0 of 1")
            self.open_end()
            wait_for_first("ends as 0 of 1")


class Secret(Case):
    CODE = "import os\nif os.environ['RANK'] == '{}': del os.environ['BYTEPS_SECRET']\nexec(open('{}').read())"

    def run_job(self, without):
        program = ("--no-python", harness.python(), "-c", self.CODE.format(without, TRAIN))
        variables = {"BYTEPS_SECRET": "as long as it takes, and longer", "JOBS": "1"}
        return launched.execute(torchrun("--nproc-per-node", "2", *program), **variables)

    def test_of_ones_own(self):
        status, text = self.run_job("nobody")
        self.assertEqual(status, 0, text)
        self.check(text, [(0, 2, 0, 2), (1, 2, 1, 2)], jobs=1)

    def test_of_one_worker_only(self):
        for without, words in (
            ("0", "this process has a secret of the job and worker 0 has none"),
            ("1", "worker 0 has a secret of the job and this process has none"),
        ):
            with self.subTest(without):
                status, text = self.run_job(without)
                self.assertEqual(status, 1, text)
                self.assertIn(words, text)


class Store(Case):
    """What the store may answer."""

    def worker(self, rank, port, **variables):
        env = environment(
            RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True", JOBS="1", **variables,
        )  # fmt: skip
        return subprocess.Popen([harness.python(), TRAIN], env=env, **BOTH)

    def test_both_kinds(self):
        server = (
            "import sys, torch.distributed as dist; store = dist.TCPStore('127.0.0.1', 0, is_master=True, "
            "use_libuv=sys.argv[1] == 'uv', wait_for_workers=False); print(store.port, flush=True); sys.stdin.read()"
        )
        for kind in ("uv", "threads"):
            with self.subTest(kind):
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
                with subprocess.Popen([harness.python(), "-c", server, kind], **pipes) as store:
                    port = int(store.stdout.readline())
                    workers = [self.worker(rank, port) for rank in range(2)]
                    texts = [harness.communicate(worker)[0] for worker in workers]
                    store.stdin.close()
                self.assertEqual([worker.returncode for worker in workers], [0, 0], texts)
                self.check("".join(texts), [(0, 2, 0, 2), (1, 2, 1, 2)], jobs=1)

    def answered(self, *answers, close=True):
        """What a worker says to a store that gives these answers, one to each thing it hears."""
        with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:

            def serve():
                with contextlib.suppress(OSError):
                    while True:
                        peer = stack.enter_context(listener.accept()[0])
                        for answer in answers:
                            peer.recv(1000)
                            peer.sendall(answer)
                        if close:
                            peer.close()

            threading.Thread(target=serve, daemon=True).start()
            worker = self.worker(1, listener.getsockname()[1], BYTEPS_SET="cluster.rendezvous_timeout=1 s")
            text = harness.communicate(worker)[0]
            listener.shutdown(socket.SHUT_RDWR)
        self.assertEqual(worker.returncode, 1, text)
        return text

    def test_strange_answers(self):
        length = struct.Struct("=Q").pack
        note = b"2,127.0.0.1:1," + 63 * b"0"
        for answers, words in (
            ([], "no TCPStore of PyTorch 2.1 or later answers there"),
            ([b"\0", length(256)], "it has 256 bytes for a note of at most 255"),
            ([b"\0", length(2**64 - 1)], "it has 18446744073709551615 bytes for a note of at most 255"),
            ([b"\0", length(5) + b"1,a:2"], "is not of this version of BytePS"),
            ([b"\0", length(len(note)) + note], "is not of this version of BytePS"),
            ([b"\0", length(0)], "is not of this version of BytePS"),
        ):
            with self.subTest(words):
                self.assertIn(words, self.answered(*answers))
        self.assertIn("worker 0 has not stored a note there", self.answered(close=False))

    def test_a_note_of_before(self):
        """The scheduler that it tells of is gone; the next one comes a little later."""
        import torch.distributed as dist  # in this process, which is no worker

        store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=datetime.timedelta(seconds=60))
        with socket.create_server(("127.0.0.1", 0)) as free:
            gone = f"127.0.0.1:{free.getsockname()[1]}"
        store.set("byteps-1/", f"2,{gone},{64 * '0'},earlier")
        second = self.worker(1, store.port, BYTEPS_SET="log.level=debug")
        lines = []
        for line in second.stdout:
            lines.append(line)
            if "waiting for the scheduler" in line:
                break
        first = self.worker(0, store.port)
        texts = [harness.communicate(first)[0], "".join(lines) + harness.communicate(second)[0]]
        self.assertEqual([first.returncode, second.returncode], [0, 0], texts)
        self.check("".join(texts), [(0, 2, 0, 2), (1, 2, 1, 2)], jobs=1)


class Hosts(Case):
    """Two workers on each host of a test bed, each with a torchrun of its own."""

    PLACES = [(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)]

    def setUp(self):
        self.bed = self.make_bed(hosts=2)

    def run_job(self, *arguments, options=lambda host: (), **variables):
        command = torchrun("--nnodes", "2", "--nproc-per-node", "2", *arguments)
        env = environment(**variables)
        parts = [
            self.bed.popen(host, [*command, *options(host), TRAIN], env=env, **BOTH) for host in range(2)
        ]
        texts = [harness.communicate(part)[0] for part in parts]
        self.assertEqual([part.returncode for part in parts], [0, 0], texts)
        return "".join(texts)

    def test_static(self):
        address = ("--master-addr", "h0", "--master-port", "29500")
        self.check(self.run_job(*address, options=lambda host: ("--node-rank", str(host))), self.PLACES)

    def test_elastic(self):
        found = ("--rdzv-backend", "c10d", "--rdzv-id", "7", "--rdzv-endpoint", "h1:29500")
        self.check(self.run_job(*found), self.PLACES)

    def test_a_killed_worker(self):
        found = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "h0:29500", "--max-restarts", "1")
        text = self.run_job(*found, KILL="3", JOBS="1")
        self.assertRegex(text, r"worker 3 \(host \S+, pid \d+\) was lost")
        self.check(text, self.PLACES, jobs=1)


if __name__ == "__main__":
    unittest.main()
