# SPDX-License-Identifier: Apache-2.0
"""How the tensors of Keras's backend are reduced: one function and one set of compressors for each of the three.

reduce(how, names, gradients, learning_rate) returns the reduced gradients. They may be symbols of a function that is
being compiled; all are in flight at once. What it needs of the arguments of an optimizer is in `how`, see
optimizer.Reduction.

Shared has what the servers keep in asynchronous training: step(variables, update, gradients) makes a step by update(),
pushes what it has changed of the variables, and makes of them what the servers answer; of one whose gradient is given,
and is sparse, only rows may travel. pull(variable, rows) and refresh() take the others.
"""

import contextlib
import re

import keras

_OLDEST = (3, 0)
_NAMES = ("tensorflow", "torch", "jax")


def _check():
    version = tuple(map(int, re.findall(r"\d+", keras.__version__)[:2]))
    if version < _OLDEST:
        raise ImportError(
            f"this is Keras {keras.__version__}; byteps.keras works with Keras 3.0 and later. With an older one, "
            "use byteps.tensorflow.DistributedGradientTape in a loop of your own"
        )
    name = keras.backend.backend()
    if name not in _NAMES:
        raise ImportError(
            f"Keras runs on {name}; byteps.keras works with {', '.join(_NAMES)}. KERAS_BACKEND chooses"
        )
    return name


name = _check()
if name == "tensorflow":
    from ._tensorflow import Compression, Shared, after, as_in_byteps, reduce
elif name == "torch":
    from ._torch import Compression, Shared, reduce
else:
    from ._jax import Compression, Shared, reduce, wait  # noqa: F401

if name != "tensorflow":  # what waits there for gradients, and what its errors mean

    def after(gradients):
        """Return a context for what follows: it has the gradients."""
        return contextlib.nullcontext()

    as_in_byteps = contextlib.nullcontext

__all__ = ["Compression", "Shared", "after", "as_in_byteps", "name", "reduce"]
