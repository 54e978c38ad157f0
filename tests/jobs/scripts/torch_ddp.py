# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own DistributedDataParallel with push_pull_hook, against the same with its own all-reduce.

The process group is gloo's, of all workers; its store is the file $STORE.
"""

import os
import signal
import threading

import checks
import torch
from torch_device import generator
from torch.nn.parallel import DistributedDataParallel

import byteps.torch as bps
from byteps.torch.ddp_hook import push_pull_hook

STEPS = 5


def network():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(200, 300), torch.nn.Tanh(), torch.nn.Linear(300, 300), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(300, 10))


def wrapped(module, hook=True, **options):
    """Small buckets, so that there are several, which are others after the first backward pass."""
    if not torch.distributed.is_initialized():
        store = f"file://{os.environ['STORE']}"
        torch.distributed.init_process_group("gloo", init_method=store, rank=bps.rank(), world_size=bps.size())
    model = DistributedDataParallel(module, bucket_cap_mb=0.4, **options)
    if hook:
        model.register_comm_hook(None, push_pull_hook)
    return model


def batch(step):
    return torch.randn(4, 200, generator=generator(100 * step + bps.rank()))


def train(models, optimizers, step):
    """One step of all models at once, so that their buckets mingle."""
    for optimizer in optimizers:
        optimizer.zero_grad()
    sum(model(batch(step)).square().mean() for model in models).backward()
    for optimizer in optimizers:
        optimizer.step()


def trained(*models):
    """The parameters after some steps, of all models together."""
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    for step in range(STEPS):
        train(models, optimizers, step)
    return [torch.cat([p.detach().flatten() for p in model.parameters()]) for model in models]


def check_training():
    """The same on all workers; and as by the all-reduce, since a division by two does not round."""
    assert bps.size() == 2
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        (own,) = trained(wrapped(network(), **options))
        (expected,) = trained(wrapped(network(), hook=False, **options))
        assert torch.equal(own, expected), options
        assert torch.equal(bps.broadcast(own, 0), own), options


def check_two_models():
    first, second = trained(wrapped(network()), wrapped(network()))
    (expected,) = trained(wrapped(network(), hook=False))
    assert torch.equal(first, expected) and torch.equal(second, expected)


def check_types():
    """Buckets are of one type each."""
    for dtype in (torch.float64, torch.bfloat16):
        model = wrapped(torch.nn.Linear(10, 10, dtype=dtype))
        model(torch.full((1, 10), 2.0 * bps.rank(), dtype=dtype)).sum().backward()
        assert torch.equal(model.module.weight.grad, torch.full((10, 10), 1.0, dtype=dtype))


def check_scaling_and_clipping():
    """An infinity on one worker makes all skip the step."""

    def run(hook):
        model = wrapped(network(), hook)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        for step in range(STEPS):
            optimizer.zero_grad()
            factor = float("inf") if step == 2 and bps.rank() == 1 else 1
            scaler.scale(model(batch(step)).square().mean() * factor).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 128
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    own = run(True)
    assert torch.equal(own, run(False))
    assert torch.equal(bps.broadcast(own, 0), own)


def leave_with_a_hook_in_pytorch():
    """The program ends while the thread that completes futures is in a matrix product."""
    entered, matrix = threading.Event(), torch.ones(3000, 3000)

    def multiply(future):
        entered.set()
        return matrix @ matrix

    def hook(state, bucket):
        future = push_pull_hook(state, bucket)
        future.then(multiply)
        return future

    model = wrapped(torch.nn.Linear(10, 10), hook=False)
    model.register_comm_hook(None, hook)
    model(torch.ones(1, 10)).sum().backward()
    entered.wait()


def lose_a_worker():
    """Worker 1 is killed; backward() raises the reason on the other one."""
    model = wrapped(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    try:
        for step in range(1000):
            if step == 3 and bps.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            train([model], [optimizer], step)
    except RuntimeError as error:
        print(f"step {step}: {' '.join(str(error).split())}", flush=True)
        os._exit(3)


if __name__ == "__main__":
    checks.main(globals(), bps)
