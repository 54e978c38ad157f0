# SPDX-License-Identifier: Apache-2.0
"""`byteps run` on one machine: exit status, output, environment, signals, and that nothing stays behind.

The workers here are small shell and Python scripts that never join the job: what joins is tested elsewhere.
"""

import os
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import harness
import stacks

# The jobs here run shells, which do not bear the library of a sanitizer; the program itself needs none.
os.environ.pop("LD_PRELOAD", None)

PROGRAM = harness.program()
WAIT = "echo ready; while :; do sleep 0.05; done"
HASTE = ["--grace", "200ms"]  # these workers have nothing to report when another dies


def shell(script, **how):
    """Runs a job whose workers are `sh -c script`."""
    return harness.run(["sh", "-c", script], **how)


def byteps(*args, **how):
    """Runs the program itself."""
    return harness.execute([PROGRAM, *args], **how)


class Program(unittest.TestCase):
    def test_help_names_every_command(self):
        done = byteps("--help")
        self.assertEqual(done.returncode, 0)
        for command in ("run", "launch", "server", "scheduler", "conf", "plugin", "graph", "trace", "info"):
            self.assertRegex(done.stdout, rf"(?m)^  {command} ")

    def test_every_command_has_help(self):
        for command in ("run", "launch", "server", "scheduler", "conf", "plugin", "graph", "trace", "info"):
            with self.subTest(command):
                done = byteps(command, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.startswith(f"Usage: byteps {command}"), done.stdout)

    def test_help_fits_a_terminal(self):
        subcommands = {"conf": ("check", "show", "sample"), "plugin": ("list", "info"), "trace": ("merge", "show"),
                       "bench": ("push_pull", "transport", "reducer", "compressor", "train")}
        commands = re.findall(r"(?m)^  ([a-z]+)  ", byteps("--help").stdout)
        self.assertIn("conf", commands)
        for command in [[], *([name] for name in commands),
                        *([name, word] for name, words in subcommands.items() for word in words)]:
            with self.subTest(command):
                done = byteps(*command, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 80], [])

    def test_version(self):
        version = byteps("--version").stdout
        self.assertRegex(version, r"^byteps \d+\.\d+\.\d+(rc\d+)?\n$")
        self.assertRegex(byteps("run", "--version").stdout, rf"^{version}wire +\d+: .*\nplugin ABI +\d+\.\d+: ")

    def test_unknown_words_are_usage_errors(self):
        for args, text in (
            (["rum"], "unknown command 'rum'; did you mean 'run'?"),
            (["--versoin"], "unknown option '--versoin'"),
            ([], "no command given"),
            (["info", "--jsn"], "unknown or ambiguous option '--jsn'"),
            (["info", "plugin"], "there is no 'plugin'; did you mean 'plugins'?"),
            (["info", "plugins", "more"], "unexpected argument 'more'"),
        ):
            with self.subTest(args):
                done = byteps(*args)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(text, done.stderr)

    def test_full_disk_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write standard output: No space left on device", done.stderr)


