# SPDX-License-Identifier: Apache-2.0
"""Parameters, or numbers of steps, that differ between the workers are exceptions at once, not a hang.

Every worker prints its exceptions. The gradients that never meet are still in flight at the end, so the job
as a whole fails; that is not the subject here.
"""

import torch
from loader import loaded

import byteps
import byteps.torch as bps


def show(what, call):
    try:
        call()
        print(f"{what}: no exception", flush=True)
    except byteps.MismatchError as error:
        print(f"{what}: {error}", flush=True)


bps.init()
other = torch.nn.Linear(3, 3 + bps.rank())
show("broadcast", lambda: bps.broadcast_parameters(other.state_dict()))
show("parallel", lambda: bps.parallel.DistributedDataParallel(other))
show("state", lambda: bps.broadcast_optimizer_state(torch.optim.SGD(other.parameters(), 0.1)))

model = torch.nn.Linear(3, 3)
before = model.weight.detach().clone()
named = [(f"{name}.{bps.rank()}", p) for name, p in model.named_parameters()]
optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), named)
for x in loaded([torch.ones(1, 3)]):
    show("step", model(x).sum().backward)
assert torch.equal(model.weight, before)

model = torch.nn.Linear(3, 3)
optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
for number, x in enumerate(loaded([torch.ones(1, 3)] * 2)):
    optimizer.zero_grad()
    if number == 0:
        model(x).sum().backward()
        if bps.rank() == 0:  # the other has found that its loss is not finite
            optimizer.step()
    else:
        show("number", model(x).sum().backward)

model = torch.nn.Linear(3, 3)
optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
model.bias.requires_grad_(bps.rank() == 0)
show("frozen", model(torch.ones(1, 3)).sum().backward)
print("the end", flush=True)
