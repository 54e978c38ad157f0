# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast in functions that torch.compile() compiles: as operators, which a graph can contain.

When such a graph runs, they are the ordinary calls, with their errors and streams, and Ctrl-C.
"""

import typing

import torch

from byteps._basics import (
    Average,
    ReduceOp,
    Sum,
    cross_rank,
    cross_size,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    size,
)

from . import ops

_EffectType = getattr(torch.library, "EffectType", None)


def require_all(group):
    """Raise for an operation of a process group."""
    if group is not None:
        raise ValueError("a function for torch.compile() has operations of all workers only, not of a process group")


def _empty_like(tensor, *_):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _define():
    """Define the operators byteps::push_pull and byteps::broadcast, and return them."""

    @torch.library.custom_op("byteps::push_pull", mutates_args=())
    def push_pull(
        tensor: torch.Tensor,
        name: typing.Optional[str],  # noqa: UP007, UP045: as torch.library reads it
        op: int,
        priority: int,
        prescale: float,
        postscale: float,
        rate: float,
    ) -> torch.Tensor:
        return ops.push_pull(
            tensor,
            name=name,
            op=ReduceOp(op),
            priority=priority,
            prescale_factor=prescale,
            postscale_factor=postscale,
            learning_rate=rate,
        )

    @torch.library.custom_op("byteps::broadcast", mutates_args=())
    def broadcast(
        tensor: torch.Tensor,
        root: int,
        name: typing.Optional[str],  # noqa: UP007, UP045
        priority: int,
    ) -> torch.Tensor:
        return ops.broadcast(tensor, root, name, priority)

    push_pull.register_fake(_empty_like)
    broadcast.register_fake(_empty_like)
    push_pull.register_autograd(_push_pull_backward, setup_context=_keep_arguments)
    broadcast.register_autograd(_broadcast_backward, setup_context=_keep_arguments)
    for operator in (push_pull, broadcast):
        operator.register_effect(_EffectType.ORDERED)  # each exactly once, and in the order of all workers
    return push_pull, broadcast


def _keep_arguments(ctx, inputs, output):
    del output
    ctx.arguments = inputs[1:]


def _push_pull_backward(ctx, gradient):
    """The gradient of a sum is the sum of the gradients."""
    name, op, priority, prescale, postscale, _ = ctx.arguments
    if op not in (Average, Sum):
        raise NotImplementedError(f"push_pull with op={ReduceOp(op).name} has no gradient; use Average or Sum")
    reduced = _operators[0](gradient, ops.gradient_name(name), op, priority, 1.0, postscale, 0.0)
    return (reduced if prescale == 1 else reduced * prescale, None, None, None, None, None, None)


def _broadcast_backward(ctx, gradient):
    """The gradient of the root's tensor is the sum of the gradients; that of the others is zero."""
    root, name, priority = ctx.arguments
    total = _operators[0](gradient, ops.gradient_name(name), int(Sum), priority, 1.0, 1.0, 0.0)
    return (total if rank() == root else torch.zeros_like(total), None, None, None)


_operators = _define() if _EffectType is not None else None

# In a graph the answers are constants, those of the job in which it was compiled.
if hasattr(torch, "compiler"):
    for _question in (rank, size, local_rank, local_size, cross_rank, cross_size, is_homogeneous, is_initialized):
        torch.compiler.assume_constant_result(_question)


def _require_operators():
    if _operators is None:
        raise NotImplementedError(
            f"PyTorch {torch.__version__} has no operators with an order, which push_pull in a function for "
            "torch.compile() needs; 2.13 has"
        )
    return _operators


def push_pull(tensor, name, op, priority, prescale, postscale, rate):
    """Return the reduction of a tensor, a symbol of a function that is being compiled."""
    return _require_operators()[0](tensor, name, int(op), priority, float(prescale), float(postscale), float(rate))


def broadcast(tensor, root, name, priority):
    """Return the tensor of worker `root`."""
    return _require_operators()[1](tensor, root, name, priority)
