# SPDX-License-Identifier: Apache-2.0
"""What programs for Horovod need alike in all frameworks.

Questions about its parts are answered for BytePS, which is made of neither MPI nor Gloo; what is not there is
refused by its name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ._basics import Average, cross_rank, cross_size, is_homogeneous
from ._native import has_plugin

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from ._basics import ReduceOp

# What the parts that have Horovod's names import from here, besides absent().
__all__ = [
    "Adasum",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
]

Adasum = "Adasum"  # compares like Horovod's; as op= it is refused, as there is no such reduction here


def predivide_scales(factor: float, op: ReduceOp) -> tuple[float, float]:
    """Return the factors before and after an average, together 1, for gradient_predivide_factor."""
    if not isinstance(factor, (int, float)) or not 0 < factor < math.inf:
        raise ValueError(f"gradient_predivide_factor={factor!r} must be a positive, finite number")
    if factor != 1 and op != Average:
        raise ValueError(f"gradient_predivide_factor={factor!r} splits an average, so it needs op=Average")
    return 1.0 / factor, float(factor)


def refuse_process_set(process_set: object) -> None:
    """Raise if a program wants only some of the workers; None, or Horovod's number 0, are all of them."""
    if process_set is not None and getattr(process_set, "process_set_id", process_set) != 0:
        raise NotImplementedError(
            f"process_set={process_set!r}: process sets are not supported here; use those of byteps.compat.horovod, or "
            f"{_PARTS}"
        )


_PARTS = "process groups, new_group() and group="
_HOST = "of byteps.torch and byteps.numpy, which autograd does not see"
_GATHER = f"all_gather() {_HOST}; or push_pull an array that has zeros but for this worker's part; the sum is all parts"
_SCATTER = f"reduce_scatter() {_HOST}; or push_pull, and take this worker's part of the result"
_EXCHANGE = f"all_to_all() {_HOST}; or push_pull an array that has zeros but for what this worker sends"
_TIMELINE = "the configuration says from the start that there is one: trace.file, trace.from and trace.to"
_ABSENT = {
    "ProcessSet": _PARTS,
    "add_process_set": _PARTS,
    "remove_process_set": _PARTS,
    "global_process_set": "leave process_set= out",
    "allgather": _GATHER,
    "allgather_async": _GATHER,
    "allgather_object": "broadcast_object() from each rank in turn",
    "grouped_allgather": _GATHER,
    "grouped_allgather_async": _GATHER,
    "alltoall": _EXCHANGE,
    "alltoall_async": _EXCHANGE,
    "reducescatter": _SCATTER,
    "reducescatter_async": _SCATTER,
    "grouped_reducescatter": _SCATTER,
    "grouped_reducescatter_async": _SCATTER,
    "sparse_allreduce_async": "push_pull what to_dense() gives",
    "join": "give every worker the same number of batches",
    "start_timeline": _TIMELINE,
    "stop_timeline": _TIMELINE,
    "PartialDistributedGradientTape": "reduce the gradients of chosen variables by push_pull",
    "PartialDistributedOptimizer": "reduce the gradients of chosen variables by push_pull",
    "SyncBatchNormalization": "synchronized batch normalization is there for PyTorch only",
    "elastic": "byteps run --restarts N starts the job anew; load the last checkpoint then",
}


class AbsentError(NotImplementedError, AttributeError):
    """Something of Horovod that BytePS has not; hasattr() is false."""


def _refusing(name, text):
    def refuse(*_, **__):
        raise NotImplementedError(text)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raise NotImplementedError: {text}."
    return refuse


# What the modules of byteps.compat.horovod have nevertheless.
COMPLETE = (
    "ProcessSet",
    "add_process_set",
    "allgather",
    "allgather_object",
    "alltoall",
    "grouped_allgather",
    "grouped_reducescatter",
    "reducescatter",
    "remove_process_set",
)
COMPLETE_FOR_TORCH = (
    *COMPLETE,
    "allgather_async",
    "alltoall_async",
    "grouped_allgather_async",
    "grouped_reducescatter_async",
    "join",
    "reducescatter_async",
)


def absent(module: str, complete: str = "", has: Sequence[str] = ()) -> Callable[[str], Any]:
    """Return a __getattr__ for a module: what Horovod has and BytePS has not is refused by its name, when called.

    `complete` is the module that `has` the rest of Horovod's interface, if there is one.
    """

    def getattr_(name):
        if name not in _ABSENT:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        instead = f"{complete}.{name}" if name in has else _ABSENT[name]
        text = f"{module}.{name} is not there; instead: {instead}"
        if name == "elastic":  # a module there
            raise AbsentError(text)
        return _refusing(name, text)

    return getattr_


def mpi_built() -> bool:
    """Return False: there is no MPI here, also where mpirun has started the program."""
    return False


def mpi_enabled() -> bool:
    """Return False, as mpi_built()."""
    return False


def mpi_threads_supported() -> bool:
    """Return False, as mpi_built()."""
    return False


def gloo_built() -> bool:
    """Return False: transports are plugins of BytePS."""
    return False


def gloo_enabled() -> bool:
    """Return False, as gloo_built()."""
    return False


def nccl_built() -> int:
    """Return 0, the version of a NCCL that BytePS is built with: none."""
    return 0


def ddl_built() -> bool:
    """Return False: there is no DDL here."""
    return False


def ccl_built() -> bool:
    """Return False: there is no oneCCL here."""
    return False


def cuda_built() -> bool:
    """Return whether the CUDA reducer, which takes tensors on GPUs, is installed."""
    return has_plugin("reducer_cuda")


def rocm_built() -> bool:
    """Return False: GPUs of AMD are not supported."""
    return False
