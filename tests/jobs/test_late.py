# SPDX-License-Identifier: Apache-2.0
"""A worker that others usually wait for is named: at the end of the job, and to all workers."""

import socket
import unittest

import scripted

scripted.require("numpy")

USUAL = "usually the last"


class Late(scripted.TestCase):
    def named(self, result):
        """What the scheduler says of who is late, at the default level of the log."""
        return [line for line in result.err.splitlines() if USUAL in line]

    def assert_named(self, result, who):
        lines = self.named(result)
        self.assertEqual(len(lines), 1, str(result))
        self.assertIn(f"{who} usually the last: the others wait for it", lines[0])

    def test_at_a_server(self):
        options = ["--set", "worker.hierarchy=off"]
        result = self.run_script("late.py", "2", "0.08", workers=3, servers=1, options=options)
        self.assert_named(result, f"worker 2 (host {socket.gethostname()}) is")

    def test_among_workers_of_one_host(self):
        result = self.run_script("late.py", "1", "0.08", workers=3, servers=0)
        self.assert_named(result, f"worker 1 (host {socket.gethostname()}) is")

    def test_in_a_group(self):
        """A late one who leads only some sums of its host, and its peer, are told apart."""
        for late in (2, 3):
            with self.subTest(late=late):
                result = self.run_on_hosts("a,a,b,b", "late.py", str(late), "0.08", servers=1)
                self.assert_named(result, f"worker {late} (host b) is")

    def test_in_turns(self):
        result = self.run_script("late.py", "turns", "0.05", workers=3, servers=1)
        self.assertEqual(self.named(result), [], str(result))


if __name__ == "__main__":
    unittest.main()
