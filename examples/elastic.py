#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST with PyTorch in an elastic job, whose workers come and go.

    byteps run -n 3 -s 1 --min-workers 1 --max-workers 4 -- python3 examples/elastic.py

Kill a worker: the others make its last step again without it. byteps run starts another one in its place, which begins
where they are. --batch-size and --lr are those of each worker, so that more workers make fewer steps of a higher rate.
"""

import argparse
import os
import pathlib

import byteps.torch as bps
import fashion_mnist
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
    parser.add_argument("--limit", type=training.positive, help="train on the first LIMIT images only")
    parser.add_argument("--data", type=pathlib.Path, default=fashion_mnist.FOLDER, help="folder of the images")
    return parser.parse_args()


@torch.no_grad()
def accuracy(model, images, labels):
    """Returns the share of the test images that the model knows, each worker trying its part of them."""
    mine = slice(bps.rank(), None, bps.size())
    right = (model(pixels(images[mine])).argmax(1) == labels[mine]).sum()
    return bps.push_pull(right, average=False, name="right").item() / len(labels)


@bps.elastic.run
def train(state, images, labels, test):
    training.say(f"{bps.size()} workers go on in epoch {state.epoch + 1}, after {state.steps} steps")
    batches = torch.utils.data.BatchSampler(state.sampler, state.options.batch_size, drop_last=False)
    while state.epoch < state.options.epochs:
        for number, batch in enumerate(batches):
            state.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(state.model(pixels(images[batch])), labels[batch])
            loss.backward()
            state.optimizer.step()
            state.steps += 1  # nothing that may fail is between step() and these
            state.loss = loss.item()
            state.sampler.record_batch(number, len(batch))
            state.check_host_updates()
        known = accuracy(state.model, *test)
        training.say(f"epoch {state.epoch + 1}/{state.options.epochs}  steps {state.steps}  loss {state.loss:.4f}  "
                     f"test accuracy {100 * known:.2f} %  workers {bps.size()}")
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)


def main():
    chosen = options()
    images, labels, test = training.load(chosen)
    bps.init()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // bps.local_size()))
    model = network()
    plain = torch.optim.SGD(model.parameters(), lr=chosen.lr * bps.size(), momentum=training.MOMENTUM)
    optimizer = bps.DistributedOptimizer(plain, model.named_parameters())

    def scale_rate():
        for group in optimizer.param_groups:
            group["lr"] = chosen.lr * bps.size()

    state = bps.elastic.TorchState(model, optimizer, sampler=bps.elastic.ElasticSampler(images), epoch=0, steps=0,
                                   loss=0.0, options=chosen)
    state.register_reset_callbacks([scale_rate])
    train(state, torch.from_numpy(images), torch.from_numpy(labels), tuple(map(torch.from_numpy, test)))
    bps.shutdown()


if __name__ == "__main__":
    main()
