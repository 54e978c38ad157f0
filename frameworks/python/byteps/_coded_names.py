# SPDX-License-Identifier: Apache-2.0
"""Compressors of a framework that leave tensors as they are, and have them coded on the network instead."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ._basics import full_name, job_number
from ._coding import coding_text
from ._errors import ConfigurationError, InvalidError
from ._native import bps as _bps

if TYPE_CHECKING:
    from typing import Any, Callable

    from ._types import T

_said: dict[str, str] = {}  # name -> how it is coded, of those of one job
_said_in_job = 0


@functools.lru_cache(maxsize=None)
def coded(base, coding):
    """Return a compressor that does what another one does; its attribute `coding` says how the core codes the result.

    It is the same one for equal arguments, so that functions compiled for it are found again.
    """
    return type("Coded", (base,), {"coding": coding})


def choose_compressor(compression: Any, none: T, text_of: Callable[[Any], str | None] = coding_text) -> T:
    """Return the compressor that an argument `compression` means.

    Args:
        compression: a compressor of the framework, or how byteps.declare() takes it.
        none: the framework's compressor that leaves tensors as they are.
        text_of: what makes the core's text of the latter; that of a whole model is model_coding_text().

    Raises:
        TypeError, ValueError: it is neither.
    """
    if hasattr(compression, "compress"):
        return compression
    coding = text_of(compression)
    return none if coding is None else coded(none, coding)


def coding_of(compressor: object) -> str | None:
    """Return how the core codes what is sent with a compressor; None: as configured."""
    return getattr(compressor, "coding", None)


def refuse_coding(compressor: object) -> None:
    """Raise ValueError if a tensor of a process group, where nothing has a name, is to be coded."""
    coding = coding_of(compressor)
    if coding is not None:
        raise ValueError(f"compression={coding!r}: a process group has no codings; use Compression.fp16 or .bf16")


def require_name(name: str | None, coding: str | None) -> None:
    """Raise ValueError if a tensor that is to be coded so has no name, by which the core knows it."""
    if coding is not None and name is None:
        raise ValueError(
            "compression: a tensor that is coded on the network needs a name: give name=, or one of Compression"
        )


def declare_coded(names, coding):
    """Declare tensors as coded so, unless that is None, or was done in this job.

    Raises:
        InvalidError: there is no such compressor in the core, or it has no such option.
        MismatchError: a tensor of this name is coded otherwise.
    """
    global _said_in_job
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
