# SPDX-License-Identifier: Apache-2.0
"""What programs for the original BytePS and for Horovod import and read, used as they use it."""

import checks
import torch

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
    ops.resume(bps_size, None, me)
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    bps.init()
    bps_size = bps.size()
    checks.main(globals(), bps)
