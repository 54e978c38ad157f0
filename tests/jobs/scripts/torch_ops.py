# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast of byteps.torch: types, operations, layouts, gradients, Horovod's names."""

import threading

import checks
import torch
from loader import loaded
from torch_device import generator

import byteps
import byteps.torch as bps

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]


def data(rank, dtype, shape=(4, 6), seed=0):
    """The tensor of a worker; small integers, so that all results are exact."""
    low, high = (0, 2) if dtype == torch.bool else (0 if dtype == torch.uint8 else -4, 5)
    return torch.randint(low, high, shape, generator=generator(1000 * seed + rank)).to(dtype)


def everyone(dtype, shape=(4, 6), seed=0):
    return [data(rank, dtype, shape, seed) for rank in range(bps.size())]


def expected(op, tensors):
    stack = torch.stack(tensors)
    dtype = stack.dtype
    if dtype == torch.bool:
        return stack.any(0) if op in (bps.Sum, bps.Max) else stack.all(0)
    wide = stack.to(torch.float64 if dtype.is_floating_point else torch.int64)
    if op == bps.Average:
        rounding = None if dtype.is_floating_point else "floor"
        return torch.div(wide.sum(0), len(tensors), rounding_mode=rounding).to(dtype)
    by = {
        bps.Sum: lambda w: w.sum(0),
        bps.Min: lambda w: w.amin(0),
        bps.Max: lambda w: w.amax(0),
        bps.Product: lambda w: w.prod(0),
    }[op]
    return by(wide).to(dtype)


def same(result, want, op=None):
    assert result.dtype == want.dtype and result.shape == want.shape, (result.dtype, result.shape, want.shape)
    if op == bps.Average and want.dtype.is_floating_point:
        torch.testing.assert_close(result, want, rtol=2 * torch.finfo(want.dtype).eps, atol=0)
    else:
        assert torch.equal(result, want), (result, want)


def check_all_operations_of_all_types():
    for dtype in [*FLOATS, *INTEGERS, torch.bool]:
        for op in bps.ReduceOp:
            if dtype == torch.bool and op == bps.Average:
                continue
            tensors = everyone(dtype)
            mine = tensors[bps.rank()].clone()
            want = expected(op, tensors)
            name = f"{dtype}.{op.name}"
            same(bps.push_pull(mine, name=name, op=op), want, op)
            same(mine, tensors[bps.rank()])
            assert bps.push_pull_inplace(mine, name=name, op=op) is mine
            same(mine, want, op)


def check_floats_of_8_bits():
    """PyTorch computes nothing in these types; what it rounds from float32 must be the same."""
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        for op in bps.ReduceOp:
            tensors = [tensor.to(dtype) for tensor in everyone(torch.float32)]
            mine = tensors[bps.rank()].clone()
            want = expected(op, [tensor.float() for tensor in tensors]).to(dtype)
            for name in (None, f"{dtype}.{op.name}"):
                same(bps.push_pull(mine, name=name, op=op).view(torch.uint8), want.view(torch.uint8))
        large = torch.full((3,), 440.0 if dtype == torch.float8_e4m3fn else 50000.0).to(dtype)
        total = bps.push_pull(large, op=bps.Sum).float()
        overflows = total.isnan() if dtype == torch.float8_e4m3fn else total.isinf()
        assert overflows.all() or bps.size() == 1, total
        same(bps.broadcast(mine, 0).view(torch.uint8), tensors[0].view(torch.uint8))


def check_average():
    tensors = everyone(torch.float32)
    mine = tensors[bps.rank()]
    same(bps.push_pull(mine), expected(bps.Average, tensors), bps.Average)
    same(bps.push_pull(mine, average=False), expected(bps.Sum, tensors))
    same(bps.push_pull(mine, True, "third"), expected(bps.Average, tensors), bps.Average)
    checks.raised(ValueError, lambda: bps.push_pull(mine, op=17), "Average")


def check_average_and_op():
    def mine():
        return torch.tensor([bps.rank() + 1.0])

    at_once = (bps.push_pull, bps.push_pull_inplace, bps.allreduce, bps.allreduce_)
    later = (bps.push_pull_async, bps.push_pull_async_inplace, bps.allreduce_async, bps.allreduce_async_)
    grouped = (bps.grouped_allreduce, bps.grouped_allreduce_)
    grouped_later = (bps.grouped_allreduce_async, bps.grouped_allreduce_async_)
    checks.average_and_op(
        bps,
        *(lambda reduce=reduce, **given: reduce(mine(), **given) for reduce in at_once),
        *(lambda reduce=reduce, **given: bps.synchronize(reduce(mine(), **given)) for reduce in later),
        *(lambda reduce=reduce, **given: reduce([mine()], **given)[0] for reduce in grouped),
        *(lambda reduce=reduce, **given: bps.synchronize(reduce([mine()], **given))[0] for reduce in grouped_later),
    )


