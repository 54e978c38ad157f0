# SPDX-License-Identifier: Apache-2.0
"""Where the members of a job listen: cluster.ports, the transport's options, and IPv6."""

import contextlib
import random
import socket
import unittest

import cluster

STEPS = ["init", "push:grad:300000:float32:sum:1", "gate:end", "leave"]
PLENTY = 60


@contextlib.contextmanager
def held(n):
    """Listens on n ports in a row, below those that the kernel hands out by itself; yields the sockets."""
    with contextlib.ExitStack() as stack:
        while True:
            first = random.randrange(12000, 30000)
            sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
            try:
                for i, sock in enumerate(sockets):
                    sock.bind((cluster.ADDRESS, first + i))
                    sock.listen()
            except OSError:
                for sock in sockets:
                    sock.close()
            else:
                break
        yield sockets


def port(sock):
    return sock.getsockname()[1]


def setting(first, last):
    return f"cluster.ports={first}-{last}"


@unittest.skipIf(cluster.TRANSPORT != "tcp", "these are ports of TCP")
class Ports(unittest.TestCase):
    def check(self, job, workers, first, last):
        """All that listens in a job that is at the gate does so in the range; returns how many ports these are."""
        for rank in range(workers):
            job.wait_for("at end", f"worker {rank}")
        found = job.watch_ports(*job.parts)
        self.assertLessEqual(first, min(found))
        self.assertLessEqual(max(found), last)
        return len(found)

    def end(self, job, workers):
        job.open("end")
        ends = job.finish()
        for rank in range(workers):
            self.assertIn(f"grad: {workers * (workers + 1) // 2}", ends[f"worker {rank}"].out, cluster.show(ends))

    def test_two_jobs_in_one_range(self):
        with held(1) as (taken,):
            first, last = port(taken), port(taken) + PLENTY
            settings = [setting(first, last), "cluster.colocated=all", "server.shards=2"]
            with cluster.ByHand(STEPS, 2, 1, settings) as one, cluster.ByRun(STEPS, 2, 0, settings) as other:
                self.assertEqual(self.check(one, 2, first, last), 1 + 3 * 2)
                self.assertEqual(self.check(other, 2, first, last), 1 + 2 * 2)
                self.end(one, 2)
                self.end(other, 2)

    def test_no_port_for_the_scheduler(self):
        with held(2) as (first, last), cluster.ByRun(STEPS, settings=[setting(port(first), port(last))]) as job:
            text = cluster.show(job.finish())
            self.assertNotEqual(job.status, 0)
            words = rf'cluster.ports = "{port(first)}-{port(last)}": all of these ports are in use on host \S'
            self.assertRegex(text, words)

    def test_no_port_for_a_shard(self):
        with held(3) as (first, free, last):
            free.close()
            settings = [setting(port(first), port(last))]
            with cluster.ByHand(STEPS, workers=2, servers=1, settings=settings) as job:
                ends = job.finish()
            words = rf'server 0 \(.*cluster.ports = "{port(first)}-{port(last)}": all of these ports are in use'
        for part in ("server 0", "worker 0", "worker 1"):
            self.assertRegex(ends[part].text, words, cluster.show(ends))
            self.assertNotEqual(ends[part].status, 0)

    def test_an_address_with_a_port_keeps_it(self):
        with held(2) as (free, other):
            first, last = port(free), port(other)
            free.close()
            other.close()
            late = ["worker 0", "server 0"]
            with cluster.ByHand([], workers=1, settings=[setting(first, first)], late=late) as job:
                self.assertEqual(job.address, f"{cluster.ADDRESS}:{first}")
                address = f"{cluster.ADDRESS}:{last}"
                self.assertEqual(job.start_scheduler("another", address=address), address)


@unittest.skipIf(cluster.TRANSPORT != "tcp", "these are addresses of TCP")
class Hosts(unittest.TestCase):
    def check(self, expected, scheduler, settings=()):
        """A job whose scheduler is at one address and whose shards are at another."""
        settings = ["cluster.colocated=all", *settings]
        with cluster.ByRun(STEPS, workers=2, servers=1, settings=settings, address=scheduler) as job:
            for rank in range(2):
                job.wait_for("at end", f"worker {rank}")
            for part in job.parts:
                hosts = {host for host, _ in cluster.listens(job.pid(part)).values()}
                self.assertEqual(hosts, {scheduler.strip("[]") if part == "scheduler" else expected}, part)
            job.open("end")
            ends = job.finish()
        for rank in range(2):
            self.assertIn("grad: 3", ends[f"worker {rank}"].out, cluster.show(ends))

    def test_a_host_of_their_own(self):
        self.check("127.0.0.2", "127.0.0.1", ["transports.net.host=127.0.0.2"])

    def test_ipv6(self):
        try:
            with socket.create_server(("::1", 0), family=socket.AF_INET6):
                pass
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        for settings in ((), ("transports.net.family=ipv6",)):
            with self.subTest(settings):
                self.check("::1", "[::1]", settings)

    def test_a_host_with_a_port(self):
        with cluster.ByRun(STEPS, settings=["transports.net.host=127.0.0.2:7000"]) as job:
            text = cluster.show(job.finish())
        self.assertNotEqual(job.status, 0)
        self.assertIn('transports.net: tcp: host = "127.0.0.2:7000": expected a name or an address alone', text)


if __name__ == "__main__":
    unittest.main()
