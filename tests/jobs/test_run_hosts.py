# SPDX-License-Identifier: Apache-2.0
"""`byteps run --hosts`: several machines, played by a stand-in for ssh that starts everything here."""

import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

import harness

# The jobs here run shells, which do not bear the library of a sanitizer; the program itself needs none.
os.environ.pop("LD_PRELOAD", None)

PROGRAM = harness.program()
WAIT = "echo ready; while :; do sleep 0.05; done"

# Like ssh: joins the words for a shell in the home directory, with hardly any environment, in a session of
# its own; passes standard input on; and ends with the command. The host "down" cannot be reached.
SSH = """\
    #!{python}
    import os, subprocess, sys, threading
    host, words = sys.argv[1], sys.argv[2:]
    with open(os.environ["SSH_LOG"], "a") as log:
        print(host, *words, file=log)
    if host == "down":
        print("ssh: connect to host down port 22: No route to host", file=sys.stderr)
        sys.exit(255)
    env = {{"PATH": "/usr/bin:/bin", "HOME": "/", "BYTEPS_SET": os.environ["BYTEPS_SET"], "HOST_NAME": host}}
    remote = subprocess.Popen(["/bin/sh", "-c", " ".join(words)], stdin=subprocess.PIPE, bufsize=0,
                              cwd="/", env=env, start_new_session=True)
    def relay():
        try:
            while data := os.read(0, 65536):
                remote.stdin.write(data)
            remote.stdin.close()
        except BrokenPipeError:
            pass
    threading.Thread(target=relay, daemon=True).start()
    status = remote.wait()
    os._exit(status if status >= 0 else 255)
"""


