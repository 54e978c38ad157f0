# SPDX-License-Identifier: Apache-2.0
"""`byteps launch` and bpslaunch: the variables of the original's launcher, without its defects."""

import contextlib
import os
import socket
import subprocess
import tempfile
import unittest

import harness

# The jobs here run shells, which do not bear the library of a sanitizer; the program itself needs none.
os.environ.pop("LD_PRELOAD", None)

PROGRAM = harness.program()
JOB = {
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9",
}
NAMES = ("DMLC_", "BYTEPS_LOCAL", "BYTEPS_SET", "BYTEPS_GLOBAL", "BYTEPS_FORCE", "NVIDIA_")


def start(*args, program=(PROGRAM, "launch"), **env):
    """Starts the launcher with these variables and no other that it knows."""
    full = {k: v for k, v in os.environ.items() if not k.startswith(NAMES)}
    full.update(env)
    return subprocess.Popen(
        [*program, *args],
        env=full,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def launch(*args, **env):
    """Runs the launcher to its end."""
    with start(*args, **env) as process:
        out, err = harness.communicate(process)
        return subprocess.CompletedProcess(args, process.returncode, out, err)


def worker(*args, **env):
    return launch(*args, **{**JOB, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "0", **env})


class Variables(unittest.TestCase):
    def failure(self, text, *args, **env):
        done = launch(*args, **env)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertEqual(done.stderr, f"byteps launch: {text}\n")

    def test_missing(self):
        rest = "; see 'byteps launch --help'"
        self.failure("not set in the environment: DMLC_ROLE, DMLC_NUM_WORKER" + rest, "true")
        self.failure(
            "not set in the environment: DMLC_WORKER_ID" + rest,
            "true",
            DMLC_ROLE="worker",
            DMLC_NUM_WORKER="1",
        )
        self.failure(
            "not set in the environment: DMLC_NUM_SERVER, DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT, "
            "DMLC_WORKER_ID" + rest,
            "true",
            DMLC_ROLE="worker",
            DMLC_NUM_WORKER="2",
        )
        self.failure(
            "not set in the environment: DMLC_NUM_SERVER, DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT" + rest,
            DMLC_ROLE="server",
            DMLC_NUM_WORKER="1",
            BYTEPS_FORCE_DISTRIBUTED="1",
        )

    def test_wrong(self):
        self.failure("DMLC_ROLE=boss is not a role; expected worker, server or scheduler", DMLC_ROLE="boss")
        self.failure(
            "DMLC_NUM_WORKER=two is not a number from 1 to 65535", DMLC_ROLE="worker", DMLC_NUM_WORKER="two"
        )
        self.failure(
            "BYTEPS_LOCAL_SIZE=0 is not a number from 1 to 4096",
            "true",
            **JOB,
            DMLC_ROLE="worker",
            DMLC_WORKER_ID="0",
            BYTEPS_LOCAL_SIZE="0",
        )

    def test_no_command(self):
        done = worker()
        self.assertEqual(done.returncode, 2)
        self.assertIn("no command to run", done.stderr)


class Workers(unittest.TestCase):
    def test_one_by_default(self):
        done = worker("sh", "-c", 'echo "$BYTEPS_LOCAL_RANK of $BYTEPS_LOCAL_SIZE as $DMLC_ROLE"')
        self.assertEqual((done.returncode, done.stdout), (0, "0 of 1 as worker\n"), done)

    def test_role_in_capitals(self):
        self.assertEqual(worker("sh", "-c", 'echo "$DMLC_ROLE"', DMLC_ROLE="Worker").stdout, "worker\n")

    def test_local_size(self):
        for env, size in (
            ({"NVIDIA_VISIBLE_DEVICES": "0,1,2"}, 3),
            ({"NVIDIA_VISIBLE_DEVICES": "all"}, 1),
            ({"BYTEPS_LOCAL_SIZE": "2"}, 2),
            ({"NVIDIA_VISIBLE_DEVICES": ""}, 1),
        ):
            with self.subTest(env):
                done = worker("sh", "-c", 'echo "$BYTEPS_LOCAL_RANK $BYTEPS_LOCAL_SIZE"', **env)
                self.assertEqual(sorted(done.stdout.splitlines()), [f"{rank} {size}" for rank in range(size)])

    def test_arguments_are_passed_exactly(self):
        args = ["a b", "", "it's", "$HOME", '"', "--help"]
        done = worker(harness.python(), "-c", "import sys; print(sys.argv[1:])", *args)
        self.assertEqual(done.stdout, f"{args}\n", done)

    def test_settings(self):
        """--set and --conf reach what is started, over what was there."""
        show = ("sh", "-c", "byteps conf show | grep -e partition -e slice")
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write('worker = { partition = "1 MiB"; slice = "32 KiB"; };\n')
            file.flush()
            options = ("--conf", file.name, "--set", "worker.partition=2MiB")
            done = worker(*options, "--", *show, BYTEPS_SET="worker.partition=8MiB")
        self.assertIn('partition = "2 MiB"', done.stdout, done)
        self.assertIn('slice = "32 KiB"', done.stdout, done)
        done = worker("--set", "worker.partiton=2MiB", "--", *show)
        self.assertIn("worker.partition", done.stderr, done)

    def test_failure_ends_the_others(self):
        done = worker(
            "sh", "-c", '[ "$BYTEPS_LOCAL_RANK" = 1 ] && exit 5; exec sleep 1000', BYTEPS_LOCAL_SIZE="3"
        )
        self.assertEqual(done.returncode, 5, done)
        self.assertRegex(
            done.stderr, r"^byteps launch: local rank 1 \(pid \d+\) exited with status 5; ending the job\n"
        )

    def test_missing_command(self):
        done = worker("/nowhere/x")
        self.assertEqual(done.returncode, 127)
        self.assertIn("cannot execute '/nowhere/x': No such file or directory", done.stderr)

    def test_one_machine_needs_nothing_else(self):
        env = {
            "DMLC_ROLE": "worker",
            "DMLC_NUM_WORKER": "1",
            "DMLC_WORKER_ID": "0",
            "NVIDIA_VISIBLE_DEVICES": "0,1",
            "DMLC_NUM_SERVER": "1",
            "DMLC_PS_ROOT_URI": "10.0.0.1",
            "DMLC_PS_ROOT_PORT": "1234",
        }
        done = launch("sh", "-c", 'echo "$BYTEPS_LOCAL_RANK $BYTEPS_LOCAL_SIZE $DMLC_PS_ROOT_URI"', **env)
        self.assertEqual(
            (done.returncode, sorted(done.stdout.splitlines())), (0, ["0 2 127.0.0.1", "1 2 127.0.0.1"])
        )


class Services(unittest.TestCase):
    def test_nothing_to_do_on_one_machine(self):
        for role in ("server", "scheduler"):
            done = launch(DMLC_ROLE=role, DMLC_NUM_WORKER="1")
            self.assertEqual(done.returncode, 0)
            self.assertIn(
                f"a job of one machine needs no {role} unless BYTEPS_FORCE_DISTRIBUTED=1", done.stderr
            )

    def test_script(self):
        script = os.path.join(os.environ.get("top_srcdir", "."), "tools", "bpslaunch")
        if not os.path.exists(script):
            self.skipTest(f"{script} is not there")
        path = os.path.dirname(PROGRAM) + os.pathsep + os.environ["PATH"]
        done = launch(
            "sh",
            "-c",
            'echo "$1"',
            "sh",
            "one word",
            program=["sh", script],
            **JOB,
            DMLC_ROLE="worker",
            DMLC_WORKER_ID="0",
            PATH=path,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "one word\n"), done)


class WholeJob(unittest.TestCase):
    """Scheduler, server and two machines of two workers each, started one by one as a cluster's scripts do."""

    def test_all_roles(self):
        example = os.path.join(os.environ.get("top_builddir", "."), "examples", "push_pull")
        if not os.access(example, os.X_OK):
            self.skipTest(f"{example} is not built")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        job = {**JOB, "DMLC_PS_ROOT_PORT": port, "BYTEPS_LOCAL_SIZE": "2"}
        with contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(start(*command, **job, **env))
                for command, env in (
                    ([], {"DMLC_ROLE": "scheduler"}),
                    ([], {"DMLC_ROLE": "server"}),
                    ([example], {"DMLC_ROLE": "worker", "DMLC_WORKER_ID": "0"}),
                    ([example], {"DMLC_ROLE": "worker", "DMLC_WORKER_ID": "1"}),
                )
            ]
            output = ""
            for process in started:
                stack.callback(process.kill)
            for process in started:
                out, err = harness.communicate(process)
                self.assertEqual(process.returncode, 0, err)
                output += out
        for rank in range(4):
            self.assertIn(f"worker {rank} of 4: all results are right\n", output)


if __name__ == "__main__":
    unittest.main()
