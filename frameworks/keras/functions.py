# SPDX-License-Identifier: Apache-2.0
"""Values, variables and saved models, alike on all backends: they go through NumPy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Sequence

import keras
import numpy as np

from byteps import numpy as arrays
from byteps._basics import ReduceOp, require_equal
from byteps._groups import check_root, number_of, party
from byteps._horovod import refuse_process_set

from . import _backend
from .optimizer import Compression, DistributedOptimizer

if TYPE_CHECKING:
    from byteps._groups import Group
    from byteps._types import Coding


def push_pull(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    *,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> np.ndarray | float:
    """Return the reduction of a value over all workers, as a NumPy array or number.

    Args:
        value: a tensor of the backend, an array, a number or a list of numbers; not a symbol of a function that
            is being compiled.
        name: of the tensor; None: the n-th unnamed one meets the n-th of the others.
        average: True (the default): the mean; False: the sum.
        op: Average, Sum, Min, Max or Product, instead of `average`.
        prescale_factor, postscale_factor: multiply each contribution and the result.
        group: of the workers that take part, see new_group(); its operations have no name. None: all workers.
    """
    array = np.asarray(keras.ops.convert_to_numpy(value))
    result = arrays.push_pull(array, average, name, 0, op, prescale_factor, postscale_factor, group=group)
    return result[()]


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: type | Coding | None = None,
    process_set: object = None,
    group: Group | None = None,
) -> np.ndarray | float:
    """Horovod's name of push_pull(); values are sent as they are, whatever the compression."""
    del compression
    refuse_process_set(process_set)
    scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return push_pull(value, name, average, op=op, group=group, **scales)


def broadcast(value: Any, root_rank: int, name: str | None = None, group: Group | None = None) -> np.ndarray:
    """Return the value of worker root_rank, bit by bit the same, as a NumPy array or number.

    In a group, as for push_pull(), root_rank counts its members.
    """
    array = np.asarray(keras.ops.convert_to_numpy(value))
    return arrays.broadcast(array, root_rank, name, group=group)[()]


def broadcast_variables(variables: Iterable[Any], root_rank: int, group: Group | None = None) -> None:
    """Replace variables by those of worker root_rank, bit by bit the same; all are in flight at once.

    Args:
        variables: a list of variables of Keras (``model.variables``, ``optimizer.variables``), the same on all
            workers in number, order, shapes and types.
        root_rank: the worker that sends.
        group: the process group that takes part; root_rank is a rank in it. None: all workers.

    Raises:
        MismatchError: the workers' variables differ. All of them get it.
    """
    root = check_root(root_rank, party(group))
    variables = list(variables)
    forms = ", ".join(f"{tuple(variable.shape)} {variable.dtype}" for variable in variables)
    require_equal(f"root {root}: {forms}", "the variables to broadcast", number_of(group))
    values = [np.ascontiguousarray(keras.ops.convert_to_numpy(variable)) for variable in variables]
    handles = [
        arrays.broadcast_async(
            value.reshape(-1).view(np.uint8), root, f"Parameter.{i}" if group is None else None, group=group
        )
        for i, value in enumerate(values)
    ]
    for variable, value, handle in zip(variables, values, handles):
        variable.assign(handle.wait().view(value.dtype).reshape(variable.shape))


def broadcast_global_variables(root_rank: int) -> None:
    """Raise RuntimeError: Keras 3 has no global variables. The message names the replacement."""
    raise RuntimeError(
        "Keras 3 has no global variables; use bps.callbacks.BroadcastGlobalVariablesCallback"
        f"({root_rank}), or bps.broadcast_variables(model.variables, {root_rank})"
    )


def load_model(
    filepath: str | os.PathLike[str],
    custom_optimizers: Sequence[type[keras.optimizers.Optimizer]] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: type | Coding = Compression.none,
    **options: Any,
) -> keras.Model:
    """Load a model that was saved by model.save(), with its optimizer made distributed.

    Args:
        filepath: of the file, as for keras.saving.load_model().
        custom_optimizers: classes of optimizers that are not part of Keras.
        custom_objects: a dict of further names of the file, as for keras.saving.load_model().
        compression: as for DistributedOptimizer().
        options: further arguments of keras.saving.load_model().
    """
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    known.update(custom_objects or {})
    model = keras.saving.load_model(filepath, custom_objects=known, **options)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
        if _backend.name == "tensorflow":
            model.jit_compile = False  # XLA does not know push_pull
    return model
