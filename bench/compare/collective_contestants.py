# SPDX-License-Identifier: Apache-2.0
"""Contestants that make the operations of operations.py, on this host and on a test bed."""

from bed_contestants import BedGloo, BedOpenMPI, BedPushPull
from contestants import Gloo, LocalPushPull, SharedOpenMPI
from operations import OPERATIONS

MOST = 2000  # iterations of a round


class Operations:
    """What a contestant is told instead of a number of iterations. `tensors` is the most elements."""

    def calibrate(self, *_):
        """Iterations are chosen for each operation."""

    def make(self, operation, size, iterations):
        """Seconds of one iteration. The round before, which warms up, has ended on all ranks."""
        words = OPERATIONS.index(operation), size // 4
        self.ask(*words, 1)
        times = self.ask(*words, iterations)
        return (max(end for _, end in times) - min(start for start, _ in times)) / iterations / 1e9

    def fitting(self, operation, size, aim):
        """The iterations of a round of `aim` seconds; the first ones of all are slow."""
        iterations = 1
        while iterations < MOST:
            seconds = self.make(operation, size, iterations)
            if seconds * iterations > aim / 4:
                return max(1, min(MOST, int(aim / seconds)))
            iterations *= 8
        return MOST


class HostBytePS(Operations, LocalPushPull):
    program = "collectives_byteps"


class HostGloo(Operations, Gloo):
    program = "collectives_gloo.py"


class HostOpenMPI(Operations, SharedOpenMPI):
    sources = ("collectives_mpi.c", "operations.c", "round.c")


class OnLinks(Operations):
    """A round takes long enough: one iteration."""

    def fitting(self, *_):
        return 1


class BedBytePS(OnLinks, BedPushPull):
    program = "collectives_byteps"


class BedGlooOperations(OnLinks, BedGloo):
    program = HostGloo.program


class BedOpenMPIOperations(OnLinks, BedOpenMPI):
    sources = HostOpenMPI.sources
