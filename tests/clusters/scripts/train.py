# SPDX-License-Identifier: Apache-2.0
"""A training as users write it, of a few steps; says who it was, and a digest of what it has learnt.

With KILL=RANK that worker dies in the first attempt of an elastic job. Each job of JOBS (2) is one init() and
shutdown().
"""

import hashlib
import os
import signal

import byteps.torch as bps
import torch

attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
for _ in range(int(os.environ.get("JOBS", "2"))):
    bps.init()
    torch.manual_seed(bps.rank())
    model = torch.nn.Linear(300, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(5):
        if attempt == "0" and os.environ.get("KILL") == str(bps.rank()) and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.randn(8, 300)).square().mean().backward()
        optimizer.step()
    digest = hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest()[:16]
    line = f"worker {bps.rank()} of {bps.size()}, {bps.local_rank()} of {bps.local_size()}: {digest}\n"
    os.write(1, line.encode())  # in one piece, as workers may share a pipe
    bps.shutdown()
