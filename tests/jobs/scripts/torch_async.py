# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with BYTEPS_ENABLE_ASYNC: the servers have the parameters, and each worker has its own pace."""

import copy
import time

import checks
import torch

import byteps.torch as bps

RATE, STEPS = 1 / 64, 20


def made(kind=torch.optim.SGD, lr=RATE, **options):
    torch.manual_seed(bps.rank())  # they begin as those of rank 0 all the same
    model = torch.nn.Sequential(torch.nn.Linear(50, 3000), torch.nn.Linear(3000, 1))
    optimizer = kind(model.parameters(), lr, **options)
    return model, bps.DistributedOptimizer(optimizer, model.named_parameters())


def set_gradients(model, value):
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)


def check_sum_of_all_changes():
    model, optimizer = made()
    with torch.no_grad():
        for parameter in model.parameters():  # so that all sums are exact
            parameter.copy_(torch.round(parameter * 1024) / 1024)
    set_gradients(model, 0)
    optimizer.step()
    first = [parameter.detach().clone() for parameter in model.parameters()]
    bps.synchronize(bps.push_pull_async(torch.zeros(1), name="all have begun"))
    for _ in range(STEPS):
        set_gradients(model, bps.rank() + 1)
        optimizer.step()
    bps.synchronize(bps.push_pull_async(torch.zeros(1), name="all have ended"))
    set_gradients(model, 0)
    optimizer.step()
    all_of_them = RATE * STEPS * sum(range(1, bps.size() + 1))
    for parameter, value in zip(model.parameters(), first):
        assert torch.equal(parameter.detach(), value - all_of_them), (parameter, value - all_of_them)


def check_nobody_waits():
    model, optimizer = made()
    set_gradients(model, 0)
    optimizer.step()
    if bps.rank() == bps.size() - 1:
        for _ in range(STEPS):
            set_gradients(model, 1)
            optimizer.step()
    bps.push_pull(torch.zeros(1), name="the others have waited")


def check_trains():
    for kind, options in ((torch.optim.SGD, {"lr": 0.001, "momentum": 0.5}), (torch.optim.Adam, {"lr": 0.001})):
        model, optimizer = made(kind, **options)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
        x = torch.randn(64, 50, generator=torch.Generator().manual_seed(bps.rank()))
        y = x.sum(1, keepdim=True) / 8

        def closure(model=model, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        first = closure().item()
        for _ in range(40):
            loss = optimizer.step(closure).item()
            scheduler.step()
        assert loss < first / 2, (kind, first, loss)
        assert isinstance(optimizer, kind) and type(copy.deepcopy(optimizer)) is kind
        if bps.rank() == 0:
            time.sleep(0.02)


def pushed(step):
    """Bytes that a step pushes."""
    before = bps.metrics()["pushed_bytes"]
    step()
    return bps.metrics()["pushed_bytes"] - before


def check_rows():
    """Of a sparse gradient only its rows travel, and the row of nobody else is touched."""
    rows, width, mine = 4000, 16, bps.rank()
    for kind, options in ((torch.optim.SGD, {}), (torch.optim.SparseAdam, {}), (torch.optim.SGD, {"momentum": 0.5})):
        torch.manual_seed(bps.rank())
        model = torch.nn.Embedding(rows, width, sparse=True)
        optimizer = kind(model.parameters(), RATE, **options)
        optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters())
        table = model.weight
        optimizer.step()  # sets the value
        first = table.detach().clone()
        bps.push_pull(torch.zeros(1), name="all have the table")
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.tensor([mine, 7, mine, rows - 1])).sum().backward()
            sent = pushed(optimizer.step)
            assert sent == (rows if "momentum" in options else 3) * width * 4, sent
        bps.push_pull(torch.zeros(1), name="all have trained")
        others = [rank for rank in range(bps.size()) if rank != mine]
        if "momentum" not in options:
            assert torch.equal(table[others], first[others])
        optimizer.pull_rows(table, torch.tensor([*others, 7, 7, rows - 1]))
        changed = (table != first).any(1).nonzero().flatten().tolist()
        assert changed == [*range(bps.size()), 7, rows - 1], changed
        if kind is torch.optim.SGD and "momentum" not in options:
            change = first - table.detach()
            assert torch.allclose(change[7], torch.tensor(RATE * STEPS * bps.size()), atol=1e-4), change[7]
            assert torch.allclose(change[0], torch.tensor(2 * RATE * STEPS), atol=1e-4), change[0]
        bps.push_pull(torch.zeros(1), name="all have seen it")


def check_refused():
    model = torch.nn.Linear(2, 2)
    plain = torch.optim.SGD(model.parameters(), RATE)
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(plain, compression="onebit"), "no compression")
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(plain, op=bps.Max), "Average or Sum")
    wrapped = bps.DistributedOptimizer(plain)
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(wrapped), "distributed already")
    bps.push_pull(torch.zeros(1), name="end")


def check_another_job():
    model, optimizer = made()
    set_gradients(model, 1)
    optimizer.step()
    bps.suspend()
    bps.resume()
    optimizer.step()
    total = bps.push_pull(next(model.parameters()).detach().sum(), name="sum", average=False)
    assert torch.isfinite(total)


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
