# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras on TensorFlow: by the operations of byteps.tensorflow, eagerly and in graphs."""

import tensorflow as tf

from byteps.tensorflow import _async
from byteps.tensorflow._failures import as_in_byteps
from byteps.tensorflow._steps import after, let_keras_wait
from byteps.tensorflow.compression import Compression
from byteps.tensorflow.gradients import Reduction

__all__ = ["Compression", "Shared", "after", "as_in_byteps", "reduce"]

let_keras_wait()


def reduce(how, names, gradients, learning_rate):
    """Return the reduced gradients."""
    _refuse_replicas()
    reduction = Reduction(how.compression, how.sparse_as_dense, how.op, how.scales, how.device, how.group)
    rate = tf.cast(tf.convert_to_tensor(learning_rate), tf.float64)
    return reduction.named(gradients, names, rate)


class Shared(_async.Shared):
    """The weights of an optimizer as the servers keep them."""

    def step(self, variables, update, gradients=(), touched=None):
        """Make a step of one replica. Of a gradient that is given and sparse only the rows travel."""
        _refuse_replicas()
        sparse = {i: one.indices for i, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)}
        return super().step(variables, update, touched=touched or sparse)


def _refuse_replicas():
    if tf.distribute.has_strategy() and tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise ValueError(
            "DistributedOptimizer trains one replica, and this strategy has "
            f"{tf.distribute.get_strategy().num_replicas_in_sync}; give the strategy of "
            "byteps.tensorflow.distribute.MirroredStrategy() and a plain optimizer"
        )
