# SPDX-License-Identifier: Apache-2.0
"""Whole steps or none: in a graph, nothing that a step changes is changed before all its gradients have come.

So a step that fails, because a worker was lost, can be made again.
"""

import contextlib
import functools
import sys

import tensorflow as tf


def together(tensors, device=""):
    """Return tensors of a graph, each of them there only when all are."""
    with tf.control_dependencies(tensors), tf.device(device) if device else contextlib.nullcontext():
        return [tf.identity(tensor) for tensor in tensors]


def _waiting(apply):
    """Return apply() of an optimizer that waits for the gradients; iterations and weight decay do not need them."""

    @functools.wraps(apply)
    def applied(self, grads, *args, **keywords):
        grads = list(grads)
        with after(grads):
            return apply(self, grads, *args, **keywords)

    return applied


def after(gradients):
    """Return a context: in a graph, what is done there waits for these gradients."""
    if tf.executing_eagerly():
        return contextlib.nullcontext()
    return tf.control_dependencies([gradient for gradient in gradients if tf.is_tensor(gradient)])


@functools.lru_cache(maxsize=1)
def _change(optimizers):
    owner = next(kind for kind in optimizers.Optimizer.__mro__ if "apply" in vars(kind))
    owner.apply = _waiting(owner.apply)


def let_keras_wait():
    """Let the optimizers of Keras 3 do so, if it is there."""
    keras = sys.modules.get("keras")
    if keras is not None and int(keras.__version__.split(".")[0]) >= 3 and keras.backend.backend() == "tensorflow":
        _change(keras.optimizers)
