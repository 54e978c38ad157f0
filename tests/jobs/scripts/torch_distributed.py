# SPDX-License-Identifier: Apache-2.0
"""Programs of torch.distributed, over BytePS: `torch_distributed.py NAME`, started by torchrun or by "spawn" itself."""

import datetime
import functools
import math
import os
import re
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms import Join
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import byteps.torch.distributed  # noqa: F401  (registers the backend)

STEPS = 3
torch.set_num_threads(1)


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))


def data(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(dist.get_world_size(), 8, 10, generator=generator)


def train(module, optimizer, own=True, steps=STEPS):
    for step in range(steps):
        optimizer.zero_grad()
        inputs = data(step)[dist.get_rank()] if own else data(step).reshape(-1, 10)
        module(inputs).pow(2).mean().backward()
        optimizer.step()


def reference():
    """The weights after the same steps of one process with all data."""
    module = model()
    train(module, torch.optim.SGD(module.parameters(), 0.1, momentum=0.9), own=False)
    return list(module.parameters())


def same(parameters, tolerance=1e-6):
    for found, expected in zip(parameters, reference(), strict=True):
        assert torch.allclose(found, expected, atol=tolerance), (found - expected).abs().max()


def sgd(module):
    return torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)


# ---- operations ------------------------------------------------------------------------------------------


def operations():
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size + 1) // 2
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8):
        tensor = torch.full((3, 5), rank + 1, dtype=dtype)
        dist.all_reduce(tensor)
        assert tensor.eq(total).all()
    tensor = torch.full((2, 2), complex(rank, 1))
    dist.all_reduce(tensor)
    assert tensor.eq(complex(total - size, size)).all()
    whole = torch.empty(size, dtype=torch.complex64)
    dist.all_gather_into_tensor(whole, torch.tensor([complex(rank, 2)]))
    assert whole.tolist() == [complex(each, 2) for each in range(size)]
    tensor = torch.arange(12.0).reshape(3, 4).t() * (rank + 1)  # not contiguous
    work = dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True)
    assert work.wait() and work.is_completed()
    assert torch.allclose(tensor, torch.arange(12.0).reshape(3, 4).t() * total / size)
    tensor = torch.sparse_coo_tensor([[0, rank + 1]], torch.full((2, 3), rank + 1.0), (size + 2, 3))
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert torch.allclose(tensor.to_dense()[:, 1] * size, torch.tensor([total, *range(1, size + 1), 0.0]))
    tensor = torch.sparse_coo_tensor(torch.empty(2, 0), torch.empty(0), (4, 5))
    dist.all_reduce(tensor)
    assert tensor._nnz() == 0
    for op, combine in (
        (dist.ReduceOp.BAND, int.__and__),
        (dist.ReduceOp.BOR, int.__or__),
        (dist.ReduceOp.BXOR, int.__xor__),
    ):
        tensor = torch.tensor([[rank + 1, 6], [rank + 5, rank]], dtype=torch.int32).t()
        expected = [functools.reduce(combine, numbers) for numbers in zip(*((r + 1, r + 5, 6, r) for r in range(size)))]
        dist.all_reduce(tensor, op)
        assert tensor.flatten().tolist() == expected, (op, tensor, expected)
    ops = ((dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.PRODUCT, math.factorial(size)))
    for op, expected in ops:
        tensor = torch.tensor([rank + 1.0])
        dist.reduce(tensor, size - 1, op)
        assert tensor.item() == (expected if rank == size - 1 else rank + 1)

    gathered = [torch.empty(2, 3) for _ in range(size)]
    dist.all_gather(gathered, torch.full((2, 3), float(rank)))
    assert [part[1, 2].item() for part in gathered] == list(range(size))
    whole = torch.empty(size * 2, 3)
    dist.all_gather_into_tensor(whole, torch.full((2, 3), float(rank)))
    assert whole[::2, 0].tolist() == list(range(size))
    part = torch.empty(4)
    dist.reduce_scatter_tensor(part, torch.arange(4.0 * size))
    assert part.equal(torch.arange(4.0 * rank, 4.0 * rank + 4) * size)
    dist.reduce_scatter(part, [torch.full((4,), float(to)) for to in range(size)])
    assert part.eq(rank * size).all()

    root = size - 1
    gathered = [torch.empty(2) for _ in range(size)] if rank == root else None
    dist.gather(torch.full((2,), float(rank)), gathered, dst=root)
    assert rank != root or [part[0].item() for part in gathered] == list(range(size))
    parts = [torch.full((2,), float(to)) for to in range(size)] if rank == root else None
    part = torch.empty(2)
    dist.scatter(part, parts, src=root)
    assert part.eq(rank).all()
    dist.broadcast(part, src=root)
    assert part.eq(root).all()

    received = [torch.empty(1 + rank) for _ in range(size)]
    dist.all_to_all(received, [torch.full((1 + to,), float(rank)) for to in range(size)])
    assert [tensor[0].item() for tensor in received] == list(range(size))
    received = torch.empty(size * (rank + 1), 2)
    splits = [to + 1 for to in range(size)]
    dist.all_to_all_single(received, torch.full((sum(splits), 2), float(rank)), [rank + 1] * size, splits)
    assert received[:: rank + 1, 1].tolist() == list(range(size))

    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(size)]
    objects = ["word" if rank == 0 else None]
    dist.broadcast_object_list(objects, src=0)
    assert objects == ["word"]
    dist.barrier()