class Usage(unittest.TestCase):
    def test_wrong_command_lines(self):
        for args, text in (
            (["run"], "no command to run"),
            (["run", "-n", "2", "--"], "no command to run"),
            (["run", "-n", "0", "true"], "--workers: '0': out of range; expected 1..32768"),
            (["run", "-n", "40000", "true"], "--workers: '40000': out of range; expected 1..32768"),
            (["run", "-n", "4294967298", "true"], "--workers: '4294967298': out of range; expected 1..32768"),
            (["run", "-n", "two", "true"], "--workers: 'two': not a whole number; expected 1..32768"),
            (["run", "-n", "2x", "true"], "--workers: '2x': not a whole number; expected 1..32768"),
            (["run", "-s", "-1", "true"], "--servers: '-1': out of range; expected 0..16384"),
            (["run", "-s", "20000", "true"], "--servers: '20000': out of range; expected 0..16384"),
            (["run", "--hosts", "a:40000", "true"], "--hosts names places for 40000: out of range; expected 1..32768"),
            (["run", "--timeout", "soon", "true"], "--timeout: 'soon' is not a time"),
            (["run", "--timeout", "0", "true"], "--timeout: '0' is not a time above 0"),
            (["run", "--grace", "2h", "true"], "--grace: '2h' is not a time above 0 and up to 1h"),
            (["run", "--set", "worker.partition", "true"], "expected KEY=VALUE"),
            (["run", "--hosts", "a:0", "true"], "'a:0' is not a host"),
            (["run", "--hosts", "a,,b", "true"], "'' is not a host"),
            (["run", "--hosts", "-oProxyCommand=x", "true"], "'-oProxyCommand=x' is not a host"),
            (["run", "-n", "3", "--hosts", "a:2,b:2", "true"], "--hosts names places for 4"),
            (["run", "--wrokers", "2", "true"], "unknown or ambiguous option '--wrokers'"),
            (["run", "-n"], "option '-n' needs a value"),
            (["run", "-np", "2", "true"], "-np: use -n for the number of workers, as in byteps run -n 2"),
            (["run", "--tee", "true"], "--tee needs --log-dir"),
            (["run", "--as", "ddp", "true"], "--as: 'ddp' is not an API that BytePS provides; expected horovod"),
            (["run", "--min-workers", "0", "true"], "--min-workers: '0' is not a number of workers"),
            (["run", "--max-workers", "x", "true"], "--max-workers: 'x' is not a number of workers"),
            (["run", "--host-discovery-script", "x", "true"], "--host-discovery-script needs --min-workers"),
            (["run", "-n", "2", "--min-workers", "1", "--host-discovery-script", "x", "true"],
             "--workers and --host-discovery-script: the script determines it; leave --workers out"),
            (["run", "-H", "a", "--min-workers", "1", "--host-discovery-script", "x", "true"],
             "--hosts and --host-discovery-script: the script determines it; leave --hosts out"),
            (["run", "--hosts", "a\tb", "true"], "'a\tb' is not a host"),
            (["run", "--restarts", "-1", "true"], "--restarts: '-1' is not a number from 0 to 65536"),
            (["run", "--conf"], "option '--conf' needs a value"),
            (["scheduler", "--announce", "out"], "--announce out: expected the number of an open descriptor"),
            (["scheduler", "--absent", "-1"], "--absent -1: expected the number of an open descriptor"),
        ):
            with self.subTest(args):
                done = byteps(*args)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(text, done.stderr)

    def test_wrong_configuration_starts_nothing(self):
        done = byteps("run", "-n", "2", "--set", "worker.partiton=1", "--", "echo", "started")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("worker.partition", done.stderr)

    def test_descriptor_that_is_not_open(self):
        done = byteps("scheduler", "--absent", "99")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "scheduler: --absent 99: Bad file descriptor; expected a pipe or a socket\n$")

    def test_missing_configuration_file(self):
        done = byteps("run", "--conf", "/nowhere/byteps.conf", "--", "true")
        self.assertEqual(
            (done.returncode, done.stderr),
            (1, "byteps run: --conf /nowhere/byteps.conf: No such file or directory\n"),
        )


