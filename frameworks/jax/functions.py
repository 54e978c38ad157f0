# SPDX-License-Identifier: Apache-2.0
"""Bring all workers to the same parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

from byteps._basics import check_root, require_equal

from .ops import broadcast

if TYPE_CHECKING:
    from byteps._types import T


def _form(path, leaf):
    return f"{jax.tree_util.keystr(path)} {jax.numpy.shape(leaf)} {jax.numpy.result_type(leaf)}"


def broadcast_parameters(tree: T, root_rank: int = 0) -> T:
    """Return a tree with the arrays of worker root_rank, bit by bit the same, on every worker.

    Args:
        tree: of arrays and numbers, such as parameters, the state of an optimizer, or both. Numbers of Python stay
            numbers of Python. Not inside of a compiled function; there, use broadcast().
        root_rank: the worker that sends.

    Raises:
        MismatchError: the workers' trees differ. All of them get it.
    """
    root = check_root(root_rank)
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    require_equal(
        f"root {root}: " + ", ".join(_form(path, leaf) for path, leaf in leaves), "the parameters to broadcast"
    )
    return jax.tree_util.tree_map(_like, tree, broadcast(tree, root, name="Parameter"))


def _like(before, after):
    return type(before)(after) if isinstance(before, (bool, int, float, complex)) else after
