# SPDX-License-Identifier: Apache-2.0
"""A worker that trains by one of the methods, and says how accurate it is after which step and time.

A step first sleeps, as if it were computing on an accelerator, then computes little. Accuracy is looked at within that
sleep, so that it takes no time of the training. Prints "look STEP SECONDS ACCURACY", and "done" when it has made its
steps and has reached the accuracy, or given up.

usage: straggler_trainer.py JSON [RANK WORKERS]     how to train; the latter where BytePS does not tell
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
import types

import torch
from straggler_methods import FACTOR, METHODS, PAUSE, PAUSE_CHANCE, SLOW, WORKERS
from torch import nn

import straggler_tasks

# ---- how workers meet: each kind takes the network and its optimizer, and gives those to be used, and a context


def byteps(how, rank):
    import byteps.torch as bps

    del how, rank
    bps.init()
    return bps, types.SimpleNamespace(rank=bps.rank(), meet=lambda: bps.push_pull(torch.zeros(1), name="begin"))


def optimizer(bps, network, plain):
    return network, bps.DistributedOptimizer(plain, named_parameters=network.named_parameters()), None


def local(bps, network, plain):
    return network, plain, bps.LocalSGD(network, plain, every=8)


def outer(network):
    return torch.optim.SGD(network.parameters(), lr=0.7, momentum=0.9, nesterov=True)


def diloco(bps, network, plain):
    return network, plain, bps.DiLoCo(network, plain, outer(network), every=20)


def streaming(bps, network, plain):
    return network, plain, bps.DiLoCo(network, plain, outer(network), every=20, fragments=2, delay=9, alpha=0.5)


def gloo(how, rank):
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore(how["store"], WORKERS), rank=rank, world_size=WORKERS)
    return dist, types.SimpleNamespace(rank=rank, meet=dist.barrier)


def ddp(side, network, plain):
    del side
    return nn.parallel.DistributedDataParallel(network, broadcast_buffers=False), plain, None


def lighthouse(how, rank):
    """torchft's manager of this worker."""
    import torch.distributed as dist
    import torchft

    address = how["address"][rank]
    own = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(), load_state_dict=lambda state: None, state_dict=dict, min_replica_size=WORKERS,
        init_sync=False, use_async_quorum=False, rank=0, world_size=1, replica_id=f"replica{rank}", store_addr=address,
        store_port=own.port, lighthouse_addr=how["lighthouse"], hostname=address)
    meeting = dist.FileStore(how["store"], WORKERS)

    def meet():
        if meeting.add("ready", 1) == WORKERS:
            meeting.set("all", "")
        meeting.wait(["all"])

    return types.SimpleNamespace(manager=manager, store=own), types.SimpleNamespace(rank=rank, meet=meet)


def torchft_local(torchft_side, network, plain):
    import torchft.local_sgd

    return network, plain, torchft.local_sgd.LocalSGD(torchft_side.manager, network, plain, sync_every=8)


KINDS = {"optimizer": (byteps, optimizer), "local": (byteps, local), "diloco": (byteps, diloco),
         "streaming": (byteps, streaming), "ddp": (gloo, ddp),
         "torchft": (lighthouse, torchft_local)}


# ---- the training


class Pace:
    """How long this worker would compute. What has been done within that time is taken off the next sleep."""

    def __init__(self, how, rank):
        self._seconds, self._spent = how["compute"], 0.0
        self._slow = rank == SLOW and how["situation"] == "slow worker"
        self._pauses = rank == SLOW and how["situation"] == "pauses"
        self._random = random.Random(how["seed"])

    def sleep(self):
        seconds = self._seconds * (FACTOR if self._slow else 1.0)
        if self._pauses and self._random.random() < PAUSE_CHANCE:
            seconds += PAUSE * self._seconds
        rest = seconds - self._spent
        self._spent = max(0.0, -rest)
        time.sleep(max(0.0, rest))

    @contextlib.contextmanager
    def within(self):
        begin = time.monotonic()
        yield
        self._spent += time.monotonic() - begin


class Training:
    def __init__(self, how, task, rank, network, used, stepper):
        self.how, self.task, self.network, self.used, self.stepper = how, task, network, used, stepper
        self.draw = torch.Generator().manual_seed(1000 * how["seed"] + rank)
        self.pace, self.leads = Pace(how, rank), rank == 0

    def step(self):
        self.pace.sleep()
        inputs, targets = self.task.batch(self.draw)
        self.stepper.zero_grad()
        nn.functional.cross_entropy(self.used(inputs).flatten(0, -2), targets.flatten()).backward()
        self.stepper.step()

    def run(self):
        """Looks after each `look` steps, with the time of the end of the step. Worker 0 says when all is done: others
        may wait for who stops before."""
        begin, steps, target = time.monotonic(), self.how["steps"], self.how["target"]
        reached = target is None
        for number in range(1, self.how["limit"] + 1):
            self.step()
            if number % self.how["look"] == 0:
                seconds = time.monotonic() - begin
                with self.pace.within():
                    accuracy = self.task.accuracy(self.network)
                print("look", number, f"{seconds:.4f} {accuracy:.5f}", flush=True)
                reached = reached or accuracy >= target
            if self.leads and number >= steps and reached:
                break
        print("done", flush=True)


def main():
    how = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    join, wrap = KINDS[METHODS[how["method"]].kind]
    side, place = join(how, int(sys.argv[2]) if len(sys.argv) > 2 else None)
    task = straggler_tasks.TASKS[how["task"]](how)
    torch.manual_seed(how["seed"])
    network = task.network()
    used, stepper, context = wrap(side, network, task.optimizer(network, METHODS[how["method"]].adds))
    training = Training(how, task, place.rank, network, used, stepper)
    place.meet()
    with context or contextlib.nullcontext():
        training.run()
        signal.pause()  # who is done first ends nobody's training: the driver ends all


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")
    main()
