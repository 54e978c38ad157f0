# SPDX-License-Identifier: Apache-2.0
"""What all operations need to know of the graph that they are in: names of tensors, and whose turn it is."""

import contextlib
import re

import tensorflow as tf


def dense(tensor, what):
    """Return a dense tensor of what a user has given."""
    if isinstance(tensor, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(f"{what}: a {type(tensor).__name__} is not supported; give its dense form")
    return tf.convert_to_tensor(tensor)


def _graph_name(graph):
    """Return the name of the function that a graph is of; "" for a graph of sessions.

    Numbers at its end count the functions of a process, which need not be the same on all workers.
    """
    return re.sub(r"_\d+$", "", getattr(graph, "name", ""))


def default_name(kind, tensor, scope):
    """Return a name for a tensor without one: in a graph, whose order is nobody's, it must have one."""
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    function = _graph_name(graph)
    name = f"{scope}{kind}_" + re.sub(r"[^a-zA-Z0-9_]", "_", f"{function}_{tensor.name}" if function else tensor.name)
    return unique(graph, name)


def unique(graph, name):
    """Return the name, with a number at its end if a tensor of the graph has got it before."""
    counts = _notes(graph)["counts"]
    counts[name] = counts.get(name, 0) + 1
    return name if counts[name] == 1 else f"{name}.{counts[name]}"


def _notes(graph):
    """Return what is noted for a graph: how often a default name was given, and the last operation of a name."""
    if not hasattr(graph, "_byteps"):
        graph._byteps = {"counts": {}, "last": {}}
    return graph._byteps


@contextlib.contextmanager
def in_turn(name):
    """Return a context for one operation: in a tf.function, those of one name run in the order of the program.

    It is given a function to be called with the operation's result.
    """
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if name is None or not getattr(graph, "building_function", False):
        yield lambda result: result
        return
    last = _notes(graph)["last"]

    def made(result):
        last[name] = result.op
        return result

    with tf.control_dependencies([last[name]] if name in last else []):
        yield made