def refuses(call, text):
    try:
        call()
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError("no error")


def errors():
    rank, size = dist.get_rank(), dist.get_world_size()
    try:
        dist.all_reduce(torch.zeros(4 if rank == 1 else 3))
    except Exception as error:
        assert "worker 1 pushed 4 float32" in str(error), error
    else:
        raise AssertionError("no error")
    dist.all_reduce(torch.zeros(3))  # all go on
    for call in (
        lambda: dist.reduce(torch.zeros(3, dtype=torch.int32), 0, dist.ReduceOp.BXOR),
        lambda: dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX),
    ):
        try:
            call()
        except NotImplementedError as error:
            assert re.match("byteps has no (BXOR here|MAX of)", str(error)), error
        else:
            raise AssertionError("no error")
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    assert future.then(lambda done: done.value()[0] + 1).wait().eq(size + 1).all()


def time_outs():
    """Rank 1 does not join: the others hear which operation of which group that was, and go on with other groups."""
    second = datetime.timedelta(seconds=1)
    hasty = dist.new_group(timeout=second, group_desc="the hasty")
    patient = dist.new_group(timeout=1000 * second)
    late = dist.new_group(timeout=second)
    if dist.get_rank() != 1:
        work = dist.all_reduce(torch.ones(3), group=patient, async_op=True)
        refuses(lambda: work.wait(second / 100), "did not end within the timeout of 0.01 s for wait(); it goes on")
        refuses(lambda: dist.barrier(hasty), f"(the hasty) of {dist.get_world_size()} ranks cannot be used any more")
        refuses(lambda: dist.all_reduce(torch.ones(3), group=hasty), "timed out in barrier")
        future = dist.all_reduce(torch.ones(3), group=late, async_op=True).get_future()
        refuses(future.wait, "timed out in all_reduce, which did not end within the timeout of 1 s")
    dist.barrier()
    if dist.get_rank() == 1:
        work = dist.all_reduce(torch.ones(3), group=patient, async_op=True)
    work.wait()
    assert work.result()[0].eq(dist.get_world_size()).all()


def priorities():
    """Reductions are the more urgent the more are in flight: rank 1 has the others wait until all have begun theirs."""
    given, start = [], byteps.torch.distributed.start
    group = dist.new_group()
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)
    byteps.torch.distributed.start = lambda *call: given.append(call[5]) or start(*call)
    works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True) for _ in range(3)]
    byteps.torch.distributed.start = start
    if dist.get_rank() == 0:
        assert given == [0, 1, 2], given
        dist.send(torch.ones(1), 1)
    for work in works:
        work.wait()


