# SPDX-License-Identifier: Apache-2.0
"""What the examples that train on Fashion-MNIST share, whatever their framework: options, the loop, figures, curve.

An example makes a subclass of Trainer, which trains on one batch and knows its model, and gives it to main().
"""

import argparse
import importlib.util
import json
import math
import pathlib
import sys
import time

import byteps
import byteps.numpy as bps
import chart
import fashion_mnist
import numpy

WARM_UP = 0.1  # of all steps
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4  # of the optimizers


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def rate(text):
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError("must be more than 0")
    return number


def make_parser(framework):
    """Returns the parser of the options that all examples have."""
    parser = argparse.ArgumentParser(
        description=f"Train a small network on Fashion-MNIST with {framework} in a BytePS job."
    )
    parser.add_argument("--epochs", type=positive, default=4, help="passes over the images (%(default)s)")
    parser.add_argument("--batch-size", type=positive, default=128, help="images in a step of the job (%(default)s)")
    parser.add_argument("--lr", type=rate, default=0.05, help="highest learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first weights and the shuffling (%(default)s)")
    parser.add_argument("--limit", type=positive, help="train on the first LIMIT images only")
    parser.add_argument("--data", type=pathlib.Path, default=fashion_mnist.FOLDER, help="folder of the images")
    parser.add_argument("--compress", metavar="NAME",
                        help="code gradients on the network by this compressor, such as onebit")
    parser.add_argument("--output", type=pathlib.Path, help="write a picture of the loss curve (PNG)")
    parser.add_argument("--curve", type=pathlib.Path, help="write the loss of every step and the results (JSON)")
    return parser


def parse(parser):
    """Returns the options; what would fail at the end fails now."""
    options = parser.parse_args()
    for path in filter(None, (options.output, options.curve)):
        if not path.absolute().parent.is_dir():
            parser.error(f"{path}: the folder does not exist")
    if options.output and not importlib.util.find_spec("matplotlib"):
        parser.error("--output needs matplotlib: pip install matplotlib")
    return options


def coding(options):
    """Returns what the argument `compression` is to be, and the momentum of the optimizer.

    What coding loses is made good in later steps. Momentum comes before it: an optimizer's own would amplify what
    coding has lost.
    """
    if not options.compress:
        return None, MOMENTUM
    return {"compressor": options.compress, "ef": "vanilla", "momentum": "nesterov", "mu": MOMENTUM}, 0.0


def load(options):
    """Returns images and labels to train on, and those to test with."""
    try:
        images, labels = fashion_mnist.load("train", options.data)
        test = fashion_mnist.load("t10k", options.data)
    except (OSError, EOFError, ValueError) as error:
        sys.exit(f"{error}\nThe images are in the Debian package dataset-fashion-mnist; --data names another folder.")
    if options.limit:
        images, labels = images[: options.limit], labels[: options.limit]
    if len(images) < options.batch_size:
        sys.exit(f"{len(images)} images are not enough for one batch of {options.batch_size}")
    return images, labels, test


def say(*words):
    """Prints a line, once per job."""
    if bps.rank() == 0:
        print(*words, flush=True)


class Progress:
    """Says how far the training is: on a terminal in one line that changes, else in a line every few seconds."""

    def __init__(self):
        self.live = sys.stdout.isatty()
        self.pause = 0.2 if self.live else 3.0
        self.next = time.monotonic() + self.pause

    def show(self, text):
        if bps.rank() == 0 and time.monotonic() >= self.next:
            print(f"\r\033[K{text}" if self.live else text, end="" if self.live else "\n", flush=True)
            self.next = time.monotonic() + self.pause

    def clear(self):
        """Makes room for another line, and the next words wait again."""
        if bps.rank() == 0 and self.live:
            print("\r\033[K", end="", flush=True)
        self.next = time.monotonic() + self.pause


class Trainer:
    """One worker's part of a training. An example says how a step, a test and the weights are."""

    def __init__(self, options, data):
        self.options = options
        self.images, self.labels, self.test = data
        self.steps = len(self.images) // options.batch_size * options.epochs

    def step(self, batch, rate):
        """Trains on this worker's share of a batch and returns its part of the loss.

        The average of the parts over the workers is the mean over the batch, also where the shares differ in size.

        Args:
            batch: the numbers of the images in the batch of the whole job.
            rate: the learning rate.
        """
        raise NotImplementedError

    def count_right(self, images, labels):
        """Returns how many of these images the model knows."""
        raise NotImplementedError

    def weights(self):
        """Returns all weights in one NumPy array."""
        raise NotImplementedError

    def seconds_waited(self):
        """Returns the time spent waiting for communication so far; None: it is not known."""
        return None

    def share(self, batch):
        """Returns this worker's part of a batch."""
        return fashion_mnist.share(batch, bps.rank(), bps.size())

    def factor(self, step):
        """Returns the share of the learning rate that a step uses: a short rise, then half a cosine."""
        return min((step + 1) / (WARM_UP * self.steps), 0.5 + 0.5 * math.cos(math.pi * step / self.steps))


