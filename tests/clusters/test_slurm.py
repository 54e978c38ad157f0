# SPDX-License-Identifier: Apache-2.0
"""Jobs of Slurm: a controller and four nodes on the hosts of a test bed, srun, sbatch, and what goes wrong."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import textwrap
import unittest

import launched
from launched import BOTH, HERE, TRAIN, Case, environment, harness

SEAL = "/run/munge/munge.socket.2"  # where the library of MUNGE looks
NODES = 4
CONFIGURATION = """\
    ClusterName=test
    SlurmctldHost=h0({controller})
    SlurmUser=root
    SlurmdUser=root
    StateSaveLocation={folder}/state
    SlurmdSpoolDir={folder}/spool-%n
    TmpFS={folder}/tmp-%n
    SlurmctldPidFile={folder}/controller.pid
    SlurmdPidFile={folder}/%n.pid
    SlurmctldLogFile={folder}/controller.log
    SlurmdLogFile={folder}/%n.log
    ProctrackType=proctrack/linuxproc
    TaskPlugin=task/none
    SelectType=select/cons_tres
    SelectTypeParameters=CR_CPU
    SlurmdParameters=config_overrides
    SlurmdTimeout=5
    AuthInfo=cred_expire=5
    ReturnToService=2
    KillWait=2
    PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
PLACES = [(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)]


# What listens in a forked child, which may live on: nothing.
FORKED = """
import os, byteps.numpy as bps
bps.init()
if os.fork() == 0:
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    own = {os.stat(path).st_ino for path in paths if os.path.exists(path)}
    rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
    listening = sum(row[3] == "0A" and int(row[9]) in own for row in rows)
    os.write(1, f"{listening} of a child listen\\n".encode())
    os._exit(0)
os.wait()
bps.shutdown()
"""
ENDLESS = 'import os, time, byteps.numpy as bps; bps.init(); os.write(1, b"runs\\n"); time.sleep(600)'