def groups():
    """All, each alone, pairs that overlap, and one that is destroyed while others are in use."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=dist.new_group())
    assert tensor.eq(size).all()
    alone = [dist.new_group([each]) for each in range(size)][rank]
    dist.all_reduce(tensor, group=alone)
    assert tensor.eq(size).all() and dist.get_world_size(alone) == 1
    pairs = [dist.new_group([each, (each + 1) % size]) for each in range(size)]
    mine, last = pairs[rank], pairs[rank - 1]
    work = [dist.all_reduce(torch.ones(3), group=pair, async_op=True) for pair in sorted([mine, last], key=pairs.index)]
    gathered = [torch.empty(1), torch.empty(1)]
    for each in work:
        each.wait()
    for pair in sorted([mine, last], key=pairs.index):
        dist.all_gather(gathered, torch.full((1,), float(rank)), group=pair)
        assert [int(each) for each in gathered] == dist.get_process_group_ranks(pair)
        root = dist.get_global_rank(pair, 1)
        tensor = torch.full((2,), float(rank))
        dist.broadcast(tensor, root, group=pair)
        assert tensor.eq(root).all()
        dist.barrier(pair)
        dist.destroy_process_group(pair)
    dist.barrier()


def messages():
    """In a ring, at once; of two tags; of objects; and of a pair of another group."""
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    got = torch.empty(100000)
    calls = [dist.P2POp(dist.irecv, got, before), dist.P2POp(dist.isend, torch.full((100000,), float(rank)), after)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert got.eq(before).all()
    if rank == 0:
        first = dist.isend(torch.full((3,), 1.0), 1, tag=1)
        dist.send(torch.full((2, 2), 2, dtype=torch.int64).t(), 1, tag=2)
        first.wait()
        dist.send_object_list(["an object", {"of": 2}], 1)
    if rank == 1:
        numbers, tensor = torch.empty(2, 2, dtype=torch.int64), torch.empty(3)
        assert dist.recv(numbers, 0, tag=2) == 0 and numbers.eq(2).all()
        dist.recv(tensor, 0, tag=1)
        assert tensor.eq(1).all()
        objects = [None, None]
        dist.recv_object_list(objects, 0)
        assert objects == ["an object", {"of": 2}], objects
    dist.barrier()
    from_any()


def from_any():
    """Rank 0 receives from whoever has sent, twice from each; and from one whom it names, between."""
    rank, size = dist.get_rank(), dist.get_world_size()
    last = dist.new_group([size - 2, size - 1])  # their ranks in it are not those in the job
    if rank == 0:
        named, later = torch.empty(3), torch.empty(3)
        work = dist.irecv(later, tag=1)
        dist.recv(named, size - 1)
        assert named.eq(size - 1).all()
        senders = [dist.recv(named) for _ in range(2 * size - 3)]
        assert sorted(senders) == sorted([*range(1, size - 1), *range(1, size)]), senders
        assert named.eq(senders[-1]).all()
        dist.send(torch.ones(1), 1)
        work.wait()
        assert work._source_rank() == 1 and later.eq(-1).all()
    else:
        works = [dist.isend(torch.full((3,), float(rank)), 0) for _ in range(2)]
        if rank == 1:
            dist.recv(torch.empty(1), 0)
            dist.send(torch.full((3,), -1.0), 0, tag=1)
        for work in works:
            work.wait()
    if rank == size - 1:
        dist.send(torch.ones(2), size - 2, last)
    elif rank == size - 2:
        assert dist.recv(torch.empty(2), group=last) == size - 1
    dist.barrier()


# ---- training --------------------------------------------------------------------------------------------


def ddp():
    for how in ({}, {"static_graph": True}, {"find_unused_parameters": True}, {"bucket_cap_mb": 0.0001}):
        module = DistributedDataParallel(model(), **how)
        train(module, sgd(module))
        same(module.module.parameters())
    module = DistributedDataParallel(model())
    module.register_comm_hook(None, fp16_compress_hook)
    train(module, sgd(module))
    same(module.module.parameters(), 1e-2)
    module, optimizer = DistributedDataParallel(model()), None
    optimizer = sgd(module)
    for step in range(STEPS):
        optimizer.zero_grad()
        halves = data(step)[dist.get_rank()].split(4)
        with module.no_sync():
            (module(halves[0]).pow(2).mean() / 2).backward()
        (module(halves[1]).pow(2).mean() / 2).backward()
        optimizer.step()
    same(module.module.parameters())


def compiled():
    """DDP, operators for graphs, and ordinary operations at which a graph breaks: without a compiler for C++."""
    size = dist.get_world_size()
    for how in ({}, {"static_graph": True}):
        module = DistributedDataParallel(model(), **how)
        train(torch.compile(module, backend="aot_eager"), sgd(module))
        same(module.module.parameters())

    @torch.compile(backend="aot_eager", fullgraph=True)
    def whole(tensor):
        total = functional.all_reduce(tensor * 2, "sum", dist.group.WORLD)
        return functional.all_gather_tensor(total + 1, 0, dist.group.WORLD)

    @torch.compile(backend="aot_eager")
    def broken(tensor):
        doubled = tensor * 2
        dist.all_reduce(doubled)
        return doubled + 1

    for function, count in ((whole, 3 * size), (broken, 3)):
        for _ in range(2):
            assert function(torch.ones(3)).tolist() == [2 * size + 1] * count


def uneven():
    """Worker r has r batches more than worker 0, and PyTorch's Join has all of them end with the same weights."""
    module = DistributedDataParallel(model())
    optimizer = sgd(module)
    with Join([module]):
        for step in range(STEPS + dist.get_rank()):
            optimizer.zero_grad()
            module(data(step)[dist.get_rank()]).pow(2).mean().backward()
            optimizer.step()
    mine = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(mine, first)