class ExitStatus(unittest.TestCase):
    def test_success(self):
        for servers in (None, 0, 2):
            with self.subTest(servers):
                result = shell("exit 0", workers=3, servers=servers)
                self.assertEqual((result.status, result.lines(None, "err")), (0, []), result)

    def test_of_the_first_that_failed(self):
        result = shell(
            '[ "$BYTEPS_LOCAL_RANK" = 1 ] && exit 3; while :; do sleep 0.05; done',
            workers=2,
            servers=1,
            options=HASTE,
        )
        self.assertEqual(result.status, 3, result)
        self.assertRegex(
            result.err, r"(?m)^byteps run: worker 1 \(pid \d+\) exited with status 3; ending the job$"
        )

    def test_the_first_that_failed_is_said_last(self):
        """And of what; services that end with the job say nothing of themselves."""
        first = 'if [ "$BYTEPS_LOCAL_RANK" = 1 ]; then printf "  File x\\nValueError: no data\\n" >&2; exit 3; fi; '
        result = shell(first + WAIT, workers=2, servers=1, options=HASTE)
        self.assertEqual(result.err.splitlines()[-1],
                         "byteps run: worker 1 failed first: status 3 (ValueError: no data)", result)
        self.assertNotRegex(result.err, "(server 0|scheduler).* exited with", result)

    def test_restarts(self):
        """All of it, until it ends well or has had its turns; not where that could change nothing."""
        once = 'echo "turn ${BYTEPS_RESTART_COUNT-none}"; [ "${BYTEPS_RESTART_COUNT-0}" -ge 1 ]'
        result = shell(once, workers=2, options=["--restarts", "3"])
        self.assertEqual((result.status, result.lines("worker 0")), (0, ["turn none", "turn 1"]), result)
        self.assertIn("byteps run: restart 1 of 3\n", result.err)
        result = shell("echo turn; exit 5", workers=2, options=["--restarts", "1"])
        self.assertEqual((result.status, result.lines("worker 0")), (5, ["turn", "turn"]), result)
        result = harness.run(["/nowhere/x"], workers=2, options=["--restarts", "1"])
        self.assertEqual(result.status, 127, result)
        self.assertNotIn("restart 1", result.err)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            result = shell("echo out; echo err >&2; printf end", workers=2, options=["--log-dir", folder + "/logs"])
            self.assertEqual((result.status, result.out), (0, ""), result)
            self.assertEqual(sorted(os.listdir(folder + "/logs")), ["scheduler.log", "worker-0.log", "worker-1.log"])
            with open(folder + "/logs/worker-1.log", encoding="utf-8") as file:
                self.assertEqual(sorted(file.read().splitlines()), ["end", "err", "out"])
            result = shell("echo out", workers=2, options=["--log-dir", folder, "--tee"])
            self.assertEqual(result.lines("worker 0"), ["out"], result)
            with open(folder + "/worker-0.log", encoding="utf-8") as file:
                self.assertEqual(file.read(), "out\n")
        done = byteps("run", "-n", "2", "--log-dir", "/proc/nowhere", "--", "true")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "byteps run: --log-dir /proc/nowhere: No such file or directory\n"))

    def test_others_may_report_on_their_own(self):
        script = (
            'if [ "$BYTEPS_LOCAL_RANK" = 1 ]; then exit 3; fi; '
            'while kill -0 $(cat "$FILE"); do sleep 0.05; done 2>/dev/null; echo noticed; exit 4'
        )
        with tempfile.NamedTemporaryFile() as file:
            # Worker 1 leaves its pid in the file before worker 0 looks: the file is empty until then.
            script = script.replace("exit 3", 'echo $$ >"$FILE"; exit 3').replace(
                "while kill", 'until [ -s "$FILE" ]; do sleep 0.05; done; while kill'
            )
            result = shell(script, workers=2, env={"FILE": file.name})
        self.assertEqual(result.status, 3, result)
        self.assertEqual(result.lines("worker 0"), ["noticed"])
        self.assertRegex(result.err, r"worker 0 \(pid \d+\) exited with status 4\n")

    def test_killed_parts(self):
        for part in ("worker 1", "worker 0", "server 0", "server 1", "scheduler"):
            with self.subTest(part), harness.Job(
                ["sh", "-c", WAIT], workers=2, servers=2, options=HASTE
            ) as job:
                job.wait_for("ready", "worker 0")
                job.wait_for("ready", "worker 1")
                pid = job.pid(part)
                os.kill(pid, signal.SIGKILL)
                result = job.wait()
                self.assertEqual(result.status, 128 + signal.SIGKILL, result)
                self.assertIn(
                    f"byteps run: {part} (pid {pid}) was killed by SIGKILL; ending the job\n", result.err
                )

    def test_stopped_worker_does_not_stay(self):
        with harness.Job(["sh", "-c", WAIT], workers=2, options=HASTE) as job:
            job.wait_for("ready", "worker 1")
            os.kill(job.pid("worker 1"), signal.SIGSTOP)
            os.kill(job.pid("worker 0"), signal.SIGKILL)
            self.assertEqual(job.wait().status, 128 + signal.SIGKILL)

    def test_missing_command(self):
        for workers, servers in ((1, 0), (2, 1)):
            result = harness.run(["/nowhere/program"], workers=workers, servers=servers)
            self.assertEqual(result.status, 127)
            self.assertIn(
                "byteps run: worker 0: cannot execute '/nowhere/program': No such file or directory\n",
                result.err,
            )
        self.assertEqual(harness.run(["no-such-command-anywhere"], workers=2).status, 127)

    def test_command_that_is_not_executable(self):
        with tempfile.NamedTemporaryFile(suffix=".py") as file:
            result = harness.run([file.name], workers=2)
        self.assertEqual(result.status, 126)
        self.assertIn(
            f"cannot execute '{file.name}': Permission denied; did you mean: python3 {file.name}\n",
            result.err,
        )

    def test_more_workers_than_descriptors(self):
        limit = 64  # the scheduler, 100 workers, and what a process has open besides
        with harness.Job(
            ["sleep", "1000"],
            workers=100,
            before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        ) as job:
            result = job.wait()
        self.assertEqual(result.status, 1, result)
        self.assertRegex(result.err, r"byteps run: this process needs 335 open files, but its limit is 64; raise the ")

    def test_timeout(self):
        result = shell(WAIT, workers=2, servers=1, options=["--timeout", "500ms"])
        self.assertEqual(result.status, 124, result)
        self.assertIn("byteps run: the job did not end within 0.5 s (--timeout); ending it\n", result.err)


