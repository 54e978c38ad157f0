#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST with every worker of a BytePS job.

    byteps run -n 2 -s 1 -- python3 examples/train_fashion_mnist.py --output loss.png

--batch-size is the batch of the whole job. Each worker takes its share of every batch, so the loss curve does not
depend on the number of workers, but for the rounding of sums.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import sys
import time

import byteps.torch as bps
import chart
import fashion_mnist
import torch
from torch.nn import functional

WARM_UP = 0.1  # of all steps


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


def arguments():
    parser = argparse.ArgumentParser(description="Train a small network on Fashion-MNIST in a BytePS job.")
    parser.add_argument("--epochs", type=positive, default=4, help="passes over the images (%(default)s)")
    parser.add_argument("--batch-size", type=positive, default=128, help="images in a step of the job (%(default)s)")
    parser.add_argument("--lr", type=rate, default=0.05, help="highest learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first weights and the shuffling (%(default)s)")
    parser.add_argument("--limit", type=positive, help="train on the first LIMIT images only")
    parser.add_argument("--data", type=pathlib.Path, default=fashion_mnist.FOLDER, help="folder of the images")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="where to train; cuda needs the setting worker.use=cuda (%(default)s)")
    parser.add_argument("--output", type=pathlib.Path, help="write a picture of the loss curve (PNG)")
    parser.add_argument("--curve", type=pathlib.Path, help="write the loss of every step and the results (JSON)")
    options = parser.parse_args()
    # What would fail at the end should fail now.
    for path in filter(None, (options.output, options.curve)):
        if not path.absolute().parent.is_dir():
            parser.error(f"{path}: the folder does not exist")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU here")
    if options.output and not importlib.util.find_spec("matplotlib"):
        parser.error("--output needs matplotlib: pip install matplotlib")
    return options


def load(options):
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


def choose_device(options):
    """Returns the device of this worker: those of a host share its GPUs."""
    if options.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", bps.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


class Trainer:
    """One worker's model, optimizer and figures."""

    def __init__(self, options, data):
        self.options = options
        self.device = choose_device(options)
        images, labels, test = data
        self.images, self.labels = images.to(self.device), labels.to(self.device)
        self.test = [tensor.to(self.device) for tensor in test]
        self.steps = len(self.images) // options.batch_size * options.epochs
        # The workers begin with different weights on purpose: the broadcast gives all of them those of rank 0.
        torch.manual_seed(options.seed + bps.rank())
        self.model = fashion_mnist.network().to(self.device)
        bps.broadcast_parameters(self.model.state_dict(), root_rank=0)
        plain = torch.optim.SGD(self.model.parameters(), lr=options.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.optimizer = bps.DistributedOptimizer(plain, named_parameters=self.model.named_parameters())
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.factor)
        self.curve = []
        self.trained = 0.0
        self.progress = Progress()

    def factor(self, step):
        """Returns the share of the learning rate that a step uses: a short rise, then half a cosine."""
        return min((step + 1) / (WARM_UP * self.steps), 0.5 + 0.5 * math.cos(math.pi * step / self.steps))

    def step(self, batch):
        """Trains on this worker's share of a batch and returns its part of the loss."""
        mine = fashion_mnist.share(batch, bps.rank(), bps.size())
        output = self.model(fashion_mnist.pixels(self.images[mine]))
        # Shares may differ in size. With this factor the average over the workers is the mean over the batch.
        loss = functional.cross_entropy(output, self.labels[mine], reduction="sum") * bps.size() / len(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def accuracy(self):
        """Returns the share of the test images that the model knows, each worker trying its part of them."""
        images, labels = (fashion_mnist.share(tensor, bps.rank(), bps.size()) for tensor in self.test)
        with torch.no_grad():
            right = sum(int((self.model(fashion_mnist.pixels(i)).argmax(1) == n).sum())
                        for i, n in zip(images.split(1000), labels.split(1000)))
        return bps.push_pull(torch.tensor([right]), average=False, name="right").item() / len(self.test[1])

    def epoch(self, number):
        """Trains one epoch and returns its figures, those of the whole job."""
        options = self.options
        plan = fashion_mnist.batches(len(self.images), options.batch_size, number, options.seed)
        losses = torch.empty(len(plan))
        waited, start = self.optimizer.seconds_waited, time.perf_counter()
        for i, batch in enumerate(plan):
            losses[i] = self.step(batch)
            self.progress.show(f"epoch {number + 1}/{options.epochs}  {100 * (i + 1) // len(plan):3d} %  "
                               f"loss {losses[max(0, i - 50):i + 1].mean():.4f}")
        seconds = time.perf_counter() - start
        self.trained += seconds
        waited = self.optimizer.seconds_waited - waited
        share = bps.push_pull(torch.tensor([waited / seconds], dtype=torch.float64), name="waited")
        losses = bps.push_pull(losses, name="losses")
        self.curve += losses.tolist()
        if not losses.isfinite().all():
            sys.exit("the loss is no longer a finite number: try a smaller --lr")
        figures = {"loss": losses.mean().item(), "accuracy": self.accuracy(),
                   "images_per_second": len(plan) * options.batch_size / seconds, "waiting": share.item()}
        self.progress.clear()
        return figures

    def same_weights(self):
        """Returns whether all workers hold exactly the same weights."""
        weights = torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])
        return torch.equal(bps.push_pull(weights, op=bps.Max, name="highest"),
                           bps.push_pull(weights, op=bps.Min, name="lowest"))


def report(figures, name):
    """Returns the line about one epoch."""
    return (f"{name}  loss {figures['loss']:.4f}  test accuracy {100 * figures['accuracy']:.2f} %  "
            f"{figures['images_per_second']:.0f} images/s  "
            f"waiting for communication {100 * figures['waiting']:.0f} % of the time")


def summary(trainer, epochs):
    """Prints what came out and writes the files asked for."""
    options = trainer.options
    title = f"training loss, workers: {bps.size()}"
    say("")
    for line in chart.as_text(trainer.curve, title):
        say(line.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding))
    say("")
    waiting = sum(figures["waiting"] for figures in epochs) / len(epochs)
    say(f"workers         {bps.size()}, all with the same weights at the end")
    say(f"training        {len(trainer.curve)} steps of {options.batch_size} images in {trainer.trained:.1f} s, "
        f"{100 * waiting:.0f} % of it waiting for communication")
    say(f"test accuracy   {100 * epochs[-1]['accuracy']:.2f} %")
    if bps.rank() != 0:
        return
    if options.curve:
        text = json.dumps({"workers": bps.size(), "losses": trainer.curve, "epochs": epochs})
        options.curve.write_text(text + "\n", encoding="ascii")
    if options.output:
        chart.save_png(options.output, trainer.curve, title, options.epochs)
        say(f"loss curve      {options.output}")


def main():
    options = arguments()
    data = load(options)
    bps.init()
    share = max(1, len(os.sched_getaffinity(0)) // bps.local_size())
    torch.set_num_threads(min(share, torch.get_num_threads()))
    trainer = Trainer(options, data)
    say(f"workers: {bps.size()}, images: {len(trainer.images)}, steps: {trainer.steps} of {options.batch_size} images")
    epochs = []
    for number in range(options.epochs):
        epochs.append(trainer.epoch(number))
        say(report(epochs[-1], f"epoch {number + 1}/{options.epochs}"))
    if not trainer.same_weights():
        sys.exit("the workers hold different weights: this must not happen")
    summary(trainer, epochs)
    bps.shutdown()


if __name__ == "__main__":
    main()
