# SPDX-License-Identifier: Apache-2.0
"""A coded training with a checkpoint of each worker: torch_checkpoints.py FOLDER [killed | forgetful].

It goes on from the checkpoints in the folder, if there are any. Worker 1 is killed in a step behind them; or all
workers forget what coding has lost.
"""

import json
import os
import signal
import sys

import torch

import byteps.torch as bps

STEPS, SAVED, DEADLY = 9, 4, 6
CODING = {"compressor": "onebit", "ef": "vanilla", "momentum": "nesterov", "mu": 0.5, "min_bytes": 0}


def batch(step):
    draw = torch.Generator().manual_seed(100 * bps.rank() + step)
    inputs = torch.randn(8, 40, generator=draw)
    return inputs, inputs[:, :5].cumsum(1)


def main():
    folder, how = sys.argv[1], sys.argv[2:]
    bps.init()
    path = os.path.join(folder, f"worker-{bps.rank()}.pt")
    torch.manual_seed(1)
    model = torch.nn.Linear(40, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters(), compression=CODING)
    first = 0
    if os.path.exists(path):
        kept = torch.load(path, weights_only=True)
        first = kept["step"]
        model.load_state_dict(kept["model"])
        if "forgetful" in how:
            del kept["optimizer"]["byteps_feedback"]
        optimizer.load_state_dict(kept["optimizer"])
    for step in range(first, STEPS):
        optimizer.zero_grad()
        inputs, wanted = batch(step)
        loss = (model(inputs) - wanted).square().mean()
        if step == DEADLY and "killed" in how and bps.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        if step + 1 == SAVED:
            kept = {"step": SAVED, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(kept, path)
            optimizer.load_state_dict(kept["optimizer"])  # worker 0 has what the server had, as after a restart
    print("weights", json.dumps(model.weight.flatten().tolist()))
    bps.shutdown()


main()
