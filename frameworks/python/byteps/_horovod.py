# SPDX-License-Identifier: Apache-2.0
"""What programs for Horovod need alike in all frameworks.

Questions about its parts are answered for BytePS, which is made of neither MPI nor Gloo; what is not there is
refused by its name.
"""

import math

from ._basics import Average
from ._native import has_plugin

Adasum = "Adasum"  # compares like Horovod's; as op= it is refused, as there is no such reduction here


def predivide_scales(factor, op):
    """Return the factors before and after an average, together 1, for gradient_predivide_factor."""
    if not isinstance(factor, (int, float)) or not 0 < factor < math.inf:
        raise ValueError(f"gradient_predivide_factor={factor!r} must be a positive, finite number")
    if factor != 1 and op != Average:
        raise ValueError(f"gradient_predivide_factor={factor!r} splits an average, so it needs op=Average")
    return 1.0 / factor, float(factor)


def refuse_process_set(process_set):
    """Raise if a program wants only some of the workers; None, or Horovod's number 0, are all of them."""
    if process_set is not None and getattr(process_set, "process_set_id", process_set) != 0:
        raise NotImplementedError("process_set: there are no process sets; every operation is of all workers")


def missing(name):
    """Return a function of this name that says that BytePS has no such function."""

    def refuse(*_, **__):
        raise NotImplementedError(f"{name} is not there: BytePS has push_pull (allreduce) and broadcast")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raise NotImplementedError: BytePS has no such function."
    return refuse


def mpi_built():
    """Return False: there is no MPI here, also where mpirun has started the program."""
    return False


def mpi_enabled():
    """Return False, as mpi_built()."""
    return False


def mpi_threads_supported():
    """Return False, as mpi_built()."""
    return False


def gloo_built():
    """Return False: transports are plugins of BytePS."""
    return False


def gloo_enabled():
    """Return False, as gloo_built()."""
    return False


def nccl_built():
    """Return 0, the version of a NCCL that BytePS is built with: none."""
    return 0


def ddl_built():
    """Return False: there is no DDL here."""
    return False


def ccl_built():
    """Return False: there is no oneCCL here."""
    return False


def cuda_built():
    """Return whether the CUDA reducer, which takes tensors on GPUs, is installed."""
    return has_plugin("reducer_cuda")


def rocm_built():
    """Return False: GPUs of AMD are not supported."""
    return False
