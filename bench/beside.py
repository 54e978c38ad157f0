#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker of `byteps bench train --beside ddp`: one small training by BytePS, by PyTorch's DDP, and alone, in turn.

beside.py [--rounds R] [--json] [--conf FILE] [--set KEY=VALUE]...

All ways train the same network on the same data with as many steps. Before and after each turn all workers meet, and
the first one reads what the links have carried; where it runs on a test bed, those of all hosts (TESTBED, the name).
"""

import contextlib
import copy
import fcntl
import gc
import json
import os
import socket
import statistics
import struct
import time

import byteps
import byteps.torch as bps
import torch
from byteps.torch import cross_barrier
from testbed import Bed, measure, training
from torch import distributed, nn
from train import arguments

WIDTHS = (512, 1024, 1024, 1024, 1024, 32)  # of the perceptron: 14.8 MB in 10 tensors of at most 4 MiB
COMPUTE_SECONDS = 0.025  # of a step, with all workers computing at once
FIRST_BATCH = 32
TURN_SECONDS = 1.0
LEAST_STEPS = 3
SIOCGIFADDR = 0x8915


def new_network():
    layers = []
    for width, following in zip(WIDTHS, WIDTHS[1:]):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# ---- the network, for gloo and to look at


def address_of(interface):
    """The IPv4 address of an interface, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("256s", interface.encode())
        try:
            return socket.inet_ntoa(fcntl.ioctl(sock, SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def find_interface():
    """The one that gloo is told to use, or that has the address of this host's name; of a single host, loopback."""
    named = os.environ.get("GLOO_SOCKET_IFNAME")
    if named:
        return named
    own = "127.0.0.1" if bps.local_size() == bps.size() else socket.gethostbyname(socket.gethostname())
    every = [name for _, name in socket.if_nameindex()]
    return next((name for name in every if address_of(name) == own), every[0])


class Links:
    """What the links have carried so far: those of a test bed, or of the hosts that have workers."""

    def __init__(self, interface):
        self.interface, name = interface, os.environ.get("TESTBED")
        self.bed = Bed(name) if name else None

    def hosts(self):
        if self.bed is not None:
            return [self.bed.hostname(host) for host in range(self.bed.hosts)]
        return [name for name in gather(socket.gethostname() if bps.local_rank() == 0 else None) if name]

    def read(self):
        """[(bytes sent, bytes received)] of each host; on the first worker, others may get nothing."""
        if self.bed is not None:
            counts = self.bed.counters() if bps.rank() == 0 else []
            return [(each["sent"], each["received"]) for each in counts]
        folder = f"/sys/class/net/{self.interface}/statistics"
        own = []
        for which in ("tx_bytes", "rx_bytes"):
            with open(os.path.join(folder, which), encoding="ascii") as file:
                own.append(int(file.read()))
        return [counts for counts in gather(own if bps.local_rank() == 0 else None) if counts]


def gather(value):
    """What each worker says, by rank."""
    return [bps.broadcast_object(value, root_rank=rank) for rank in range(bps.size())]


@contextlib.contextmanager
def output_as_errors():
    """Libraries that tell how they get on do so where it is not taken for the results."""
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def start_gloo(interface):
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    store = None
    if bps.rank() == 0:
        host = address_of(interface)
        store = distributed.TCPStore(host, 0, bps.size(), is_master=True, wait_for_workers=False)
    place = bps.broadcast_object(store and (store.host, store.port), root_rank=0)
    store = store or distributed.TCPStore(*place, bps.size(), is_master=False)
    distributed.init_process_group("gloo", store=store, rank=bps.rank(), world_size=bps.size())


# ---- the ways to train


class Way:
    """A network of its own, whose optimizer lives as long as a turn."""

    def __init__(self, network):
        self.network = copy.deepcopy(network)

    def optimizer(self):
        return torch.optim.SGD(self.network.parameters(), lr=1e-4)

    def finish(self, optimizer):
        """Waits for what is still on its way."""


class Plain(Way):
    def optimizer(self):
        return bps.DistributedOptimizer(super().optimizer(), self.network.named_parameters())


class Crossing(Way):
    def optimizer(self):
        return cross_barrier.CrossBarrier(self.network, super().optimizer(), self.network.named_parameters())

    def finish(self, optimizer):
        optimizer.synchronize()


class DDP(Way):
    def __init__(self, network):
        super().__init__(network)
        self.network = nn.parallel.DistributedDataParallel(self.network)


class Trainer:
    """Trains by each of the ways, and tells of each turn what it has cost."""

    def __init__(self):
        torch.manual_seed(1)
        network = new_network()
        self.links = Links(find_interface())
        with output_as_errors():
            start_gloo(self.links.interface)
            self.ways = {name: kind(network) for name, kind in zip(training.WAYS, (Plain, Crossing, DDP, Way))}
        self.tensors = [(name, parameter.numel()) for name, parameter in network.named_parameters()]
        self.set_batch(FIRST_BATCH)

    def set_batch(self, batch):
        generator = torch.Generator().manual_seed(2 + bps.rank())
        self.inputs = torch.randn(batch, WIDTHS[0], generator=generator)
        self.labels = torch.randint(WIDTHS[-1], (batch,), generator=generator)

    def step(self, way, optimizer):
        optimizer.zero_grad()
        nn.functional.cross_entropy(way.network(self.inputs), self.labels).backward()
        optimizer.step()

    def meet(self, value=0.0):
        """Waits for all; the largest of what they say."""
        return bps.push_pull(torch.tensor([value], dtype=torch.float64), name="meet", op=bps.Max).item()

    def turn(self, name, steps):
        """{seconds of a step, idle part of the cores, bytes of each host in a step}, after one step to warm up.

        The tensors of a turn are forgotten at its end, so that those of the next one are placed as in a job of its own.
        """
        way = self.ways[name]
        self.meet()
        optimizer = way.optimizer()
        self.meet()
        before = self.links.read()
        self.step(way, optimizer)
        idle, every = measure.cpu()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step(way, optimizer)
        seconds = (time.perf_counter() - begin) / steps
        later_idle, later = measure.cpu()
        way.finish(optimizer)
        del optimizer
        gc.collect()
        seconds = self.meet(seconds)
        carried = [[(b - a) / (steps + 1) for a, b in zip(*pair)] for pair in zip(before, self.links.read())]
        return {"seconds": seconds, "idle": (later_idle - idle) / max(later - every, 1), "bytes": carried}


def rehearse(trainer):
    """Chooses the batch and the number of steps of a turn."""
    for name in training.WAYS:
        trainer.turn(name, 1)
    seconds = trainer.turn("without_communication", LEAST_STEPS)["seconds"]
    batch = max(1, round(FIRST_BATCH * COMPUTE_SECONDS / seconds))
    trainer.set_batch(batch)
    once = max(trainer.turn(name, 1)["seconds"] for name in training.WAYS)
    return batch, max(LEAST_STEPS, int(TURN_SECONDS / once))


def summary(turns, others):
    """What the turns of one way come to, and how long they took compared with DDP's of the same rounds."""
    seconds = [each["seconds"] for each in turns]
    return {
        "ratio_to_ddp": statistics.median(own / other["seconds"] for own, other in zip(seconds, others)),
        "seconds": {"median": statistics.median(seconds), "fastest": min(seconds), "slowest": max(seconds)},
        "idle_share": statistics.median(each["idle"] for each in turns),
        "bytes": [
            dict(zip(("sent", "received"), (statistics.median(way) for way in zip(*host))))
            for host in zip(*(each["bytes"] for each in turns))
        ],
    }


def measure_all(trainer, rounds):
    batch, steps = rehearse(trainer)
    hosts = trainer.links.hosts()
    turns = {name: [] for name in training.WAYS}
    for number in range(rounds):
        for name in training.WAYS[:: 1 if number % 2 == 0 else -1]:
            turns[name].append(trainer.turn(name, steps))
    return {
        "workers": bps.size(), "rounds": rounds, "steps": steps, "batch": batch,
        "threads": torch.get_num_threads(), "interface": trainer.links.interface,
        "tensors": trainer.tensors, "bytes": 4 * sum(count for _, count in trainer.tensors), "hosts": hosts,
        "ways": {name: summary(each, turns["ddp"]) for name, each in turns.items()},
    }


def main():
    options = arguments()
    torch.set_num_threads(1)
    bps.init(conf=options.conf, set=dict(setting.split("=", 1) for setting in options.set))
    found = {"benchmark": "train", "beside": "ddp", "version": byteps.__version__}
    found.update(measure_all(Trainer(), options.rounds))
    if bps.rank() == 0:
        training.add_ratios(found)
        if options.json:
            print(json.dumps(found, indent=2))
        else:
            training.show(found)
    with output_as_errors():
        distributed.destroy_process_group()
    bps.shutdown()


if __name__ == "__main__":
    main()
