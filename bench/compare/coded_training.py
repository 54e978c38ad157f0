# SPDX-License-Identifier: Apache-2.0
"""A worker that trains the tasks of coded_tasks.py, with gradients reduced by one of coded_methods.py.

usage: coded_training.py DIRECTORY NAME METHOD [RANK SIZE]

RANK and SIZE are given where no job of BytePS tells them. The driver writes lines TASK SEED ALL STEPS: the place of a
task in TASKS, what its training begins with, the steps that it has in all, and how many of them to do now. The first
line of a task and seed begins it. The answer has the moments in ns when the steps began and ended (round.h), and how
many of this worker's part of the test were right, of how many.
"""

import functools
import math
import os
import sys
import time

import byteps.torch as bps
import torch
import torch.distributed as dist
from coded_methods import METHODS, MOMENTUM
from coded_tasks import IGNORED, TASKS
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 0.1  # of all steps: the learning rate rises
RANK, START = 4, 2  # of PowerSGD: the columns, and the step with which it begins
ONE_BUCKET = 1000  # MB


class Group:
    """The workers, and how their gradients meet."""

    def __init__(self, directory, name, method, *place):
        self.kind, self.coding = METHODS[method]
        self.momentum = 0 if 'momentum' in (self.coding or ()) else MOMENTUM  # the optimizer's
        if self.kind != 'gloo':
            bps.init()
            place = bps.rank(), bps.size()
        self.rank, self.size = map(int, place)
        if self.kind != 'optimizer':
            os.environ.setdefault('GLOO_SOCKET_IFNAME', 'eth0')
            store = dist.FileStore(os.path.join(directory, f'{name}.store'), self.size)
            dist.init_process_group('gloo', store=store, rank=self.rank, world_size=self.size)

    def join(self, network, optimizer, prefix):
        """The network and the optimizer of one training, whose gradients are reduced from now on."""
        if self.kind == 'optimizer':
            named = [(f'{prefix} {name}', parameter) for name, parameter in network.named_parameters()]
            return network, bps.DistributedOptimizer(optimizer, named, compression=self.coding)
        # gloo may hang if a hook of several operations has several buckets.
        network = DistributedDataParallel(network, bucket_cap_mb=ONE_BUCKET, broadcast_buffers=False)
        rank = {'matrix_approximation_rank': RANK, 'start_powerSGD_iter': START}
        if self.kind == 'hook':
            network.register_comm_hook(bps.PowerSGDState(**rank), bps.powerSGD_hook)
        elif self.coding == 'fp16':
            network.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif self.coding == 'powersgd':
            network.register_comm_hook(powerSGD_hook.PowerSGDState(None, **rank), powerSGD_hook.powerSGD_hook)
        return network, optimizer

    def leave(self):
        if self.kind != 'optimizer':
            dist.destroy_process_group()
        if self.kind != 'gloo':
            bps.shutdown()


@functools.lru_cache
def samples(task, part):
    return TASKS[task]().samples(part)


class Training:
    """One from its first weights on. They and the order of the samples depend on the seed only."""

    def __init__(self, group, task, seed, steps):
        self.group, self.task, self.steps, self.step = group, TASKS[task](), steps, 0
        self.inputs, self.targets = samples(task, 'train')
        self.test = [part[group.rank::group.size] for part in samples(task, 'test')]
        torch.manual_seed(seed)
        network = self.task.network()
        optimizer = torch.optim.SGD(network.parameters(), lr=self.task.rate, momentum=group.momentum,
                                    nesterov=group.momentum > 0)
        self.order = torch.Generator().manual_seed(seed)
        self.network, self.optimizer = group.join(network, optimizer, f'{task} {seed}')

    def rate(self):
        """A short rise, then half a cosine."""
        return self.task.rate * min((self.step + 1) / (WARM_UP * self.steps),
                                    0.5 + 0.5 * math.cos(math.pi * self.step / self.steps))

    def train(self, count):
        for _ in range(count):
            batch = torch.randint(len(self.inputs), (self.task.batch,), generator=self.order)
            mine = batch[self.group.rank::self.group.size]
            for group in self.optimizer.param_groups:
                group['lr'] = self.rate()
            self.optimizer.zero_grad()
            output = self.network(self.inputs[mine])
            nn.functional.cross_entropy(output.flatten(0, -2), self.targets[mine].flatten()).backward()
            self.optimizer.step()
            self.step += 1

    @torch.no_grad()
    def right(self):
        """(how many answers of this worker's part of the test are right, of how many)"""
        inputs, targets = self.test
        answers = torch.cat([self.network(part).argmax(-1) for part in inputs.split(250)])
        return int((answers == targets).sum()), int((targets != IGNORED).sum())


def main():
    directory, name, method, *place = sys.argv[1:]
    torch.set_num_threads(1)
    group = Group(directory, name, method, *place)
    tasks, trainings = list(TASKS), {}
    with open(f'{directory}/{name}.{group.rank}.done', 'w', encoding='ascii') as done:
        print(os.getpid(), file=done, flush=True)
        with open(f'{directory}/{name}.{group.rank}.go', encoding='ascii') as go:
            for line in go:
                task, seed, steps, count = map(int, line.split())
                key = tasks[task], seed
                if key not in trainings:
                    trainings[key] = Training(group, *key, steps)
                start = time.monotonic_ns()
                trainings[key].train(count)
                print(start, time.monotonic_ns(), *trainings[key].right(), file=done, flush=True)
    group.leave()


main()
