# SPDX-License-Identifier: Apache-2.0
"""Training that goes on while workers come and go, under Horovod's names; what all frameworks have alike.

The job must be elastic: ``cluster.min_workers``. byteps.torch.elastic, byteps.tensorflow.elastic,
byteps.keras.elastic and byteps.mxnet.elastic have the rest.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from typing import TYPE_CHECKING

from ._basics import members_wait
from ._errors import LostError, MembershipError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any, Callable, Iterable

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run_fn"]

HorovodInternalError = LostError  # also MembershipError


class HostsUpdatedInterrupt(RuntimeError):
    """Others wait for this worker: those that want to join, or that continue without one that was lost."""


class State:
    """The state that all workers share. Subclasses define how it is saved, restored and sent."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        """Make a state that is sent by bcast_object(); get_rank is accepted for compatibility, without effect."""
        del get_rank
        self._bcast_object = bcast_object
        self._reset_callbacks: list[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Add functions that are called when the workers are other ones, before sync(). Newcomers do not call them."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Call these functions."""
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Save, and check_host_updates()."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt if others wait for this worker. It costs nothing, and workers may disagree."""
        if members_wait() > 0:
            raise HostsUpdatedInterrupt("other processes wait for this worker, to go on together")

    def save(self) -> None:
        """Keep a copy in this process."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the last copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take what rank 0 has."""
        raise NotImplementedError


class ObjectState(State):
    """A state of objects that can be pickled and copied; each is an attribute."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        """Make a state of these attributes."""
        super().__init__(bcast_object, get_rank)
        self._saved = copy.deepcopy(kwargs)
        self._set(kwargs)

    if TYPE_CHECKING:  # its attributes are known only when it is there

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def _set(self, values):
        for name, value in values.items():
            setattr(self, name, value)

    def save(self) -> None:
        """Keep a copy of the attributes."""
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self) -> None:
        """Go back to the last copy."""
        self._set(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Take the attributes of rank 0."""
        if self._saved:
            self._set(self._bcast_object({name: getattr(self, name) for name in self._saved}))


def _sync(state):
    """Give all workers the state of rank 0; if that fails, this one has what it had."""
    state.save()
    try:
        state.sync()
    except Exception:
        state.restore()  # part of it may have come
        raise
    state.save()


def run_fn(
    func: Callable[..., Any],
    reset: Callable[[], object],
    failures: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> Callable[..., Any]:
    """Return a function that calls func(state, ...) again, with other workers, when some are lost or come.

    It first gives all the state of rank 0, which is no newcomer if any other is left. A MembershipError has changed
    nothing, so that the state stays as it is; after any other HorovodInternalError it is that of the last commit().
    `reset` is reform(), with what else a framework needs; in the context `failures()` a framework's own errors become
    these.
    """

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        others = False
        while True:
            try:
                with failures():
                    if others:
                        state.on_reset()  # which may use operations of all workers, as programs for Horovod do
                    _sync(state)
                    return func(state, *args, **kwargs)
            except (MembershipError, HostsUpdatedInterrupt):
                reset()
            except HorovodInternalError:
                state.restore()
                reset()
            others = True

    return wrapper
