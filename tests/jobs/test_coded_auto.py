# SPDX-License-Identifier: Apache-2.0
"""Compression where it pays, in whole jobs: see scripts/coded_auto.py."""

import os
import sys
import unittest

import scripted

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench"))

from testbed import Testbed, Unavailable  # noqa: E402  (it lies in the folder that was just added)

scripted.require("numpy")

WHEN = """when = "not name ~ '*plain*'\""""


def options(compressor, *stages):
    graph = [*stages[:1], f'{{ stage = "compress"; use = "auto"; {WHEN}; }}', '{ stage = "push_pull"; }', *stages[1:]]
    return ["--set", f"compressors.first = {compressor}", "--set", f"worker.graph = ( {', '.join(graph)} )"]


# All of them bring whole numbers as small as these back as they were.
EXACT = '{ plugin = "cast"; to = "bfloat16"; feedback = true; }'
ALSO_EXACT = '{ plugin = "cast"; to = "float16"; }'
ALONE = options(EXACT)
GROUPED = options(EXACT, '{ stage = "local_reduce"; }', '{ stage = "local_broadcast"; }')


class Scripts(scripted.TestCase):
    def test_two_workers(self):
        self.run_script("coded_auto.py", workers=2, servers=1, options=ALONE)

    def test_three_workers_and_two_servers(self):
        small = ["--set", "worker.partition=64 KiB", "--set", "worker.slice=4 KiB"]
        self.run_script("coded_auto.py", workers=3, servers=2, options=[*options(ALSO_EXACT), *small])

    def test_two_hosts(self):
        self.run_on_hosts("a,a,b", "coded_auto.py", servers=1, options=GROUPED)


class SlowLink(scripted.TestCase):
    def test_it_pays(self):
        try:
            bed = Testbed(3, "20mbit")
        except Unavailable as reason:
            self.skipTest(str(reason))
        self.addCleanup(bed.close)
        command = scripted.script("coded_auto.py", "pays")
        settings = options('{ plugin = "onebit"; feedback = true; }')[1::2]
        with bed.job(command, [1, 1], servers=1, settings=settings) as job:
            failed = {name: end.status for name, end in job.finish().items() if end.status != 0}
            self.assertEqual(failed, {}, job.show())


if __name__ == "__main__":
    unittest.main()