class Output(unittest.TestCase):
    def test_prefixes_and_streams(self):
        result = shell(
            'echo "out $BYTEPS_LOCAL_RANK"; echo "err $BYTEPS_LOCAL_RANK" >&2', workers=2, servers=1
        )
        for rank in (0, 1):
            self.assertIn(f"out {rank}", result.lines(f"worker {rank}"))
            self.assertIn(f"err {rank}", result.lines(f"worker {rank}", "err"))
        self.assertEqual(result.lines(None), [])
        self.assertNotIn("\033", result.out + result.err)

    def test_no_prefix(self):
        result = shell("echo plain", workers=2, options=["--no-prefix"])
        self.assertEqual(result.out, "plain\nplain\n")

    def test_last_line_without_newline(self):
        result = shell('printf "one\\ntwo"', workers=2)
        for rank in (0, 1):
            self.assertEqual(result.lines(f"worker {rank}"), ["one", "two"])

    def test_empty_lines(self):
        self.assertEqual(shell('printf "\\n\\nx\\n"').out, "[worker 0] \n[worker 0] \n[worker 0] x\n")

    def test_lines_never_mix(self):
        script = (
            "import os, sys\n"
            "rank = os.environ['BYTEPS_LOCAL_RANK']\n"
            "for i in range(20000):\n"
            "    sys.stdout.write(f'{rank} {i} ' + 'x' * (i % 300) + '\\n')\n"
        )
        result = harness.run([harness.python(), "-c", script], workers=3)
        self.assertEqual(result.status, 0)
        for rank in range(3):
            lines = result.lines(f"worker {rank}")
            self.assertEqual(lines, [f"{rank} {i} " + "x" * (i % 300) for i in range(20000)])

    def test_long_line_stays_whole(self):
        result = harness.run([harness.python(), "-c", "print('y' * 5000000)"], workers=2)
        self.assertEqual(result.lines("worker 1"), ["y" * 5000000])

    def test_endless_line_is_broken_but_complete(self):
        result = harness.run([harness.python(), "-c", "import sys; sys.stdout.write('z' * 40000000)"])
        self.assertEqual("".join(result.lines("worker 0")), "z" * 40000000)

    def test_binary_output(self):
        script = "import sys; sys.stdout.buffer.write(bytes(range(256)).replace(b'\\n', b'') * 100 + b'\\n')"
        with harness.Job([harness.python(), "-c", script]) as job:
            job.wait()
            data = bytes(job.raw("out"))
        self.assertEqual(data, b"[worker 0] " + bytes(range(256)).replace(b"\n", b"") * 100 + b"\n")

    def test_last_words_before_the_verdict(self):
        result = shell("seq 1000 >&2; echo last words >&2; exit 5")
        self.assertLess(result.err.index("last words"), result.err.index("exited with status 5"))

    def test_reader_that_goes_away_ends_the_job(self):
        with harness.Job(
            [harness.python(), "-c", "while True: print('again')"], workers=2, output=False
        ) as job:
            job.process.stdout.readline()
            job.process.stdout.close()
            self.assertEqual(job.process.wait(harness.DEADLINE), 128 + signal.SIGPIPE)

    def test_slow_reader_gets_everything(self):
        script = "for i in range(100000): print(i)"
        with harness.Job([harness.python(), "-c", script], output=False) as job:
            time.sleep(0.5)  # the pipe is full long before
            with job.process.stdout as pipe:
                lines = pipe.read().decode().splitlines()
            self.assertEqual(job.process.wait(harness.DEADLINE), 0)
        self.assertEqual(lines, [f"[worker 0] {i}" for i in range(100000)])

    def test_colour_and_progress_on_a_terminal(self):
        try:
            ours, theirs = os.openpty()
        except OSError as error:
            self.skipTest(f"no pseudo-terminal: {error}")
        env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        env["TERM"] = "xterm"
        process = subprocess.Popen(
            [PROGRAM, "run", "-n", "1", "--", "printf", r"10%%\r20%%\r\ndone\n"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        data = b""
        try:
            while chunk := os.read(ours, 65536):
                data += chunk
        except OSError:
            pass  # this is how the end of a terminal shows
        os.close(ours)
        self.assertEqual(process.wait(harness.DEADLINE), 0)
        prefix = "\033[32m[worker 0]\033[0m \033[K"
        self.assertEqual(data.decode(), f"{prefix}10%\r{prefix}20%\r\r\n{prefix}done\r\n")


class Environment(unittest.TestCase):
    def worker(self, script, rank=0, **how):
        result = shell(script, **how)
        self.assertEqual(result.status, 0, result)
        return result.lines(f"worker {rank}")

    def test_arguments_are_passed_exactly(self):
        args = ["a b", "", "it's", '"q"', "$HOME", "*", "line\nbreak", "-n", "--help", "\\"]
        script = "import os, sys; os.write(1, repr(sys.argv[1:]).encode() + b'\\n')"
        result = harness.run([harness.python(), "-c", script, *args], workers=2)
        self.assertEqual(result.lines("worker 1"), [repr(args)])

    def test_settings_of_each_part(self):
        lines = self.worker(
            'printf "%s\\n" "$BYTEPS_SET"',
            rank=1,
            workers=3,
            servers=2,
            env={"BYTEPS_SET": "log.level=info"},
            options=["--set", "worker.slice=64 KiB"],
        )
        self.assertEqual(lines[0], "log.level=info")
        for line in (
            "worker.slice=64 KiB",
            "cluster.role=worker",
            "cluster.workers=3",
            "cluster.servers=2",
            "cluster.rank=1",
            "cluster.local_rank=1",
            "cluster.local_size=3",
        ):
            self.assertIn(line, lines)
        address = [line for line in lines if line.startswith("cluster.scheduler=")]
        self.assertRegex(address[-1], r'^cluster\.scheduler="127\.0\.0\.1:[1-9]\d*"$')

    def test_old_variables(self):
        lines = self.worker("env", rank=1, workers=2, servers=1, env={"BYTEPS_GLOBAL_RANK": "7"})
        for line in (
            "DMLC_ROLE=worker",
            "DMLC_NUM_WORKER=1",
            "DMLC_NUM_SERVER=1",
            "DMLC_WORKER_ID=0",
            "DMLC_PS_ROOT_URI=127.0.0.1",
            "BYTEPS_LOCAL_RANK=1",
            "BYTEPS_LOCAL_SIZE=2",
            "PYTHONUNBUFFERED=1",
        ):
            self.assertIn(line, lines)
        self.assertTrue(any(re.match(r"DMLC_PS_ROOT_PORT=\d+$", line) for line in lines))
        self.assertFalse(any(line.startswith("BYTEPS_GLOBAL_RANK=") for line in lines))

    def test_one_worker_needs_no_scheduler(self):
        lines = self.worker(
            'printf "%s\\n" "$BYTEPS_SET"; env',
            env={"DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_PS_ROOT_PORT": "9000"},
        )
        self.assertIn('cluster.scheduler=""', lines)
        self.assertFalse(any(line.startswith("DMLC_PS_ROOT") for line in lines))

    def test_configuration_gives_the_shape(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "job.conf"), "w", encoding="utf-8") as file:
                file.write("cluster = { workers = 2; servers = 1; };\n")
            result = shell(
                'echo "$BYTEPS_CONF"; cd /; [ -r "$BYTEPS_CONF" ]',
                workers=None,
                options=["--conf", "job.conf"],
                cwd=folder,
            )
            self.assertEqual(result.status, 0, result)
            self.assertEqual(result.lines("worker 1"), [os.path.join(os.path.realpath(folder), "job.conf")])
            self.assertEqual(shell("true", workers=3, options=["--conf", "job.conf"], cwd=folder).status, 0)

    def test_a_job_within_a_job(self):
        """It is one of its own, and has what the outer one has found, but nothing of that itself."""
        show = 'echo "$BYTEPS_LOCAL_RANK of $BYTEPS_LOCAL_SIZE, $DMLC_NUM_SERVER, $BYTEPS_SECRET, $(echo $BYTEPS_SET)"'
        inner = f"\"$BYTEPS_PROGRAM\" run --no-prefix -n 3 -s 1 -- sh -c '{show}'"
        outer = 'if [ "$BYTEPS_LOCAL_RANK" = 0 ]; then echo "outer $BYTEPS_SECRET"; %s; fi' % inner
        result = harness.run(["sh", "-c", outer], workers=2, servers=2, env={"DMLC_NUM_SERVER": "7"},
                             options=["--set", "worker.threads=2"])
        self.assertEqual(result.status, 0, str(result))
        first, *lines = sorted(result.lines("worker 0"), reverse=True)
        self.assertEqual(len(lines), 3, str(result))
        for rank, line in enumerate(reversed(lines)):
            self.assertRegex(line, rf"^{rank} of 3, 1, [0-9a-f]{{64}}, ")
            self.assertNotIn(first.removeprefix("outer "), line)
            self.assertNotIn("worker.threads", line)
            self.assertIn("cluster.workers=3", line)
            self.assertNotIn("cluster.workers=2", line)

    def test_standard_input_is_empty(self):
        self.assertEqual(self.worker("cat; echo end", workers=2), ["end"])

    def test_own_descriptors_only(self):
        self.assertEqual(self.worker("ls /proc/self/fd | wc -l", workers=2, servers=1), ["4"])  # ls opens one

    def test_address_of_the_scheduler(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        for address in ("::1", "[::1]", "[::1]:0"):
            with self.subTest(address):
                lines = self.worker("env", rank=1, workers=2, options=["--address", address])
                self.assertIn("DMLC_PS_ROOT_URI=::1", lines)

    def test_jobs_have_different_names(self):
        names = set()
        for _ in range(2):
            env = {k: v for k, v in os.environ.items() if k != "BYTEPS_SET"}
            done = byteps(
                "run",
                "-n",
                "2",
                "--no-prefix",
                "--",
                "sh",
                "-c",
                'echo "$BYTEPS_SET" | grep ^cluster.job=',
                env=env,
            )
            lines = done.stdout.splitlines()
            self.assertEqual(len(set(lines)), 1, done)
            self.assertRegex(lines[0], r"^cluster\.job=[0-9a-f]{16}$")
            names.add(lines[0])
        self.assertEqual(len(names), 2)


class Signals(unittest.TestCase):
    TRAP = 'trap "echo got %s; exit 0" %s; echo ready; while :; do sleep 0.05; done'

    def test_pass_to_the_workers(self):
        for name in ("INT", "TERM", "HUP"):
            number = getattr(signal, f"SIG{name}")
            with self.subTest(name), harness.Job(
                ["sh", "-c", self.TRAP % (name, name)],
                workers=2,
                servers=1,
                before=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # nohup may have started the tests
            ) as job:
                for rank in (0, 1):
                    job.wait_for("ready", f"worker {rank}")
                job.signal(number)
                result = job.wait()
                self.assertEqual(result.status, 128 + number, result)
                self.assertIn(f"byteps run: SIG{name}: ending the job\n", result.err)
                for rank in (0, 1):
                    self.assertIn(f"got {name}", result.lines(f"worker {rank}"))

    def test_user_signal_does_not_end_the_job(self):
        script = 'trap "echo got USR1; exit 0" USR1; echo ready; while :; do sleep 0.05; done'
        with harness.Job(["sh", "-c", script], workers=2, servers=1) as job:
            for rank in (0, 1):
                job.wait_for("ready", f"worker {rank}")
            job.signal(signal.SIGUSR1)
            result = job.wait()
            self.assertEqual(result.status, 0, result)
            self.assertIn("got USR1", result.lines("worker 1"))

    def test_second_interrupt_kills(self):
        script = 'trap "echo no" INT TERM; echo ready; while :; do sleep 0.05; done'
        with harness.Job(["sh", "-c", script], workers=2, servers=1) as job:
            for rank in (0, 1):
                job.wait_for("ready", f"worker {rank}")
            job.signal(signal.SIGINT)
            job.wait_for("no", "worker 0")
            job.signal(signal.SIGINT)
            self.assertEqual(job.wait().status, 128 + signal.SIGINT)

    def test_deaf_worker_is_killed_in_the_end(self):
        script = 'trap "" TERM; echo ready; while :; do sleep 0.05; done'
        with harness.Job(["sh", "-c", script], workers=2) as job:
            job.wait_for("ready", "worker 1")
            job.signal(signal.SIGTERM)
            self.assertEqual(job.wait().status, 128 + signal.SIGTERM)

    def test_nohup(self):
        with harness.Job(
            ["sh", "-c", f'{WAIT[:10]}; until [ -e "$FILE" ]; do sleep 0.05; done; echo done'],
            workers=2,
            env={"FILE": f"/tmp/byteps-test-{os.getpid()}"},
            before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        ) as job:
            job.wait_for("ready", "worker 1")
            job.signal(signal.SIGHUP)
            path = f"/tmp/byteps-test-{os.getpid()}"
            try:
                with open(path, "w", encoding="utf-8"):
                    self.assertEqual(job.wait().status, 0)
            finally:
                os.unlink(path)


class Leftovers(unittest.TestCase):
    TREE = "sleep 1000 & (setsid sleep 1000 &) ; (setsid sh -c 'trap \"\" TERM; sleep 1000' &); echo ready; "

    def test_of_workers_that_ended(self):
        result = shell(self.TREE, workers=2, servers=1)  # harness.run fails if something is left
        self.assertEqual(result.status, 0, result)

    def test_of_workers_that_failed(self):
        self.assertEqual(shell(self.TREE + "exit 9", workers=2, servers=1).status, 9)

    def test_when_run_itself_is_killed(self):
        self.killed([0], -signal.SIGKILL)

    def test_when_the_second_guard_is_killed(self):
        result = self.killed([1], 128 + signal.SIGKILL)
        self.assertRegex(result.err, r"the second guard of the job \(pid \d+\) was killed by SIGKILL; ended what was")

    def test_when_the_manager_is_killed(self):
        result = self.killed([2], 128 + signal.SIGKILL)
        self.assertRegex(result.err, r"the manager of the job \(pid \d+\) was killed by SIGKILL; ended what was left")

    def test_when_two_are_killed_at_once(self):
        self.killed([0, 1], -signal.SIGKILL)
        self.killed([0, 2], -signal.SIGKILL)
        self.killed([1, 2], 128 + signal.SIGKILL)

    def killed(self, whom, status):
        """Of the guard, the second guard and the manager, those are killed before any of them notices."""
        with harness.Job(["sh", "-c", self.TREE + WAIT], workers=2, servers=1) as job:
            for rank in (0, 1):
                job.wait_for("ready", f"worker {rank}")
            keepers = [job.process.pid, *stacks.children(job.process.pid)[:2]]
            for index in whom:
                os.kill(keepers[index], signal.SIGSTOP)
            for index in reversed(whom):  # else who is not among them may bury a child before its turn
                os.kill(keepers[index], signal.SIGKILL)
            job.process.wait(harness.DEADLINE)
            harness.until(lambda: not harness.processes(job.id), "end of all processes")
            result = job.wait()
            self.assertEqual(result.status, status, result)
            return result


if __name__ == "__main__":
    unittest.main()