def check_averages_of_large_floats():
    """The mean is a number of the type, the sum is none."""
    for dtype in FLOATS:
        mine = torch.full((3,), 0.75 * torch.finfo(dtype).max, dtype=torch.float64).to(dtype)
        for name in (None, f"large.{dtype}"):
            same(bps.push_pull(mine, name=name), mine, bps.Average)


def check_averages_of_integers():
    """Sums that the type does not hold, and means below 0."""
    for dtype in INTEGERS:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        others = bps.size() - 1
        rows = [[high] * (others + 1), [low] * (others + 1), [low] + [high] * others, [max(low, -1)] + [0] * others]
        for repeats in (1, 20001):
            mine = torch.tensor([row[bps.rank()] for row in rows], dtype=dtype).repeat(repeats)
            want = torch.tensor([sum(row) // len(row) for row in rows], dtype=dtype).repeat(repeats)
            for name in (None, f"mean.{dtype}.{repeats}"):
                same(bps.push_pull(mine, name=name, op=bps.Average), want)
                same(bps.synchronize(bps.push_pull_async_inplace(mine.clone(), name=name, op=bps.Average)), want)


def check_layouts():
    tensors = everyone(torch.float32, (2, 3, 4, 5))
    want = expected(bps.Sum, tensors)
    mine = tensors[bps.rank()]
    for form in (
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t.transpose(0, 3).contiguous().transpose(0, 3),
        lambda t: torch.stack([t, t], -1)[..., 0],
        lambda t: t if bps.rank() else t.to(memory_format=torch.channels_last),
    ):
        odd = form(mine.clone())
        same(bps.push_pull(odd, op=bps.Sum), want)
        handle = bps.push_pull_async_inplace(odd, op=bps.Sum)
        assert bps.synchronize(handle) is odd
        same(odd, want)
    for shape in [(), (0,), (2, 0), (1, 1), (100003,)]:
        tensors = everyone(torch.float32, shape)
        same(bps.push_pull(tensors[bps.rank()], op=bps.Sum), expected(bps.Sum, tensors))
        same(bps.push_pull_inplace(tensors[bps.rank()].clone(), op=bps.Sum), expected(bps.Sum, tensors))
    same(bps.push_pull(mine.expand(2, 2, 3, 4, 5), op=bps.Sum), want.expand(2, 2, 3, 4, 5))
    conjugate = torch.conj(torch.complex(mine, mine)).imag  # a tensor with the negative bit
    same(bps.push_pull(conjugate, op=bps.Sum), -want)


def check_memory_that_is_replaced_on_the_way():
    """The operation goes on with the memory that it was given; who would miss the result is told."""
    count = 1 << 20

    def half(tensor):
        tensor.data = tensor.data.half()

    def other(tensor):
        tensor.data = torch.full((count,), 7.0)

    def another_storage(tensor):
        tensor.set_(torch.full((count,), 7.0).untyped_storage(), 0, (count,))

    for i, change in enumerate((half, other, another_storage)):
        for in_place in (True, False):
            name = f"replaced.{i}.{in_place}"
            if bps.rank() > 0:
                bps.barrier()
                assert bps.push_pull(torch.full((count,), 100.0), name=name, op=bps.Sum).eq(want(100.0)).all()
                continue
            tensor = torch.full((count,), 1.0)
            start = bps.push_pull_async_inplace if in_place else bps.push_pull_async
            handle = start(tensor, name=name, op=bps.Sum)
            change(tensor)
            strangers = [torch.full((count,), 5.0) for _ in range(4)]  # where the memory would be if it were free
            bps.barrier()
            if in_place:
                for _ in range(2):
                    checks.raised(RuntimeError, handle.wait, "other memory")
            else:
                assert handle.wait().eq(want(100.0)).all()
            assert all(stranger.eq(5.0).all() for stranger in strangers)


def check_memory_that_is_freed_on_the_way():
    """It is freed when the operation needs it no more; without that, its pages would be gone."""
    free = {
        "resize_": lambda tensor: tensor.untyped_storage().resize_(0),
        "share_memory_": lambda tensor: tensor.share_memory_(),
    }
    for name, method in free.items():
        for start in (bps.push_pull_async_inplace, bps.push_pull_async, broadcast_from_0, broadcast_from_0_in_place):
            for _ in range(3):
                tensor = torch.ones(1 << 20)
                handle = start(tensor, name=f"freed by {name}")
                method(tensor)
                checks.raised(RuntimeError, handle.wait, "freed")


def broadcast_from_0(tensor, name):
    return bps.broadcast_async(tensor, 0, name)


def broadcast_from_0_in_place(tensor, name):
    return bps.broadcast_async_(tensor, 0, name)


def want(others):
    """The sum of 1 of worker 0 and of what each of the others has."""
    return 1 + others * (bps.size() - 1)


def check_several_threads_wait():
    """Each of them finds the result in its place."""
    failures = []

    def look(handle):
        result = handle.wait()
        if not result.eq(bps.size()).all():
            failures.append(result)

    for i in range(20):
        tensor = torch.ones(700, 800).t()  # brought to its place by one of those who wait
        handle = bps.push_pull_async_inplace(tensor, name=f"threads.{i % 2}", op=bps.Sum)
        threads = [threading.Thread(target=look, args=(handle,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


def check_what_cannot_be_sent():
    checks.raised(
        TypeError, lambda: bps.push_pull(torch.zeros(2, dtype=torch.complex64)), "complex64", "bfloat16"
    )
    checks.raised(ValueError, lambda: bps.push_pull(torch.zeros(2, device="meta")), "meta", ".to_empty()")
    checks.raised(ValueError, lambda: bps.push_pull(torch.eye(2).to_sparse()), "a name")
    checks.raised(ValueError, lambda: bps.broadcast(torch.eye(2).to_sparse(), 0), "to_dense")
    checks.raised(TypeError, lambda: bps.push_pull([1.0]), "torch.Tensor")
    checks.raised(byteps.Error, lambda: bps.push_pull(torch.ones(2, dtype=torch.bool), postscale_factor=2.0))
    bps.barrier()


def check_gradients():
    factors = [rank + 1.0 for rank in range(bps.size())]
    for op, share in ((bps.Sum, 1.0), (bps.Average, 1.0 / bps.size())):
        for name in (None, f"gradient.{op.name}"):
            x = torch.full((3,), 2.0, requires_grad=True)
            y = bps.push_pull(x, name=name, op=op)
            assert y.requires_grad
            (y * factors[bps.rank()]).sum().backward()
            torch.testing.assert_close(x.grad, torch.full((3,), sum(factors) * share))
    x = torch.ones(3, requires_grad=True)
    mine = factors[bps.rank()]
    bps.push_pull(x, op=bps.Sum, prescale_factor=mine, postscale_factor=10.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 10.0 * bps.size() * mine))
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad((bps.push_pull(x, op=bps.Sum) ** 3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    n = float(bps.size())
    torch.testing.assert_close(first.detach(), torch.full((3,), 3 * n**3, dtype=torch.float64))
    torch.testing.assert_close(second, torch.full((3,), 6 * n**3, dtype=torch.float64))
    x = torch.ones(3, requires_grad=True)
    y = bps.push_pull(x, op=bps.Max).sum()
    checks.raised(NotImplementedError, y.backward, "Max")
    with torch.no_grad():
        assert not bps.push_pull(x).requires_grad


def check_absent():
    """What Horovod has and BytePS has not is told by its name, with what to use."""
    complete = "byteps.compat.horovod.torch."
    for name, remedy in (("allgather", complete), ("join", complete), ("start_timeline", "trace.file")):
        checks.raised(NotImplementedError, lambda name=name: getattr(bps, name)(1),
                      f"byteps.torch.{name} is not there; instead: ", remedy)
    checks.raised(AttributeError, lambda: bps.nosuch, "has no attribute 'nosuch'")


def check_compression():
    tensors = everyone(torch.float32)
    want = expected(bps.Sum, tensors)
    for compression in (bps.Compression.none, bps.Compression.fp16, bps.Compression.bf16):
        same(bps.push_pull(tensors[bps.rank()], op=bps.Sum, compression=compression), want)
        ints = everyone(torch.int64)
        same(bps.push_pull(ints[bps.rank()], op=bps.Sum, compression=compression), expected(bps.Sum, ints))
    third = torch.tensor([1.0 / 3])
    assert bps.push_pull(third, compression=bps.Compression.fp16).item() == third.half().item()
    assert bps.push_pull(third, compression=bps.Compression.bf16).item() == third.bfloat16().item()


def check_horovod():
    tensors = everyone(torch.float32)
    mine = tensors[bps.rank()]
    total = expected(bps.Sum, tensors)
    same(bps.allreduce(mine, op=bps.Sum), total)
    same(bps.allreduce_(mine.clone(), op=bps.Sum), total)
    same(bps.synchronize(bps.allreduce_async(mine, op=bps.Sum)), total)
    same(bps.synchronize(bps.allreduce_async_(mine.clone(), op=bps.Sum)), total)
    same(bps.allreduce(mine, average=False, prescale_factor=2.0, postscale_factor=0.5), total)
    several = [mine, mine[0], mine[1, 2]]
    for results in (
        bps.grouped_allreduce(several, op=bps.Sum),
        bps.grouped_allreduce(several, name="g", op=bps.Sum),
        bps.synchronize(bps.grouped_allreduce_async(several, op=bps.Sum)),
        bps.grouped_allreduce_([t.clone() for t in several], op=bps.Sum),
    ):
        for result, want in zip(results, [total, total[0], total[1, 2]]):
            same(result, want)
    handle = bps.grouped_allreduce_async_([mine.clone()], op=bps.Sum)
    handle.wait()
    assert bps.poll(handle)
    assert bps.grouped_allreduce([]) == []
    same(bps.synchronize(bps.byteps_push_pull(mine.clone(), average=False, name="old")), total)


def check_broadcast():
    bits = torch.tensor([0x7FC00001, 0x7F800001, -1, -(1 << 31), 0x7F800000, 1], dtype=torch.int32)
    for root in range(bps.size()):
        mine = bits.view(torch.float32).clone() if bps.rank() == root else torch.full((6,), float("nan"))
        assert torch.equal(bps.broadcast(mine, root).view(torch.int32), bits)
        assert bps.broadcast_(mine, root, name="nan") is mine
        assert torch.equal(mine.view(torch.int32), bits)
        for dtype in [*FLOATS, *INTEGERS, torch.bool]:
            want = data(root, dtype)
            same(bps.broadcast(data(bps.rank(), dtype), root), want)
            same(bps.broadcast_(data(bps.rank(), dtype).t(), root), want.t())
        same(bps.synchronize(bps.broadcast_async(torch.tensor(bps.rank()), root)), torch.tensor(root))
        same(bps.synchronize(bps.broadcast_async_(torch.tensor(bps.rank()), root)), torch.tensor(root))
        leaf = torch.full((2,), float(bps.rank()), requires_grad=True)
        bps.broadcast_(leaf, root)
        assert leaf.tolist() == [root] * 2 and leaf.requires_grad
    checks.raised(ValueError, lambda: bps.broadcast(torch.ones(1), bps.size()), "root_rank")


def check_autograd_sees_changes_in_place():
    x = torch.ones(3, requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    bps.push_pull_inplace(y, op=bps.Sum)
    checks.raised(RuntimeError, z.backward, "modified by an inplace operation")
    bps.barrier()


def check_many_in_flight():
    tensors = [everyone(torch.float32, (100 + i,), seed=i) for i in range(300)]
    mine = [t[bps.rank()].clone() for t in tensors]
    handles = [
        bps.push_pull_async_inplace(m, op=bps.Sum, name=f"m.{i}", priority=-i) for i, m in enumerate(mine)
    ]
    for handle, result, t in zip(handles, mine, tensors):
        bps.synchronize(handle)
        same(result, expected(bps.Sum, t))
    bps.push_pull_async(torch.ones(1000), name="dropped", op=bps.Sum)
    assert bps.push_pull(torch.ones(1000), name="dropped", op=bps.Sum)[0] == bps.size()


def check_broadcast_object():
    objects = [
        None,
        0,
        "text",
        {"a": [1, 2.5, None], "t": torch.arange(3)},
        b"x" * 100000,
        list(range(50000)),
        b"",
    ]
    for root in range(bps.size()):
        for name in (None, "object"):
            for obj in objects:
                got = bps.broadcast_object(obj if bps.rank() == root else "wrong", root, name)
                assert str(got) == str(obj)
    got = bps.broadcast_object(bps.rank() * "r", bps.size() - 1)
    assert got == (bps.size() - 1) * "r"


def check_shapes_without_a_name():
    checks.shapes_without_a_name(
        bps,
        byteps.MismatchError,
        lambda shape: bps.push_pull(torch.ones(shape)),
        lambda shape: bps.broadcast_(torch.ones(shape), 0),
        lambda shape: bps.grouped_allreduce([torch.ones(shape), torch.ones(2)]),
    )


def check_data_loader():
    """Forked workers of a DataLoader live beside a running job."""
    total = 0.0
    for batch in loaded(torch.arange(40.0).split(8)):
        total += bps.push_pull(batch.sum(), name="batch").item()
    assert total == sum(range(40))


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
