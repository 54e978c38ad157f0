# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast as one primitive of JAX, with its rules for every transformation.

Its operands are any number of arrays, and all of them are in flight at once. Compiled for the CPU it is a pair of
calls for each operand, byteps_start and byteps_finish; between them XLA computes what does not need the result. Every
finish is behind all starts, or XLA would wait for the first result before it starts the second. On other devices it is
a callback, by way of the host's memory.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import effects
from jax.experimental import io_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from byteps._basics import Average, Sum, full_name, rank

from . import _host, _library

if TYPE_CHECKING:
    from typing import Any, Iterable

__all__ = ["Request", "bind"]

_library.load()  # XLA must know the handlers
_keys = itertools.count()


@dataclasses.dataclass(frozen=True)
class Request:
    """What an operation is, but for its operands."""

    names: tuple[str, ...] | None  # one for each operand; None: without, and compiled functions number them
    root: int = -1  # that sends; -1: a reduction
    op: int = int(Sum)
    priority: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    coding: str | None = None  # on the network, which each operation declares; None: as the configuration says
    key: int = dataclasses.field(default_factory=lambda: next(_keys))  # no two are equal: each has names of its own

    def full_name(self, index: int) -> str | None:
        """Return the name of an operand in the job."""
        return None if self.names is None else full_name(self.names[index])

    def kind(self) -> tuple[int, int] | tuple[int, int, float, float]:
        """Return what the extension takes behind the name of a push_pull or a broadcast."""
        if self.root >= 0:
            return self.root, self.priority
        return self.op, self.priority, self.prescale, self.postscale

    def derived(self, present: Iterable[int], suffix: str, **changes: Any) -> Request:
        """Return the request for some of the operands, under names of their own."""
        names = None if self.names is None else tuple(self.names[i] + suffix for i in present)
        return dataclasses.replace(self, names=names, coding=None, key=next(_keys), **changes)


primitive = Primitive("byteps")
primitive.multiple_results = True
bind = primitive.bind


class _Meets(effects.Effect):
    """What an operation does besides its result: it meets those of the other workers, so it is never left out."""


_meets = _Meets()
for _allowed in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _allowed.add_type(_Meets)


@primitive.def_effectful_abstract_eval
def _abstract(*operands, request):
    del request
    return [operand.update(weak_type=False) for operand in operands], {_meets}


# ---- outside of compiled functions -----------------------------------------------------------------------


@primitive.def_impl
def _eager(*operands, request):
    return [_placed(result, operand) for result, operand in zip(_host.exchange(request, operands), operands)]


def _placed(result, operand):
    """Return an array for the devices of the operand; it is bound to them only if the operand is."""
    return jax.device_put(result, operand.sharding if operand.committed else None)


# ---- in compiled functions -------------------------------------------------------------------------------


class _Counter:
    """Counts the operations without names in a program."""

    def __init__(self) -> None:
        self.count = 0


def _numbered(context, request, operands):
    """Return the request with names that are the same on all workers: the program's, and a number in it."""
    if request.names is not None:
        return request
    program = context.module_context
    counter = next((one for one in program.keepalives if isinstance(one, _Counter)), None)
    if counter is None:
        counter = _Counter()
        program.keepalives.append(counter)
    first = counter.count
    counter.count += len(operands)
    function = program.module.operation.attributes["sym_name"].value
    return dataclasses.replace(request, names=tuple(f"{function}.{i}" for i in range(first, counter.count)))


def _start(request, index, array):
    coding = {} if request.coding is None else {"coding": request.coding}
    return jax.ffi.ffi_call("byteps_start", jax.ShapeDtypeStruct((2,), jnp.uint32), has_side_effect=True)(
        array,
        name=request.full_name(index),
        root=np.int64(request.root),
        op=np.int64(request.op),
        priority=np.int64(request.priority),
        prescale=np.float64(request.prescale),
        postscale=np.float64(request.postscale),
        **coding,
    )


def _finish(array, ticket, all_tickets):
    return jax.ffi.ffi_call(
        "byteps_finish", jax.ShapeDtypeStruct(array.shape, array.dtype), has_side_effect=True
    )(ticket, all_tickets)


def _pairs(request, *arrays):
    tickets = [_start(request, index, array) for index, array in enumerate(arrays)]
    started = functools.reduce(operator.add, tickets)
    return [_finish(array, ticket, started) for array, ticket in zip(arrays, tickets)]


def _callback(request, *arrays):
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    return io_callback(lambda *values: tuple(_host.exchange(request, values)), tuple(shapes), *arrays)


def _lower(function, context, *operands, request):
    request = _numbered(context, request, operands)
    return mlir.lower_fun(functools.partial(function, request), multiple_results=True)(context, *operands)


def _lower_for_cpu(context, *operands, request):
    """Choose: where XLA itself divides a program between devices, one of them does it, with the whole arrays."""
    is_divided = getattr(context.module_context.axis_context, "num_devices", None) not in (None, 1)
    return _lower(_callback if is_divided else _pairs, context, *operands, request=request)


mlir.register_lowering(primitive, functools.partial(_lower, _callback))
mlir.register_lowering(primitive, _lower_for_cpu, platform="cpu")


# ---- vmap ------------------------------------------------------------------------------------------------


def _batched(operands, dimensions, *, request):
    """An operation on each array of a batch is one on the batch."""
    return primitive.bind(*operands, request=request), dimensions


batching.primitive_batchers[primitive] = _batched


# ---- derivatives -----------------------------------------------------------------------------------------


def _present(values):
    return [i for i, value in enumerate(values) if not isinstance(value, ad.Zero)]


def _spread(present, results, zeros):
    """Return the results at the places of what was present, and the zeros as they are."""
    spread = list(zeros)
    for i, result in zip(present, results):
        spread[i] = result
    return spread


def _jvp(primals, tangents, *, request):
    """Sums, averages and copies are linear: their tangent is that of the tangents."""
    if request.root < 0 and request.op not in (Average, Sum):
        raise NotImplementedError("push_pull with an op other than Average or Sum has no gradient")
    results = primitive.bind(*primals, request=request)
    present = _present(tangents)
    if not present:
        return results, list(tangents)
    moved = primitive.bind(*(tangents[i] for i in present), request=request.derived(present, ".tangent"))
    return results, _spread(present, moved, tangents)


def _transpose(cotangents, *operands, request):
    """The gradient of a sum is the sum of the gradients; that of a broadcast is the root's alone."""
    present = _present(cotangents)
    if not present:
        return [ad.Zero(operand.aval) if ad.is_undefined_primal(operand) else None for operand in operands]
    gradients = [cotangents[i] for i in present]
    if request.root >= 0:
        sums = primitive.bind(*gradients, request=request.derived(present, ".gradient", root=-1, op=int(Sum)))
        results = [jnp.where(rank() == request.root, total, jnp.zeros_like(total)) for total in sums]
    else:
        changed = request.derived(present, ".gradient", prescale=request.postscale, postscale=1.0)
        results = primitive.bind(*gradients, request=changed)
        if request.prescale != 1:
            results = [result * jnp.asarray(request.prescale, result.dtype) for result in results]
    return _spread(present, results, cotangents)


ad.primitive_jvps[primitive] = _jvp
ad.primitive_transposes[primitive] = _transpose
