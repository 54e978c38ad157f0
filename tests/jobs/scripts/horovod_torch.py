# SPDX-License-Identifier: Apache-2.0
"""byteps.compat.horovod.torch: Horovod's operations on tensors, with their gradients."""

import checks
import torch

import byteps.compat.horovod.torch as hvd


def ranks():
    return range(hvd.size())


def check_questions():
    assert hvd.is_initialized() and hvd.is_homogeneous() is not None
    assert (hvd.cross_rank(), hvd.local_rank()) in ((0, hvd.rank()), (hvd.rank(), 0))
    assert not hvd.mpi_built() and not hvd.nccl_built() and hvd.gloo_enabled() is False
    hvd.init()  # once more does nothing
    checks.raised(NotImplementedError, lambda: hvd.init(comm=[0]), "comm=[0]")
    checks.raised(NotImplementedError, lambda: hvd.start_timeline("x"), "horovod.torch.start_timeline", "trace.file")


def check_process_sets():
    everyone = hvd.global_process_set
    assert (everyone.size(), everyone.rank(), everyone.included()) == (hvd.size(), hvd.rank(), True)
    assert everyone.ranks == list(ranks())
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=everyone).tolist() == [hvd.size()] * 2
    assert not hvd.remove_process_set(everyone)
    alone = hvd.ProcessSet([0])
    checks.raised(ValueError, lambda: hvd.allgather(torch.ones(2), process_set=alone), "hvd.add_process_set()")


def check_allreduce():
    mean = (hvd.size() - 1) / 2
    x = torch.full((3,), float(hvd.rank()))
    assert hvd.allreduce(x, name="x").tolist() == [mean] * 3
    assert hvd.allreduce(x, average=False).tolist() == [mean * hvd.size()] * 3
    assert hvd.allreduce(x, op=hvd.Max, compression=hvd.Compression.fp16).tolist() == [hvd.size() - 1] * 3
    assert hvd.synchronize(hvd.allreduce_async(x, op=hvd.Min)).tolist() == [0] * 3
    one, two = hvd.grouped_allreduce([x, x + 1], name="group", op=hvd.Sum)
    assert (two - one).tolist() == [hvd.size()] * 3
    handle = hvd.grouped_allreduce_async_([x.clone(), x + 1])
    assert [t.tolist() for t in hvd.synchronize(handle)] == [[mean] * 3, [mean + 1] * 3] and hvd.poll(handle)
    assert hvd.allreduce_(x.clone(), prescale_factor=2.0).tolist() == [mean * 2] * 3
    assert hvd.grouped_allreduce_([x.clone()])[0].tolist() == [mean] * 3
    assert hvd.synchronize(hvd.allreduce_async_(x)) is x and x.tolist() == [mean] * 3
    for use in (
        lambda: hvd.allreduce(x, op=hvd.Adasum),
        lambda: hvd.reducescatter(x, op=hvd.Adasum),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD([x.requires_grad_()], 0.1), op=hvd.Adasum),
    ):
        checks.raised(NotImplementedError, use, "Adasum", "op=Average")
    checks.raised(ValueError, lambda: hvd.allreduce(x, average=True, op=hvd.Sum), "not both")


def check_allreduce_gradient():
    x, y = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    (hvd.allreduce(x, op=hvd.Sum) * (hvd.rank() + 1)).sum().backward()
    assert x.grad.tolist() == [sum(r + 1 for r in ranks())] * 2
    x.grad = None
    results = hvd.grouped_allreduce([x, torch.zeros(1), y], name="gradients", op=hvd.Sum)
    (results[2] * (hvd.rank() + 1)).sum().backward()
    assert x.grad.tolist() == [0] * 2 and y.grad.tolist() == [sum(r + 1 for r in ranks())] * 3


