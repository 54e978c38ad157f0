# SPDX-License-Identifier: Apache-2.0
"""tf.distribute on each worker, BytePS between them: a MirroredStrategy over the devices of one process.

    strategy = byteps.tensorflow.distribute.MirroredStrategy()
    with strategy.scope():
        model = ...

Gradients are added up over the devices of a worker, as by TensorFlow's own strategy, and then averaged over the
workers, so that a loss that is divided by strategy.num_replicas_in_sync, as Keras does, trains like one process with
the batches of all. What strategy.reduce() and metrics add up stays on the worker.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf
from tensorflow.python.distribute import cross_device_ops, values

from byteps._basics import Average

from .gradients import reduction


class CrossDeviceOps(cross_device_ops.ReductionToOneDevice):
    """Adds up over the devices of this worker, and averages gradients over all workers."""

    def __init__(self, reduce_to_device: str | None = None, accumulation_fn: Callable[..., Any] | None = None) -> None:
        """Make it; the arguments are those of tf.distribute.ReductionToOneDevice."""
        super().__init__(reduce_to_device, accumulation_fn)
        self._between = reduction(op=Average, sparse_as_dense=True)

    def batch_reduce_implementation(
        self,
        reduce_op: tf.distribute.ReduceOp,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: Any,
    ) -> list:
        """Reduce several values; gradients come this way, and all are in flight at once."""
        local = super().batch_reduce_implementation(reduce_op, value_destination_pairs, options)
        flat = [_first(value) for value in local]
        reduced = self._between(flat, [self] * len(flat))
        return [_everywhere(value, result) for value, result in zip(local, reduced)]


def _first(value):
    return value.values[0] if isinstance(value, values.DistributedValues) else value


def _everywhere(value, result):
    """Return the result on each of the devices on which the value was."""
    if not isinstance(value, values.DistributedValues):
        return result
    copies = []
    for one in value.values:
        with tf.device(one.device):
            copies.append(tf.identity(result))
    return type(value)(copies)


def MirroredStrategy(
    devices: Sequence[str] | None = None,
    cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
) -> tf.distribute.MirroredStrategy:
    """Return a tf.distribute.MirroredStrategy over devices of this worker that reduces over all workers.

    Args:
        devices: of this worker, as for TensorFlow's; None: all that it sees.
        cross_device_ops: None: a CrossDeviceOps. Another one reduces on this worker only.
    """
    return tf.distribute.MirroredStrategy(devices, CrossDeviceOps() if cross_device_ops is None else cross_device_ops)
