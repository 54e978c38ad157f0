# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast for MXNet: as operations of its engine, with what comes before and after them."""

import checks
import mxnet as mx
import numpy as np

import byteps
import byteps.mxnet as bps
from byteps._native import bps as native

DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64")


def ranks():
    return sum(range(bps.size()))


def check_types():
    for name in (None, "types"):
        for dtype in DTYPES:
            result = bps.push_pull(mx.nd.full((2, 3), bps.rank() + 1, dtype=dtype), op=bps.Sum, name=name)
            assert result.dtype == np.dtype(dtype).type and result.shape == (2, 3), result
            assert np.all(result.asnumpy().astype(float) == ranks() + bps.size()), (dtype, result)
    flag = bps.push_pull(mx.nd.array([bps.rank() == 0, False], dtype="bool"), op=bps.Max)
    assert flag.asnumpy().tolist() == [True, False]


def check_shapes():
    for shape in ((1,), (5, 7), (3, 100_000)):
        result = bps.push_pull(mx.nd.full(shape, bps.rank()), name=f"shape.{shape}")
        assert result.shape == shape and np.allclose(result.asnumpy(), ranks() / bps.size())
    with mx.util.np_shape(True):
        result = bps.push_pull(mx.np.full((), float(bps.rank())), name="scalar")
        assert isinstance(result, mx.np.ndarray) and result.item() == ranks() / bps.size()
        assert bps.push_pull(mx.np.zeros((3, 0, 2)), name="empty").shape == (3, 0, 2)


def check_reductions():
    everybody = np.stack([np.arange(4.0) + 1 + rank for rank in range(bps.size())])
    mine = mx.nd.array(everybody[bps.rank()])
    for op, expected in (
        (bps.Average, everybody.mean(0)),
        (bps.Sum, everybody.sum(0)),
        (bps.Min, everybody.min(0)),
        (bps.Max, everybody.max(0)),
        (bps.Product, everybody.prod(0)),
    ):
        assert np.allclose(bps.push_pull(mine, op=op, name=f"op.{op}").asnumpy(), expected), op
    assert np.allclose(bps.push_pull(mine, average=False, name="sum").asnumpy(), everybody.sum(0))
    scaled = bps.push_pull(mine, average=False, name="scaled", prescale_factor=3.0, postscale_factor=0.5)
    assert np.allclose(scaled.asnumpy(), 1.5 * everybody.sum(0))
    assert np.allclose(mine.asnumpy(), everybody[bps.rank()])  # not changed
    assert bps.push_pull_inplace(mine, name="in place") is mine
    assert np.allclose(mine.asnumpy(), everybody.mean(0))


def check_average_and_op():
    def mine():
        return mx.nd.array([bps.rank() + 1])

    single = (bps.push_pull, bps.push_pull_inplace, bps.allreduce, bps.allreduce_)
    grouped = (bps.grouped_allreduce, bps.grouped_allreduce_)
    checks.average_and_op(
        bps,
        *(lambda reduce=reduce, **given: reduce(mine(), **given).asscalar() for reduce in single),
        *(lambda reduce=reduce, **given: reduce([mine()], **given)[0].asscalar() for reduce in grouped),
    )


def check_order():
    """The engine runs it behind what the array needs, and before what needs the array."""
    x = mx.nd.zeros((1000,))
    for _ in range(20):
        x += bps.rank() + 1
        bps.push_pull_inplace(x, name="x", op=bps.Sum)
        x /= bps.size()
    assert np.allclose(x.asnumpy(), 20 * (ranks() + bps.size()) / bps.size())
    for i in range(50):  # an array that nobody holds
        bps.push_pull_inplace(mx.nd.ones((1000,)), name=f"dropped.{i}")
    mx.nd.waitall()


def check_broadcast():
    for root in range(bps.size()):
        for dtype in DTYPES:
            array = mx.nd.full((5,), bps.rank(), dtype=dtype)
            assert np.all(bps.broadcast(array, root, name=f"b.{dtype}").asnumpy() == root)
            assert np.all(array.asnumpy() == bps.rank())
        unnamed = mx.nd.full((5,), bps.rank())
        assert bps.broadcast_inplace(unnamed, root) is unnamed and np.all(unnamed.asnumpy() == root)
    assert bps.broadcast_object({"rank": bps.rank()}, bps.size() - 1) == {"rank": bps.size() - 1}


def check_groups():
    """A group of all workers in another order, and one of the last worker alone."""
    group, alone = bps.new_group(reversed(range(bps.size()))), bps.new_group([bps.size() - 1])
    x = mx.nd.full((3,), bps.rank() + 1)
    total = ranks() + bps.size()
    assert np.allclose(bps.push_pull(x, group=group, priority=2).asnumpy(), total / bps.size())
    scaled = bps.allreduce(x, average=False, prescale_factor=3.0, postscale_factor=0.5, group=group)
    assert np.allclose(scaled.asnumpy(), 1.5 * total)
    one, two = bps.grouped_allreduce([x, x + 1], average=False, group=group)
    assert np.all((two - one).asnumpy() == bps.size())
    root = bps.size() - 1  # the worker with rank 0
    assert np.all(bps.broadcast(x, root, group=group).asnumpy() == 1)
    assert bps.broadcast_object(bps.rank(), root, group=group) == 0
    y = x.copy()
    assert bps.push_pull_inplace(y, op=bps.Max, group=group) is y and np.all(y.asnumpy() == bps.size())
    z = x.copy()
    assert bps.broadcast_(z, root, group=group) is z and np.all(z.asnumpy() == 1)
    for call in (bps.push_pull, bps.broadcast):
        checks.raised(ValueError, lambda: call(x, name="x", group=group), "takes no name")  # noqa: B023
        if alone.rank() < 0:
            checks.raised(ValueError, lambda: call(x, group=alone), "is not a member of")  # noqa: B023
        else:
            assert np.all(call(x, group=alone).asnumpy() == x.asnumpy())
    checks.raised(ValueError, lambda: bps.broadcast(x, bps.size(), group=group), "is not the rank of a member")
    group.free()


