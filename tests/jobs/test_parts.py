# SPDX-License-Identifier: Apache-2.0
"""Programs that start the parts of a job themselves: byteps.Scheduler and byteps.serve()."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import harness

import byteps

HERE = "127.0.0.1:0"
WORKER = """
import sys, numpy, byteps.numpy as bps
bps.init()
assert bps.push_pull(numpy.ones(5), name="x", op=bps.Sum).tolist() == [2] * 5
for line in sys.stdin:
    getattr(bps, line.strip())()
    print(line.strip(), flush=True)
"""
SERVER = "import byteps; byteps.serve()"


class Serving(threading.Thread):
    """byteps.serve() on a thread; `error` is what it has raised."""

    def __init__(self, settings):
        super().__init__(daemon=True)
        self.settings, self.error = settings, None
        self.start()

    def run(self):
        try:
            byteps.serve(set=self.settings)
        except byteps.Error as error:
            self.error = error


class Parts(unittest.TestCase):
    def begin(self, **more):
        """The scheduler of a job of two workers and a server, and the settings of its other parts."""
        self.job = {"cluster.workers": 2, "cluster.servers": 1, **more}
        scheduler = byteps.Scheduler(set={**self.job, "cluster.scheduler": HERE})
        self.addCleanup(scheduler.close)
        self.job["cluster.scheduler"] = scheduler.address
        return scheduler

    def start(self, program, **more):
        text = "\n".join(f"{key}={value}" for key, value in {**self.job, **more}.items())
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "BYTEPS_SET": text},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.bury, process)
        return process

    def bury(self, process):
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
        process.wait()

    def workers(self):
        return [self.start(WORKER, **{"cluster.rank": rank}) for rank in range(2)]

    def tell(self, workers, line):
        """Has the workers call a function, and waits until they have."""
        for worker in workers:
            worker.stdin.write(f"{line}\n")
            worker.stdin.flush()
        for worker in workers:
            self.assertEqual(worker.stdout.readline(), f"{line}\n", worker.poll())

    def ended(self, *processes, status=0):
        """What they have said on standard error."""
        texts = [harness.communicate(process, "")[1] for process in processes]
        self.assertEqual([process.returncode for process in processes], [status] * len(processes), texts)
        return texts

    def over(self, server):
        server.join(harness.DEADLINE)
        self.assertFalse(server.is_alive())
        return server.error

    def test_one_job(self):
        self.begin()
        server = Serving(self.job)
        self.ended(*self.workers())
        self.assertIsNone(self.over(server))

    def test_jobs_one_after_the_other(self):
        scheduler = self.begin(**{"cluster.stay": "true"})
        server = Serving(self.job)
        workers = self.workers()
        self.tell(workers, "shutdown")
        self.tell(workers, "init")
        self.ended(*workers)
        self.ended(*self.workers())
        scheduler.close()
        scheduler.close()
        self.assertIsNone(self.over(server))

    def test_closed_while_a_job_runs(self):
        scheduler = self.begin()
        server = Serving(self.job)
        workers = self.workers()
        self.tell(workers, "barrier")
        scheduler.close()
        for worker in workers:
            _, text = harness.communicate(worker, "barrier\n")
            self.assertNotEqual(worker.returncode, 0)
            self.assertRegex(text, "(Lost|Refused|Not)\\w*Error", text)
        self.over(server)

    def test_closed_while_a_job_gathers(self):
        scheduler = self.begin()
        server = Serving(self.job)
        worker = self.start(WORKER, **{"log.level": "debug"})
        while "asks the scheduler" not in worker.stderr.readline():
            self.assertIsNone(worker.poll())
        scheduler.close()
        self.over(server)
        harness.communicate(worker, "")
        self.assertNotEqual(worker.returncode, 0)

    def test_a_server_hears_why_its_job_has_failed(self):
        self.begin()
        server = Serving(self.job)
        workers = self.workers()
        self.tell(workers, "barrier")
        workers[1].kill()
        error = self.over(server)
        self.assertIsInstance(error, byteps.LostError)
        self.assertRegex(str(error), r"worker 1 \(host .*, pid \d+\) was lost")

    def test_ctrl_c(self):
        self.begin()
        server = self.start(SERVER)
        workers = self.workers()
        self.tell(workers, "barrier")
        server.send_signal(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", harness.communicate(server, "")[1])

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with self.assertRaisesRegex(byteps.Error, f"{address}: .*in use"):
                byteps.Scheduler(set={"cluster.workers": 1, "cluster.scheduler": address})

    def test_alive_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "alive")
            with byteps.Scheduler(set={"cluster.workers": 2, "cluster.alive_file": path}):
                os.utime(path, (0, 0))
                harness.until(lambda: os.stat(path).st_mtime > 0, "a time that is renewed")
            path = os.path.join(folder, "nowhere", "alive")
            words = f'--set: cluster.alive_file = "{path}": No such file or directory; expected a file that'
            with self.assertRaisesRegex(byteps.ConfigurationError, re.escape(words)):
                byteps.Scheduler(set={"cluster.workers": 2, "cluster.alive_file": path})

    def test_settings_that_are_missing_or_wrong(self):
        with byteps.Scheduler(set={"cluster.workers": 2}) as scheduler:
            self.assertRegex(scheduler.address, r"^127\.0\.0\.1:\d+$")
        with self.assertRaisesRegex(byteps.ConfigurationError, "set cluster.scheduler"):
            byteps.serve(set={"cluster.workers": 2})
        for begin in (byteps.Scheduler, byteps.serve):
            with self.subTest(begin.__name__), self.assertRaisesRegex(byteps.ConfigurationError, "cluster.worker"):
                begin(set={"cluster.workers": "many", "cluster.scheduler": HERE})
            with self.subTest(begin.__name__), self.assertRaisesRegex(TypeError, "cluster.workers"):
                begin(set={"cluster.workers": object()})


class Library(unittest.TestCase):
    """The scheduler is a library of its own, which only those load who host one."""

    NAME = "libbyteps_scheduler.so"
    HOST = f"""
