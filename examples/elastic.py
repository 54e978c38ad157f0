#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST with PyTorch in an elastic job, whose workers come and go.

    byteps run -n 3 -s 1 --min-workers 1 --max-workers 4 -- python3 examples/elastic.py

Kill a worker: the others make its last step again without it. byteps run starts another one in its place, which begins
where they are. --batch-size and --lr are those of each worker, so that more workers make fewer steps of a higher rate.

By itself, this starts such a job and kills one of its processes at random about every 5 seconds until the end (see
kill_at_random.py). The weights of all workers are compared after each step:

    examples/elastic.py --kill-every 5
"""

import argparse
import hashlib
import os
import pathlib
import sys

import byteps.torch as bps
import chart
import fashion_mnist
import kill_at_random
import torch
import training
from torch import nn
from train_fashion_mnist import network, pixels


def options():
    parser = argparse.ArgumentParser(description="Train on Fashion-MNIST while workers come and go.")
    parser.add_argument("--epochs", type=training.positive, default=4, help="passes over the images (%(default)s)")
    parser.add_argument("--batch-size", type=training.positive, default=32,
                        help="images in a step of a worker (%(default)s)")
    parser.add_argument("--lr", type=training.rate, default=0.01, help="learning rate for each worker (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of first weights, shuffling and kills (%(default)s)")
    parser.add_argument("--limit", type=training.positive, help="train on the first LIMIT images only")
    parser.add_argument("--data", type=pathlib.Path, default=fashion_mnist.FOLDER, help="folder of the images")
    parser.add_argument("--check", action="store_true", help="compare the weights of all workers after each step")
    parser.add_argument("--kill-every", type=float, default=5, metavar="SECONDS",
                        help="how often to kill a process of the job that this starts; 0: never (%(default)s)")
    parser.add_argument("--kills", type=int, default=sys.maxsize, help="stop killing after so many")
    return parser.parse_args()


@torch.no_grad()
def figures(state, images, labels):
    """Returns the loss of this epoch and the share of the test images that the model knows; each worker adds a part."""
    mine = slice(bps.rank(), None, bps.size())
    right = (state.model(pixels(images[mine])).argmax(1) == labels[mine]).sum()
    losses = torch.tensor(state.losses[state.begin:], dtype=torch.float64)
    parts = torch.stack([losses.mean() / bps.size(), right / len(labels)])
    return bps.push_pull(parts, average=False, name="figures").tolist()


def weights_hash(state):
    """Returns a hash of all weights and of the number of steps, of 56 bits."""
    digest = hashlib.blake2b(str(state.steps).encode(), digest_size=7)
    for parameter in state.model.parameters():
        digest.update(parameter.detach().numpy())
    return int.from_bytes(digest.digest(), "big")


def compare(state):
    """Ends the training if the workers do not hold the same weights, bit by bit, after the same number of steps."""
    own = weights_hash(state)
    highest, lowest = bps.push_pull(torch.tensor([own, -own]), op=bps.Max, name="hashes").tolist()
    if highest != -lowest:
        sys.exit(f"the workers differ after step {state.steps}: worker {bps.rank()} has {own:014x}")


@bps.elastic.run
def train(state, images, labels, test):
    training.say(f"{bps.size()} workers go on in epoch {state.epoch + 1}, after {state.steps} steps")
    if state.options.check:
        print(f"trains as {bps.rank()} of {bps.size()}, after {state.steps} steps", flush=True)
        compare(state)
    batches = torch.utils.data.BatchSampler(state.sampler, state.options.batch_size, drop_last=False)
    while state.epoch < state.options.epochs:
        for number, batch in enumerate(batches):
            state.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(state.model(pixels(images[batch])), labels[batch])
            loss.backward()
            state.optimizer.step()
            state.steps += 1  # nothing that may fail is between step() and these
            state.losses.append(loss.item())
            state.sampler.record_batch(number, len(batch))
            if state.options.check:
                compare(state)
            state.check_host_updates()
        loss, known = figures(state, *test)
        training.say(f"epoch {state.epoch + 1}/{state.options.epochs}  steps {state.steps}  loss {loss:.4f}  "
                     f"test accuracy {100 * known:.2f} %  workers {bps.size()}")
        state.report += f"  loss {loss:.4f}  test accuracy {100 * known:.2f} %"
        state.epoch, state.begin = state.epoch + 1, state.steps
        state.sampler.set_epoch(state.epoch)


def main():
    chosen = options()
    if not os.environ.keys() & {"BYTEPS_SET", "BYTEPS_CONF", "DMLC_ROLE"}:  # nobody has told of a job
        command = [sys.executable, *sys.argv, "--check"]
        sys.exit(kill_at_random.main(command, chosen.kill_every, chosen.kills, chosen.seed))
    images, labels, test = training.load(chosen)
    bps.init()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // bps.local_size()))
    torch.manual_seed(chosen.seed)
    model = network()
    plain = torch.optim.SGD(model.parameters(), lr=chosen.lr * bps.size(), momentum=training.MOMENTUM)
    optimizer = bps.DistributedOptimizer(plain, model.named_parameters())

    def scale_rate():
        for group in optimizer.param_groups:
            group["lr"] = chosen.lr * bps.size()

    sampler = bps.elastic.ElasticSampler(images, seed=chosen.seed)
    state = bps.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, begin=0, steps=0, losses=[], report="",
                                   options=chosen)
    state.register_reset_callbacks([scale_rate])
    train(state, torch.from_numpy(images), torch.from_numpy(labels), tuple(map(torch.from_numpy, test)))
    for line in chart.as_text(state.losses, "training loss"):
        training.say(line)
    if chosen.check:
        print(f"ends after {state.steps} steps{state.report}  weights {weights_hash(state):014x}", flush=True)
    bps.shutdown()


if __name__ == "__main__":
    main()
