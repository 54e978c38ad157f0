# SPDX-License-Identifier: Apache-2.0
"""With cluster.checksum what a network has changed is found before it is summed."""

import unittest

import cluster

STEPS = ["init", "loop:grad:100000:enough", "?leave"]
WHICH = (
    "a frame that does not match its checksum: "
    r"of type 32, tensor \d+, partition \d+, offset \d+, round \d+"
)
LINE = r"ERROR server/0 link: \S+: it sent " + WHICH
GOT = "it got " + WHICH
KINDS = ("blake2s", "gmac")


@unittest.skipUnless(cluster.TRANSPORT == "tcp", "only what goes over TCP is changed")
class Changed(unittest.TestCase):
    def test_right(self):
        """Nothing is changed: nothing is different."""
        for kind in KINDS:
            for ways in ([], ["worker.hierarchy=on"], ["server.local=true"]):
                with self.subTest(kind, ways=ways):
                    settings = [f"cluster.checksum={kind}", *ways]
                    with cluster.ByHand(STEPS, settings=settings) as job:
                        for part in ("worker 0", "worker 1"):
                            job.wait_for("grad runs", part)
                        job.open("enough")
                        ends = job.finish()
                    for part, end in ends.items():
                        self.assertEqual(end.status, 0, cluster.show(ends))
                        self.assertNotIn("checksum", end.text, part)

    def test_a_bit(self):
        """A bit of a slice is another one: the job ends, and says why."""
        for kind in KINDS:
            with self.subTest(kind):
                with cluster.ByHand(["@1:flips:5:1", *STEPS], settings=[f"cluster.checksum={kind}"]) as job:
                    ends = job.finish()
                self.assertRegex(ends["server 0"].err, LINE)
                self.assertRegex(ends["worker 1"].out, r"server 0 at \S+ was lost: " + GOT)
                for part in ("worker 0", "worker 1"):
                    self.assertNotEqual(ends[part].status, 0, cluster.show(ends))
                    self.assertNotIn("the sum is wrong", ends[part].text)

    def test_another_one_there(self):
        """Who has another setting is told so."""
        with cluster.ByHand(
            ["init"], settings=["cluster.checksum=gmac"], extra={"worker 1": ["cluster.checksum=none"]}
        ) as job:
            line = job.wait_for("cluster.checksum", "worker 1", "any")
            self.assertIn("cluster.checksum is none here, but gmac there; it must be the same on all members", line)
            job.kill("worker 0")
            job.kill("server 0")
            job.kill("scheduler")
            job.finish()


if __name__ == "__main__":
    unittest.main()
