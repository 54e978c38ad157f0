# SPDX-License-Identifier: Apache-2.0
"""The test bed itself: its hosts are hosts, its links are links, and nothing of it stays."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

BENCH = os.path.join(os.environ["top_srcdir"], "bench")
sys.path.append(BENCH)
sys.path.append(os.path.join(os.environ["top_srcdir"], "tests", "jobs"))

import harness  # noqa: E402  (they lie in the folders that were just added)
import testbed  # noqa: E402
from testbed import kernel  # noqa: E402

# The commands here are shells, which do not bear the library of a sanitizer; the program itself needs none.
os.environ.pop("LD_PRELOAD", None)

COMMAND = os.path.join(BENCH, "testbed", "testbed")
ECHO = """
    import socket, sys
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("", 7))
    print("ready", flush=True)
    while True:
        sock.sendto(*sock.recvfrom(100))
    """
ASK = """
    import socket, sys
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(0.1)
    for _ in range(int(sys.argv[2])):
        try:
            sock.sendto(b"?", (sys.argv[1], 7))
            sock.recv(100)
            sys.exit(0)
        except OSError:
            pass
    sys.exit(1)
    """


def setUpModule():
    try:
        testbed.Testbed(1).close()
    except testbed.Unavailable as reason:
        raise unittest.SkipTest(str(reason)) from None


def traces(name):
    """What there is of a bed."""
    found = list(kernel.inhabitants(f"{name}-").values()) + kernel.namespaces(name)
    return found + [
        path for path in (f"/dev/shm/{name}", f"/run/byteps-testbed/{name}") if os.path.exists(path)
    ]


def python(script, *args):
    return [sys.executable, "-c", textwrap.dedent(script), *map(str, args)]


class Hosts(unittest.TestCase):
    def setUp(self):
        self.bed = testbed.Testbed(3, ["8mbit", "1gbit", "none"])
        self.addCleanup(self.bed.close)

    def shell(self, host, script, *args):
        """What a script prints on a host."""
        process = self.bed.popen(host, ["sh", "-c", script, "sh", *args], stdout=subprocess.PIPE)
        return harness.communicate(process)[0].decode()

    def start(self, host, script, *args):
        process = self.bed.popen(host, python(script, *args), stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def reaches(self, origin, to, tries=1000):
        return self.start(origin, ASK, self.bed.address(to), tries).wait() == 0

    def test_names_and_devices(self):
        self.assertEqual(
            self.shell(1, "hostname; ls /sys/class/net; cat /proc/net/if_inet6 | grep -v lo"),
            "h1\neth0\nlo\n",
        )
        self.assertEqual(self.shell(testbed.SWITCH, "hostname"), "switch\n")
        self.assertIn("10.77.0.2 h1\n", self.shell(2, "cat /etc/hosts"))

    def test_shared_memory(self):
        self.assertEqual(self.shell(0, "touch /dev/shm/mine; ls /dev/shm"), "mine\n")
        self.assertEqual(self.shell(0, "ls /dev/shm"), "mine\n")
        self.assertEqual(self.shell(1, "ls /dev/shm"), "")
        self.assertFalse(os.path.exists("/dev/shm/mine"))
        self.assertEqual(self.bed.leftovers(), ["mine"])

    def test_cuts(self):
        self.assertEqual(self.start(1, ECHO).stdout.readline(), b"ready\n")
        self.assertTrue(self.reaches(0, 1))
        self.assertTrue(self.reaches(testbed.SWITCH, 1))
        for unplug in (False, True):
            for host in (0, 1):
                with self.subTest(host=host, unplug=unplug):
                    self.bed.cut(host, unplug)
                    self.assertFalse(self.reaches(0, 1, tries=5))
                    self.assertEqual(self.reaches(2, 1, tries=5 if host == 1 else 1000), host != 1)
                    self.bed.restore(host)
                    self.assertTrue(self.reaches(0, 1))

    def test_rate_in_both_directions(self):
        """A megabyte cannot pass faster than the link; it may take longer."""
        self.bed.shape(0, "8mbit", "1m")  # room for all of it: what is lost is sent again much later
        for origin, to in ((0, 1), (1, 0)):
            sink = self.start(
                to,
                """
                import socket, time
                listener = socket.create_server(("", 9))
                print("ready", flush=True)
                stream, _ = listener.accept()
                start = time.monotonic()
                while stream.recv(65536):
                    pass
                print(time.monotonic() - start)
                """,
            )
            self.assertEqual(sink.stdout.readline(), b"ready\n")
            send = "import socket, sys; socket.create_connection((sys.argv[1], 9)).sendall(bytes(1000000))"
            self.assertEqual(self.start(origin, send, self.bed.address(to)).wait(), 0)
            self.assertGreater(float(sink.stdout.readline()), 0.9)

    def test_shapes(self):
        def queues():
            text = "".join(kernel.command("tc", "-n", self.bed.namespace(1), "qdisc", "show", "dev", "eth0"))
            return text + kernel.command(
                "tc", "-n", self.bed.namespace(testbed.SWITCH), "qdisc", "show", "dev", "p1"
            )

        self.assertEqual(queues().count("tbf"), 2)
        for rate, text in (
            ("100mbit", "rate 100Mbit "),
            ("none", None),
            ("none", None),
            ("2gbit", "rate 2Gbit "),
        ):
            self.bed.shape(1, rate)
            self.assertEqual(
                (queues().count("tbf"), queues().count(text or "tbf")), (2, 2) if text else (0, 0)
            )

    def test_counters(self):
        send = """
            import socket, sys
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(1000), (sys.argv[1], 7))
            """
        self.assertEqual(self.start(1, send, self.bed.address(2)).wait(), 0)
        harness.until(lambda: self.bed.counters()[2]["received"] >= 1000, "byte at host 2")
        self.assertGreaterEqual(self.bed.counters()[1]["sent"], 1000)
        self.assertLess(self.bed.counters()[0]["received"], 1000)

    def test_wrong_hosts(self):
        for act in (self.bed.cut, self.bed.restore, self.bed.address, self.bed.hostname):
            with self.assertRaisesRegex(ValueError, "there is no host 3 in this bed; its hosts are 0 to 2"):
                act(3)


class End(unittest.TestCase):
    """Whatever ends, everything goes."""

    def test_close(self):
        bed = testbed.Testbed(2)
        sleeper = bed.popen(1, ["sh", "-c", "trap '' TERM HUP INT; sleep 1000 & setsid sleep 1000"])
        harness.until(lambda: len(bed.processes()) == 3, "three processes")
        self.assertNotEqual(traces(bed.name), [])
        bed.close()
        sleeper.wait()
        self.assertEqual(traces(bed.name), [])

    def owner(self):
        """(process, name) of somebody who has a bed with a process on it."""
        script = """
            import sys, time
            sys.path.insert(0, sys.argv[1])
            import testbed
            bed = testbed.Testbed(2)
            bed.popen(0, ["sleep", "1000"])
            print(bed.name, bed._warden.pid, flush=True)
            time.sleep(1000)
            """
        process = subprocess.Popen(python(script, BENCH), stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        name, warden = process.stdout.readline().decode().split()
        harness.until(lambda: kernel.inhabitants(f"{name}-"), "process on a host")
        return process, name, int(warden)

    def test_killed_owner(self):
        process, name, _ = self.owner()
        process.kill()
        harness.until(lambda: not traces(name), f"end of {name}")

    def test_killed_owner_and_warden(self):
        process, name, warden = self.owner()
        os.kill(warden, signal.SIGKILL)
        process.kill()
        process.wait()
        harness.until(lambda: harness.state(warden) in ("", "Z"), "end of the warden")
        subprocess.run([COMMAND, "clean"], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(traces(name), [])

    def test_beds_with_an_owner_stay(self):
        with testbed.Testbed(1) as bed:
            subprocess.run([COMMAND, "clean"], check=True, stdout=subprocess.DEVNULL)
            with testbed.Testbed(1):
                self.assertIn(bed.namespace(0), kernel.namespaces(bed.name))


class Without(unittest.TestCase):
    def test_root(self):
        script = """
            import os, sys
            sys.path.insert(0, sys.argv[1])
            import testbed
            os.setuid(65534)
            try:
                testbed.Testbed(2)
            except testbed.Unavailable as reason:
                print(reason)
            """
        done = subprocess.run(python(script, BENCH), check=True, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, b"network namespaces need root\n")

    def test_iproute2(self):
        with tempfile.TemporaryDirectory() as empty:
            command = [sys.executable, COMMAND, "with", "--", "true"]
            done = subprocess.run(command, env=dict(os.environ, PATH=empty), stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, b"testbed: the command ip is missing (package iproute2)\n")


class Command(unittest.TestCase):
    def setUp(self):
        os.environ["BYTEPS_PROGRAM"] = harness.program()

    def start(self, *words):
        process = subprocess.Popen(
            [COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_bed(self, *words):
        process = self.start(*words)
        out, err = harness.communicate(process)
        return process.returncode, out, err

    def test_job(self):
        worker = os.path.join(os.environ.get("top_builddir", "."), "tests", "fault", "worker")
        shape = ["--workers", "1,0,2", "--server-hosts", "1", "--set", "log.level=info", "--stat"]
        steps = ["init", "push:sum:70000:int32:sum:1", "leave"]
        status, out, err = self.run_bed("run", *shape, "--", worker, *steps)
        self.assertEqual(status, 0, err)
        for part in ("worker 0 h0", "worker 1 h2", "worker 2 h2"):
            self.assertIn(f"[{part}] sum: 6\n", out)
        self.assertRegex(err, r"\[server 0 h1\] .*INFO")
        self.assertRegex(out, r"\nh1 +\d{6,} +\d{6,} +\d+\n")

    def test_failed_part(self):
        status, out, err = self.run_bed(
            "run", "-n", "1,2", "--grace", "0", "--", "sh", "-c", "echo ready; exit 9"
        )
        self.assertEqual(status, 9, err)
        self.assertRegex(out, r"(\[worker (0 h0|1 h1|2 h1)\] ready\n)+")
        self.assertRegex(err, r"testbed: worker \d on h[01] exited with status 9\n")

    def test_timeout(self):
        status, out, err = self.run_bed("run", "-n", "1", "-t", "1", "--", "sleep", "1000")
        self.assertEqual(status, 124, err)
        self.assertIn("did not end in time", err)

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                process = self.start("run", "-n", "1", "--", "sh", "-c", "echo ready; sleep 1000")
                self.assertEqual(process.stdout.readline(), "[worker 0 h0] ready\n")
                process.send_signal(number)
                _, err = harness.communicate(process)
                self.assertEqual(process.returncode, 128 + number, err)
                self.assertEqual(traces(err.split()[1].rstrip(",")), [])

    def test_killed_part(self):
        script = "[ $(hostname) = h1 ] && kill -KILL $$; sleep 1000"
        status, _, err = self.run_bed("run", "--grace", "200ms", "--", "sh", "-c", script)
        self.assertEqual(status, 128 + signal.SIGKILL, err)
        self.assertIn("testbed: worker 1 on h1 was killed by SIGKILL\n", err)

    def test_verbs_inside(self):
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
            script.write(
                'set -e; t=$0; "$t" cut 1; "$t" restore h1; "$t" shape 0 100mbit; "$t" stat; "$t" list\n'
            )
            script.write('"$t" exec switch -- hostname; "$t" exec 1 -- sh -c \'echo $1; exit 6\' -- --\n')
            script.flush()
            status, out, err = self.run_bed(
                "with", "--hosts", "2", "--", "sh", "-c", f'. "{script.name}"', COMMAND
            )
        self.assertEqual((status, err), (6, ""))
        self.assertRegex(out, r"(?s)host +sent bytes.*\nh1 .*2 hosts, 0 processes\n.*switch\n--\n$")

    def test_wrong_words(self):
        for words, text in (
            ("run --", "run needs '-- COMMAND...' at its end"),
            ("cut 1 -- x", "cut takes no command"),
            ("run -n 1,x -- x", "'1,x' is not a list of numbers such as 1,1,3"),
            ("run -n 0,0 -- x", "a job needs a worker"),
            ("run -n 1,1 --hosts 1 -- x", "the job needs 2 hosts, the bed has 1"),
            ("run --rate 5 -- x", "'5' is not a rate such as 100mbit or 1gbit, or none"),
            ("run --rate 5kbit -- x", "a rate lies between 64kbit and 100gbit"),
            (
                "run --rate 1gbit,1gbit --hosts 3 -- x",
                "2 rates for 3 hosts: give one for all, or one for each",
            ),
            ("run --buffer 9 -- x", "'9' is not a buffer such as 20ms or 256k"),
            ("run --set x -- x", "'x' is not KEY=VALUE"),
            ("run --scheduler-host x -- x", "'x' is not a host; say its number, or switch"),
            ("with --hosts 0 -- x", "a test bed has 1 to 250 hosts, not 0"),
            ("with -- /nowhere/x", "No such file or directory: '/nowhere/x'"),
            ("exec --bed none 0 -- x", "there is no test bed 'none'"),
            ("clean none", "there is no test bed 'none'"),
        ):
            with self.subTest(words):
                status, out, err = self.run_bed(*words.split())
                self.assertIn(status, (1, 2))
                self.assertIn(text, err)
                self.assertNotIn("Traceback", err)


if __name__ == "__main__":
    unittest.main()
