# SPDX-License-Identifier: Apache-2.0
"""What the loss of a member is in MXNet: an error of its own kind that is a LostError, too, as with other frameworks.

MXNet makes an exception of a text. mxnet.c puts the names of these before its texts, by which MXNet finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxnet.base import MXNetError, register_error

from byteps import _errors

if TYPE_CHECKING:
    from typing import Iterable

    import mxnet as mx


class LostError(MXNetError, _errors.LostError):
    """A member of the job was lost."""


class MembershipError(MXNetError, _errors.MembershipError):
    """In an elastic job a worker was lost or has left; the others go on after reform()."""


def _register(kind):
    name = f"byteps.{kind.__name__}"
    register_error(name, lambda text: kind(text.replace(f"{name}: ", "", 1)))


for _kind in (LostError, MembershipError):
    _register(_kind)


def wait_all(arrays: Iterable[mx.nd.NDArray]) -> None:
    """Wait for the operations of some arrays; when all have ended, raise the first error. No array keeps one."""
    first = None
    for array in arrays:
        try:
            array.wait_to_read()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
