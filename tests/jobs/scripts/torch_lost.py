# SPDX-License-Identifier: Apache-2.0
"""Worker 1 is killed in the middle of training; the others print the exception of their step."""

import os
import signal
import sys

import torch
from loader import loaded

import byteps
import byteps.torch as bps

bps.init()
torch.manual_seed(0)
model = torch.nn.Linear(300, 300)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
if sys.argv[1] == "optimizer":
    optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters())
elif sys.argv[1] == "barrier":
    optimizer = bps.cross_barrier.CrossBarrier(model, optimizer, model.named_parameters())
else:
    model = bps.parallel.DistributedDataParallel(model)
try:
    for step, x in enumerate(loaded([torch.ones(2, 300)] * 1000)):
        optimizer.zero_grad()
        model(x).sum().backward()
        if step == 5 and bps.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
    print("no exception", flush=True)
except byteps.LostError as error:
    print(f"step {step}: {error}", flush=True)
