# SPDX-License-Identifier: Apache-2.0
"""Two workers suspend and resume; in place of the last one comes a process that has only the second model.

Arguments: the wrapper, and what the survivors do with their first model. The training of the second model has to
agree with that of one process.
"""

import os
import sys

import torch

import byteps.torch as bps

STEPS = (2, 3)  # before and after the suspension


def make_model(width=3):
    torch.manual_seed(width)
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))


def samples(step, rank):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * step + rank))


class Training:
    """A model and how it is trained."""

    def __init__(self, wrapper, width=3):
        self.model = self.call = make_model(width)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        if wrapper == "optimizer":
            self.optimizer = bps.DistributedOptimizer(self.optimizer, self.model.named_parameters())
        elif wrapper == "parallel":
            self.call = bps.parallel.DistributedDataParallel(self.model)

    def train(self, steps, ranks):
        for step in steps:
            self.optimizer.zero_grad()
            sum(self.call(samples(step, rank)).pow(2).mean() for rank in ranks).div(len(ranks)).backward()
            self.optimizer.step()

    def agrees(self):
        """Whether the model is what one process makes of all samples."""
        alone = Training("none")
        alone.train(range(sum(STEPS)), range(bps.size()))
        pairs = zip(self.model.parameters(), alone.model.parameters())
        return all(torch.allclose(mine, its, atol=1e-6) for mine, its in pairs)


def check_newcomer(wrapper, first):
    newcomer = "BYTEPS_NEWCOMER" in os.environ
    bps.init()
    if newcomer:
        second = Training(wrapper)
    else:
        kept = Training(wrapper, width=4 if first == "wider" else 3)
        kept.train(range(2), [bps.rank()])
        second = Training(wrapper)
        if first == "dropped":
            del kept
        second.train(range(STEPS[0]), [bps.rank()])
        rank, size = bps.rank(), bps.size()
        bps.suspend()
        if rank == size - 1:
            os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "BYTEPS_NEWCOMER": "1"})
        bps.resume(global_rank=rank)
    if not newcomer or wrapper == "optimizer":  # the other wrapper has done that when it was made
        bps.broadcast_parameters(second.model.state_dict())
    bps.broadcast_optimizer_state(second.optimizer)
    second.train(range(STEPS[0], sum(STEPS)), [bps.rank()])
    assert second.agrees()
    bps.shutdown()
    print("passed 1", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    check_newcomer(*sys.argv[1:])
