# SPDX-License-Identifier: Apache-2.0
"""Jobs of mpirun: Open MPI's, whose processes meet by PMIx, and MPICH's, by PMI."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

import launched
from launched import AS_ROOT, BOTH, TRAIN, Case, environment, harness

MPI = os.path.join(launched.HERE, "scripts", "mpi.py")

def setUpModule():
    launched.needs("torch")


class Launcher:
    """What the tests do with each of them."""

    def program(self):
        path = shutil.which(self.NAME)
        if path is None:
            self.skipTest(f"{self.NAME} is not installed")
        return path

    def run_job(self, n, *command, **variables):
        return launched.execute([self.program(), *self.OPTIONS, "-n", str(n), *command], **AS_ROOT, **variables)

    def train(self, n, **variables):
        return self.run_job(n, harness.python(), TRAIN, **variables)

    def test_one_host(self):
        status, text = self.train(3)
        self.assertEqual(status, 0, text)
        self.check(text, [(rank, 3, rank, 3) for rank in range(3)])

    def test_a_program_that_uses_mpi(self):
        for order in ("before", "after"):
            with self.subTest(order):
                status, text = self.run_job(2, harness.python(), MPI, order, self.LIBRARY)
                self.assertEqual(status, 0, text)
                lines = sorted(re.findall("^worker.*", text, re.M))
                self.assertEqual(lines, [f"worker {rank} of 2: [3.0, 3.0, 3.0]" for rank in range(2)], text)

    def test_servers_beside(self):
        server = (":", "-n", "2", harness.program(), "server")
        status, text = self.run_job(2, harness.python(), TRAIN, *server, BYTEPS_SET="cluster.servers=2", JOBS="1")
        self.assertEqual(status, 0, text)
        self.check(text, [(0, 2, 0, 2), (1, 2, 1, 2)], jobs=1)
        status, text = self.run_job(2, harness.python(), TRAIN, BYTEPS_SET="cluster.servers=2")
        self.assertNotEqual(status, 0, text)
        self.assertIn("mpirun has started 2 processes, of which cluster.servers = 2 are servers; expected", text)

    def test_a_worker_that_ends_before_the_others(self):
        late = f"import os, sys, time\nif os.environ['{self.RANK}'] == '0': time.sleep(1); os.write(1, b'late\\n')"
        code = f"import byteps.numpy as bps; bps.init(); bps.shutdown()\n{late}"
        status, text = self.run_job(2, harness.python(), "-c", code)
        self.assertEqual((status, text), (0, "late\n"))

    def test_a_killed_worker(self):
        status, text = self.train(3, KILL="1", JOBS="1")
        self.assertNotEqual(status, 0, text)
        self.assertIn("signal 9", text)  # of mpirun, which may end the others before they can say it

    def test_a_worker_that_does_not_come(self):
        for absent in ("0", "1"):
            with self.subTest(absent):
                come = f"if os.environ['{self.RANK}'] != '{absent}': bps.init()\nelse: sys.stdin.read()"
                code = f"import os, sys, byteps.numpy as bps\n{come}"
                status, text = self.run_job(2, harness.python(), "-c", code, BYTEPS_SET="cluster.rendezvous_timeout=1s")
                self.assertNotEqual(status, 0, text)
                self.assertIn("not all processes of mpirun have called bps_init() yet", text)

    def test_hosts(self):
        bed = self.make_bed(hosts=2)
        with tempfile.TemporaryDirectory() as folder:
            agent = launched.launch_agent(bed, folder)
            command = [self.program(), *self.hosts(agent), "-n", "4", harness.python(), TRAIN]
            job = bed.popen(0, command, env=environment(**AS_ROOT), **BOTH)
            text = harness.communicate(job)[0]
        self.assertEqual(job.returncode, 0, text)
        self.check(text, [(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)])


class OpenMPI(Launcher, Case):
    NAME, LIBRARY, RANK = "mpirun.openmpi", "libmpi.so.40", "OMPI_COMM_WORLD_RANK"
    OPTIONS = ("--oversubscribe",)

    def hosts(self, agent):
        exported = [part for name in environment() for part in ("-x", name)]
        return ["--mca", "plm_rsh_agent", agent, "--host", "h0:2,h1:2", "--map-by", "slot", *self.OPTIONS, *exported]


class MPICH(Launcher, Case):
    NAME, LIBRARY, RANK = "mpiexec.hydra", "libmpich.so.12", "PMI_RANK"
    OPTIONS = ()

    def hosts(self, agent):
        return ["-launcher", "ssh", "-launcher-exec", agent, "-hosts", "h0,h1", "-ppn", "2"]


class Words(Case):
    """What a launcher of MPICH may answer."""

    def answered(self, *lines):
        """What a worker says to these lines, one to each of its own."""
        ours, theirs = socket.socketpair()
        env = environment(PMI_FD=str(theirs.fileno()), PMI_SIZE="2", PMI_RANK="1", BYTEPS_SET=self.SETTINGS)
        command = [harness.python(), "-c", "import byteps.numpy as bps; bps.init()"]
        with ours, subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()], **BOTH) as worker:
            theirs.close()
            for line in lines:
                ours.recv(1000)
                ours.sendall(line)
            if not lines[-1].endswith(b"\n"):
                ours.shutdown(socket.SHUT_WR)
            text = harness.communicate(worker)[0]
        self.assertEqual(worker.returncode, 1, text)
        return text

    SETTINGS = "cluster.rendezvous_timeout=1s"

    def test_strange_answers(self):
        begin = [b"cmd=response_to_init rc=0\n", b"cmd=my_kvsname kvsname=space\n", b"cmd=barrier_out\n"]
        for lines, words in (
            ([b""], "PMI_FD: mpirun has closed the connection"),
            ([b"cmd=response_to_init rc=-1\n"], "expected cmd=response_to_init rc=0, found cmd=response_to_init rc=-1"),
            ([b"cmd=other\n"], "expected cmd=response_to_init rc=0, found cmd=other"),
            ([2000 * b"a"], "PMI_FD: a line of more than 1023 bytes"),
            ([begin[0], b"cmd=my_kvsname\n"], "no kvsname in cmd=my_kvsname"),
            ([begin[0], b"cmd=my_kvsname kvsname=" + 300 * b"a" + b"\n"], "no kvsname in cmd=my_kvsname"),
            ([*begin, b"cmd=get_result rc=0\n"], "no value in cmd=get_result rc=0"),
            ([*begin, b"cmd=get_result rc=-1 msg=key_not_found\n"], "found cmd=get_result rc=-1 msg=key_not_found"),
            ([*begin, b"cmd=get_result value=1,a:2,b\n"], "is not of this version of BytePS"),
            ([*begin[:2], b"cmd=barrier_out"], "PMI_FD: mpirun has closed the connection"),
        ):
            with self.subTest(words):
                self.assertIn(words, self.answered(*lines))


if __name__ == "__main__":
    unittest.main()
