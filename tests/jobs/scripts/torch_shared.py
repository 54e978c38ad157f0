# SPDX-License-Identifier: Apache-2.0
"""Gradients in shared memory: they are there where that is of use, nothing else changes, and all is given back."""

import copy
import io
import sys

import checks
import torch
from loader import loaded, mappings
from torch_device import generator

import byteps.torch as bps
from byteps.torch import _shared
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel

WIDTH = 80
EXPECTED = sys.argv[1] == "yes"  # whether this job has shared memory to use


def is_shared(tensor):
    """Whether the tensor lies in shared memory, as the kernel sees it."""
    return is_shared_at(tensor.data_ptr())


def is_shared_at(address):
    ends = [[int(end, 16) for end in line.split()[0].split("-")] for line in mappings()]
    return any(low <= address < high for low, high in ends)


def network():
    """Large and small parameters, two layers that share one, one that is not contiguous, one of another type."""
    torch.manual_seed(5)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    layers[2].weight = layers[0].weight
    layers[1].weight = torch.nn.Parameter(layers[1].weight.detach().t().contiguous().t())
    return torch.nn.Sequential(*layers[:2], torch.nn.Tanh(), layers[2])


def wrap(how, model, **options):
    """Return what runs, and its optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    if how == "ddp":
        return DistributedDataParallel(model, **options), optimizer
    if how == "barrier":
        return model, CrossBarrier(model, optimizer, model.named_parameters(), num_steps=1, **options)
    return model, bps.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def train(how, set_to_none, shared=True, steps=4):
    """Return the model after some steps, and where the large gradients were in the last one."""
    real = _shared.hook_gradients
    _shared.hook_gradients = real if shared else lambda parameters: []
    try:
        run, optimizer = wrap(how, network())
    finally:
        _shared.hook_gradients = real
    source = generator(bps.rank())
    for x in loaded([torch.randn(4, WIDTH, generator=source) for _ in range(steps)]):
        optimizer.zero_grad(set_to_none)
        run(x).pow(2).mean().backward()
        optimizer.step()
    return run, [is_shared(p.grad) for p in run.parameters() if p.dim() > 1]


HOWS = ("optimizer", "barrier", "ddp")


def check_where_gradients_are():
    for how in HOWS:
        assert train(how, False)[1] == [EXPECTED] * 2, how
        assert train(how, True)[1] == [False] * 2, how  # dropped after each step
        assert train(how, True, steps=1)[1] == [EXPECTED] * 2, how


def check_same_bits():
    for how in HOWS:
        for set_to_none in (False, True):
            pairs = zip(*(train(how, set_to_none, shared)[0].parameters() for shared in (True, False)))
            assert all(torch.equal(a, b) and torch.equal(a.grad, b.grad) for a, b in pairs), how


def check_accumulation():
    """What is kept over several passes is in its place again after zero_grad() in every step."""
    model, optimizer = wrap("optimizer", network(), backward_passes_per_step=2)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            model(torch.ones(2, WIDTH)).sum().backward()
        optimizer.step()
        assert is_shared(model[0].weight.grad) == EXPECTED


def check_nobody_sees_another_gradient():
    """A gradient that someone keeps, or has put there, stays as it is."""
    model, optimizer = wrap("optimizer", network())
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    kept = model[0].weight.grad.view(-1)[5:]
    before = kept.clone()
    optimizer.zero_grad(set_to_none=True)
    model(torch.full((2, WIDTH), 3.0)).sum().backward()
    optimizer.step()
    assert torch.equal(kept, before)
    mine = model[0].weight.grad = torch.zeros(WIDTH, WIDTH)
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    assert model[0].weight.grad is mine and mine.any() and not is_shared(mine)


def check_what_has_no_place():
    for options, make in (
        (dict(compression=bps.Compression.bf16), network),
        ({}, lambda: torch.nn.Sequential(torch.nn.Linear(2, 2))),
    ):
        model, optimizer = wrap("optimizer", make(), **options)
        model(torch.ones(2, model[0].in_features)).sum().backward()
        optimizer.step()
        assert not is_shared(model[0].weight.grad)
    weight = torch.nn.Embedding(300, WIDTH, sparse=True)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(weight.parameters(), 0.1))
    weight(torch.arange(3)).sum().backward()
    assert weight.weight.grad.is_sparse
    optimizer.step()
    model = network()
    wrap("optimizer", model)
    loss = model(torch.ones(2, WIDTH)).pow(2).sum()
    torch.autograd.grad(loss, model.parameters(), create_graph=True)[0].sum().backward()
    bps.barrier()


def check_copies():
    """Copies of a model and its gradients are ordinary, and need nothing of the wrapper."""
    model, optimizer = wrap("optimizer", network())
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    gradient = model[0].weight.grad
    assert not is_shared(copy.deepcopy(gradient)) and torch.equal(copy.deepcopy(gradient), gradient)
    copy.deepcopy(model)(torch.ones(2, WIDTH)).sum().backward()
    buffer = io.BytesIO()
    torch.save((model, optimizer.state_dict()), buffer)


def check_empty():
    """It outlives the job, and is freed with the last tensor that lies in it."""
    tensor = bps.empty(3, 4, dtype=torch.float64)
    assert is_shared(tensor) and tensor.shape == (3, 4) and tensor.dtype == torch.float64
    assert bps.empty(0).numel() == 0
    part = tensor.fill_(bps.rank())[1]
    del tensor
    rank, size = bps.rank(), bps.size()
    assert bps.push_pull_inplace(part, op=bps.Sum).tolist() == [sum(range(size))] * 4
    bps.suspend()
    assert is_shared(part)
    part += 1
    bps.resume(global_rank=rank)
    assert bps.push_pull_inplace(part, op=bps.Max).tolist() == [sum(range(size)) + 1] * 4
    address = part.data_ptr()
    del part
    assert not is_shared_at(address)


if __name__ == "__main__":
    torch.set_num_threads(1)
    del sys.argv[1]
    checks.main(globals(), bps)