class Hosts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="byteps 'test' ")  # a name that needs quoting
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.ssh = os.path.join(self.folder, "ssh")
        with open(self.ssh, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(SSH).format(python=sys.executable))
        os.chmod(self.ssh, stat.S_IRWXU)
        self.log = os.path.join(self.folder, "log")

    def job(self, script, hosts, servers=0, options=(), **how):
        return harness.Job(
            ["sh", "-c", script],
            workers=None,
            servers=servers,
            cwd=self.folder,
            options=[
                "--hosts",
                hosts,
                "--address",
                "127.0.0.1",
                "--ssh",
                shlex.quote(self.ssh),
                "--grace",
                "200ms",
                *options,
            ],
            env={"SSH_LOG": self.log, **how.pop("env", {})},
            **how,
        )

    def run_job(self, *args, **how):
        with self.job(*args, **how) as job:
            return job.wait()

    def joins(self):
        """The script of a worker that takes part in the job."""
        example = os.path.abspath(os.path.join(os.environ.get("top_builddir", "."), "examples", "push_pull"))
        if not os.access(example, os.X_OK):
            self.skipTest(f"{example} is not built")
        return f"exec {shlex.quote(example)}"

    def test_ranks_follow_the_hosts(self):
        result = self.run_job(
            'echo "$HOST_NAME $BYTEPS_LOCAL_RANK/$BYTEPS_LOCAL_SIZE $DMLC_WORKER_ID/$DMLC_NUM_WORKER"',
            "a:2,b,c:1",
        )
        self.assertEqual(result.status, 0, result)
        self.assertEqual(
            [result.lines(f"worker {rank}") for rank in range(4)],
            [["a 0/2 0/3"], ["a 1/2 0/3"], ["b 0/1 1/3"], ["c 0/1 2/3"]],
        )
        with open(self.log, encoding="utf-8") as log:
            self.assertEqual(sorted(line.split()[0] for line in log), ["a", "b", "c"])

    def test_this_machine(self):
        """It needs no ssh, be it by name or by address."""
        result = harness.run(["sh", "-c", 'echo "$BYTEPS_LOCAL_RANK/$BYTEPS_LOCAL_SIZE"'], workers=None,
                             options=["--hosts", f"localhost:2,{socket.gethostname()},127.0.0.1", "--ssh", "false"])
        self.assertEqual(result.status, 0, result)
        self.assertEqual([result.lines(f"worker {rank}") for rank in range(4)], [["0/2"], ["1/2"], ["0/1"], ["0/1"]])

    def test_a_file_of_hosts(self):
        file = os.path.join(self.folder, "hosts")
        for text, wanted in (
            ("# ours\na slots=2\n\nb:1 # and\nc\n", ["a", "a", "b", "c"]),
            ("a slots=2 more\n", r"hosts:1: 'a slots=2 more' is not a host; expected NAME, NAME:WORKERS or "),
            ("a\nb slot=2\n", r"hosts:2: 'b slot=2' is not a host"),
            ("a:x\n", r"hosts: 'a:x' is not a host"),
            ("# none\n", r"there is no host in it"),
        ):
            with self.subTest(text):
                with open(file, "w", encoding="utf-8") as out:
                    out.write(text)
                result = harness.run(
                    ["sh", "-c", 'echo "$HOST_NAME"'], workers=None, env={"SSH_LOG": self.log}, cwd=self.folder,
                    options=["--hostfile", file, "--address", "127.0.0.1", "--ssh", shlex.quote(self.ssh)])
                if isinstance(wanted, str):
                    self.assertEqual(result.status, 2, result)
                    self.assertRegex(result.err, wanted)
                else:
                    self.assertEqual([result.lines(f"worker {rank}") for rank in range(4)], [[name] for name in wanted])

    def test_settings_and_streams(self):
        result = self.run_job(
            'printf "%s\\n" "$BYTEPS_SET" >&2', "a,b", servers=1, options=["--set", "worker.slice=64 KiB"]
        )
        lines = result.lines("worker 1", "err")
        for line in ("cluster.workers=2", "cluster.rank=1", "cluster.servers=1", "worker.slice=64 KiB"):
            self.assertIn(line, lines)
        self.assertEqual((result.lines("worker 1"), result.lines(None, "err")), ([], []))

    def test_servers_in_turn(self):
        with self.job(WAIT, "a,b", servers=3) as job:
            for rank in (0, 1):
                job.wait_for("ready", f"worker {rank}")
            hosts = [harness.environ(job.pid(f"server {server}")).get("HOST_NAME") for server in range(3)]
            job.signal(signal.SIGINT)
            job.wait()
        self.assertEqual(hosts, ["a", "b", "a"])

    def test_directory_and_arguments(self):
        args = ["it's", 'a "b"', "$HOME", "", "c  d"]
        with harness.Job(
            [harness.python(), "-c", "import os, sys; print(os.getcwd(), sys.argv[1:])", *args],
            workers=None,
            options=["--hosts", "a,b", "--address", "127.0.0.1", "--ssh", shlex.quote(self.ssh)],
            cwd=self.folder,
            env={"SSH_LOG": self.log},
        ) as job:
            result = job.wait()
        self.assertEqual(result.lines("worker 1"), [f"{self.folder} {args}"], result)
        with open(self.log, encoding="utf-8") as log:
            self.assertNotIn("$HOME", log.read())  # nothing of the command shows in the list of processes

    def test_variables(self):
        env = {"MINE": "1", "OTHER": "2", "BYTEPS_X": "3", "PYTHONPATH": "/p"}
        script = 'echo "$MINE,$OTHER,$BYTEPS_X,$GIVEN,${PYTHONPATH%%:*}"'
        result = self.run_job(script, "a,b", env=env, options=["--env", "MINE", "--env", "GIVEN=4 5"])
        self.assertEqual(result.lines("worker 1"), ["1,,3,4 5,/p"], result)

    def test_workers_and_servers_find_each_other(self):
        joins = self.joins()
        for servers in (0, 3):
            with self.subTest(servers):
                result = self.run_job(joins, "a:2,b:1", servers=servers)
                self.assertEqual((result.status, result.err), (0, ""), result)
                self.assertEqual(result.lines("worker 2"), ["worker 2 of 3: all results are right"])

    def test_failure_on_one_host_ends_all(self):
        result = self.run_job(f'[ "$HOST_NAME" = b ] && exit 7; {WAIT}', "a:2,b:1", servers=2)
        self.assertEqual(result.status, 7, result)
        self.assertRegex(
            result.err, r"byteps run: worker 2 \(pid \d+, host b\) exited with status 7; ending the job\n"
        )
        self.assertEqual(result.err.splitlines()[-1], "byteps run: worker 2 on host b failed first: status 7", result)

    def test_failure_before_all_have_joined(self):
        """The worker on the other host hears of it, and need not use the hour that it has."""
        joins = self.joins()
        python = f"exec {shlex.quote(harness.python())} -c 'import no_such_module'"
        for fails, status, how in (
            (python, 1, "exited with status 1"),
            ("kill -KILL $$", 128 + signal.SIGKILL, "was killed by SIGKILL"),
        ):
            for host, rank, other in (("b", 1, 0), ("a", 0, 1)):
                with self.subTest(how, host=host):
                    script = f'[ "$HOST_NAME" = {host} ] && {{ {fails}; }}; {joins}'
                    result = self.run_job(script, "a,b", servers=2, options=["--grace", "1h"])
                    self.assertEqual(result.status, status, result)
                    cause = rf"worker {rank} \(pid \d+, host {host}\) {how}"
                    self.assertRegex(result.err, rf"(?m)^byteps run: {cause}; ending the job$")
                    error = result.lines(f"worker {other}", "err")[-1]
                    self.assertRegex(error, f"the job cannot start: {cause}$", result)

    def test_unreachable_host_while_others_wait(self):
        result = self.run_job(self.joins(), "a,down", options=["--grace", "1h"])
        self.assertEqual(result.status, 255, result)
        error = result.lines("worker 0", "err")[-1]
        cause = r"the connection to host down \(pid \d+\) exited with status 255"
        self.assertRegex(error, f"the job cannot start: {cause}$", result)

    def test_killed_worker_far_away(self):
        with self.job(WAIT, "a:2,b:1") as job:
            for rank in range(3):
                job.wait_for("ready", f"worker {rank}")
            os.kill(job.pid("worker 1"), signal.SIGKILL)
            result = job.wait()
        self.assertEqual(result.status, 128 + signal.SIGKILL, result)
        self.assertRegex(result.err, r"worker 1 \(pid \d+, host a\) was killed by SIGKILL; ending the job\n")

    def test_servers_outlive_the_workers_of_their_host(self):
        script = '[ "$HOST_NAME" = a ] || until [ -e go ]; do sleep 0.05; done; echo ended'
        with self.job(script, "a,b", servers=2) as job:
            job.wait_for("ended", "worker 0")
            server = job.pid("server 0")  # on host a
            self.assertNotIn(harness.state(server), ("", "Z"))
            with open(os.path.join(self.folder, "go"), "w", encoding="utf-8"):
                self.assertEqual(job.wait().status, 0)

    def test_unreachable_host(self):
        result = self.run_job(WAIT, "a,down")
        self.assertEqual(result.status, 255, result)
        self.assertIn("No route to host", result.err)
        self.assertRegex(
            result.err, r"the connection to host down \(pid \d+\) exited with status 255; ending the job\n"
        )

    def test_missing_command(self):
        with harness.Job(
            ["/nowhere/x"],
            workers=None,
            cwd=self.folder,
            env={"SSH_LOG": self.log},
            options=["--hosts", "a,b", "--address", "127.0.0.1", "--ssh", shlex.quote(self.ssh)],
        ) as job:
            result = job.wait()
        self.assertEqual(result.status, 127, result)
        self.assertIn("cannot execute '/nowhere/x': No such file or directory", result.err)

    def test_interrupt(self):
        script = 'trap "echo got it; exit 0" INT; echo ready; while :; do sleep 0.05; done'
        with self.job(script, "a,b", servers=1) as job:
            for rank in (0, 1):
                job.wait_for("ready", f"worker {rank}")
            job.signal(signal.SIGINT)
            result = job.wait()
        self.assertEqual(result.status, 128 + signal.SIGINT, result)
        for rank in (0, 1):
            self.assertIn("got it", result.lines(f"worker {rank}"))
        self.assertEqual(result.err.count("SIGINT: ending the job"), 1)

    def test_lost_connection(self):
        with self.job(WAIT, "a,b") as job:
            for rank in (0, 1):
                job.wait_for("ready", f"worker {rank}")
            os.kill(
                next(
                    pid
                    for pid, env in harness.processes(job.id).items()
                    if "HOST_NAME" not in env
                    and harness.command(pid).endswith(" run --part")
                    and " b " in harness.command(pid)
                ),
                signal.SIGKILL,
            )
            result = job.wait()
        self.assertEqual(result.status, 128 + signal.SIGKILL, result)
        self.assertRegex(
            result.err, r"the connection to host b \(pid \d+\) was killed by SIGKILL; ending the job\n"
        )


