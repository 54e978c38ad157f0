# SPDX-License-Identifier: Apache-2.0
"""What programs ask Horovod about its parts, answered for BytePS, which is made of neither MPI nor Gloo."""

from byteps._native import has_plugin

Adasum = "Adasum"  # compares like Horovod's; as op= it is refused, as there is no such reduction here


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