class Slurm:
    """A cluster of the hosts of a bed, h0 with the controller."""

    def __init__(self, bed):
        self.bed = bed
        self.folder = tempfile.mkdtemp(prefix="slurm-")
        self.parts = {}
        self.started = []
        os.chmod(self.folder, 0o755)
        lines = [textwrap.dedent(CONFIGURATION).format(controller=bed.address(0), folder=self.folder)]
        for node in range(NODES):
            lines.append(f"NodeName=h{node} NodeAddr={bed.address(node)} CPUs=4 State=UNKNOWN\n")
            for kind in ("spool", "tmp"):
                os.mkdir(os.path.join(self.folder, f"{kind}-h{node}"))
        os.mkdir(os.path.join(self.folder, "state"))
        self.conf = self.write("slurm.conf", "".join(lines))
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        self.env = environment(SLURM_CONF=self.conf)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def start(self):
        if not os.path.exists(SEAL):
            key = self.write("key", os.urandom(64).hex())
            os.chmod(key, 0o600)
            os.makedirs(os.path.dirname(SEAL), exist_ok=True)
            files = [f"--{kind}-file={self.folder}/munge.{kind}" for kind in ("pid", "log", "seed")]
            command = ["munged", "--foreground", "--force", f"--key-file={key}", *files]
            munged = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.started.append(munged)
            harness.until(lambda: os.path.exists(SEAL), "socket of munged")
        self.daemon("controller", 0, ["slurmctld", "-D", "-f", self.conf])
        for node in range(NODES):
            self.node(f"h{node}")
        self.all_idle()

    def daemon(self, name, host, command):
        with open(os.path.join(self.folder, f"{name}.out"), "w", encoding="utf-8") as out:
            self.parts[name] = self.bed.popen(host, command, env=self.env, stdout=out, stderr=out)
            self.started.append(self.parts[name])

    def popen(self, *command, text=True, **variables):
        return self.bed.popen(0, command, env={**self.env, **variables}, cwd=self.folder, **{**BOTH, "text": text})

    def ask(self, *command, **variables):
        return harness.communicate(self.popen(*command, **variables))[0].strip()

    def processes(self, command):
        """Those on the nodes whose command has that text."""
        return [pid for pid, line in self.bed.processes().items() if command in line and "srun" not in line]

    def node(self, name):
        command = ["slurmd", "-D", "-N", name, "-f", self.conf]
        self.daemon(name, int(name[1:]), command)

    def kill(self, name):
        """The node is gone: its daemons, and what runs there."""
        here = os.readlink(f"/proc/{self.parts[name].pid}/ns/net")
        for pid in self.bed.processes():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/net") == here:
                    os.kill(pid, signal.SIGKILL)

    def revive(self, name):
        self.node(name)
        self.all_idle()

    def all_idle(self):
        harness.until(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") == f"{NODES}", "idle nodes")

    def stop(self):
        for part in reversed(self.started):
            part.terminate()
            harness.communicate(part)
        shutil.rmtree(self.folder, ignore_errors=True)


def setUpModule():
    launched.needs("torch")
    for program in ("slurmctld", "slurmd", "srun", "munged"):
        if shutil.which(program) is None:
            raise unittest.SkipTest(f"{program} is not installed")


class Jobs(Case):
    @classmethod
    def setUpClass(cls):
        bed = launched.bed_of(NODES)
        cls.addClassCleanup(bed.close)
        cls.slurm = Slurm(bed)
        cls.addClassCleanup(cls.slurm.stop)
        cls.slurm.start()

    def srun(self, *arguments, **variables):
        step = self.slurm.popen("srun", "-N2", "--ntasks-per-node=2", *arguments, **variables)
        return step, harness.communicate(step)[0]

    def test_srun(self):
        for kind in ("none", "pmi2", "pmix"):
            with self.subTest(kind):
                step, text = self.srun(f"--mpi={kind}", harness.python(), TRAIN)
                if "can not load PMIx library" in text:
                    self.skipTest("Slurm wants libpmix.so, of libpmix-dev")
                self.assertEqual(step.returncode, 0, text)
                self.check(text, PLACES)

    def test_a_fork(self):
        step, text = self.srun(harness.python(), "-c", FORKED)
        self.assertEqual(step.returncode, 0, text)
        self.assertEqual(sorted(text.splitlines()), 4 * ["0 of a child listen"], text)

    def test_as_documented(self):
        """Each command of docs/clusters.md."""
        self.follow("slurm", self.slurm.folder, lambda command, **how: self.slurm.popen(*command, **how))

    def test_two_steps_at_once(self):
        """Of one job, whose ports are beside each other."""
        train = f"srun -n2 -N2 --overlap {harness.python()} {TRAIN}"
        script = self.slurm.write("two", f"#!/bin/sh\n{train} >one.out 2>&1 &\n{train} >two.out 2>&1\nwait $!\n")
        self.slurm.ask("sbatch", "--wait", "-N2", "-n4", "-o", "batch.out", script)
        for name in ("one", "two"):
            with open(os.path.join(self.slurm.folder, f"{name}.out"), encoding="utf-8") as file:
                self.check(file.read(), [(0, 2, 0, 1), (1, 2, 0, 1)])

    def test_servers_on_nodes_of_their_own(self):
        """A heterogeneous job, 4 workers and 2 servers, as docs/clusters.md has it."""
        text = self.batch(
            "#SBATCH -N2 --ntasks-per-node=2",
            "#SBATCH hetjob",
            "#SBATCH -N2 --ntasks-per-node=1",
            "export DMLC_NUM_SERVER=2",
            f"srun --het-group=0 {harness.python()} {TRAIN} : --het-group=1 {harness.program()} server",
            JOBS="1",
        )
        self.check(text, PLACES, jobs=1)

    def test_scancel(self):
        """Nothing stays behind on any node."""
        step = self.slurm.popen("srun", "-N2", "--ntasks-per-node=2", "-J", "long", harness.python(), "-c", ENDLESS)
        for line in step.stdout:
            if line == "runs\n":
                break
        self.slurm.ask("scancel", "-n", "long")
        text = harness.communicate(step)[0]
        self.assertNotEqual(step.returncode, 0, text)
        harness.until(lambda: not self.slurm.processes(ENDLESS), "end of all tasks", show=lambda: text)

    @unittest.skipUnless(os.environ.get("ALL_CLUSTER_TESTS"), "takes a minute of waiting for Slurm")
    def test_a_node_dies_and_the_job_is_requeued(self):
        """The second attempt runs on the other nodes and comes to its end."""
        script = self.slurm.write(
            "again",
            f"#!/bin/sh\ntest -n \"$SLURM_RESTART_COUNT\" || srun {harness.python()} -c '{ENDLESS}'\n"
            f"srun {harness.python()} {TRAIN}\n",
        )
        arguments = ("--parsable", "--requeue", "-N2", "--ntasks-per-node=2", "-x", "h0", "-o", "again.out", script)
        job = self.slurm.ask("sbatch", *arguments)
        out = os.path.join(self.slurm.folder, "again.out")
        harness.until(lambda: os.path.exists(out) and "runs\n" in self.read(out), "first attempt")
        node = self.slurm.ask("squeue", "-h", "-j", job, "-o", "%B")
        self.slurm.kill(node)
        harness.until(lambda: not self.slurm.ask("squeue", "-h", "-j", job), "end", show=lambda: self.read(out))
        self.check(self.read(out), PLACES)
        self.slurm.revive(node)

    @contextlib.contextmanager
    def elastic(self, *options, **variables):
        """A step of an elastic job on three nodes, what waits for its words, and what lets it end; it must end well."""
        end = os.path.join(self.slurm.folder, f"end of {self.id()}")
        command = [harness.python(), os.path.join(HERE, "scripts", "elastic.py")]
        settings = "cluster.min_workers=1\ncluster.colocated=all"
        variables.update(BYTEPS_SET=settings, END=end, text=False)
        step = self.slurm.popen("srun", *options, "-w", "h1,h2,h3", "--ntasks-per-node=1", *command, **variables)
        reader = harness._Reader(step.stdout)

        def wait_for(text):
            harness.until(lambda: text in reader.text(), text, 60, reader.text)

        def let_end():
            with open(end, "w", encoding="ascii"):
                pass

        try:
            wait_for("trains as 2 of 3")
            yield step, wait_for, let_end
        finally:
            let_end()
            step.wait(60)
            reader.join()

    def test_a_killed_task_of_an_elastic_job(self):
        """The others go on; srun has the status of the lost one."""
        with self.elastic(KILL="2") as (step, wait_for, let_end):
            wait_for("reforms as 1 of 2")
            let_end()
            wait_for("ends as 1 of 2")
            self.assertEqual(step.wait(60), 128 + signal.SIGKILL)

    @unittest.skipUnless(os.environ.get("ALL_CLUSTER_TESTS"), "takes half a minute of waiting for Slurm")
    def test_a_node_of_an_elastic_job_dies(self):
        """The tasks on the others go on, also when Slurm knows of it."""
        with self.elastic("--no-kill") as (step, wait_for, let_end):
            self.slurm.kill("h3")
            wait_for("reforms as 1 of 2")
            wait_for("Node failure on h3")
            let_end()
            wait_for("ends as 1 of 2")
            self.assertEqual(step.wait(60), 0)
        self.slurm.revive("h3")

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def batch(self, *lines, **variables):
        """What a batch script has written."""
        script = self.slurm.write("script", "\n".join(["#!/bin/sh", *lines, ""]))
        self.slurm.ask("sbatch", "--wait", "-o", "script.out", script, **variables)
        return self.read(os.path.join(self.slurm.folder, "script.out"))

    def test_a_task_that_does_not_come(self):
        code = "import os, sys, time, byteps.numpy as bps\nif os.environ['SLURM_PROCID'] != '%s': bps.init()"
        for absent, words in (
            ("0", r"worker 0 .* within 2 s .*: task 0 does not provide a note yet \(h\d port \d+: connect: Conn"),
            ("3", r"the job did not start within 2 s: missing"),
        ):
            with self.subTest(absent):
                program = (harness.python(), "-c", code % absent)
                step, text = self.srun(*program, BYTEPS_SET="cluster.rendezvous_timeout=2 s")
                self.assertNotEqual(step.returncode, 0, text)
                self.assertRegex(text, words)

    def test_a_killed_task(self):
        step, text = self.srun(harness.python(), TRAIN, KILL="1", JOBS="1")
        self.assertNotEqual(step.returncode, 0, text)
        self.assertRegex(text, r"worker 1 \(host h\d, pid \d+\) was lost")


if __name__ == "__main__":
    unittest.main()
