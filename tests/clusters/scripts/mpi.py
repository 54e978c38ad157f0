# SPDX-License-Identifier: Apache-2.0
"""A program that uses MPI beside BytePS: before or after it, as the first argument says. The second is its library."""

import ctypes
import os
import sys

import byteps.numpy as bps
import numpy as np

order, library = sys.argv[1:]
mpi = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
if order == "before":
    mpi.MPI_Init(None, None)
bps.init()
if order == "after":
    mpi.MPI_Init(None, None)
total = bps.push_pull(np.full(3, bps.rank() + 1.0), name="x", average=False)
os.write(1, f"worker {bps.rank()} of {bps.size()}: {total.tolist()}\n".encode())
if order == "before":
    mpi.MPI_Finalize()
bps.shutdown()
if order == "after":
    mpi.MPI_Finalize()
