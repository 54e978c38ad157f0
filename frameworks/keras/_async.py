# SPDX-License-Identifier: Apache-2.0
"""What is added to the class of an optimizer that trains asynchronously: the servers keep the weights."""

import hashlib

import keras
import numpy as np

from byteps import numpy as arrays


class Asynchronous:
    """Its own state is in _byteps, an Exchange."""

    def apply(self, grads, trainable_variables=None):
        """Apply the gradients of this worker, and meet the weights that all workers change."""
        known = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        grads = list(grads)
        sparse = [grad if _leaves_other_rows(self, variable) else None for grad, variable in zip(grads, known)]
        return self._byteps.shared.step(
            known, lambda: super(Asynchronous, self).apply(grads, trainable_variables), sparse
        )

    def pull_rows(self, variable, rows=None):
        """Take from the servers what these rows of a weight are now, such as those that the next batch needs, or all.

        Otherwise each row is as the servers had it when this worker had a gradient of it last; at the end of fit() the
        callbacks of byteps.keras take all. To the servers it is a push of zeros, so that with worker.staleness it
        counts.
        """
        self._byteps.shared.pull(variable, rows)


def _leaves_other_rows(optimizer, variable):
    """Return whether a step changes no row of a weight that a sparse gradient lacks."""
    kind = type(optimizer).__bases__[1]
    if kind is not keras.optimizers.Adagrad and (kind is not keras.optimizers.SGD or optimizer.momentum != 0):
        return False
    others = optimizer.weight_decay, optimizer.use_ema, optimizer.gradient_accumulation_steps, variable.constraint
    return not any(others)


class Exchange:
    """What such an optimizer knows beside its own state, where Keras does not look for variables."""

    def __init__(self, shared):
        """Make it; shared: of the backend."""
        self.shared = shared
        self._left = None  # what fit() has left the weights as

    def begin_fit(self, model, root):
        """Have the first step set the servers' weights anew, unless those of worker `root` are as fit() left them last.

        All workers call it, with the weights of that worker.
        """
        has_changed = np.array([self._left is None or self._left != _digest(model)], dtype=np.uint8)
        if arrays.broadcast(has_changed, root, "AsyncVariable.has_changed")[0]:
            self.shared.forget()

    def end_fit(self, model):
        """Take the rows that have not travelled, and note what the weights are."""
        self.shared.refresh()
        self._left = _digest(model)


def _digest(model):
    digest = hashlib.blake2b()
    for variable in model.trainable_variables:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).view(np.uint8))
    return digest.digest()
