# SPDX-License-Identifier: Apache-2.0
"""Random operations, tests/jobs/stress.c, of workers on one host, with every way that shared memory has for payloads:
among the workers, and between them and the servers there.

Every run draws a new plan; a failure prints its seed, which STRESS_SEED repeats.
"""

import os
import pathlib
import random
import unittest

import harness
import scripted

PROGRAM = pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "stress")
TEXTS = {
    "process_vm": "large payloads in ordinary memory go by process_vm_readv",
    "arena": "large payloads go through a shared arena, as the option copy says",
    "ring": "large payloads go through the ring in pieces, as the option copy says",
}


class SharedMemory(unittest.TestCase):
    def check_job(self, way, settings, workers=3, servers=0, steps=4, hierarchy="on"):
        seed = os.environ.get("STRESS_SEED") or str(random.randrange(1 << 32))
        every = (*settings, f"transports.local.copy={way}", f"worker.hierarchy={hierarchy}", "log.level=info")
        options = [word for setting in every for word in ("--set", setting)]
        command = [str(PROGRAM), seed, str(steps), "2"]
        result = harness.run(command, workers=workers, servers=servers, options=options)
        self.assertEqual(result.status, 0, f"seed {seed}\n{result}")
        self.assertIn(TEXTS[way], str(result), f"seed {seed}")
        return result

    def test_each_way(self):
        for way in TEXTS:
            with self.subTest(way=way):
                self.check_job(way, ("worker.partition=64 KiB", "transports.local.inline_bytes=256"))

    @scripted.unwatched
    def test_each_way_without_small_frames(self):
        for way in TEXTS:
            with self.subTest(way=way):
                self.check_job(way, ("worker.partition=16 KiB", "transports.local.inline_bytes=0"), workers=2)

    def test_little_room(self):
        """The arena is full now and then, the ring always, and few bytes may wait for a peer."""
        room = ("transports.local.inline_bytes=64", "transports.local.ring=16 KiB", "transports.local.window=64 KiB")
        for way in TEXTS:
            with self.subTest(way=way):
                self.check_job(way, ("worker.partition=64 KiB", "transports.local.arena=128 KiB", *room), workers=4)

    @scripted.unwatched
    def test_with_a_server(self):
        self.check_job("arena", ("worker.partition=64 KiB", "transports.local.inline_bytes=256"), servers=1)

    def test_servers(self):
        """One beside the workers, or inside each; whatever the order of the sums."""
        for way in TEXTS:
            for servers, colocated, order in ((1, "none", "arrival"), (0, "all", "arrival"), (1, "none", "rank")):
                with self.subTest(way=way, colocated=colocated, order=order):
                    settings = (f"cluster.colocated={colocated}", f"server.order={order}", "worker.slice=32 KiB",
                                "transports.local.inline_bytes=256")  # slices of small models are small
                    result = self.check_job(way, settings, servers=servers, hierarchy="off")
                    self.assertNotIn("is reached through 'net'", str(result))


if __name__ == "__main__":
    unittest.main()
