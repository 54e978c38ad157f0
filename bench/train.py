#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker of `byteps bench train`: a small PyTorch training on random images, with and without communication.

train.py [--rounds R] [--json] [--conf FILE] [--set KEY=VALUE]...
train.py --check     says what stands in the way, if anything

In each round one worker trains alone, then all at the same time without communication, then all as a job does, so that
the three see the same machine. Each has its share of the cores, also when it is alone.
"""

import argparse
import copy
import importlib.util
import json
import os
import statistics
import sys
import time

BATCH = 32  # of each worker
ROUND_SECONDS = 0.5
WAYS = ("alone", "without communication", "with communication")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--conf")
    parser.add_argument("--set", action="append", default=[])
    return parser.parse_args()


class Trainer:
    """A network, trained with the gradients of this worker or of all."""

    def __init__(self, torch, bps):
        self.torch, self.bps, self.waited = torch, bps, 0.0
        nn = torch.nn
        self.networks = {False: nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 8 * 8, 512), nn.ReLU(), nn.Linear(512, 10))}
        self.networks[True] = copy.deepcopy(self.networks[False])
        self.optimizers = {
            own: torch.optim.SGD(network.parameters(), lr=1e-4) for own, network in self.networks.items()
        }
        self.optimizers[True] = bps.DistributedOptimizer(
            self.optimizers[True], named_parameters=self.networks[True].named_parameters())
        bps.broadcast_parameters(self.networks[True].state_dict(), root_rank=0)
        self.images, self.labels = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))

    def elements(self):
        return sum(parameter.numel() for parameter in self.networks[True].parameters())

    def train(self, steps, communicate):
        network, optimizer = self.networks[communicate], self.optimizers[communicate]
        for _ in range(steps):
            optimizer.zero_grad()
            self.torch.nn.functional.cross_entropy(network(self.images), self.labels).backward()
            if communicate:
                begin = time.perf_counter()
                optimizer.synchronize()
                self.waited += time.perf_counter() - begin
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()

    def over_all(self, value, **how):
        number = self.torch.tensor([value], dtype=self.torch.float64)
        return self.bps.push_pull(number, name=f"figure {how}", **how).item()

    def timed(self, steps, way):
        """(seconds of the slowest worker, mean share of the time that workers wait for communication)."""
        self.over_all(0.0, op=self.bps.Max)  # begin together
        self.waited, begin = 0.0, time.perf_counter()
        if way != "alone" or self.bps.rank() == 0:
            self.train(steps, communicate=way == "with communication")
        seconds = time.perf_counter() - begin
        share = self.waited / seconds
        return self.over_all(seconds, op=self.bps.Max), self.over_all(share, op=self.bps.Average)


def measure(trainer, rounds):
    """What is printed: medians of all rounds, and of the ratios within each."""
    size, rates, waiting = trainer.bps.size(), {way: [] for way in WAYS}, []
    for way in WAYS:
        trainer.timed(2, way)
    once = max(trainer.timed(2, way)[0] for way in WAYS) / 2
    steps = max(1, int(ROUND_SECONDS / once))
    for _ in range(rounds):
        for way in WAYS:
            seconds, share = trainer.timed(steps, way)
            rates[way].append(steps * BATCH * (1 if way == "alone" else size) / seconds)
        waiting.append(share)
    alone, without, together = rates.values()
    return {
        "workers": size, "rounds": rounds,
        "bytes": 4 * trainer.elements(), "batch": BATCH, "steps": steps, "threads": trainer.torch.get_num_threads(),
        "images_per_second": {way.replace(" ", "_"): statistics.median(rates[way]) for way in WAYS},
        "ratio_to_alone": statistics.median(t / a for t, a in zip(together, alone)),
        "ratio_to_without_communication": statistics.median(t / w for t, w in zip(together, without)),
        "waiting_share": statistics.median(waiting),
    }


def show(found):
    rates = found["images_per_second"]
    print(f"training a network of {found['bytes'] / 1e6:.1f} MB on random images, {found['batch']} in a step of each "
          f"worker;\n{found['workers']} workers with {found['threads']} threads each; {found['rounds']} rounds\n")
    for way in WAYS:
        who = "one worker alone" if way == "alone" else f"{found['workers']} workers {way}"
        print(f"{who:36}{rates[way.replace(' ', '_')]:10.0f} images/s")
    print(f"\nof one worker alone {found['ratio_to_alone']:.2f}, of {found['workers']} without communication "
          f"{found['ratio_to_without_communication']:.2f}\n"
          f"{100 * found['waiting_share']:.0f} % of the time waiting for communication")


def main():
    options = arguments()
    if importlib.util.find_spec("torch") is None:
        sys.exit(f"byteps bench: train needs PyTorch, which {sys.executable} does not have: pip install torch")
    if options.check:
        return
    import byteps
    import byteps.torch as bps
    import torch

    bps.init(conf=options.conf, set=dict(setting.split("=", 1) for setting in options.set))
    torch.manual_seed(1 + bps.rank())
    share = max(1, len(os.sched_getaffinity(0)) // bps.local_size())
    torch.set_num_threads(min(share, torch.get_num_threads()))
    found = {"benchmark": "train", "version": byteps.__version__, **measure(Trainer(torch, bps), options.rounds)}
    if bps.rank() == 0:
        if options.json:
            print(json.dumps(found, indent=2))
        else:
            show(found)
    bps.shutdown()


if __name__ == "__main__":
    main()
