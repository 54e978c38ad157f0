# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package. Each carries the library's text: what happened, where, and what to do."""

from __future__ import annotations

import builtins


class Error(RuntimeError):
    """An operation or the job failed.

    Attributes:
        status: the number of the failure in types.h (``BPS_ERR_...``), 0 if it has none.
    """

    status: int = 0


class NotInitializedError(Error, ValueError):
    """This process is not in a job: before init(), after shutdown(), or in a forked child."""

    status = -10


class InvalidError(Error, ValueError):
    """An argument or a value is not allowed."""

    status = -1


class ConfigurationError(Error):
    """The configuration is wrong, or a plugin that it names was refused."""

    status = -2


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline has passed. The message names what was waited for."""

    status = -6


class LostError(Error):
    """A member of the job was lost."""

    status = -7


class MembershipError(LostError):
    """In an elastic job a worker was lost or has left; the others go on after reform()."""

    status = -15


class MismatchError(Error):
    """The workers disagree about a tensor: its shape, type or operation, the root, or its name."""

    status = -8


class BusyError(Error, ValueError):
    """A tensor of this name is already in flight in this process, or one that writes to the same memory."""

    status = -9


class WorkerError(Error):
    """A worker that byteps.run() has started has failed. The text has its traceback.

    Attributes:
        rank: which worker.
    """

    rank: int | None = None


_CLASSES = {
    kind.status: kind
    for kind in (
        InvalidError,
        ConfigurationError,
        TimeoutError,
        LostError,
        MembershipError,
        MismatchError,
        BusyError,
        NotInitializedError,
    )
}
_CLASSES[-3] = ConfigurationError  # a plugin was refused


def from_status(status: int, text: str) -> Error:
    """Return the exception for a status of the library."""
    error = _CLASSES.get(status, Error)(text)
    error.status = status
    return error