def check_other_names():
    """Those of the original and of Horovod."""
    x = mx.nd.full((3,), bps.rank())
    bps.byteps_declare_tensor("declared")
    bps.byteps_push_pull(x, version=0, priority=0, name="declared", is_average=False)
    assert np.all(x.asnumpy() == ranks())
    assert np.allclose(bps.allreduce(mx.nd.full((3,), bps.rank()), name="h").asnumpy(), ranks() / bps.size())
    one = mx.nd.full((3,), bps.rank())
    bps.allreduce_(one, average=False, name="h_")
    assert np.all(one.asnumpy() == ranks())
    for result in bps.grouped_allreduce([mx.nd.ones((2,))] * 3, average=False, name="g"):
        assert np.all(result.asnumpy() == bps.size())
    bps.broadcast_(one, root_rank=0)
    checks.raised(NotImplementedError, lambda: bps.alltoall(one), "alltoall is not there")
    checks.raised(NotImplementedError, lambda: bps.allreduce(one, process_set=1), "process_set")


def check_all_are_in_flight_at_once():
    """While no other worker has begun, a worker has started all its operations."""
    arrays = [mx.nd.full((256,), i) for i in range(32)]
    mx.nd.waitall()
    bps.barrier()
    if bps.size() > 1 and bps.rank() > 0:
        bps.push_pull(mx.nd.ones((1,)), name="go").wait_to_read()
    before = native.pushed_bytes()
    for i, array in enumerate(arrays):
        bps.push_pull_inplace(array, name=f"flight.{i}", op=bps.Sum)
    if bps.rank() == 0:
        while native.pushed_bytes() - before < 32 * 1024:
            pass
        bps.push_pull(mx.nd.ones((1,)), name="go").wait_to_read()
    for i, array in enumerate(arrays):
        assert np.all(array.asnumpy() == i * bps.size())


def check_refusals():
    checks.raised(TypeError, lambda: bps.push_pull_inplace(np.ones(3)), "not ndarray")
    sparse = mx.nd.ones((3, 3)).tostype("row_sparse")
    checks.raised(ValueError, lambda: bps.push_pull_inplace(sparse), "needs a name")
    checks.raised(TypeError, lambda: bps.broadcast(sparse, 0, name="s"), "s: the array is sparse")
    csr = sparse.tostype("default").tostype("csr")
    checks.raised(TypeError, lambda: bps.push_pull_inplace(csr, name="s"), "s: the array is sparse")
    checks.raised(TypeError, lambda: bps.push_pull(mx.nd.ones((3,)), name=3), "must be a str")
    checks.raised(ValueError, lambda: bps.push_pull(mx.nd.ones((3,)), op=17), "not a reduction")
    checks.raised(ValueError, lambda: bps.broadcast(mx.nd.ones((3,)), bps.size()), "not the rank of a worker")


def check_errors():
    """They come where the result is used, and only there."""
    if bps.size() == 1:
        return
    x = bps.push_pull(mx.nd.ones((3 + bps.rank(),)), name="other")
    y = x + 1
    text = "worker 1 pushed [4] float32, worker 0 pushed [3] float32"
    checks.raised(mx.base.MXNetError, y.asnumpy, text)
    assert np.all(bps.push_pull(mx.nd.ones((3,)), name="good", op=bps.Sum).asnumpy() == bps.size())
    checks.raised(mx.base.MXNetError, lambda: bps.push_pull(mx.nd.ones((3 + bps.rank(),))), "worker 0 pushed")
    for _ in range(20):
        z = bps.push_pull(mx.nd.ones((3 + bps.rank(),)), name="other")
        checks.raised(mx.base.MXNetError, mx.nd.waitall, text)
    del z


def check_error_of_the_users():
    """An operation whose array already has an error is not begun; the others are."""
    broken = mx.nd.random.normal(0, -1, (3,))  # MXNet tells when it is used
    bps.push_pull_inplace(broken, name=f"broken.{bps.rank()}")
    checks.raised(mx.base.MXNetError, broken.asnumpy, "scale")
    assert np.all(bps.push_pull(mx.nd.ones((3,)), name="whole", op=bps.Sum).asnumpy() == bps.size())


def check_parameters():
    last = bps.size() - 1
    arrays = {"a": mx.nd.full((3,), bps.rank()), "b": mx.nd.full((2, 2), bps.rank(), dtype="int64")}
    bps.broadcast_parameters(arrays, root_rank=last)
    assert all(np.all(array.asnumpy() == last) for array in arrays.values())
    net = mx.gluon.nn.Dense(2)  # its weights are made when it is called
    net.initialize(mx.init.Constant(bps.rank()))
    bps.broadcast_parameters(net.collect_params(), root_rank=last)
    net(mx.nd.ones((1, 5)))
    assert np.all(net.weight.data().asnumpy() == last), net.weight.data()
    checks.raised(ValueError, lambda: bps.broadcast_parameters([1]), "invalid params of type list")
    if bps.size() > 1:
        checks.raised(
            byteps.MismatchError, lambda: bps.broadcast_parameters({f"w{bps.rank()}": mx.nd.ones((2,))}), "differ"
        )


if __name__ == "__main__":
    checks.main(globals(), bps)
