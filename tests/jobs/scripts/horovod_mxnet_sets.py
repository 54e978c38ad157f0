# SPDX-License-Identifier: Apache-2.0
"""Process sets of byteps.compat.horovod.mxnet, in a job of three workers: two that overlap."""

# ruff: noqa: B023 (the functions that are made in loops run at once)
import checks
import mxnet as mx
import numpy as np

import byteps.compat.horovod.mxnet as hvd
from byteps.mxnet import DistributedTrainer

ENDS = hvd.ProcessSet([2, 0])
hvd.init(process_sets=[ENDS])
TAIL = hvd.add_process_set([1, 2])
ME = hvd.rank()


def mine():
    """Return the sets that this worker is in, with the number of their workers and the sum of their ranks."""
    return [(chosen, chosen.size(), sum(chosen.ranks)) for chosen in (ENDS, TAIL) if chosen.included()]


def same(array, expected):
    assert np.array_equal(array.asnumpy(), expected), (array, expected)


def check_sets():
    assert ENDS.ranks == [0, 2] and TAIL.process_set_id == 2
    x = mx.nd.ones((2,))
    passing = hvd.add_process_set([0, 1])
    assert hvd.remove_process_set(passing)
    checks.raised(ValueError, lambda: hvd.allreduce(x, process_set=passing), "or was removed")
    checks.raised(ValueError, lambda: hvd.DistributedOptimizer(None, process_set=1), "hvd.add_process_set()")
    if ME == 1:
        checks.raised(ValueError, lambda: hvd.allreduce(x, process_set=ENDS), "worker 1 is not a member")
        checks.raised(ValueError, lambda: hvd.broadcast(x, 0, process_set=ENDS), "worker 1 is not a member")
    else:
        checks.raised(ValueError, lambda: hvd.broadcast(x, 1, process_set=ENDS), "root_rank=1 is not in")


def check_operations():
    x = mx.nd.full((3,), ME)
    for chosen, n, total in mine():
        root, place = chosen.ranks[-1], chosen.ranks.index(ME)
        same(hvd.allreduce(x, name="x", process_set=chosen), [total / n] * 3)
        same(hvd.allreduce(x, average=False, prescale_factor=2.0, process_set=chosen), [2 * total] * 3)
        y = x.copy()
        assert hvd.allreduce_(y, op=hvd.Max, process_set=chosen) is y
        same(y, [root] * 3)
        one, two = hvd.grouped_allreduce([x, x + 1], op=hvd.Sum, process_set=chosen)
        same(two - one, [n] * 3)
        rows = mx.nd.full((3, 2), ME + 1).tostype("row_sparse")
        result = hvd.allreduce(rows, op=hvd.Sum, process_set=chosen)
        assert result.stype == "row_sparse"
        same(result, np.full((3, 2), total + n))
        same(hvd.broadcast(x, root, process_set=chosen), [root] * 3)
        same(
            hvd.allgather(mx.nd.full((ME + 1,), ME), process_set=chosen),
            np.repeat(chosen.ranks, np.add(chosen.ranks, 1)),
        )
        same(hvd.grouped_allgather([x], process_set=chosen)[0], np.repeat(chosen.ranks, 3))
        same(hvd.alltoall(mx.nd.arange(2) + 10 * ME, process_set=chosen), [10 * r + place for r in chosen.ranks])
        same(hvd.alltoall(mx.nd.zeros((4,)), [1, 3], process_set=chosen)[1], [1 + 2 * place] * 2)
        whole = mx.nd.arange(5)
        same(hvd.reducescatter(whole, op=hvd.Sum, process_set=chosen), [[0, n, 2 * n], [3 * n, 4 * n]][place])
        same(hvd.grouped_reducescatter([whole], process_set=chosen)[0], [[0, 1, 2], [3, 4]][place])
        assert hvd.broadcast_object([ME] * ME, root, process_set=chosen) == [root] * root
        assert hvd.allgather_object("x" * ME, process_set=chosen) == ["x" * r for r in chosen.ranks]
        arrays = {"a": x.copy(), "b": mx.nd.full((1,), ME)}
        hvd.broadcast_parameters(arrays, root, process_set=chosen)
        same(arrays["b"], [root])


class Net(mx.gluon.nn.Block):
    """Rows of a table, and a layer whose shape is not known from the start."""

    def __init__(self):
        super().__init__()
        self.rows = mx.gluon.nn.Embedding(3, 2, sparse_grad=True)
        self.last = mx.gluon.nn.Dense(1, use_bias=False)

    def forward(self, index):
        return self.last(self.rows(index))


def check_trainer():
    """The members train as one, from the same parameters; the other worker trains for itself."""
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        mx.random.seed(ME)
        net = Net()
        net.initialize(mx.init.Uniform(1.0))
        trainer = hvd.DistributedTrainer(
            net.collect_params(), "sgd", {"learning_rate": 0.5}, compression, process_set=ENDS
        )
        for ignore in (False, True):
            with mx.autograd.record():
                loss = net(mx.nd.array([ME])).sum()
            loss.backward()
            trainer.step(1, ignore_stale_grad=ignore)
        weights = [one.data().asnumpy().tolist() for one in (net.rows.weight, net.last.weight)]
        seen = hvd.allgather_object(weights)
        assert seen[0] == seen[2] != seen[1], seen
    if ENDS.included():
        checks.raised(
            ValueError,
            lambda: DistributedTrainer(
                net.collect_params(), "sgd", compression_params={"compressor": "onebit"}, group=ENDS._group
            ),
            "has no codings",
        )


def check_optimizer():
    for chosen in (ENDS, TAIL):
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), process_set=chosen)
        weights, gradients = ([mx.nd.full((2,), value + ME) for value in (0, 1)] for _ in range(2))
        for indices, one, its in ((0, weights[0], gradients[0]), ([1], weights[1:], gradients[1:])):
            optimizer.update(indices, one, its, [None] if indices == [1] else None)
        mean = sum(chosen.ranks) / 2 if chosen.included() else ME
        same(weights[0], [ME - mean] * 2)
        same(weights[1], [ME - mean] * 2)


if __name__ == "__main__":
    checks.main(globals(), hvd)