class Part(unittest.TestCase):
    """The far side alone: what it takes from its standard input."""

    VERSION = None

    @classmethod
    def setUpClass(cls):
        cls.VERSION = subprocess.run(
            [PROGRAM, "--version"], capture_output=True, text=True, check=True
        ).stdout.split()[1]

    def start(self, script):
        strings = [
            "dir=/",
            "host=far",
            "scheduler=127.0.0.1:1",
            f"job={os.getpid()}",
            "workers=1",
            "servers=0",
            "first=0",
            "count=1",
            "slot=0",
            "size=1",
            "machine=0",
            "machines=1",
            "prefix=1",
            "arg=sh",
            "arg=-c",
            f"arg={script}",
        ]
        data = b"".join(text.encode() + b"\0" for text in strings)
        process = subprocess.Popen(
            [PROGRAM, "run", "--part"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        process.stdin.write(f"byteps-part {self.VERSION} {len(data)}\n".encode() + data)
        return process

    def finish(self, process, data=None):
        """Sends what is left to send, unless the far side has ended by itself."""
        out, err = harness.communicate(process, data)
        return process.returncode, out.decode(), err.decode()

    def test_success(self):
        process = self.start("echo hello")
        self.assertEqual(process.stdout.readline(), b"[worker 0] hello\n")
        self.assertEqual(process.stderr.readline(), b"\x1edone\n")
        self.assertEqual(self.finish(process, b"\0")[0], 0)

    def test_end_of_input_ends_the_workers(self):
        process = self.start(WAIT)
        process.stdout.readline()
        status, _, err = self.finish(process)
        self.assertEqual((status, err), (128 + signal.SIGTERM, ""))

    def test_foreign_input(self):
        for data, text in (
            (b"", "is for the use of 'byteps run --hosts' only"),
            (b"GET / HTTP/1.1\r\n\r\n", "is for the use of"),
            (b"x" * 1000, "is for the use of"),
            (b"byteps-part 99.0.0 10\n0123456789", "byteps is version"),
            (f"byteps-part {self.VERSION} 99999999999\n".encode(), "is for the use of"),
            (f"byteps-part {self.VERSION} 10\nabc".encode(), "the connection ended before"),
            (f"byteps-part {self.VERSION} 4\nabc\0".encode(), "invalid line in the description of the job"),
            (f"byteps-part {self.VERSION} 6\nab=cde".encode(), "invalid line in the description of the job"),
            (f"byteps-part {self.VERSION} 8\nprefix=1".encode(), "not complete"),
            (f"byteps-part {self.VERSION} 12\nmachines=-1\0".encode(), "invalid line"),
            (f"byteps-part {self.VERSION} 13\ndir=/nowhere\0".encode(), "cannot change to"),
        ):
            with self.subTest(data):
                done = harness.execute([PROGRAM, "run", "--part"], data, encoding=None)
                self.assertEqual((done.returncode, done.stdout), (1, b""), done)
                self.assertIn(text, done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
