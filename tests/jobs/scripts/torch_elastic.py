# SPDX-License-Identifier: Apache-2.0
"""Trains in an elastic job until worker 0 sees the gate "end", and prints how far it is, with a digest of the weights.

    torch_elastic.py optimizer|parallel|accumulate

Each step subtracts 1 from a counter among the parameters, so that a step that is lost or made twice shows. The state
has the number of each step; a worker that begins anew starts with other weights than the others.
"""

import hashlib
import os
import sys

import torch

import byteps.torch as bps

RATE, BATCH, IMAGES = 1 / 64, 4, 480


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(20, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 1)
        )
        self.steps = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.layers(x).square().mean() + self.steps.sum() / RATE


def digest():
    tensors = [*model.parameters(), *(optimizer.state[p]["momentum_buffer"] for p in slow)]
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


bps.init()
passes = 2 if sys.argv[1] == "accumulate" else 1
torch.set_num_threads(1)
torch.manual_seed(os.getpid())
model = Model()
slow = [p for p in model.parameters() if p is not model.steps]
optimizer = torch.optim.SGD([{"params": slow, "momentum": 0.9}, {"params": [model.steps]}], RATE, momentum=0)
if sys.argv[1] == "parallel":
    wrapper = bps.parallel.DistributedDataParallel(model, broadcast_buffers=False, init_sync=False)
else:
    wrapper = model
    optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=passes)
data = torch.randn(IMAGES, 20, generator=torch.Generator().manual_seed(1))
sampler = bps.elastic.ElasticSampler(data)
loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10**6)
print(f"joins as {bps.rank()} of {bps.size()}", flush=True)


def train_epoch(state):
    """Return whether the gate is open."""
    for number, batch in enumerate(loader):
        over = bps.rank() == 0 and os.path.exists(os.path.join(os.environ["GATES"], "end"))
        over = bps.push_pull(torch.tensor(float(over)), op=bps.Max, name="over") > 0
        for _ in range(passes):
            (wrapper(batch) / passes).backward()
        optimizer.step()
        optimizer.zero_grad()
        state.numbers.append(len(state.numbers))
        sampler.record_batch(number, len(batch))
        scheduler.step()
        if len(state.numbers) % 50 == 3:
            print("trains", flush=True)
        if over:
            return True
        if len(state.numbers) % 7 == 0:
            state.commit()
        state.check_host_updates()
    return False


@bps.elastic.run
def train(state):
    print(f"goes on as {bps.rank()} of {bps.size()}", flush=True)
    while not train_epoch(state):
        state.epoch += 1
        sampler.set_epoch(state.epoch)
    return state


state = bps.elastic.TorchState(model, optimizer, sampler=sampler, scheduler=scheduler, numbers=[], epoch=0)
state.register_reset_callbacks([lambda: print(f"resets to {bps.size()}", flush=True)])
train(state)
count = len(state.numbers)
assert state.numbers == list(range(count)), state.numbers
assert scheduler.last_epoch == count, (scheduler.last_epoch, count)
print(f"is at {count} of {round(-model.steps.item())} with {digest()}, as {bps.rank()} of {bps.size()}")
