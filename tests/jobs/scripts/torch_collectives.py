# SPDX-License-Identifier: Apache-2.0
"""reduce, reduce_scatter, all_gather, gather, scatter and all_to_all of PyTorch's tensors."""

import byteps
import byteps.torch as bps
import checks
import torch

TYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
)


def brought(rank, rows, row=(3,), dtype=torch.float32):
    """What a worker brings."""
    return ((torch.arange(rows * torch.Size(row).numel()) * 7 + rank * 3) % 5).to(dtype).reshape(rows, *row)


def same(got, want):
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert not got.requires_grad
    assert torch.equal(got.double(), want.double()), (got, want)


def only_on(root, got, want):
    if bps.rank() == root:
        same(got, want)
    else:
        assert got is None, got


def joined(tensors):
    """Not all types can be joined as they are."""
    return torch.cat([tensor.double() for tensor in tensors]).to(tensors[0].dtype)


def check_types():
    n, last = bps.size(), bps.size() - 1
    for dtype in TYPES:
        everything = [brought(rank, 2 * n, dtype=dtype) for rank in range(n)]
        mine = everything[bps.rank()]
        part = slice(2 * bps.rank(), 2 * bps.rank() + 2)
        most = torch.stack([tensor.double() for tensor in everything]).max(0).values.to(dtype)
        only_on(last, bps.reduce(mine, last, op=bps.Max), most)
        same(bps.reduce_scatter(mine, op=bps.Max), most[part])
        same(bps.all_gather(mine), joined(everything))
        only_on(last, bps.gather(mine, last, sizes=2 * n), joined(everything))
        same(bps.scatter(mine if bps.rank() == last else None, last), everything[last][part])
        result, splits = bps.all_to_all(mine)
        same(result, joined([tensor[part] for tensor in everything]))
        same(splits, torch.full((n,), 2))


def check_uneven():
    n, rank = bps.size(), bps.rank()
    everything = [brought(of, 1000 * (of % 3)) for of in range(n)]
    sizes = torch.tensor([len(tensor) for tensor in everything])
    whole = torch.cat(everything)
    same(bps.all_gather(everything[rank]), whole)
    only_on(0, bps.gather(everything[rank]), whole)
    same(bps.scatter(whole, 0, sizes), everything[rank])
    rows = [[(a * 3 + b * 5) % 4 * 11 for b in range(n)] for a in range(n)]  # that a sends b
    result, splits = bps.all_to_all(brought(rank, sum(rows[rank])), torch.tensor(rows[rank]))
    same(result, torch.cat([brought(a, sum(rows[a])).split(rows[a])[rank] for a in range(n)]))
    back, mine = bps.all_to_all(result, splits)
    same(back, brought(rank, sum(rows[rank])))
    same(mine, torch.tensor(rows[rank]))


def check_layouts():
    """Not contiguous, of a graph, without dimensions, without elements."""
    n = bps.size()
    mine = torch.arange(6.0 * n).reshape(2 * n, 3)
    for tensor in (mine.t().contiguous().t(), mine.repeat_interleave(2, 0)[::2], mine.clone().requires_grad_()):
        same(bps.reduce_scatter(tensor, average=True), mine[2 * bps.rank() :][:2])
        same(bps.all_gather(tensor), torch.cat([mine] * n))
        only_on(0, bps.reduce(tensor), mine)
    same(bps.all_gather(torch.tensor(bps.rank())), torch.arange(n))
    only_on(0, bps.reduce(torch.tensor(bps.rank()), op=bps.Max), torch.tensor(n - 1))
    nothing = torch.zeros(0, 4)
    for call in (bps.all_gather, bps.reduce_scatter, bps.scatter, lambda tensor: bps.all_to_all(tensor)[0]):
        same(call(nothing), nothing)


def check_many_at_once():
    mine = torch.full((bps.size(), 3), bps.rank())
    handles = [
        (bps.reduce_scatter_async(mine + i, op=bps.Min, priority=i), bps.all_to_all_async(mine + i)) for i in range(20)
    ]
    for i, (scattered, exchanged) in enumerate(handles):
        same(bps.synchronize(scattered), torch.full((1, 3), i))
        same(exchanged.wait()[0][:, 0], i + torch.arange(bps.size()))
        same(exchanged.wait()[1], torch.ones(bps.size(), dtype=torch.int64))
    bps.gather_async(mine)  # nobody waits for it
    bps.barrier()


def check_what_is_wrong():
    n = bps.size()
    checks.raised(TypeError, lambda: bps.all_gather([1.0]), "must be a torch.Tensor, not list")
    checks.raised(TypeError, lambda: bps.reduce(torch.zeros(2, dtype=torch.complex64)), "complex64")
    checks.raised(ValueError, lambda: bps.all_to_all(torch.eye(4).to_sparse()), "dense")
    checks.raised(ValueError, lambda: bps.all_gather(torch.zeros(2, device="meta")), "meta")
    checks.raised(ValueError, lambda: bps.reduce_scatter(torch.zeros(n, 2), [n + 1] * n), "the first dimension is")
    if n > 1:
        checks.raised(ValueError, lambda: bps.reduce_scatter(torch.zeros(n + 1)), "sizes=")
        odd = torch.zeros(2, 2 + (bps.rank() == 1))
        checks.raised(byteps.MismatchError, lambda: bps.all_gather(odd), "worker 1 has rows of shape [3]")
    same(bps.all_gather(torch.zeros(1)), torch.zeros(n))


if __name__ == "__main__":
    checks.main(globals(), bps)