class Job:
    """The training of all workers: epochs, and what is said and written of them."""

    def __init__(self, trainer):
        self.trainer, self.options = trainer, trainer.options
        self.curve, self.epochs = [], []
        self.trained = 0.0
        self.progress = Progress()

    def epoch(self, number):
        """Trains one epoch and returns its figures, those of all workers."""
        trainer, options = self.trainer, self.options
        plan = fashion_mnist.batches(len(trainer.images), options.batch_size, number, options.seed)
        losses = numpy.empty(len(plan))
        waited, start = trainer.seconds_waited(), time.perf_counter()
        for i, batch in enumerate(plan):
            losses[i] = trainer.step(batch, options.lr * trainer.factor(number * len(plan) + i))
            self.progress.show(f"epoch {number + 1}/{options.epochs}  {100 * (i + 1) // len(plan):3d} %  "
                               f"loss {losses[max(0, i - 50):i + 1].mean():.4f}")
        seconds = time.perf_counter() - start
        self.trained += seconds
        losses = bps.push_pull(losses, name="losses")
        self.curve += losses.tolist()
        if not numpy.isfinite(losses).all():
            sys.exit("the loss is no longer a finite number: try a smaller --lr")
        figures = {"loss": losses.mean(), "accuracy": self.accuracy(),
                   "images_per_second": len(plan) * options.batch_size / seconds}
        if waited is not None:
            share = (trainer.seconds_waited() - waited) / seconds
            figures["waiting"] = float(bps.push_pull(share, name="waited"))
        self.progress.clear()
        return figures

    def accuracy(self):
        """Returns the share of the test images that the model knows, each worker trying its part of them."""
        images, labels = map(self.trainer.share, self.trainer.test)
        parts = range(0, len(images), 1000)
        right = sum(self.trainer.count_right(images[i:i + 1000], labels[i:i + 1000]) for i in parts)
        return int(bps.push_pull(right, average=False, name="right")) / len(self.trainer.test[1])

    def same_weights(self):
        """Returns whether all workers hold exactly the same weights."""
        weights = self.trainer.weights()
        return numpy.array_equal(bps.push_pull(weights, op=bps.Max, name="highest"),
                                 bps.push_pull(weights, op=bps.Min, name="lowest"))

    def train(self):
        options, trainer = self.options, self.trainer
        say(f"workers: {bps.size()}, images: {len(trainer.images)}, steps: {trainer.steps} of {options.batch_size} "
            "images")
        for number in range(options.epochs):
            self.epochs.append(self.epoch(number))
            say(report(self.epochs[-1], f"epoch {number + 1}/{options.epochs}"))
        if not self.same_weights():
            sys.exit("the workers hold different weights: this must not happen")
        self.summary()

    def summary(self):
        """Prints what came out and writes the files asked for."""
        options = self.options
        title = f"training loss, workers: {bps.size()}"
        say("")
        for line in chart.as_text(self.curve, title):
            say(line.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding))
        say("")
        say(f"workers         {bps.size()}, all with the same weights at the end")
        say(f"training        {len(self.curve)} steps of {options.batch_size} images in {self.trained:.1f} s"
            + self.waiting())
        say(f"test accuracy   {100 * self.epochs[-1]['accuracy']:.2f} %")
        self.say_what_was_coded()
        if bps.rank() != 0:
            return
        if options.curve:
            text = json.dumps({"workers": bps.size(), "losses": self.curve, "epochs": self.epochs})
            options.curve.write_text(text + "\n", encoding="ascii")
        if options.output:
            chart.save_png(options.output, self.curve, title, options.epochs)
            say(f"loss curve      {options.output}")

    def say_what_was_coded(self):
        """Says how much less the workers have sent because gradients were coded."""
        plain, coded = bps.push_pull(numpy.array(byteps.coded_bytes(), numpy.float64), average=False, name="coded")
        if coded:
            say(f"gradients       {plain / 1e6:.0f} MB, sent as {coded / 1e6:.1f} MB ({plain / coded:.0f} times fewer)")
        elif self.options.compress:
            say("gradients       nothing was coded: workers of one host sum them in shared memory, unless the job has "
                "worker.hierarchy=off and a server")

    def waiting(self):
        """Returns the words about the time spent waiting, if that is known."""
        if "waiting" not in self.epochs[0]:
            return ""
        share = sum(figures["waiting"] for figures in self.epochs) / len(self.epochs)
        return f", {100 * share:.0f} % of it waiting for communication"


def report(figures, name):
    """Returns the line about one epoch."""
    line = (f"{name}  loss {figures['loss']:.4f}  test accuracy {100 * figures['accuracy']:.2f} %  "
            f"{figures['images_per_second']:.0f} images/s")
    if "waiting" in figures:
        line += f"  waiting for communication {100 * figures['waiting']:.0f} % of the time"
    return line
