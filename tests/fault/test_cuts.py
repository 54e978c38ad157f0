# SPDX-License-Identifier: Apache-2.0
"""A connection is cut while the processes at both ends live on: everybody hears of it, nobody waits on."""

import contextlib
import ctypes
import os
import socket
import unittest

import cluster

STEPS = ["init", "?loop:grad:5000:never", "gate:out", "?leave"]
PIDFD_OPEN, PIDFD_GETFD = 434, 438  # the same numbers on all machines
LIBC = ctypes.CDLL(None, use_errno=True)


def call(number, *args):
    """A system call without a wrapper; skips the test where the kernel has or allows none of it."""
    result = LIBC.syscall(number, *args)
    if result < 0:
        raise unittest.SkipTest(f"system call {number}: {os.strerror(ctypes.get_errno())}")
    return result


def cut(pid, port):
    """Ends a process's connection to a port without its doing. False: it has none."""
    process = call(PIDFD_OPEN, pid, 0)
    try:
        for number in cluster.sockets(pid):
            with socket.socket(fileno=call(PIDFD_GETFD, process, number, 0)) as sock:
                with contextlib.suppress(OSError):  # it listens
                    if sock.getpeername()[1] == port:
                        sock.shutdown(socket.SHUT_RDWR)
                        return True
    finally:
        os.close(process)
    return False


class Cut(unittest.TestCase):
    def cut(self, to, servers, words):
        """Cuts worker 1 off; both workers must say `words`, although worker 1 does not end."""
        with cluster.ByHand(STEPS, servers=servers, settings=["server.shards=1"]) as job:
            for part in ("worker 0", "worker 1"):
                job.wait_for("grad runs", part)
            (port,) = job.watch_ports(to)
            self.assertTrue(cut(job.pid("worker 1"), port))
            for part in ("worker 0", "worker 1"):
                line = job.wait_for("error: ", part)
                self.assertRegex(line, words, cluster.show(job.now()))
                self.assertIn("tensor 'grad' was in flight", line)
            job.open("out")
            ends = job.finish()
            self.assertNotEqual(ends["scheduler"].status, 0, cluster.show(ends))

    def test_shard(self):
        self.cut("server 0", 1, r"server 0 at \S+ was lost: ")

    def test_shard_in_worker_0(self):
        self.cut("worker 0", 0, r"the server of worker 0 at \S+ was lost: ")

    def test_scheduler(self):
        """Whoever was cut off dials again, and hears why the job has failed, or finds that nobody is left."""
        self.cut("scheduler", 1, r"(server 0 at \S+|worker 1 \(host \S+, pid \d+\)) was lost: ")


if __name__ == "__main__":
    unittest.main()
