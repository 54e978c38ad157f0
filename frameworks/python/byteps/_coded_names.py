# SPDX-License-Identifier: Apache-2.0
"""Compressors of a framework that leave tensors as they are, and have them coded on the network instead."""

import functools

from ._basics import full_name, job_number
from ._errors import ConfigurationError, InvalidError
from ._native import bps as _bps

_said = {}  # name -> how it is coded, of those of one job
_said_in_job = 0


@functools.lru_cache(maxsize=None)
def coded(base, coding):
    """Return a compressor that does what another one does; its attribute `coding` says how the core codes the result.

    It is the same one for equal arguments, so that functions compiled for it are found again.
    """
    return type("Coded", (base,), {"coding": coding})


def declare_coded(names, compressor):
    """Declare what is to be sent with a compressor as coded so, if it is of coded(), unless that was done in this job.

    Raises:
        InvalidError: there is no such compressor in the core, or it has no such option.
        MismatchError: a tensor of this name is coded otherwise.
    """
    global _said_in_job
    coding = getattr(compressor, "coding", None)
    if coding is None:
        return
    if _said_in_job != job_number():
        _said_in_job = job_number()
        _said.clear()
    new = [name for name in names if _said.get(name) != coding]
    if not new:
        return
    try:
        _bps.declare([full_name(name) for name in new], coding)
    except ConfigurationError as error:
        raise InvalidError(f"compression: {error}") from None
    _said.update(dict.fromkeys(new, coding))
