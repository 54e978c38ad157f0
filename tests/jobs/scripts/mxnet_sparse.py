# SPDX-License-Identifier: Apache-2.0
"""Row-sparse arrays and gradients of MXNet: only rows travel, and training is as with dense ones."""

import os
import tempfile

import checks
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import byteps
import byteps.mxnet as bps
from byteps._native import bps as native

ROWS, WIDTH, STEPS = 3000, 8, 4


def table(rank, seed, dtype="float32"):
    """What a worker has; the last worker has no row."""
    random = np.random.default_rng(100 * seed + rank)
    count = 0 if rank and rank == bps.size() - 1 else int(random.integers(1, 60))
    index = np.unique(np.concatenate([[5] * min(count, 1), random.integers(0, ROWS, count)])).astype("int64")
    values = random.integers(-4, 5, (len(index), WIDTH)).astype(dtype)
    return mx.nd.sparse.row_sparse_array((values, index), shape=(ROWS, WIDTH), dtype=dtype)


def total(seed, dtype="float32"):
    return sum(table(rank, seed, dtype).asnumpy() for rank in range(bps.size()))


def check_arrays():
    for dtype in ("float32", "float64", "float16", "int32"):
        for seed in range(3):
            mine = table(bps.rank(), seed, dtype)
            before = mine.asnumpy()
            result = bps.push_pull(mine, average=False, name=f"sum {dtype}")
            assert result.stype == "row_sparse"
            assert result.dtype == mine.dtype
            assert np.array_equal(result.asnumpy(), total(seed, dtype))
            assert np.all(np.diff(result.indices.asnumpy()) > 0)
            assert np.array_equal(mine.asnumpy(), before)
    mine = table(bps.rank(), 1)
    bps.byteps_push_pull(mine, name="mean")
    assert np.allclose(mine.asnumpy(), total(1) / bps.size())
    scaled = bps.allreduce(table(bps.rank(), 1), name="scaled", op=bps.Sum, prescale_factor=2.0, postscale_factor=3.0)
    assert np.array_equal(scaled.asnumpy(), 6 * total(1))
    none = bps.push_pull(mx.nd.sparse.zeros("row_sparse", (7, 3)), name="none")
    assert none.indices.shape == (0,)


def check_what_is_wrong():
    mine = table(bps.rank(), 1)
    checks.raised(ValueError, lambda: bps.push_pull(mine), "needs a name")
    checks.raised(ValueError, lambda: bps.push_pull(mine, name="wrong", op=bps.Max), "sum and average")
    if bps.size() > 1:
        width = 4 + bps.rank() % 2
        other = mx.nd.ones((9, width)).tostype("row_sparse")
        checks.raised(byteps.MismatchError, lambda: bps.push_pull(other, name="differs"), "float32")
    net, trainer = trained(True, compression_params={"compressor": "onebit"}, steps=1)
    assert net.first.weight.grad().stype == "row_sparse"
    momentum = {"compressor": "onebit", "momentum": "nesterov"}
    rate = {"learning_rate": 0.5, "momentum": 0.9}
    checks.raised(ValueError, lambda: trained(True, optimizer_params=rate, compression_params=momentum), "momentum")


class Net(gluon.Block):
    """Two embeddings of one shape, of which the first is used twice."""

    def __init__(self, sparse, dtype="float32"):
        super().__init__()
        self.first = gluon.nn.Embedding(ROWS, WIDTH, sparse_grad=sparse, dtype=dtype)
        self.second = gluon.nn.Embedding(ROWS, WIDTH, sparse_grad=sparse, dtype=dtype)
        self.top = gluon.nn.Dense(1, in_units=WIDTH, flatten=False, dtype=dtype)

    def forward(self, words):
        both = self.first(words) * self.second(words) + self.first((words + 1) % ROWS)
        return self.top(both)


def words(step, rank):
    return mx.nd.array(np.random.default_rng(1000 * step + rank).integers(0, ROWS, (6, 4)))


def trained(sparse, optimizer="sgd", optimizer_params=None, skips=(), steps=STEPS, clip=None, dtype="float32", **how):
    mx.random.seed(3)
    np.random.seed(3)
    net = Net(sparse, dtype)
    net.initialize(mx.init.Normal(0.5))
    trainer = bps.DistributedTrainer(
        net.collect_params(), optimizer, {"learning_rate": 0.5, **(optimizer_params or {})}, **how
    )
    for step in range(steps):
        with autograd.record():
            if (step, bps.rank()) in skips:
                loss = (net.top(mx.nd.ones((2, WIDTH), dtype=dtype)) * 0).mean()  # the embeddings have no gradient here
            else:
                loss = (net(words(step, bps.rank())) ** 2).mean()
        loss.backward()
        if clip is None:
            trainer.step(1, ignore_stale_grad=bool(skips))
        else:
            trainer.allreduce_grads()
            gradients = [parameter.grad() for parameter in net.collect_params().values()]
            norm = float(sum((gradient * gradient).asnumpy().sum() for gradient in gradients)) ** 0.5
            for gradient in gradients:
                gradient *= min(1.0, clip / norm)
            trainer.update(1)
        for one in (net.first, net.second):
            assert one.weight.grad().stype == ("row_sparse" if sparse else "default")
    return net, trainer


def same(**how):
    results = [[p.data().asnumpy() for p in trained(sparse, **how)[0].collect_params().values()] for sparse in (1, 0)]
    for one, other in zip(*results):
        assert np.allclose(one, other, 1e-5, 1e-6), np.abs(one - other).max()
        assert np.array_equal(bps.broadcast(mx.nd.array(one, dtype=one.dtype), 0).asnumpy(), one)


def check_training_is_that_of_dense_gradients():
    same()
    same(clip=0.01)
    same(optimizer="adam", optimizer_params={"learning_rate": 0.01, "lazy_update": False})
    same(compression=bps.Compression.fp16)
    same(gradient_predivide_factor=2.0)
    same(dtype="float64")
    same(compression_params={"compressor": "onebit", "scaling": False, "min_bytes": 1 << 30})
    if bps.size() > 1:
        same(skips=[(1, bps.size() - 1), (2, 0)])


def check_module():
    """An optimizer of the Module interface."""
    weight = mx.nd.ones((ROWS, WIDTH))
    optimizer = bps.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
    gradient = table(bps.rank(), 2)
    optimizer.update(0, weight, gradient, optimizer.create_state(0, weight))
    assert np.allclose(weight.asnumpy(), 1 - total(2) / bps.size(), 1e-5, 1e-6)


def check_only_rows_travel():
    if bps.size() == 1:
        return
    before = native.pushed_bytes()
    row = mx.nd.sparse.row_sparse_array((np.ones((1, 16), "float32"), [bps.rank()]), shape=(200_000, 16))
    assert bps.push_pull(row, name="large").indices.shape == (bps.size(),)
    assert native.pushed_bytes() - before < 1 << 20


def check_saved():
    net, trainer = trained(True, "adam", {"learning_rate": 0.01})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        net.save_parameters(path + ".net")
        trainer.save_states(path)
        net.load_parameters(path + ".net")
        trainer.load_states(path)
    with autograd.record():
        loss = (net(words(9, bps.rank())) ** 2).mean()
    loss.backward()
    trainer.step(1)
    for parameter in net.collect_params().values():
        mine = parameter.data()
        assert np.array_equal(bps.broadcast(mine, 0).asnumpy(), mine.asnumpy())


if __name__ == "__main__":
    checks.main(globals(), bps)
