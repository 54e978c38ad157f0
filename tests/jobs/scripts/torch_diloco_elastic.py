# SPDX-License-Identifier: Apache-2.0
"""Trains with rare synchronisation in an elastic job until worker 0 sees the gate "end", as torch_elastic.py does.

    torch_diloco_elastic.py local|streaming|alone

`local` is LocalSGD: each step subtracts 1 from a counter among the parameters, so that a step that is lost shows.
`streaming` is DiLoCo with fragments on their way when workers are lost; `alone` has it without the state's help, the
context within the function that is called again.
"""

import contextlib
import hashlib
import os
import sys

import torch

import byteps.torch as bps

RATE, EVERY = 1 / 64, 6


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(20, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 1)
        )
        self.steps = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.layers(x).square().mean() + self.steps.sum() / RATE


def digest(tensors):
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


bps.init()
way = sys.argv[1]
torch.set_num_threads(1)
torch.manual_seed(os.getpid())
model = Model()
inner = torch.optim.SGD(model.parameters(), RATE)
if way == "local":
    training = bps.LocalSGD(model, inner, EVERY)
else:
    outer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.5, nesterov=True)
    training = bps.DiLoCo(model, inner, outer, EVERY, 2, 2)
print(f"joins as {bps.rank()} of {bps.size()}", flush=True)


def step(state):
    inner.zero_grad()
    model(torch.randn(4, 20)).backward()
    inner.step()
    state.check_host_updates()


@bps.elastic.run
def train(state):
    print(f"goes on as {bps.rank()} of {bps.size()}", flush=True)
    if way == "alone":
        bps.broadcast_parameters(model.state_dict())
    while True:
        with training if way == "alone" else contextlib.nullcontext():
            step(state)
            while training._steps % EVERY:
                step(state)
        over = bps.rank() == 0 and os.path.exists(os.path.join(os.environ["GATES"], "end"))
        if bps.push_pull(torch.tensor(float(over)), op=bps.Max, name="over") > 0:
            return
        if training._steps % 60 < EVERY:
            print("trains", flush=True)


if way == "alone":
    train(bps.elastic.TorchState())
else:
    with training:
        train(bps.elastic.TorchState(model, inner, training=training))
if way == "local":
    tensors = [*model.parameters(), *model.buffers()][:-1]
    steps = round(-model.steps.item())
else:
    tensors = [member.base for member in training._members]
    tensors += [outer.state[parameter]["momentum_buffer"] for parameter in model.parameters()]
    steps = training._steps
print(f"is at {training._steps} of {steps} with {digest(tensors)}, as {bps.rank()} of {bps.size()}")
