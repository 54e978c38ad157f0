# SPDX-License-Identifier: Apache-2.0
"""Operations of a group of torch.distributed in flight, and how long they may take."""

from __future__ import annotations

import concurrent.futures
import datetime
import math
import threading
import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from byteps._errors import TimeoutError

from ._untraced import untraced

if TYPE_CHECKING:
    from typing import Any, Callable, List, Sequence

    Tensors = List[torch.Tensor]

_waiter_lock = threading.Lock()
_waiter: concurrent.futures.ThreadPoolExecutor | None = None
_waiting = threading.local()  # .here: this is the thread that waits


def _be_waiter():
    _waiting.here = True


def _wait_elsewhere(work):
    """Have a thread wait for a work, as nobody else may: PyTorch waits for its future.

    What follows a future runs in that thread, and may wait for another one's: so that thread waits at once.
    """
    global _waiter
    if hasattr(_waiting, "here"):
        work._settle()
        return
    with _waiter_lock:
        if _waiter is None:
            _waiter = concurrent.futures.ThreadPoolExecutor(1, "byteps-torch", _be_waiter)
        _waiter.submit(work._settle)


class Patience:
    """How long one operation may take, who is told that this rank waits long, and the error when the time is over."""

    def __init__(
        self,
        seconds: float = math.inf,
        is_long: Callable[[], None] = lambda: None,
        give_up: Callable[[], Exception] | None = None,
    ) -> None:
        self.end = time.monotonic() + seconds
        self._tell_at = time.monotonic() + min(1.0, seconds / 4)
        self._is_long, self._give_up = is_long, give_up

    def next(self) -> float:
        """Return when there is something to do: until then one may wait."""
        return min(self._tell_at, self.end)

    def look(self) -> None:
        """Do what is to be done by now; raise if the time is over."""
        now = time.monotonic()
        if now >= self._tell_at:
            self._tell_at = math.inf
            self._is_long()
        if now >= self.end and self._give_up is not None:
            raise self._give_up()


@untraced
class Work(dist.Work):
    """Operations in flight, and what makes the caller's tensors of their results."""

    def __init__(
        self,
        handles: Sequence[Any],
        result: Tensors,
        finish: Callable[[], None] | None,
        patience: Patience | None = None,
    ) -> None:
        super().__init__()
        self._handles, self._result, self._finish = handles, result, finish
        self._patience = patience or Patience()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._done = False
        self._told: torch.futures.Future[Any] | None = None
        self._future: torch.futures.Future[Any] | None = None  # follows that one

    def _sleep(self, wait_for, until):
        """Call a function that waits for some seconds until it says that there is no more to wait for, or until then.

        Return whether it did. The time that the operation may take ends it with an exception.
        """
        while not wait_for(min(until - time.monotonic(), self._patience.next() - time.monotonic(), 3600)):
            self._patience.look()
            if time.monotonic() >= until:
                return False
        return True

    def _await(self, until):
        """Return whether all has ended by then; raise if something failed."""
        for handle in self._handles:
            if not self._sleep(handle.wait_for, until):
                return False
            handle.wait()
        return True

    def _settle(self, until: float = math.inf) -> bool:
        """Wait, until then at most, and tell the future. Return whether it is done."""
        seconds = until - time.monotonic()
        if not self._lock.acquire(timeout=-1 if until == math.inf else max(seconds, 0)):
            return False
        try:
            if self._done:
                return True
            try:
                if not self._await(until):
                    return False
                if self._finish is not None:
                    self._finish()
            except BaseException as error:
                self._error = error
            self._done = True
            self._handles, self._finish = (), None
            told = self._told
        finally:
            self._lock.release()
        if told is not None:
            self._tell(told)
        return True

    def _tell(self, told):
        if self._error is not None:
            told.set_exception(self._error)
        else:
            told.set_result(self._result)

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Wait for the operations; raise if one failed. After a timeout they go on, and can be waited for again."""
        seconds = timeout.total_seconds()
        if not self._settle(time.monotonic() + seconds if seconds > 0 else math.inf):
            raise TimeoutError(f"the operation did not end within the timeout of {seconds:g} s for wait(); it goes on")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._done or all(handle.poll() for handle in self._handles)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        if self.is_completed():
            self._settle()
        return self._error

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> Tensors:
        return self._result

    def source_rank(self) -> int:
        raise RuntimeError("only what recv() returns has a source")

    def get_future(self) -> torch.futures.Future[Any]:
        if self._future is not None:
            return self._future
        with self._lock:
            self._told, done = torch.futures.Future(), self._done
        # PyTorch's C++ code, such as DistributedDataParallel's, takes what set_exception() is given for a result.
        self._future = self._told.then(lambda told: told.value())
        if done:
            self._tell(self._told)
        else:
            _wait_elsewhere(self)
        return self._future
