# SPDX-License-Identifier: Apache-2.0
"""`byteps bench transport`: what it prints, both ends by hand, ends that die, strangers at the port, bad input."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import unittest

import harness

QUICK = ["--rounds", "1", "--bytes", "4KiB"]


def command(*args):
    return [harness.program(), "bench", "transport", *args]


def run(*args):
    return harness.execute(command(*args))


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


@contextlib.contextmanager
def started(*args):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen(command(*args), **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def listening(*args):
    """The listening end, and the address that it has printed."""
    with started("--listen", "127.0.0.1:0", *args) as process:
        line = process.stdout.readline()
        yield process, line.rpartition("--connect ")[2].strip()


class BenchTransport(unittest.TestCase):
    def check_rows(self, found):
        self.assertEqual([row["bytes"] for row in found["latency"]], [8, 256, 1024, 4096])
        for row in found["latency"]:
            times = row["round_trip_seconds"]
            self.assertTrue(0 < times["fastest"] <= times["median"] <= times["percentile_99"] <= times["slowest"], row)
            self.assertAlmostEqual(row["one_way_seconds"], times["median"] / 2)
        for row in found["goodput"]:
            rates = row["bytes_per_second"]
            self.assertTrue(0 < rates["slowest"] <= rates["median"] <= rates["fastest"], row)
            self.assertGreater(row["ratio_to_plain"], 0)
            self.assertGreaterEqual(row["context_switches_per_mib"], 0)

    def test_both_transports_of_the_configuration(self):
        result = run("--json", "--rounds", "2", "--min", "1KiB", "--max", "1MiB")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        found = json.loads(result.stdout)
        self.assertEqual((found["benchmark"], found["rounds"]), ("transport", 2))
        compared = {each["transport"]: each["plain"] for each in found["transports"]}
        self.assertEqual(compared, {"net": "sockets", "local": "memcpy"})
        for each in found["transports"]:
            self.check_rows(each)
            self.assertEqual([row["bytes"] for row in each["goodput"]], [1 << n for n in range(10, 21, 2)])

    def test_table(self):
        result = run(*QUICK, "--transport", "tcp")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        self.assertRegex(result.stdout, r"^transport net: plugin tcp, .*\n.* in turn with plain sockets\n")
        self.assertRegex(result.stdout, r"\n8B( +[0-9.]+ [mu]?s){5} +[0-9.]+\n")
        self.assertRegex(result.stdout, r"\n4KiB( +[0-9.]+ [kMG]?B){4} +[0-9.]+( +[0-9.e+-]+){3}\n$")

    def test_largest_message(self):
        for transport in ("tcp", "ipc"):
            with self.subTest(transport):
                result = run("--json", "--rounds", "1", "--bytes", "64MiB", "--transport", transport)
                self.assertEqual((result.returncode, result.stderr), (0, ""), result)
                (found,) = json.loads(result.stdout)["transports"]
                self.check_rows(found)

    def test_two_ends(self):
        """A stranger comes first, and does not disturb."""
        with listening() as (end, address):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(100))
                while stranger.recv(100):
                    pass
            self.assertIn("this was no 'byteps bench transport'", end.stderr.readline())
            result = run("--connect", address, "--json", *QUICK)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result)
            self.check_rows(json.loads(result.stdout)["transports"][0])
            self.assertEqual(harness.communicate(end), ("", ""))
            self.assertEqual(end.returncode, 0)

    def test_dead_ends(self):
        """Whichever end dies, the other one ends with an error that names it."""
        for victim in ("listening", "asking"):
            with self.subTest(victim), listening() as (end, address):
                with started("--connect", address, "--rounds", "10000", "--bytes", "4KiB") as asking:
                    asking.stdout.readline()  # they have met
                    dead, other = (end, asking) if victim == "listening" else (asking, end)
                    dead.kill()
                    err = harness.communicate(other)[1]
                    self.assertEqual(other.returncode, 1, err)
                    self.assertRegex(err, r"^byteps bench: 127\.0\.0\.1:\d+: .+\n$")

    def test_parent_killed(self):
        with started("--rounds", "10000", "--bytes", "4KiB") as asking:
            asking.stdout.readline()
            (child,) = children(asking.pid)
            os.kill(asking.pid, signal.SIGKILL)
            harness.until(lambda: harness.state(child) in ("", "Z"), "end of the other process")

    def test_bad_input(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            free = server.getsockname()[1]
        cases = {
            ("--listen", "--connect", "a:1"): (2, "--listen and --connect are for different ends"),
            ("--connect", "a:1", "--transport", "tcp", "--transport", "ipc"): (2, "one transport at a time"),
            ("--bytes", "128MiB"): (2, "128MiB: a message has at most 64 MiB"),
            ("--workers", "2"): (2, "--workers is for push_pull"),
            ("--transport", "nothing"): (1, "there is no transport 'nothing'"),
            ("--connect", f"127.0.0.1:{free}"): (1, "Connection refused"),
            ("--listen", "nonsense"): (1, "nonsense"),
        }
        for words, (status, text) in cases.items():
            with self.subTest(words):
                result = run(*words)
                self.assertEqual((result.returncode, result.stdout), (status, ""), result)
                self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