def zero():
    module = DistributedDataParallel(model())
    train(module, ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9))
    same(module.module.parameters())


def fsdp():
    module = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    train(module, sgd(module))
    with FullyShardedDataParallel.summon_full_params(module):
        same(module.module.parameters())
    module = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(module[0], mesh=mesh)
    fully_shard(module, mesh=mesh)
    train(module, sgd(module))
    same([parameter.full_tensor() for parameter in module.parameters()])
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    dcp.async_save({"model": module.state_dict()}, checkpoint_id=folder[0]).result()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    state = {"model": module.state_dict()}
    dcp.load(state, checkpoint_id=folder[0])
    module.load_state_dict(state["model"])
    same([parameter.full_tensor() for parameter in module.parameters()])


def meshes():
    """Two dimensions: shards of replicas, and layers that are split."""
    size = dist.get_world_size()
    if size % 2 != 0:
        return
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicas", "shards"))
    module = model()
    fully_shard(module, mesh=mesh)
    train(module, sgd(module))
    same([parameter.full_tensor() for parameter in module.parameters()])
    module = model()
    parallelize_module(module, mesh["shards"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(module, sgd(module), own=False)
    same([parameter.full_tensor() for parameter in module.parameters()])


def pipeline():
    """A layer for each worker; the first has the inputs, the last the loss."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    layers = [nn.Linear(6, 6) for _ in range(size)]
    inputs, targets = torch.randn(8, 6), torch.randn(8, 6)
    stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
    if rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(**({"target": targets} if rank == size - 1 else {}))
    found = layers[rank].weight.grad.clone()
    layers[rank].zero_grad()
    nn.functional.mse_loss(nn.Sequential(*layers)(inputs), targets).backward()
    assert torch.allclose(found, layers[rank].weight.grad, atol=1e-6), (found - layers[rank].weight.grad).abs().max()


def all_of_them():
    for each in (
        operations,
        errors,
        time_outs,
        priorities,
        groups,
        messages,
        ddp,
        compiled,
        uneven,
        zero,
        fsdp,
        meshes,
        pipeline,
    ):
        each()


# ---- starting --------------------------------------------------------------------------------------------


def spawned(rank, size, file):
    """Processes that know each other by a store alone."""
    dist.init_process_group("byteps", init_method=f"file://{file}", rank=rank, world_size=size)
    operations()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)
        with tempfile.TemporaryDirectory() as where:
            mp.spawn(spawned, (3, os.path.join(where, "store")), 3)
    else:
        dist.init_process_group("byteps", init_method=sys.argv[2] if len(sys.argv) > 2 else None)
        globals()[sys.argv[1]]()
        dist.destroy_process_group()
    print("fine")
