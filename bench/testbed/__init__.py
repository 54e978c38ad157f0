# SPDX-License-Identifier: Apache-2.0
"""Hosts for tests, made of network namespaces with links of a given rate, and jobs of any shape on them.

    from testbed import Testbed

    with Testbed(hosts=3, rate="1gbit") as bed:
        with bed.job(["./worker"], workers=[1, 3], servers=1) as job:
            job.wait_for("ready", "worker 0")
            bed.cut(1)
            ends = job.finish()

README.md tells what such a host is and what it is not. Root is needed: without it, or where the kernel lacks
something, Testbed() raises Unavailable with the reason.
"""

from .bed import SWITCH, Bed, Testbed, sweep
from .job import Job, Shape
from .kernel import Unavailable

__all__ = ["SWITCH", "Bed", "Job", "Shape", "Testbed", "Unavailable", "sweep"]
