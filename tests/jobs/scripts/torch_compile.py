# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast in functions that torch.compile(fullgraph=True) compiles."""

import copy

import checks
import torch

import byteps
import byteps.torch as bps

torch.set_num_threads(1)
torch._inductor.config.cpp.simdlen = 0  # machine code of vectors takes twice as long to make
BACKENDS = ("eager", "aot_eager", "inductor")


def compiled(function, backend):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)


def ranks():
    return sum(range(bps.size()))


def check_results():
    x = torch.full((3, 4), float(bps.rank()))

    def function(x):
        mean = bps.push_pull(x + 1, name="mean") * 2
        total = bps.push_pull(x.T, average=False, name="sum", prescale_factor=2.0, postscale_factor=0.5)
        largest = bps.allreduce(x, op=bps.Max, name="max")
        half = bps.push_pull(x, name="half", compression=bps.Compression.bf16)
        return mean, total, largest, half, bps.broadcast(x, bps.size() - 1, name="b")

    for backend in BACKENDS:
        run = compiled(function, backend)
        for _ in range(3):
            mean, total, largest, half, last = run(x)
            assert torch.allclose(mean, torch.full((3, 4), 2 + 2 * ranks() / bps.size())), (backend, mean)
            assert total.shape == (4, 3) and torch.all(total == ranks()), (backend, total)
            assert torch.all(largest == bps.size() - 1) and half.dtype == torch.float32
            assert torch.all(last == bps.size() - 1)
        assert torch.all(x == bps.rank())  # not changed


def check_in_place():
    def function(x, y):
        bps.push_pull_inplace(x, average=False, name="x")
        bps.broadcast_(y, 0, name="y")
        return x + y

    for backend in BACKENDS:
        x, y = torch.full((5,), float(bps.rank())), torch.full((5,), bps.rank() + 7.0)
        result = compiled(function, backend)(x, y)
        assert torch.all(x == ranks()) and torch.all(y == 7) and torch.all(result == ranks() + 7)


def check_gradients():
    """They are those of the same function without torch.compile()."""
    start = torch.arange(6.0).reshape(2, 3) + bps.rank()

    def loss(x):
        mean = bps.push_pull(torch.sin(x), name="mean", prescale_factor=2.0)
        return (mean**2).sum() * (bps.rank() + 1) + bps.broadcast(x * x, 0, name="root").sum()

    def gradient(function):
        x = start.clone().requires_grad_()
        function(x).backward()
        return x.grad

    expected = gradient(loss)
    for backend in BACKENDS:
        assert torch.allclose(gradient(compiled(loss, backend)), expected), backend


def check_training():
    """A compiled step with its gradients averaged inside trains like one process with all the data."""
    generator = torch.Generator().manual_seed(3)
    inputs, labels = torch.randn(24, 5, generator=generator), torch.randn(24, 1, generator=generator)
    weights = torch.randn(5, 1, generator=generator)

    def step(w, inputs, labels, average):
        gradient = 2 * inputs.T @ (inputs @ w - labels) / len(inputs)
        return w - 0.1 * (bps.push_pull(gradient, name="gradient") if average else gradient)

    run = compiled(step, "inductor")
    mine, alone = weights.clone(), weights.clone()
    for _ in range(10):
        mine = run(mine, inputs[bps.rank() :: bps.size()], labels[bps.rank() :: bps.size()], True)
        alone = step(alone, inputs, labels, False)
    assert torch.allclose(mine, alone, atol=1e-5), mine - alone


def check_model():
    """DistributedOptimizer takes a compiled model as any other."""
    torch.manual_seed(bps.rank())
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    alone = copy.deepcopy(model)
    run = compiled(model, "inductor")
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=run.named_parameters()
    )
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    inputs = torch.randn(24, 5, generator=torch.Generator().manual_seed(4))
    for _ in range(5):
        for network, chosen, step in (
            (run, slice(bps.rank(), None, bps.size()), optimizer),
            (alone, slice(None), reference),
        ):
            step.zero_grad()
            network(inputs[chosen]).square().mean().backward()
            step.step()
    for mine, expected in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(mine, expected, atol=1e-5), mine - expected


def check_errors():
    """Those of the ordinary calls, in the same types."""
    if bps.size() > 1:
        run = compiled(lambda x: bps.push_pull(x, name="other"), "inductor")
        checks.raised(byteps.MismatchError, lambda: run(torch.ones(3 + bps.rank())), "worker 0 pushed [3]")
    run = compiled(lambda x: bps.push_pull(x, op=bps.Max, name="m").sum(), "aot_eager")
    start = torch.ones(2, requires_grad=True)
    checks.raised(torch._dynamo.exc.BackendCompilerFailed, lambda: run(start), "op=Max has no gradient")


if __name__ == "__main__":
    checks.main(globals(), bps)
