# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own data-parallel training beside BytePS, which has its gradients: both meet by the same store."""

import os

import byteps.torch as bps
import torch
import torch.distributed as dist

bps.init()
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
model.register_comm_hook(None, bps.ddp_hook.push_pull_hook)
model(torch.randn(4, 8)).sum().backward()
line = f"worker {dist.get_rank()} of {bps.size()}: {model.module.weight.grad.sum():.4f}\n"
os.write(1, line.encode())  # in one piece, as workers may share a pipe
dist.destroy_process_group()
bps.shutdown()
