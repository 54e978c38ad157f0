# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast of arrays and trees of them, inside of compiled functions and outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import jax
import jax.numpy as jnp
from jax import lax

from byteps._basics import Average, ReduceOp, Sum, check_root, choose_op
from byteps._coded_names import choose_compressor, coding_of, require_name
from byteps._native import bps as _bps

from ._primitive import Request, bind
from .compression import Compression

if TYPE_CHECKING:
    from typing import Any, Hashable, Sequence, Union

    import numpy as np

    from byteps._types import Coding, T

    from .compression import NoneCompressor

    Number = Union[complex, np.ndarray[Any, Any], np.generic]  # complex stands for int and float, too

__all__ = ["broadcast", "push_pull"]


def _flatten(tree, name):
    """Return the leaves of a tree, their names, and what makes a tree of leaves again."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    if name is None:
        names = None
    elif isinstance(name, str) and "\0" not in name:
        names = tuple(name + jax.tree_util.keystr(path) for path, _ in pairs)
    else:
        raise TypeError(f"the name of a tensor must be a str without NUL, not {name!r}")
    leaves = [leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf) for _, leaf in pairs]
    return leaves, names, structure


def _require_numbers(array):
    if array.dtype.name not in _bps.dtypes:
        raise TypeError(
            f"push_pull: an array of type {array.dtype.name} is not supported; supported are "
            f"{', '.join(_bps.dtypes)}"
        )


@overload
def push_pull(
    tree: Number,
    name: str | None = None,
    average: bool | None = None,
    op: ReduceOp | None = None,
    compression: type[NoneCompressor] | Coding = Compression.none,
    axis_name: Hashable | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> jax.Array: ...
@overload
def push_pull(
    tree: T,
    name: str | None = None,
    average: bool | None = None,
    op: ReduceOp | None = None,
    compression: type[NoneCompressor] | Coding = Compression.none,
    axis_name: Hashable | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> T: ...
def push_pull(
    tree: Any,
    name: str | None = None,
    average: bool | None = None,
    op: ReduceOp | None = None,
    compression: type[NoneCompressor] | Coding = Compression.none,
    axis_name: Hashable | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Return the reduction of an array, or of each array of a tree, over all workers.

    All arrays of a tree are in flight at once. It may stand in functions that are transformed by jit, grad, vmap,
    scan, shard_map and the like. Outside of compiled functions it returns when the result is there.

    Args:
        tree: an array, a number, or a tree of them; shapes and types must be the same on all workers.
        name: of the tensor, the same on all workers; the path in the tree is added to it. None: outside of compiled
            functions the n-th call meets the n-th of the others; inside, they are numbered by their order in the
            program.
        average: True (the default): the mean; False: the sum. The average of integers is rounded down; their
            sums and products wrap.
        op: Average, Sum, Min, Max or Product, instead of `average`.
        compression: Compression.none, .fp16 or .bf16; or how the network codes the arrays, as for declare():
            such as {"compressor": "onebit", "ef": "vanilla"}. They need a name then.
        axis_name: of the devices of this process inside of shard_map() or pmap(). Their arrays are reduced, too,
            each device sends a part of that, and all get the whole. None: each device's array is a tensor of its
            own.
        priority: larger is more urgent.
        prescale_factor, postscale_factor: multiply each contribution and the result.

    Raises:
        TypeError, ValueError: the arguments are wrong, or an array has a type that cannot be sent.
        jax.errors.JaxRuntimeError: this process is not in a job, the name is in flight already, the workers disagree
            about shape, type or operation, or a member of the job was lost. All workers that took part get it; those
            in a compiled function when its results are used.
    """
    op = choose_op(average, op)
    compressor = choose_compressor(compression, Compression.none)
    require_name(name, coding_of(compressor))
    leaves, names, structure = _flatten(tree, name)
    results = reduce_all(leaves, names, op, compressor, axis_name, priority, prescale_factor, postscale_factor)
    return jax.tree_util.tree_unflatten(structure, results)


