# SPDX-License-Identifier: Apache-2.0
"""Hosts with two interfaces: both carry the bytes, in both directions, and what cannot be so is told."""

import os
import sys
import unittest

import harness

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench"))

from testbed import Testbed, Unavailable, kernel  # noqa: E402  (it lies in the folder that was just added)

WORKER = os.path.abspath(os.path.join(os.environ.get("top_builddir", "."), "tests", "fault", "worker"))
LINKS = 2
NAMES = ("eth0 eth1", "eth1 eth0")
RATE = "100mbit"
"""Slow enough that every connection has to wait: then each carries as much as its link."""
ELEMENTS = 1 << 18
TENSORS = 4
LEAST = 0.4
"""The part of a host's bytes that each of its equal links carries at least."""


class Interfaces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.program()
        if not os.path.exists(WORKER):
            raise unittest.SkipTest(f"{WORKER} has not been built")

    def make_bed(self, hosts):
        try:
            bed = Testbed(hosts, RATE, links=LINKS)
        except Unavailable as reason:
            self.skipTest(str(reason))
        self.addCleanup(bed.close)
        return bed

    def push(self, bed, settings, workers, servers=0, host_settings=None):
        """What all parts of a job have written to standard error."""
        pushes = [f"push:t{i}:{ELEMENTS}:float32:sum:1" for i in range(TENSORS)]
        how = {"servers": servers, "settings": settings, "host_settings": host_settings}
        with bed.job([WORKER, "init", *pushes, "leave"], workers, **how) as job:
            ends = job.finish()
            self.assertEqual({name: end.status for name, end in ends.items() if end.status != 0}, {}, job.show())
        return "".join(end.err for end in ends.values())

    def check_links(self, bed):
        for host, links in enumerate(bed.links_counters()):
            for way in ("sent", "received"):
                carried = [link[way] for link in links]
                self.assertGreater(min(carried), LEAST * sum(carried), (host, way, carried))

    def check_job(self, workers, servers, *settings):
        bed = self.make_bed(len(workers) + servers)
        said = self.push(bed, [f"transports.net.interface={bed.subnets()}", *settings], workers, servers)
        self.assertNotIn("interface", said)
        self.check_links(bed)

    def test_workers_only(self):
        self.check_job([1, 1], 0)

    def test_servers(self):
        self.check_job([1, 1], 2)

    def test_shards_that_the_links_do_not_divide(self):
        self.check_job([1, 1], 1, "server.shards=3")

    def test_names_in_another_order(self):
        bed = self.make_bed(2)
        order = {host: [f"transports.net.interface={names}"] for host, names in enumerate(NAMES)}
        said = self.push(bed, [], [1, 1], host_settings=order)
        self.assertNotIn("interface", said)
        self.check_links(bed)

    def test_hosts_that_name_different_numbers(self):
        bed = self.make_bed(2)
        order = {0: ["transports.net.interface=eth0"], 1: [f"transports.net.interface={bed.subnets()}"]}
        said = self.push(bed, [], [1, 1], host_settings=order)
        self.assertIn("listens on 2 interfaces, and transports.net.interface names 1 here", said)
        self.assertIn("listens on 1 interface, and transports.net.interface names 2 here", said)

    def test_two_in_one_subnet(self):
        bed = self.make_bed(2)
        kernel.batch("ip", bed.namespace(0), ["address add 10.77.0.100/24 dev eth1"])
        said = self.push(bed, [], [1, 1], host_settings={0: ["transports.net.interface=10.77.0.1 10.77.0.100"]})
        self.assertIn("interfaces 10.77.0.1 and 10.77.0.100 are in one subnet", said)


if __name__ == "__main__":
    unittest.main()
