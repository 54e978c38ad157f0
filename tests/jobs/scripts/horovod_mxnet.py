# SPDX-License-Identifier: Apache-2.0
"""Horovod's operations, and a training as its examples have it, in MXNet; for --as horovod."""

import checks
import mxnet as mx
import numpy as np

import horovod.mxnet as hvd
from horovod.mxnet.mpi_ops import allgather


def ranks():
    return range(hvd.size())


def same(array, expected, dtype="float32"):
    assert array.dtype == np.dtype(dtype).type, array
    assert np.array_equal(array.asnumpy(), expected), (array, expected)


def check_allreduce_and_broadcast():
    mean, last = (hvd.size() - 1) / 2, hvd.size() - 1
    x = mx.nd.full((3,), hvd.rank())
    same(hvd.allreduce(x, name="x"), [mean] * 3)
    same(hvd.allreduce(x, average=False, prescale_factor=2.0), [2 * mean * hvd.size()] * 3)
    for result in (*hvd.grouped_allreduce([x, x], op=hvd.Max), *hvd.grouped_allreduce([x], False, "g", op=None)):
        assert result.asnumpy()[0] in (last, mean * hvd.size())
    same(hvd.broadcast(x, last, "x"), [last] * 3)
    same(x, [hvd.rank()] * 3)
    assert hvd.broadcast_(x, 0) is x and hvd.allreduce_(x) is x
    same(x, [0] * 3)
    assert hvd.broadcast_object([hvd.rank()], last) == [last]
    assert hvd.allgather_object("x" * hvd.rank()) == ["x" * r for r in ranks()]


def check_gathering():
    me, size = hvd.rank(), hvd.size()
    for dtype in ("float32", "float16", "int64"):
        want = np.concatenate([np.full((r, 2), r) for r in ranks()])
        same(allgather(mx.nd.full((me, 2), me, dtype=dtype)) if me else allgather(_empty(dtype)), want, dtype)
    one, two = hvd.grouped_allgather([mx.nd.array([me]), mx.nd.array([me + 1])])
    same(two - one, [1] * size)
    same(hvd.alltoall(mx.nd.full((2 * size,), me)), np.repeat(ranks(), 2))
    splits = [r + 1 for r in ranks()]
    x = mx.nd.full((sum(splits),), me)
    for given in (splits, mx.nd.array(splits, dtype="int32")):
        result, received = hvd.alltoall(x, given)
        same(result, np.repeat(ranks(), me + 1))
        same(received, [me + 1] * size, "int32")
    x = mx.nd.array(np.arange(2.0 * size + 1) + me)
    rows = slice(0, 3) if me == 0 else slice(2 * me + 1, 2 * me + 3)
    same(hvd.reducescatter(x), np.arange(2.0 * size + 1)[rows] + (size - 1) / 2)
    same(hvd.grouped_reducescatter([x], op=hvd.Min)[0], np.arange(2.0 * size + 1)[rows])
    with mx.util.np_shape(True):
        assert isinstance(hvd.allgather(mx.np.ones((2,))), mx.np.ndarray)


def _empty(dtype):
    return mx.nd.array(np.zeros((0, 2)), dtype=dtype)


def check_refusals():
    x = mx.nd.ones((2,))
    for use, text in (
        (lambda: hvd.init(comm=[0]), "comm=[0]"),
        (lambda: hvd.allreduce(x, op=hvd.Adasum), "op=Average"),
        (lambda: hvd.join(), "horovod.mxnet.join is not there"),
    ):
        checks.raised(NotImplementedError, use, text)
    checks.raised(TypeError, lambda: hvd.allgather(np.ones(2)), "not ndarray")
    checks.raised(ValueError, lambda: hvd.alltoall(mx.nd.ones((hvd.size() + 1,))), "is not a multiple")


def check_training():
    mx.random.seed(hvd.rank())
    inputs = mx.nd.random.normal(shape=(64, 8))
    labels = inputs.sum(axis=1, keepdims=True)
    net = mx.gluon.nn.Dense(1, in_units=8)
    net.initialize()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0, prefix=None)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, hvd.Compression.none)
    loss = mx.gluon.loss.L2Loss()
    losses = []
    for _ in range(40):
        with mx.autograd.record():
            one = loss(net(inputs), labels)
        one.backward()
        trainer.step(64)
        losses.append(hvd.allreduce(one.mean().reshape((1,)), name="loss").asscalar())
    assert losses[-1] < 0.1 * losses[0], losses
    weights = hvd.allgather(net.weight.data())
    assert (weights.asnumpy() == net.weight.data().asnumpy()).all()


if __name__ == "__main__":
    checks.main(globals(), hvd)
