# SPDX-License-Identifier: Apache-2.0
"""The ways in which a worker with MXNet ends."""

import ends
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import byteps.mxnet as bps


def reduce(count):
    arrays = [mx.nd.ones((1000,)) for _ in range(count)]
    for i, array in enumerate(arrays):
        bps.push_pull_inplace(array, name=f"values.{i}", op=bps.Sum)
    for array in arrays:
        assert np.all(array.asnumpy() == bps.size())


def train(end):
    """Train with Gluon; end() is called between two steps."""
    net = gluon.nn.Dense(1, in_units=5000)
    net.initialize()
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.0001})
    for step in range(30):
        if step == 15 and end is not None:
            end()
        with autograd.record():
            loss = (net(mx.nd.ones((8, 5000))) ** 2).mean()
        loss.backward()
        trainer.step(1)
    mx.nd.waitall()


def by_hand(end):
    """The same with arrays."""
    weights = mx.nd.ones((5000,))
    for step in range(30):
        if step == 15 and end is not None:
            end()
        weights -= 0.01 * bps.push_pull(weights, name="weights")
        weights.wait_to_read()


if __name__ == "__main__":
    errors = (mx.base.MXNetError,)
    ends.main({"trainer": train, "hand": by_hand}, reduce, errors, lambda error: type(error).__name__)
