# SPDX-License-Identifier: Apache-2.0
"""What programs for the original BytePS and for Horovod import and read, used as they use it."""

import contextlib
import os
import time
import warnings

import checks
import torch

import byteps
import byteps.torch as bps


def check_ops_of_the_original():
    from byteps.torch import ops
    from byteps.torch.ops import declare, local_rank, local_size, poll, rank, size, synchronize

    assert (rank(), size(), local_rank(), local_size()) == (bps.rank(), bps.size(), bps.local_rank(), bps.local_size())
    declare("names.ops")
    handle = ops.push_pull_async_inplace(torch.ones(3), average=False, name="names.ops")
    assert synchronize(handle).tolist() == [size()] * 3 and poll(handle)
    me = rank()
    ops.suspend()
    ops.resume(1, None, me)
    assert rank() == me
    ops.shutdown()
    ops.init()


def check_autograd_function():
    from byteps.torch.ops import BytePSPushPull

    x = torch.full((3,), bps.rank() + 1.0, requires_grad=True)
    y = BytePSPushPull.apply(x, False, "names.function", 0, 0)
    assert y.tolist() == [bps.size() * (bps.size() + 1) / 2] * 3
    (y * (bps.rank() + 1)).sum().backward()
    assert x.grad.tolist() == y.tolist()


def check_group():
    from byteps.torch.ops import byteps_torch_set_num_grads, push_pull_group_sync_inplace, synchronize

    byteps_torch_set_num_grads(3)
    tensors = [torch.ones(2) for _ in range(6)]
    started = [push_pull_group_sync_inplace(t, False, f"names.group.{i}", 0, 0) for i, t in enumerate(tensors)]
    assert [count for _, count in started] == [1, 2, 3, 1, 2, 3]
    for handle, _ in started:
        synchronize(handle)
    assert all(t.tolist() == [bps.size()] * 2 for t in tensors)
    checks.raised(ValueError, lambda: byteps_torch_set_num_grads(0), "num_grads=0")


def check_parallel():
    from byteps.torch.parallel import distributed

    assert distributed.DistributedDataParallel is bps.parallel.DistributedDataParallel
    model = distributed.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
    model(torch.full((1, 2), float(bps.rank()))).sum().backward()
    assert model.module.weight.grad.tolist() == [[(bps.size() - 1) / 2] * 2]


def check_hosts():
    hosts = os.environ.get("HOSTS", ",".join("a" * bps.size())).split(",")
    host = hosts[bps.rank()]
    assert bps.local_size() == hosts.count(host)
    across = [rank for rank in range(bps.size()) if hosts[:rank].count(hosts[rank]) == bps.local_rank()]
    assert (bps.cross_rank(), bps.cross_size()) == (across.index(bps.rank()), len(across))
    assert bps.is_homogeneous() is (len({hosts.count(one) for one in hosts}) == 1)


def check_parts():
    parts = ["mpi", "gloo", "nccl", "ddl", "ccl", "rocm"]
    assert not any(getattr(bps, f"{part}_built")() for part in parts)
    assert not bps.mpi_enabled() and not bps.gloo_enabled() and not bps.mpi_threads_supported()
    plugins = os.environ["BYTEPS_PLUGIN_PATH"].split(":")
    assert bps.cuda_built() is any(os.path.exists(f"{folder}/reducer_cuda.so") for folder in plugins)
    for op in (bps.Average, bps.Sum, bps.Min, bps.Max, bps.Product):
        assert op != bps.Adasum
    for use in (
        lambda: bps.allreduce(torch.ones(2), op=bps.Adasum),
        lambda: bps.DistributedOptimizer(torch.optim.SGD([torch.ones(2, requires_grad=True)], 0.1), op=bps.Adasum),
    ):
        checks.raised(ValueError, use, "Adasum", "expected one of", "Average")


def check_suspended():
    """Programs look at their rank in between, to resume with it, and not after shutdown()."""
    questions = (bps.rank, bps.size, bps.local_rank, bps.local_size, bps.cross_rank, bps.cross_size)
    before = [question() for question in questions]
    bps.suspend()
    assert not bps.is_initialized()
    assert [question() for question in questions] == before and bps.is_homogeneous() is not None
    bps.resume(1, None, bps.rank())
    assert [question() for question in questions] == before
    bps.shutdown()
    for question in questions:
        checks.raised(byteps.NotInitializedError, question, "init")
    bps.init()


def network(sparse=False):
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Embedding(6, 3, sparse=sparse), torch.nn.Linear(3, 2))


def tokens():
    return torch.tensor([0, bps.rank() + 1])


def gradients(model, **how):
    """The gradients after a step whose learning rate is 0, by the name of the parameter."""
    plain = torch.optim.SGD(model.parameters(), 0.0)
    optimizer = bps.DistributedOptimizer(plain, model.named_parameters(), **how)
    model(tokens()).pow(2).sum().backward()
    optimizer.step()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


WIDE = 80  # of layers whose gradients do not travel together