import os, sys, byteps
os.environ["BYTEPS_PLUGIN_PATH"] = sys.argv[1]
byteps.Scheduler(set={{"cluster.workers": 1, "cluster.scheduler": "{HERE}"}})
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.file = os.path.join(self.folder, self.NAME)

    def refused(self, *words):
        """No scheduler is hosted with what is in the folder; the error says all this."""
        result = harness.execute([sys.executable, "-c", self.HOST, self.folder])
        self.assertNotEqual(result.returncode, 0, result)
        self.assertIn("ConfigurationError: ", result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_missing(self):
        (installed,) = harness.execute([harness.program(), "info", "plugins"]).stdout.splitlines()
        if os.path.exists(os.path.join(installed, self.NAME)):
            self.skipTest(f"one is installed in {installed}")
        words = f"to host the scheduler, this process needs {self.NAME}, which comes with libbyteps; install it"
        self.refused(words, f"it is not in {self.folder}, {installed}")

    def test_another_version(self):
        source = os.path.join(self.folder, "other.c")
        with open(source, "w", encoding="ascii") as out:
            out.write('const struct { const char *version; } bps_scheduler_ops = {"0.0.9"};\n')
        compiler = [*shlex.split(os.environ.get("CC") or "cc"), "-shared", "-fPIC"]
        subprocess.run([*compiler, "-o", self.file, source], check=True)
        ours = byteps.__version__
        self.refused(f"{self.file}: is of version 0.0.9, but libbyteps of version {ours}; install both")

    def test_no_library(self):
        with open(self.file, "w", encoding="ascii") as out:
            out.write("nothing\n")
        self.refused(f"{self.file}: cannot be loaded: ", f"built with libbyteps {byteps.__version__}")

    def test_a_worker_does_not_load_it(self):
        """Of a job that `byteps run` starts none does, and of one whose workers meet by themselves worker 0 does."""
        show = f"print('{self.NAME}' in open('/proc/self/maps').read())"
        program = f"import byteps._basics as bps; bps.init(); bps.barrier(); {show}"
        result = harness.run([sys.executable, "-c", program], workers=2, servers=1)
        self.assertEqual([result.lines(f"worker {rank}") for rank in range(2)], [["False"], ["False"]], result)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1]), "WORLD_SIZE": "2"}
        workers = [subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **meeting, "RANK": rank},
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in "01"]
        said = [harness.communicate(worker) for worker in workers]
        self.assertEqual([out for out, _ in said], ["True\n", "False\n"], said)


if __name__ == "__main__":
    unittest.main()
