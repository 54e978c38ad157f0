# SPDX-License-Identifier: Apache-2.0
"""With cluster.checksum or cluster.encrypt what a network has changed is found before it is summed."""

import os
import unittest
import uuid

import cluster
import harness

STEPS = ["init", "loop:grad:100000:enough", "?leave"]
KINDS = ("checksum=blake2s", "checksum=gmac", "encrypt=true")
os.environ.setdefault("BYTEPS_SECRET", uuid.uuid4().hex)
DECLARE, PUSH, RESULT = 10, 32, 33
AGAIN = "requesting it again"


def which(frame):
    """How a frame of this type is named that has changed."""
    return (
        "a frame that does not match its checksum: "
        rf"of type {frame}, tensor \d+, partition \d+, offset \d+, round \d+"
    )


@unittest.skipUnless(cluster.TRANSPORT == "tcp", "only what goes over TCP is changed")
class Changed(unittest.TestCase):
    def test_right(self):
        """Nothing is changed: nothing is different."""
        for kind in KINDS:
            for ways in ([], ["worker.hierarchy=on"], ["server.local=true"]):
                with self.subTest(kind, ways=ways):
                    settings = [f"cluster.{kind}", *ways]
                    with cluster.ByHand(STEPS, settings=settings) as job:
                        for part in ("worker 0", "worker 1"):
                            job.wait_for("grad runs", part)
                        job.open("enough")
                        ends = job.finish()
                    for part, end in ends.items():
                        self.assertEqual(end.status, 0, cluster.show(ends))
                        self.assertNotIn("checksum", end.text, part)

    def repaired(self, kind, flips, by, frame, **how):
        """What `by` sends changed is sent again: whoever gets it tells of it, and all sums are right."""
        steps = [f"@{by}:flips:{flips}", *STEPS]
        with cluster.ByHand(steps, settings=[f"cluster.{kind}", *how.pop("settings", ())], **how) as job:
            harness.until(lambda: AGAIN in "".join(end.err for end in job.now().values()), AGAIN, show=job.stacks)
            job.open("enough")
            ends = job.finish()
        self.assertRegex(
            "".join(end.err for end in ends.values()),
            rf"WARN .* link: \S+: it sent {which(frame)}; {AGAIN}\n",
        )
        for part, end in ends.items():
            self.assertEqual(end.status, 0, cluster.show(ends))
            self.assertNotIn("ERROR", end.err, part)
            if part.startswith("worker"):
                self.assertIn("grad is right", end.out)

    def test_sent_again(self):
        """A frame that has changed once or twice is sent again."""
        serves = {"servers": 0, "settings": ["cluster.colocated=first"]}
        for kind in KINDS:
            for frame, flips, by, how in (
                (PUSH, "5:1", 1, {}),
                (PUSH, "5:2", 1, {}),
                (RESULT, "5:1", 0, serves),
                (DECLARE, "1:2", 1, {}),
            ):
                with self.subTest(kind, frame=frame, flips=flips):
                    self.repaired(kind, f"{frame}:{flips}", by, frame, **how)

    def test_three_in_a_row(self):
        """What never arrives as it was sent ends the job, and both ends of the link say what it was."""
        for kind in KINDS:
            with self.subTest(kind):
                settings = [f"cluster.{kind}", "server.shards=1"]
                with cluster.ByHand([f"@1:flips:{PUSH}:5:9999", *STEPS], settings=settings) as job:
                    ends = job.finish()
                err = ends["server 0"].err
                self.assertRegex(err, r"ERROR server/0 link: \S+: it sent " + which(PUSH))
                self.assertEqual(err.count("requesting it again"), 2, err)
                self.assertRegex(ends["worker 1"].out, r"server 0 at \S+ was lost: it got " + which(PUSH))
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