def check_optimizer_attributes():
    model = torch.nn.Sequential(torch.nn.Embedding(6, WIDE), torch.nn.Linear(WIDE, WIDE, bias=False))
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(), bps.Compression.fp16, 2
    )
    assert optimizer.backward_passes_per_step == 2 and optimizer._compression is bps.Compression.fp16
    assert optimizer._parameter_names == {p: name for name, p in model.named_parameters()}
    assert not optimizer._handles
    optimizer.set_backward_passes_per_step(1)
    assert optimizer.backward_passes_per_step == 1
    optimizer.set_backward_passes_per_step(2)
    for _ in range(2):
        model[1](torch.full((1, WIDE), (bps.rank() + 1.0) / 2)).sum().backward()  # the embedding's is still to come
    assert set(optimizer._handles) == set(model[1].parameters())
    handle, context = optimizer._handles[model[1].weight]
    mean = (bps.size() + 1) / 2
    assert optimizer._compression.decompress(bps.synchronize(handle), context).eq(mean).all()
    optimizer.step()
    assert not optimizer._handles and model[1].weight.grad.eq(mean).all()
    for change in (lambda: setattr(optimizer, "backward_passes_per_step", 3), lambda: optimizer._handles.clear()):
        checks.raised(AttributeError, change)


def check_predivide():
    want = gradients(network())
    for factor in (2.0, bps.size() * 4):
        got = gradients(network(), gradient_predivide_factor=factor)
        assert all(torch.equal(got[name], want[name]) for name in want)
    for factor in (1.0, 8.0):
        weight = torch.nn.Parameter(torch.zeros(2))
        plain = torch.optim.SGD([weight], 0.0)
        optimizer = bps.DistributedOptimizer(plain, [("large", weight)], gradient_predivide_factor=factor)
        (weight * 2.0**127).sum().backward()  # two of them are more than float32 holds, but their mean is not
        optimizer.step()
        assert torch.all(weight.grad == 2.0**127), factor
        del optimizer
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    for factor, op, part in (
        (0.0, bps.Average, "positive"),
        (float("nan"), bps.Average, "positive"),
        ("2", bps.Average, "positive"),
        (2.0, bps.Sum, "op=Average"),
    ):
        plain = torch.optim.SGD(parameters, 0.1)
        checks.raised(
            ValueError,
            lambda o=plain, f=factor, op=op: bps.DistributedOptimizer(o, gradient_predivide_factor=f, op=op),
            "gradient_predivide_factor",
            part,
        )


def check_groups():
    want = gradients(network())
    model = network()
    for how in (dict(groups=2), dict(groups=[list(model.parameters())[:2]]), dict(groups=[])):
        got = gradients(model, **how)
        assert all(torch.equal(got[name], want[name]) for name in want)
        model = network()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gradients(network(), num_groups=2)
    assert any(one.category is DeprecationWarning and "groups" in str(one.message) for one in told)
    weight = model[1].weight
    for groups, part in (
        (0, "positive integer"),
        (-1, "positive integer"),
        ("two", "positive integer"),
        ([weight], "list of lists"),
        ([[1]], "consist of torch.Tensor"),
        ([[weight], [weight]], "once"),
    ):
        checks.raised(ValueError, lambda groups=groups: gradients(model, groups=groups), "groups", part)


def check_sparse_as_dense():
    want = gradients(network())
    model = network(sparse=True)
    got = gradients(model, sparse_as_dense=True)
    assert not got["0.weight"].is_sparse
    assert all(torch.equal(got[name], want[name]) for name in want)
    got = gradients(network(sparse=True))
    assert got["0.weight"].is_sparse
    assert all(torch.equal(got[name].to_dense(), want[name]) for name in want)


def check_changed_sparse_gradient():
    """A change between backward() and the end of the round is found, also in the sparse form."""
    model = network(sparse=True)
    plain = torch.optim.SGD(model.parameters(), 0.1)
    optimizer = bps.DistributedOptimizer(
        plain, model.named_parameters(), backward_passes_per_step=2, sparse_as_dense=True
    )
    for _ in range(2):
        model[0](tokens()).sum().backward()  # the gradients of the other layer are missing
    model[0].weight.grad.mul_(2)
    checks.raised(RuntimeError, optimizer.step, "0.weight", "synchronize()")
    bps.barrier()


def check_synchronize_before_step():
    """The gradients are reduced once: with op=Sum, a second time would multiply them. A warning says so."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = bps.DistributedOptimizer(torch.optim.SGD([weight], 1.0), [("once", weight)], op=bps.Sum)
    for context, warned in ((contextlib.nullcontext, 1), (optimizer.skip_synchronize, 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_([weight], 1e9)
            with context():
                optimizer.step()
        words = "called without optimizer.skip_synchronize() context after optimizer.synchronize()"
        assert [words in str(one.message) for one in caught] == [True] * warned, caught
    assert weight.tolist() == [-2 * bps.size()] * 2


def check_speed():
    """The speed has to lie between what the shortest and the longest time around the calls allow."""
    from byteps.common import get_pushpull_speed

    outer = time.perf_counter()
    get_pushpull_speed()
    inner = time.perf_counter()
    bps.push_pull(torch.ones(250000), name="names.speed")  # 1 MB
    bps.synchronize(bps.push_pull_async(torch.ones(500000), name="names.more"))  # 2 MB
    bps.push_pull(torch.ones(500000), name="names.fp16", compression=bps.Compression.fp16)  # 1 MB
    bps.broadcast(torch.ones(250000), 0)  # is no push_pull
    shortest = time.perf_counter() - inner
    stamp, speed = get_pushpull_speed()
    assert 4 / (time.perf_counter() - outer) <= speed <= 4 / shortest, speed
    assert get_pushpull_speed()[0] >= stamp > 1e12 and get_pushpull_speed()[1] == 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
