# SPDX-License-Identifier: Apache-2.0
"""Small gradients travel together: how many tensors that makes, and that nothing else changes."""

import contextlib
import itertools

import checks
import torch
from torch_device import DEVICE

import byteps.torch as bps
from byteps.torch import _reducer
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel

WIDTH = 8
HOWS = ("optimizer", "barrier", "ddp")


class Scale(torch.nn.Module):
    """Multiplies by a small parameter and adds another one."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(width, device=DEVICE))
        self.shift = torch.nn.Parameter(torch.zeros(width, device=DEVICE))

    def forward(self, x):
        return x * self.scale + self.shift


def layers(count):
    return torch.nn.Sequential(*(Scale() for _ in range(count)))


def mine(width=WIDTH):
    """What this worker computes with: whole numbers, whose sums are exact in any order."""
    return torch.arange(1.0, width + 1, device=DEVICE) * (bps.rank() + 1)


def average(tensor):
    """Return what the average is if each worker has (rank + 1) times a tensor."""
    return tensor * (bps.size() + 1) / 2


class Recorder:
    """In place of the native module: notes what gradients are sent."""

    def __init__(self, native):
        self.native, self.sent = native, []

    def __getattr__(self, name):
        return getattr(self.native, name)

    def push_pull(self, source, target, name, op, priority, *more):
        self.sent.append((name, priority))
        return self.native.push_pull(source, target, name, op, priority, *more)


@contextlib.contextmanager
def recorded():
    """Return a context that yields the list of what is sent, as (name, priority)."""
    recorder = _reducer._bps = Recorder(_reducer._bps)
    try:
        yield recorder.sent
    finally:
        _reducer._bps = recorder.native


@contextlib.contextmanager
def each_alone():
    """Return a context in which reducers are made whose gradients do not travel together."""
    plan = _reducer.plan
    _reducer.plan = lambda parameters, first, together: plan(parameters, first, False)
    try:
        yield
    finally:
        _reducer.plan = plan


def sgd(model, rate=1.0):
    return torch.optim.SGD(model.parameters(), rate)


def distribute(model, **options):
    return bps.DistributedOptimizer(sgd(model), model.named_parameters(), **options)


def check_thousands():
    """2,000 parameters of 32 bytes are one tensor, and all get their averages."""
    model = layers(1000)
    optimizer = distribute(model)
    with recorded() as sent:
        for _ in range(2):
            optimizer.zero_grad()
            model(mine()).sum().backward()
            assert all(torch.equal(layer.scale.grad, average(mine() / (bps.rank() + 1))) for layer in model)
            assert all(torch.equal(layer.shift.grad, torch.ones(WIDTH, device=DEVICE)) for layer in model)
    assert len(sent) == 2 and all(name.endswith(".0.scale to 999.shift") for name, _ in sent), sent


def sizes(model, **options):
    buckets = distribute(model, **options)._byteps._buckets
    return [len(list(group)) for _, group in itertools.groupby(buckets, id)]


def check_what_travels_together():
    """Neighbours of one type up to 16 KiB each and below 64 KiB together; and nothing that is coded."""
    large = Scale(4097)
    assert sizes(torch.nn.Sequential(Scale(), large, Scale(), Scale())) == [2, 1, 1, 4]
    assert sizes(torch.nn.Sequential(Scale(), Scale().double(), Scale())) == [2, 2, 2]
    assert sizes(torch.nn.Sequential(*(Scale(4096) for _ in range(4)))) == [3, 3, 2]
    assert sizes(layers(2), compression={"compressor": "onebit"}) == [1] * 4
    assert sizes(layers(2), compression=bps.Compression.fp16) == sizes(layers(2), compression=False) == [4]


def train(how, passes=1, **options):
    """Return the parameters after some steps of a model whose gradients are of several kinds."""
    torch.manual_seed(3)
    tail = torch.nn.Conv2d(2, 2, 2).to(DEVICE, memory_format=torch.channels_last)
    model = torch.nn.Sequential(Scale(), Scale(), torch.nn.Unflatten(1, (2, 2, 2)), tail)
    optimizer, run = sgd(model, 0.01), model
    if how == "optimizer":
        optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    elif how == "barrier":
        optimizer = CrossBarrier(model, optimizer, model.named_parameters(), num_steps=4, **options)
    else:
        run = DistributedDataParallel(model, **options)
    for step in range(4):
        optimizer.zero_grad()
        run((mine() / 30).expand(step + 1, -1)).pow(2).mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def check_same_bits():
    """As if each travelled alone: of two numbers there is one sum; of more, float16 rounds in another order."""
    for how in HOWS:
        for compression in (bps.Compression.none, bps.Compression.fp16):
            found = train(how, compression=compression)
            with each_alone():
                want = train(how, compression=compression)
            for one, other in zip(found, want):
                assert torch.equal(one, other) if bps.size() <= 2 else torch.allclose(one, other, 1e-2), how


def check_reductions():
    for op, want in ((bps.Sum, bps.size() * (bps.size() + 1) // 2), (bps.Max, bps.size()), (bps.Min, 1)):
        model = layers(1)
        optimizer = distribute(model, op=op)
        (model(torch.ones(WIDTH, device=DEVICE)) * (bps.rank() + 1)).sum().backward()
        assert model[0].scale.grad.tolist() == model[0].shift.grad.tolist() == [want] * WIDTH
        optimizer.step()


def check_used_by_some():
    """A neighbour that one worker has used gets zeros from others; of what nobody has used, None or a value stays."""
    model = layers(4)
    optimizer = distribute(model)
    for _ in range(2):
        optimizer.zero_grad()
        used = model[0] if bps.rank() == 0 else model[3]
        used(torch.ones(WIDTH, device=DEVICE)).sum().backward()
        assert torch.allclose(model[0].scale.grad, torch.full((WIDTH,), 1 / bps.size(), device=DEVICE))
        assert model[1].scale.grad is None and model[2].shift.grad is None
        if bps.size() > 1:
            assert torch.allclose(model[3].shift.grad, torch.full((WIDTH,), 1 - 1 / bps.size(), device=DEVICE))
    model[1].scale.grad = kept = torch.full((WIDTH,), float(bps.rank()), device=DEVICE)
    if bps.rank() == 0:  # others have nothing of it, and get the average
        kept.fill_(bps.size())
    else:
        model[1].scale.grad = None
    model[2].scale.sum().backward()
    assert model[1].scale.grad.tolist() == [1.0] * WIDTH and model[2].scale.grad.tolist() == [1.0] * WIDTH


def check_several_losses():
    """A second backward pass leaves the neighbours as the first one has reduced them."""
    model = layers(3)
    optimizer = distribute(model, op=bps.Sum)
    model[0](mine()).sum().backward()
    first = model[0].scale.grad
    want = first.clone()
    model[2](mine()).sum().backward()
    assert model[0].scale.grad is first and torch.equal(first, want)
    assert model[1].scale.grad is None and torch.equal(model[2].scale.grad, want)
    optimizer.step()


def check_frozen():
    model = layers(3)
    model[1].requires_grad_(False)
    optimizer = distribute(model)
    for frozen in (True, False, True):
        model[1].requires_grad_(not frozen)
        optimizer.zero_grad()
        model(mine()).sum().backward()
        assert (model[1].scale.grad is None) is frozen
        assert torch.equal(model[2].shift.grad, torch.ones(WIDTH, device=DEVICE))
        optimizer.step()


def check_changed():
    """A change of one gradient that waits for its neighbours is told by its name."""
    model = layers(2)
    optimizer = distribute(model, backward_passes_per_step=2)
    for _ in range(2):
        model[0](mine()).sum().backward()
    assert optimizer._byteps.busy and not optimizer._handles
    checks.raised(AssertionError, optimizer.zero_grad, "race condition")
    model[0].shift.grad.mul_(0.5)
    checks.raised(RuntimeError, optimizer.step, "'0.shift'", "while it was being reduced")
    optimizer.zero_grad()
    for _ in range(2):
        model(mine()).sum().backward()
    optimizer.step()


def check_priority():
    """A bucket is as urgent as the most urgent of its gradients."""
    model = torch.nn.Sequential(Scale(), Scale(), Scale(4097), Scale(), Scale())
    optimizer = distribute(model)
    x = torch.ones(WIDTH, device=DEVICE)

    def loss():
        early = model[4](x).sum()
        large = model[2](torch.ones(4097, device=DEVICE)).sum()
        return early * model[1](model[0](model[3](x))).sum() * large

    with recorded() as sent:
        for _ in range(2):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    priorities = dict(sent)
    reducer = optimizer._byteps
    urgency = [reducer._priority[bucket.members.start : bucket.members.stop] for bucket in reducer._buckets]
    want = {reducer._names.gradients[i]: max(some) for i, some in enumerate(urgency)}
    assert len(want) == 4 and priorities == want, (priorities, want)


def check_barrier():
    """A module waits for its own gradients only, also where neighbours have come with them."""
    model = layers(3)
    model[1].shift.requires_grad_(False)
    optimizer = CrossBarrier(model, sgd(model), model.named_parameters(), num_steps=10)
    for step in range(3):
        model(mine()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step:
            model[0](mine())
            assert model[0].scale.grad is None and len(optimizer._pending) == 3
            model[2](mine())
            assert len(optimizer._pending) == 1
    optimizer.synchronize()
    for parameter in model.parameters():
        assert torch.equal(bps.push_pull(parameter.detach(), op=bps.Max), parameter)


def check_other_type():
    """A program may bring the model to another type after it has been wrapped."""
    model = layers(2)
    optimizer = distribute(model)
    for dtype in (torch.float32, torch.float64):
        model.to(dtype)
        optimizer.zero_grad()
        model(mine().to(dtype)).sum().backward()
        assert torch.equal(model[1].shift.grad, torch.ones(WIDTH, dtype=dtype, device=DEVICE))


def check_graphs_of_gradients():
    model = layers(2)
    optimizer = distribute(model)
    model(mine()).pow(2).sum().backward(create_graph=True)
    penalty = sum(parameter.grad.pow(2).sum() for parameter in model.parameters())
    penalty.backward()
    optimizer.step()
    for parameter in model.parameters():
        assert torch.equal(bps.push_pull(parameter.detach(), op=bps.Max), parameter)
        parameter.grad = None  # it is in a circle with its graph


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
