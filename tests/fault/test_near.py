# SPDX-License-Identifier: Apache-2.0
"""The bad days of the other files once more where workers and servers of one host share memory.

The words must be the same as over the network. And which way is taken, and what the log says of it.
"""

import unittest

import cluster
import test_disagreement
import test_kills
import test_leaks
import test_local
import test_stops
import wire

cluster.HIERARCHY, cluster.LOCAL = "off", "true"
PUSH = ["init", "push:t:100000:float32:sum:1", "leave"]


class Ways(unittest.TestCase):
    def ends(self, steps=PUSH, servers=1, settings=(), **how):
        with cluster.ByHand(steps, 2, servers, ["log.level=info", *settings], **how) as job:
            ends = job.finish()
        text = cluster.show(ends)
        for end in ends.values():
            self.assertEqual(end.status, 0, text)
        for rank in range(2):
            self.assertIn("t: 3\n", ends[f"worker {rank}"].out, text)
        return ends, text

    def test_through_shared_memory(self):
        for servers, who, settings in ((1, "server 0", ()), (0, "the server of worker 0", ["cluster.colocated=first"])):
            with self.subTest(who):
                ends, text = self.ends(servers=servers, settings=settings)
                for rank in range(2):
                    self.assertIn(f"{who} is reached through 'local'", ends[f"worker {rank}"].err, text)
                    self.assertNotIn("WARN", ends[f"worker {rank}"].err, text)

    def test_switched_off(self):
        """On either side."""
        for part in ("server 0", "worker 0"):
            ends, text = self.ends(extra={part: ["server.local=false"]})
            for rank in range(2):
                way = "local" if part == "worker 0" and rank == 1 else "net"
                self.assertIn(f"server 0 is reached through '{way}'", ends[f"worker {rank}"].err, text)

    def test_no_plugin(self):
        """Whoever has not got it says so, and uses the network's."""
        nowhere = ["transports.local.plugin=nowhere"]
        says = {
            "server 0": "workers of this host reach this server through the network: BYTEPS_SET: transports.local",
            "worker 0": "servers of this host are reached through the network: BYTEPS_SET: transports.local",
        }
        for part, words in says.items():
            ends, text = self.ends(extra={part: nowhere})
            self.assertEqual(ends[part].err.count(words), 1, text)
            self.assertIn("server 0 is reached through 'net'", ends["worker 0"].err, text)

    def test_wrong_option(self):
        settings = ["transports.local.ringg=3", "cluster.rendezvous_timeout=1s"]
        with cluster.ByHand(PUSH, 1, 1, settings) as job:
            ends = job.finish()
        self.assertRegex(ends["worker 0"].out, "error: .*transports.local.ringg: unknown key", cluster.show(ends))


class Kills(test_kills.ByHand):
    pass


class TooLong(test_stops.TooLong):
    pass


class NotTooLong(test_stops.NotTooLong):
    pass


class Mismatch(test_disagreement.Mismatch):
    pass


class Stage(test_disagreement.Stage):
    pass


class Leaving(test_disagreement.Leaving):
    pass


class Stall(test_disagreement.Stall):
    pass


class Leaks(test_leaks.Leaks):
    pass


class Strangers(test_local.Strangers):
    """Processes of the same user at the server's socket."""

    SERVERS, LISTENERS = 1, "server"

    def test_no_proof(self):
        with self.running() as job:
            for rank, epoch in ((0, 1), (7, 1)):
                with self.subTest(rank), test_local.Visitor(job.names["server 0"]) as visitor:
                    nonce = visitor.open().nonce()
                    visitor.put(wire.hello(nonce, wire.data(rank, 1, epoch)))
                    kind, text = visitor.get()
                    self.assertEqual(kind, wire.REFUSE)
                    self.assertTrue(text.decode().startswith(wire.FOREIGN), text)
                    visitor.wait_for_end()


if __name__ == "__main__":
    unittest.main()
