# SPDX-License-Identifier: Apache-2.0
"""Bring all workers to the same parameters."""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any, Mapping

from mxnet import gluon

from byteps._basics import require_equal
from byteps._groups import check_root, number_of, party
from byteps._names import unique_name

from . import _grouped
from ._failures import wait_all
from .ops import broadcast_inplace

if TYPE_CHECKING:
    from byteps._groups import Group

synced: weakref.WeakSet[gluon.Parameter] = weakref.WeakSet()  # those that broadcast_parameters() was called for


def arrays_of(params):
    """Return the arrays of parameters by name, and the parameters whose arrays are not there yet."""
    arrays, deferred = {}, []
    for name in sorted(params):
        value = params[name]
        if not isinstance(value, gluon.Parameter):
            arrays[name] = value
        elif value._deferred_init:
            deferred.append(value)
        else:
            for i, array in enumerate(value.list_data()):
                arrays[f"{name}.{i}"] = array
    return arrays, deferred


def broadcast_parameters(
    params: Mapping[str, Any] | gluon.ParameterDict, root_rank: int = 0, prefix: str = "", group: Group | None = None
) -> None:
    """Replace parameters by those of worker root_rank, bit by bit the same.

    Args:
        params: a dict of arrays, as ``module.get_params()`` returns two, or what ``net.collect_params()`` returns.
            A parameter whose shape is not known yet is broadcast when it is made.
        root_rank: the worker that sends.
        prefix: of the tensors' names.
        group: of the workers that take part, see new_group(), in which root_rank counts; None: all.

    Raises:
        MismatchError: the workers' parameters differ. All of them get it.
        mxnet.base.MXNetError: a member of the job was lost.
    """
    root = check_root(root_rank, party(group))
    if not hasattr(params, "keys"):
        raise ValueError(f"invalid params of type {type(params).__name__}; expected a dict, or net.collect_params()")
    arrays, deferred = arrays_of(params)
    forms = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
    require_equal(f"root {root}: {forms}", "the parameters to broadcast", number_of(group))
    if group is not None:
        _grouped.broadcast(list(arrays.values()), root, group)
    else:
        for i, array in enumerate(arrays.values()):
            broadcast_inplace(array, root, f"{prefix}parameter_{i}")
    for parameter in deferred:
        _broadcast_when_made(parameter, root, group)
    wait_all(arrays.values())
    synced.update(value for value in params.values() if isinstance(value, gluon.Parameter) and value not in deferred)


def _broadcast_when_made(parameter, root, group):
    make = parameter._init_impl

    def make_and_broadcast(self, *args, **keywords):
        make(*args, **keywords)
        if group is not None:
            _grouped.broadcast(self.list_data(), root, group)
            return
        for i, array in enumerate(self.list_data()):
            broadcast_inplace(array, root, f"{unique_name(f'deferred_{self.name}', self)}.{i}").wait_to_read()

    parameter._init_impl = types.MethodType(make_and_broadcast, parameter)
