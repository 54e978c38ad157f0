# SPDX-License-Identifier: Apache-2.0
"""Bring all workers to the same state: variables, in every way that TensorFlow runs, and any object."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Callable, Iterable, TypeVar

import tensorflow as tf

from byteps import numpy as arrays
from byteps._basics import rank, require_equal
from byteps._groups import ALL, check_root, number_of, party
from byteps._horovod import refuse_process_set

from . import _grouped
from .ops import broadcast

if TYPE_CHECKING:
    from byteps._groups import Group

T = TypeVar("T")

v1 = tf.compat.v1


def resource_of(variable):
    """Return the tf.Variable of a variable of Keras 3; others are one."""
    inner = getattr(variable, "value", None)
    return inner if isinstance(inner, tf.Variable) and not isinstance(variable, tf.Variable) else variable


def _assign_all(variables, root, scope, group):
    """Assign to each variable; in a graph all are in flight at once. Return what to wait for there."""
    targets = [resource_of(variable) for variable in variables]
    if group is None:
        values = (broadcast(target, root, name=f"{scope}Parameter.{i}") for i, target in enumerate(targets))
    else:
        values = _grouped.broadcast([target.read_value() for target in targets], root, group)
    return [target.assign(value) for target, value in zip(targets, values)]


def broadcast_variables(
    variables: Iterable[tf.Variable],
    root_rank: int,
    scope: str = "",
    process_set: object = None,
    inplace: bool = False,
    group: Group | None = None,
) -> tf.Operation | None:
    """Replace variables by those of worker root_rank, bit by bit the same.

    Args:
        variables: a list of variables of TensorFlow or Keras, the same on all workers in number, order, shapes
            and types; names may differ.
        root_rank: the worker that sends.
        scope: put in front of the tensors' names; a group has none.
        process_set: must be None: all workers.
        inplace: accepted for compatibility; without effect.
        group: the process group that takes part; root_rank is a rank in it. None: all workers.

    Returns:
        In eager mode None, when it is done; in a graph the operation that does it.

    Raises:
        MismatchError: in eager mode, if the workers' variables differ. All of them get it.
    """
    del inplace
    refuse_process_set(process_set)
    root, variables = root_rank if group is None else check_root(root_rank, party(group)), list(variables)
    if tf.executing_eagerly():
        forms = ", ".join(f"{tuple(variable.shape)} {variable.dtype}" for variable in map(resource_of, variables))
        require_equal(f"root {root}: {forms}", "the variables to broadcast", number_of(group))
        if group is not None:
            _assign_all(variables, root, scope, group)
            return None
        graph = tf.function(lambda: [None for _ in _assign_all(variables, root, scope, None)], autograph=False)
        graph.get_concrete_function()()  # TensorFlow warns of calls that trace
        return None
    return tf.group(*_assign_all(variables, root, scope, group))


def broadcast_global_variables(root_rank: int) -> tf.Operation | None:
    """Return the operation that replaces all global variables of a graph by those of worker root_rank.

    Raises:
        RuntimeError: in eager mode, which has no global variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "bps.broadcast_global_variables() does not support eager execution. Please use "
            "`bps.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(v1.train.SessionRunHook):
    """A hook for sessions that replaces all global variables by those of worker root_rank when one begins.

    So all workers start alike when the variables are random, or were restored from a checkpoint on one.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        """Make the hook; device: where to compute, as for tf.device()."""
        super().__init__()
        self.root_rank, self.device, self.operation = root_rank, device, None

    def begin(self) -> None:
        """Add the operation to the graph, unless it is there."""
        if self.operation is None or self.operation.graph is not v1.get_default_graph():
            with tf.device(self.device):
                self.operation = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: tf.compat.v1.Session | None, coord: object) -> None:
        """Run it."""
        del coord
        session.run(self.operation)


def broadcast_object(
    obj: T,
    root_rank: int = 0,
    session: tf.compat.v1.Session | None = None,
    name: str | None = None,
    process_set: object = None,
    group: Group | None = None,
) -> T:
    """Return the object of worker root_rank on every worker; on the root the object itself.

    Args:
        obj: anything that can be pickled; it counts on the root only.
        root_rank: the worker that sends. The others execute what unpickling its bytes means.
        session: to run in, in a graph; None: a session of its own.
        name: needed only if several threads broadcast at once; a group has none.
        process_set: must be None: all workers.
        group: the process group that takes part; root_rank is a rank in it. None: all workers. It needs no session.
    """
    refuse_process_set(process_set)
    if group is not None:
        return arrays.broadcast_object(obj, root_rank, name, group)
    root = check_root(root_rank, ALL)
    name = "object" if name is None else name
    data = pickle.dumps(obj) if rank() == root else b""
    size = _run(lambda: broadcast([len(data)], root, name=f"Size.{name}"), session)
    data = data or bytes(int(size[0]))
    content = _run(lambda: broadcast(tf.io.decode_raw(data, tf.uint8), root, name=f"Object.{name}"), session)
    return obj if rank() == root else pickle.loads(bytes(memoryview(content)))


def _run(build, session):
    """Return the array of what build() returns, in eager mode or in a session."""
    if tf.executing_eagerly():
        return build().numpy()
    if session is not None:
        return session.run(build())
    with tf.Graph().as_default():
        result = build()
        with v1.Session() as own:
            return own.run(result)


def broadcast_object_fn(
    root_rank: int = 0,
    session: tf.compat.v1.Session | None = None,
    name: str | None = None,
    process_set: object = None,
    group: Group | None = None,
) -> Callable[[T], T]:
    """Return a function of one object that is broadcast_object() with the other arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set, group)
