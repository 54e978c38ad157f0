# SPDX-License-Identifier: Apache-2.0
"""Bring all workers to the same state: parameters, the state of an optimizer, any object."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, overload

import torch

from byteps._basics import require_equal
from byteps._groups import check_root, number_of, party

from . import _memory
from .ops import broadcast_, broadcast_async_, wait_all

if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Tuple, TypeVar, Union

    from byteps._groups import Group

    T = TypeVar("T")
    Nested = Union[torch.Tensor, Dict[Any, Any], List[Any], Tuple[Any, ...], None]


def broadcast_parameters(
    params: dict[Any, Any] | list[Any] | Iterable[Nested],
    root_rank: int = 0,
    prefix: str = "Parameter.",
    group: Group | None = None,
) -> None:
    """Replace tensors by those of worker root_rank, in place and bit by bit the same; all are in flight at
    once.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()``, ``model.parameters()``, or any dict or
            sequence of tensors or (name, tensor) pairs. Dicts, lists and tuples may be nested. What is
            neither a tensor nor None, such as a count of epochs in a checkpoint, is replaced in its dict or
            list.
        root_rank: the worker that sends.
        prefix: of the tensors' names.
        group: the process group that takes part; root_rank is a rank in it. None: all workers.

    Raises:
        TypeError, ValueError: params is something else, or a tensor cannot be sent.
        MismatchError: the workers' names, shapes or types differ. All of them get it.
    """
    root = check_root(root_rank, party(group))
    if isinstance(params, (str, bytes, torch.Tensor)) or not hasattr(params, "__iter__"):
        raise ValueError(
            f"invalid params of type: {type(params).__name__}; expected a dict or a sequence of tensors or of "
            "(name, tensor) pairs"
        )
    pairs, others = [], []
    for name, value, container, key in _leaves(params):
        if isinstance(value, torch.Tensor):
            _memory.check(value, f"params[{name!r}]")
            pairs.append((name, value))
        elif isinstance(container, (dict, list)):
            others.append((name, value, container, key))
        else:
            raise ValueError(
                f"invalid params: {name!r} is of type {type(value).__name__}, where nothing can replace it; "
                "expected a tensor"
            )
    lines = [f"{name} {tuple(t.shape)} {t.dtype}" for name, t in pairs] + [name for name, *_ in others]
    require_equal(f"root {root}: " + ", ".join(lines), "the parameters to broadcast", number_of(group))
    _broadcast_all(((prefix + name, tensor) for name, tensor in pairs), root, group)
    if others:
        values = broadcast_object([value for _, value, _, _ in others], root, group=group)
        for value, (_, _, container, key) in zip(values, others):
            container[key] = value


def _leaves(container, prefix=""):
    """Yield (name, value, container, key) of all in nested dicts and sequences that is not None.

    The keys of dicts are in the order of their texts, as workers may have inserted them in another one.
    """
    if isinstance(container, dict):
        items = sorted(((str(key), key, value) for key, value in container.items()), key=lambda item: item[0])
    else:
        items = [
            (value[0], i, value[1]) if _is_pair(value) else (str(i), i, value) for i, value in enumerate(container)
        ]
    for name, key, value in items:
        if isinstance(value, (dict, list)) or (isinstance(value, tuple) and _has_tensor(value)):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value, container, key


def _has_tensor(values):
    return any(isinstance(value, torch.Tensor) for value in values)


def _is_pair(value):
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], (torch.Tensor, type(None)))
    )


def _broadcast_all(pairs, root, group):
    distinct = {name: tensor for name, tensor in pairs}
    with torch.no_grad():  # parameters may change
        handles = [
            broadcast_async_(tensor, root, None if group else name, group=group) for name, tensor in distinct.items()
        ]
    wait_all(handles)


@overload
def broadcast_object(obj: None, root_rank: int = 0, name: str | None = None, group: Group | None = None) -> Any: ...


@overload
def broadcast_object(obj: T, root_rank: int = 0, name: str | None = None, group: Group | None = None) -> T: ...


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None, group: Group | None = None) -> Any:
    """Return the object of worker root_rank on every worker; on the root the object itself.

    Args:
        obj: anything that can be pickled; it counts on the root only.
        root_rank: the worker that sends. The others execute what unpickling its bytes means.
        name: needed only if several threads broadcast at once; a group has none.
        group: the process group that takes part; root_rank is a rank in it. None: all workers.
    """
    members = party(group)
    root = check_root(root_rank, members)
    data = pickle.dumps(obj) if members.rank() == root else b""
    size = torch.tensor([len(data)], dtype=torch.int64, device="cpu")
    broadcast_(size, root, None if name is None else f"Size.{name}", group=group)
    room = int(size)
    if name is not None:  # a tensor keeps its size, so take one of few sizes
        room = max(1024, 1 << (room - 1).bit_length())
        name = f"Object.{name}.{room}"
    buffer = torch.zeros(room, dtype=torch.uint8, device="cpu")
    if data:
        buffer[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    broadcast_(buffer, root, name, group=group)
    return obj if members.rank() == root else pickle.loads(buffer.numpy()[: int(size)].tobytes())


# ---- the state of an optimizer ---------------------------------------------------------------------------


class _Slot:
    """Stands for a tensor in a structure that is pickled.

    Attributes:
        aside: whether it stays on the host, wherever the parameter is: a counter of steps, mostly.
    """

    def __init__(self, tensor):
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype
        self.aside = tensor.dim() == 0 and not tensor.is_cuda


def _replace(value, kind, by):
    """Return a structure of dicts, lists and tuples with by(x) in place of each x of a kind."""
    if isinstance(value, kind):
        return by(value)
    if isinstance(value, dict):
        return {key: _replace(item, kind, by) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replace(item, kind, by) for item in value)
    return value


def _collect(optimizer):
    """Return the options of the groups, and the state by the number of its parameter."""
    options = [
        {key: value for key, value in group.items() if key not in ("params", "param_names")}
        for group in optimizer.param_groups
    ]
    parameters = enumerate(_parameters(optimizer))
    state = {i: dict(optimizer.state[p]) for i, p in parameters if p in optimizer.state}
    return {"options": options, "state": state}


def _parameters(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def _make_room(optimizer, content):
    """Return what _collect() has returned on the root with an empty tensor in each slot, and the tensors."""
    tensors = []

    def make_for(parameter):
        def make(slot):
            device = "cpu" if slot.aside else parameter.device
            tensors.append(torch.empty(slot.shape, dtype=slot.dtype, device=device))
            return tensors[-1]

        return make

    parameters = _parameters(optimizer)
    options = [
        _replace(options, _Slot, make_for(group["params"][0]))
        for group, options in zip(optimizer.param_groups, content["options"])
    ]
    state = {i: _replace(item, _Slot, make_for(parameters[i])) for i, item in content["state"].items()}
    return {"options": options, "state": state}, tensors


def _install(optimizer, content):
    for group, options in zip(optimizer.param_groups, content["options"]):
        group.update(options)
    for i, parameter in enumerate(_parameters(optimizer)):
        optimizer.state.pop(parameter, None)
        if i in content["state"]:
            optimizer.state[parameter] = content["state"][i]


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int = 0, prefix: str = "Parameter.", group: Group | None = None
) -> None:
    """Give all workers the optimizer state and options of worker root_rank, bit by bit the same.

    It may have any number of steps behind it on any worker, for example on the root only, after a
    checkpoint was loaded there. No step is made, and no parameter changes.

    Args:
        optimizer: any torch.optim.Optimizer but LBFGS, also one made by DistributedOptimizer, with the same
            groups of parameters on all workers.
        root_rank: the worker that sends.
        prefix: of the tensors' names.
        group: the process group that takes part; root_rank is a rank in it. None: all workers.

    Raises:
        ValueError: the optimizer is LBFGS.
        MismatchError: the workers' groups of parameters differ. All of them get it.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if hasattr(optimizer, "flush"):
        optimizer.flush()
    members = party(group)
    root = check_root(root_rank, members)
    shapes = [[tuple(p.shape) for p in group["params"]] for group in optimizer.param_groups]
    require_equal(f"root {root}: {shapes}", "the optimizer's groups of parameters", number_of(group))
    tensors = []

    def keep(tensor):
        tensors.append(tensor)
        return _Slot(tensor)

    if members.rank() == root:
        broadcast_object(_replace(_collect(optimizer), torch.Tensor, keep), root, group=group)
        content = None
    else:
        content, tensors = _make_room(optimizer, broadcast_object(None, root, group=group))
    _broadcast_all(((f"{prefix}optimizer.{i}", tensor) for i, tensor in enumerate(tensors)), root, group)
    if content is not None:
        _install(optimizer, content)
