# SPDX-License-Identifier: Apache-2.0
"""The training example: however many workers and servers there are, the loss curve is that of plain PyTorch.

A step in float32 rounds to about 1e-7, in another order of summing for each number of workers, and training amplifies
that. Over the steps used here the curves were seen to part by up to 2e-5 of their values, while a learning rate
that is 1 % off parts them by 1e-2: TOLERANCE lies between the two, and test_control shows that it can be exceeded.
"""

import importlib.util
import json
import math
import os
import pathlib
import sys
import tempfile
import unittest

import harness

# Threads that spin while they wait for each other need minutes on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed for this Python") from None

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import fashion_mnist  # noqa: E402

SEED, BATCH, STEPS, RATE = 3, 96, 40, 0.01
TOLERANCE = 1e-3


def plain_training(rate):
    """Trains in this process, without BytePS, and returns the loss of each step."""
    images, labels = fashion_mnist.load("train")
    torch.manual_seed(SEED)
    model = fashion_mnist.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0, momentum=0.9, nesterov=True, weight_decay=5e-4)
    losses = []
    for step, batch in enumerate(fashion_mnist.batches(BATCH * STEPS, BATCH, 0, SEED)):
        factor = min((step + 1) / (0.1 * STEPS), (1 + math.cos(math.pi * step / STEPS)) / 2)
        optimizer.param_groups[0]["lr"] = rate * factor
        loss = torch.nn.functional.cross_entropy(model(fashion_mnist.pixels(images[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def distance(losses, reference):
    """Returns the largest relative difference of two curves."""
    return max(abs(a - b) / b for a, b in zip(losses, reference))


@unittest.skipUnless(fashion_mnist.FOLDER.is_dir(), "the Debian package dataset-fashion-mnist is not installed")
class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.reference = plain_training(RATE)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def example(self, *options, **job):
        command = [harness.python(), str(EXAMPLES / "train_fashion_mnist.py"), *map(str, options)]
        return harness.run(command, **job)

    def check_curve(self, *options, **job):
        """Runs the example with --curve, compares the curve with the reference, returns the output and the results."""
        path = self.folder / "curve.json"
        result = self.example("--epochs", 1, "--limit", BATCH * STEPS, "--batch-size", BATCH, "--lr", RATE,
                              "--seed", SEED, "--curve", path, *options, **job)
        self.assertEqual(result.status, 0, result)
        curve = json.loads(path.read_text(encoding="ascii"))
        self.assertEqual(curve["workers"], job["workers"])
        self.assertEqual(len(curve["losses"]), STEPS)
        self.assertLess(distance(curve["losses"], self.reference), TOLERANCE)
        return result, curve

    def test_control(self):
        self.assertGreater(distance(plain_training(1.01 * RATE), self.reference), TOLERANCE)

    def test_one_worker(self):
        self.check_curve(workers=1)

    def test_two_workers_and_a_server(self):
        drawn = importlib.util.find_spec("matplotlib") is not None
        picture = self.folder / "loss.png"
        options = ["--output", picture] if drawn else []
        result, curve = self.check_curve(*options, workers=2, servers=1)
        text = "\n".join(result.lines("worker 0"))
        for words in ("epoch 1/1", "test accuracy", "images/s", "waiting for communication", "same weights"):
            self.assertIn(words, text)
        self.assertEqual(result.lines("worker 1"), [])
        self.assertTrue(0 <= curve["epochs"][0]["waiting"] <= 1, curve["epochs"])
        if drawn:
            self.assertIn(str(picture), text)
            self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_server_in_the_first_worker(self):
        self.check_curve(workers=2, servers=0)

    def test_three_workers_and_two_servers(self):
        self.check_curve(workers=3, servers=2)

    def test_no_images(self):
        result = self.example("--data", self.folder, workers=2, servers=1)
        self.assertNotEqual(result.status, 0, result)
        self.assertIn("dataset-fashion-mnist", result.err)

    def test_divergence(self):
        result = self.example("--epochs", 1, "--limit", 640, "--batch-size", 64, "--lr", 1e9, workers=2, servers=1)
        self.assertNotEqual(result.status, 0, result)
        self.assertIn("smaller --lr", result.err)


if __name__ == "__main__":
    unittest.main()