def reduce_all(
    leaves: Sequence[jax.Array],
    names: tuple[str, ...] | None,
    op: ReduceOp,
    compression: type[NoneCompressor],
    axis_name: Hashable | None,
    priority: int,
    prescale: float,
    postscale: float,
) -> list[jax.Array]:
    """Return the reductions of arrays, which have these names (None: none); the rest is as for push_pull()."""
    small = [compression.compress(leaf) for leaf in leaves]
    for leaf in small:
        _require_numbers(leaf)
    request = Request(
        names,
        op=int(op),
        priority=priority,
        prescale=float(prescale),
        postscale=float(postscale),
        coding=coding_of(compression),
    )
    if not leaves:
        results = []
    elif axis_name is None:
        results = bind(*small, request=request)
    else:
        results = _reduce_devices_too(small, request, axis_name)
    return [
        result if result.dtype == leaf.dtype else result.astype(leaf.dtype) for result, leaf in zip(results, leaves)
    ]


def _reduce_devices_too(arrays, request, axis_name):
    """Reduce over the devices of an axis and over the workers; each device sends one part of every array."""
    devices = lax.axis_size(axis_name)
    if request.op not in (Average, Sum):
        raise NotImplementedError(
            f"axis_name with op={ReduceOp(request.op).name}: devices can only be summed or averaged"
        )
    parts = [lax.psum_scatter(_rows(array, devices), axis_name, tiled=False) for array in arrays]
    results = bind(*parts, request=request)
    if request.op == Average:
        results = [_mean(result, devices) for result in results]
    return [_whole(result, array, devices, axis_name) for result, array in zip(results, arrays)]


def _mean(total, devices):
    if jnp.issubdtype(total.dtype, jnp.integer):
        return total // devices
    return total / jnp.asarray(devices, total.dtype)


def _rows(array, devices):
    """Return the array as a row for each device, with zeros at the end."""
    flat = array.reshape(-1)
    return jnp.pad(flat, (0, -flat.size % devices)).reshape(devices, -1)


def _whole(row, array, devices, axis_name):
    """Return the array that the rows of all devices make.

    It is a sum of rows among zeros: JAX knows that the result of a sum is the same on all devices.
    """
    rows = jnp.zeros((devices, row.size), row.dtype).at[lax.axis_index(axis_name)].set(row)
    return lax.psum(rows, axis_name).reshape(-1)[: array.size].reshape(array.shape)


@overload
def broadcast(tree: Number, root_rank: int = 0, name: str | None = None, priority: int = 0) -> jax.Array: ...
@overload
def broadcast(tree: T, root_rank: int = 0, name: str | None = None, priority: int = 0) -> T: ...
def broadcast(tree: Any, root_rank: int = 0, name: str | None = None, priority: int = 0) -> Any:
    """Return the array of worker root_rank, or each array of a tree, bit by bit the same, on every worker.

    Args:
        tree: an array, a number, or a tree of them, of the same shapes and types on all workers; its values count
            on the root only. Any type of fixed size, keys of jax.random as well.
        root_rank: the worker that sends.
        name, priority: as for push_pull().

    Raises:
        As push_pull(); the root must be the same on all workers.
    """
    root = check_root(root_rank)
    leaves, names, structure = _flatten(tree, name)
    if not leaves:
        return tree
    sent, restore = zip(*(_as_numbers(leaf) for leaf in leaves))
    results = bind(*sent, request=Request(names, root=root, priority=priority))
    results = [back(result) for back, result in zip(restore, results)]
    return jax.tree_util.tree_unflatten(structure, results)


def _as_numbers(array):
    """Return an array of a type that can be sent, with the same bits, and a function for the way back."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        implementation = jax.random.key_impl(array)
        numbers, back = _as_numbers(jax.random.key_data(array))
        return numbers, lambda result: jax.random.wrap_key_data(back(result), impl=implementation)
    if array.dtype.name in _bps.dtypes:
        return array, lambda result: result
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return jnp.stack([array.real, array.imag]), lambda result: lax.complex(result[0], result[1])
    if array.dtype.itemsize * 8 != jnp.iinfo(array.dtype).bits:
        raise TypeError(f"broadcast: an array of type {array.dtype.name} is not supported")
    signed = jnp.dtype(f"int{array.dtype.itemsize * 8}")
    return lax.bitcast_convert_type(array, signed), lambda result: lax.bitcast_convert_type(result, array.dtype)
