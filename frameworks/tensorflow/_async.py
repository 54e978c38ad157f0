# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training: the servers keep the variables of an optimizer, in every way that TensorFlow runs.

Of a variable whose gradient is IndexedSlices, as of an embedding, only the rows of that travel, if the optimizer
changes no others.
"""

import tensorflow as tf

from byteps._async import Values
from byteps._basics import Sum
from byteps._names import Owners

from .functions import resource_of
from .ops import broadcast, push_pull

_variables = Owners()  # of all jobs of the process, for a graph that is older than a job keeps its names


class Shared:
    """What an optimizer knows of its variables as the servers keep them.

    A variable is named by the order in which such optimizers first use the variables of the program, so it keeps its
    name whichever others are trained with it. That order must be the same on all workers.
    """

    def __init__(self):
        self._values = Values()
        self._functions = {}  # in eager mode: name of one, names of tensors -> a graph, where all are in flight at once
        self._tables = {}  # id of a variable of which rows have travelled -> it

    def forget(self):
        """Have the next step set the servers' variables anew; all workers must do so."""
        self._values.forget()

    def pull(self, variable, rows=None):
        """Take what these rows of a variable are now, or all of them; return what step() does."""
        return self.step([variable], tf.no_op, touched={} if rows is None else {0: rows})

    def refresh(self):
        """Take all of the variables of which only rows have travelled, in eager mode."""
        if self._tables:
            self.step(self._tables.values(), tf.no_op)

    def step(self, variables, update, inputs=(), touched=None):
        """Return what update() returns, which makes a step, or in a graph the operation for it.

        Before it, rank 0 sets the variables that the servers do not have yet. After it, what it has changed is pushed,
        and the variables become what those of the servers are then.

        Args:
            variables: those that update() may change.
            update: a function without arguments.
            inputs: tensors that must be there before anything is changed, in a graph of sessions.
            touched: {i: the rows of the i-th variable that update() may change}, of some of them. Only these travel.
        """
        variables = list(variables)
        names = tuple(f"AsyncVariable.{_variables.number(variable)}" for variable in variables)
        targets = [resource_of(variable) for variable in variables]
        _require_floating_point(targets)
        rows = {i: tf.unique(one).y for i, one in (touched or {}).items() if _has_rows(targets[i])}
        self._tables.update((id(variables[i]), variables[i]) for i in rows)
        if tf.executing_eagerly():
            if self._values.must_be_set(names):
                self._function(_set, names, targets, {})()
                self._values.have_been_set(names)
            before = [_value(target, rows.get(i)) for i, target in enumerate(targets)]
            result = update()
            self._function(_exchange, names, targets, rows)(rows, before)
            return result
        return self._step_of_graph(names, targets, rows, update, inputs)

    def _function(self, function, names, targets, rows):
        key = function, names, tuple(map(id, targets)), tuple(rows)
        if key not in self._functions:

            def call(*arguments):
                return [None for _ in function(names, targets, *arguments)]

            graph = tf.function(call, autograph=False, reduce_retracing=True)
            self._functions[key] = graph, targets  # so that nothing else gets their ids
        return self._functions[key][0]

    def _step_of_graph(self, names, targets, rows, update, inputs):
        with tf.control_dependencies(list(map(_tensor_of, inputs))):
            must = tf.numpy_function(lambda: self._values.must_be_set(names), [], tf.bool)
            # Old variables cannot be assigned in a branch. Tables are, and else nothing reads all of them.
            values = {i: _value(target) for i, target in enumerate(targets) if i not in rows}
            before = tf.cond(
                must,
                lambda: self._of_root(names, targets, values, rows),
                lambda: [
                    _value(target, rows[i]) if i in rows else tf.identity(values[i]) for i, target in enumerate(targets)
                ],
            )
        before = tf.nest.flatten(before)
        ready = [before[i] if i in rows else _operation(target.assign(before[i])) for i, target in enumerate(targets)]
        with tf.control_dependencies(ready):
            result = update()
        is_operation = isinstance(result, tf.Operation)
        with tf.control_dependencies([result] if is_operation else []):
            exchanged = tf.group(*_exchange(names, targets, rows, before))
        return exchanged if is_operation else result

    def _of_root(self, names, targets, values, rows):
        """Return what _value() returns, when the values are those of rank 0."""
        values = [values[i] if i in values else target.read_value() for i, target in enumerate(targets)]
        values = _broadcast(names, values)
        with tf.control_dependencies(values), tf.control_dependencies(
            [
                tf.numpy_function(lambda: self._have_been_set(names), [], tf.bool),
                *(_operation(targets[i].assign(values[i])) for i in rows),
            ]
        ):
            return [tf.gather(value, rows[i]) if i in rows else tf.identity(value) for i, value in enumerate(values)]

    def _have_been_set(self, names):
        self._values.have_been_set(names)
        return True


def _broadcast(names, values):
    """Return the values of rank 0, which those on the servers are set to."""
    return [broadcast(value, 0, name=name, priority=-i) for i, (name, value) in enumerate(zip(names, values))]


def _set(names, targets):
    """Make variables those of rank 0; return what to wait for."""
    values = _broadcast(names, [target.read_value() for target in targets])
    return [target.assign(value) for target, value in zip(targets, values)]


def _exchange(names, targets, rows, before):
    """Push by what variables have changed, and take what the servers make of that; return what to wait for."""
    done = []
    for i, (name, target, value) in enumerate(zip(names, targets, before)):
        if i in rows:
            change = tf.IndexedSlices(tf.gather(target, rows[i]) - value, rows[i], target.shape)
            now = push_pull(change, op=Sum, name=name, priority=-i)
            done.append(_operation(target.scatter_update(now)))  # to wait for the variable would read all of it
        else:
            done.append(target.assign(push_pull(target.read_value() - value, op=Sum, name=name, priority=-i)))
    return done


def _has_rows(variable):
    """Return whether rows of a variable can be assigned, and in a branch, too."""
    return hasattr(variable, "handle") and variable.shape.is_fully_defined()


def _value(variable, rows=None):
    """Return the value that a variable, or some rows of it, has now.

    That of an old one would change with it, so it is a copy.
    """
    if rows is not None:
        return tf.gather(variable, rows)
    value = variable.read_value()
    return value if hasattr(variable, "handle") else tf.raw_ops.DeepCopy(x=value)


def _operation(assigned):
    """Return what to wait for, of what assign() of old and new variables returns."""
    return assigned.op if hasattr(assigned, "op") else assigned


def _tensor_of(gradient):
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _require_floating_point(targets):
    for target in targets:
        if not target.dtype.is_floating:
            raise TypeError(
                f"variable {target.name} is of {target.dtype.name}; asynchronous training takes floating point"
            )