def check_allgather():
    me = hvd.rank()
    want = torch.cat([torch.full((r + 1, 2), float(r)) for r in ranks()])
    x = torch.full((me + 1, 2), float(me), requires_grad=True)
    result = hvd.allgather(x, name="rows")
    assert torch.equal(result, want)
    assert torch.equal(hvd.synchronize(hvd.allgather_async(x)), want)
    weights = torch.arange(len(want), dtype=torch.float32).reshape(-1, 1) * (me + 1)  # their mean is the gradient
    (result * weights).sum().backward()
    first = sum(range(me + 1))
    rows = [[(first + i) * (hvd.size() + 1) / 2] * 2 for i in range(me + 1)]
    assert x.grad.tolist() == rows, x.grad
    numbers = torch.tensor(me, dtype=torch.int64)
    one, two = hvd.grouped_allgather([numbers, x.detach()], name="group")
    assert one.tolist() == list(ranks()) and torch.equal(two, want)
    one, two = hvd.synchronize(hvd.grouped_allgather_async([numbers, x.detach()]))
    assert one.tolist() == list(ranks()) and torch.equal(two, want)


def check_broadcast():
    root, me = hvd.size() - 1, hvd.rank()
    x = torch.full((2,), float(me), requires_grad=True)
    result = hvd.broadcast(x, root, name="x")  # a name of allreduce, too
    assert result.tolist() == [root] * 2
    (result * (me + 1)).sum().backward()
    assert x.grad.tolist() == [(hvd.size() + 1) / 2 if me == root else 0] * 2  # the mean
    assert hvd.synchronize(hvd.broadcast_async(x, root)).tolist() == [root] * 2
    y = torch.tensor([me])
    assert hvd.broadcast_(y, root) is y and y.tolist() == [root]
    assert hvd.synchronize(hvd.broadcast_async_(torch.tensor([me]), 0)).tolist() == [0]


def check_alltoall():
    me, n = hvd.rank(), hvd.size()
    x = torch.full((n * 2,), float(me), requires_grad=True)
    result = hvd.alltoall(x)
    assert result.tolist() == [float(r) for r in ranks() for _ in range(2)]
    (result * (me + 1)).sum().backward()
    assert x.grad.tolist() == [r + 1.0 for r in ranks() for _ in range(2)]
    splits = torch.tensor([me + r for r in ranks()], dtype=torch.int32)  # to each worker
    y = torch.full((int(splits.sum()), 3), float(me), requires_grad=True)
    result, received = hvd.alltoall(y, splits, name="uneven")
    assert received.dtype is torch.int32 and received.tolist() == [r + me for r in ranks()]
    assert result[:, 0].tolist() == [float(r) for r in ranks() for _ in range(r + me)]
    (result * (me + 1)).sum().backward()
    assert y.grad[:, 0].tolist() == [r + 1.0 for r in ranks() for _ in range(me + r)]
    both, received = hvd.synchronize(hvd.alltoall_async(y.detach(), splits.tolist()))
    assert torch.equal(both, result) and received.dtype is torch.int32
    different = hvd.alltoall(torch.full((n * (me + 1),), me))  # first dimensions that differ
    assert different.tolist() == [r for r in ranks() for _ in range(r + 1)]


def check_reducescatter():
    me, n = hvd.rank(), hvd.size()
    whole = torch.arange(2.0 * n + 1).reshape(-1, 1)  # the first worker gets one more row
    mine = whole[:3] if me == 0 else whole[2 * me + 1 : 2 * me + 3]
    x = whole.clone().requires_grad_()
    result = hvd.reducescatter(x, name="rows")
    assert torch.equal(result, mine), result
    (result * (me + 1)).sum().backward()
    owners = [[1.0]] + [[r + 1.0] for r in ranks() for _ in range(2)]
    assert x.grad.tolist() == owners
    x.grad = None
    result = hvd.reducescatter(x, op=hvd.Sum, compression=hvd.Compression.fp16)
    assert torch.equal(result, mine * n) and result.dtype is torch.float32
    result.sum().backward()
    assert x.grad.tolist() == [[float(n)]] * len(whole)  # as Horovod's
    assert torch.equal(hvd.synchronize(hvd.reducescatter_async(whole, op=hvd.Sum)), mine * n)
    one, two = hvd.grouped_reducescatter([whole, whole + 1])
    assert torch.equal(one, mine) and torch.equal(two, mine + 1)
    one, two = hvd.synchronize(hvd.grouped_reducescatter_async([whole, whole + 1], op=hvd.Sum))
    assert torch.equal(two - one, torch.full_like(mine, n))
    checks.raised(ValueError, lambda: hvd.reducescatter(torch.tensor(1.0)), "a scalar cannot be split")
    checks.raised(TypeError, lambda: hvd.reducescatter(whole, compression={"compressor": "onebit"}), "Compression")


def check_objects():
    me = hvd.rank()
    assert hvd.allgather_object({"rank": me, "text": "x" * me}) == [{"rank": r, "text": "x" * r} for r in ranks()]
    assert hvd.broadcast_object([me], root_rank=0, name="object") == [0]
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1 * (me + 1), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert all(torch.equal(w, model.weight) for w in hvd.allgather_object(model.weight))


def check_sync_batch_norm():
    layer, alone = hvd.SyncBatchNorm(2), torch.nn.BatchNorm1d(2)
    torch.manual_seed(2)
    whole = torch.randn(4 * hvd.size(), 2)
    mine = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    torch.testing.assert_close(layer(whole[mine]), alone(whole)[mine])
    assert isinstance(hvd.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm2d(3)), hvd.SyncBatchNorm)


def check_join_of_allreduces():
    """Worker r has r allreduces, with and without names, in orders of their own."""
    me, n = hvd.rank(), hvd.size()
    for turn in range(2):  # the second time with what the first has left
        for step in range(me):
            active = n - step - 1
            names = ["a", "b" * 300]
            started = [
                hvd.allreduce_async(torch.ones(2), name=name, op=hvd.Sum) for name in names[:: 1 - me % 2 * 2]
            ]
            for handle in started:
                assert hvd.synchronize(handle).tolist() == [active] * 2
            assert hvd.allreduce(torch.full((3,), float(n), dtype=torch.float64)).tolist() == [active] * 3
            group = hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], name="group", op=hvd.Sum)
            assert torch.cat(group).tolist() == [active] * 5
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, compression=hvd.Compression.bf16).item() == active
        assert hvd.join() == n - 1, turn
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == n
    if me > 0:
        x = torch.ones(2, requires_grad=True)
        hvd.allreduce(x, name="differentiable", op=hvd.Sum).sum().backward()
        assert x.grad.tolist() == [n - 1] * 2
    hvd.join()


def check_join_of_steps():
    """Worker r has 1 + r batches; the last worker's parameters count afterwards."""
    me, n = hvd.rank(), hvd.size()
    models = [torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(80, 80)]
    optimizers = []
    for model in models:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        plain = torch.optim.SGD(model.parameters(), 1.0)
        optimizers.append(hvd.DistributedOptimizer(plain, model.named_parameters(), op=hvd.Average))
    for epoch in range(2):
        before = models[0].weight.detach().clone()
        for _ in range(1 + me):
            for model, optimizer in zip(models, optimizers):
                optimizer.zero_grad()
                model(torch.ones(1, model.weight.shape[1])).sum().backward()
                optimizer.step()
        kept = models[0].weight.grad
        assert hvd.join() == n - 1, epoch
        assert models[0].weight.grad is kept
        total = sum((n - step) / n for step in range(1 + me))
        torch.testing.assert_close(models[0].weight, before - total)
        for model in models:
            hvd.broadcast_parameters(model.state_dict(), root_rank=n - 1)
    models[0](torch.ones(1, 2)).sum().backward()  # all of them have made as many steps
    optimizers[0].step()


def check_join_of_other_steps():
    """Steps of two backward passes, of which one is for a part of the model; sparse and coded gradients."""
    me, n = hvd.rank(), hvd.size()
    embedding = torch.nn.Embedding(200, 90, sparse=True)
    model = torch.nn.Sequential(embedding, torch.nn.Linear(90, 70), torch.nn.Linear(70, 1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 1.0), model.named_parameters(), hvd.Compression.bf16, 2, op=hvd.Sum
    )
    before = model[2].bias.detach().clone()
    for step in range(me):
        optimizer.zero_grad()
        model(torch.tensor([me, step])).sum().backward()
        model[2](torch.ones(1, 70)).sum().backward()
        optimizer.synchronize()
        assert model[0].weight.grad.is_sparse
        with optimizer.skip_synchronize():
            optimizer.step()
    assert hvd.join() == n - 1
    active = sum(n - 1 - step for step in range(me))
    assert torch.equal(model[2].bias, before - 3 * active)


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), hvd)
