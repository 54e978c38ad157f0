# SPDX-License-Identifier: Apache-2.0
"""What every framework's part offers alike: the life of a job, questions about it, handles."""

from __future__ import annotations

import atexit
import ctypes
import enum
import hashlib
import numbers
import operator
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

from ._coding import coding_text
from ._errors import InvalidError, MismatchError
from ._native import bps as _bps

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, SupportsIndex

    from ._types import Coding, PathOrText, Settings

# What the part of every framework has, which imports all of these; the rest is for these parts alone.
__all__ = [
    "Average",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "barrier",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "members_wait",
    "metrics",
    "rank",
    "reform",
    "resume",
    "shutdown",
    "size",
    "step",
    "suspend",
]

T = TypeVar("T")


class ReduceOp(enum.IntEnum):
    """The reductions over the workers. Average is the default everywhere."""

    Sum = _bps.SUM
    Average = _bps.AVERAGE
    Min = _bps.MIN
    Max = _bps.MAX
    Product = _bps.PRODUCT


Average = ReduceOp.Average
Sum = ReduceOp.Sum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product


def choose_op(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    """Return the ReduceOp that the two arguments of a call mean. Not both may be given."""
    if op is None:
        return Sum if average is not None and not average else Average
    if average is not None:
        raise ValueError("give either average= or op=, not both")
    if type(op) is ReduceOp:
        return op
    try:
        return ReduceOp(op)
    except ValueError:
        allowed = ", ".join(one.name for one in ReduceOp)
        raise ValueError(f"op={op!r} is not a reduction; expected one of {allowed}") from None


def check_root(root_rank: SupportsIndex) -> int:
    """Return root_rank as an int, if there is such a worker."""
    root = operator.index(root_rank)
    if not 0 <= root < size():
        raise InvalidError(f"root_rank={root_rank} is not the rank of a worker; expected 0..{size() - 1}")
    return root


# ---- life of a job ---------------------------------------------------------------------------------------

_last: dict[str, Any] = {"conf": None, "settings": []}  # of init(), for resume()
# What rank() and its like have answered in the job that suspend() has left.
_suspended: dict[Callable[[], Any], Any] = {}
_job = 0
# What says where steps end, and what has ended one without being that: see end_step(). Weak references.
_pacemaker: Callable[[], Any] | None = None
_candidate: Callable[[], Any] | None = None


def settings_texts(values: Settings | None) -> list[str]:
    """Return a dict of values as the extension takes them."""
    return [f"{key}={_text(key, value)}" for key, value in dict(values or {}).items()]


def _text(key, value):
    """Return a value as --set takes it; a list in the notation of configuration files."""
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(_quoted(_single(key, item)) for item in value) + ")"
    return _single(key, value)


def _single(key, value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, numbers.Real)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(
        f"set: {key} = {value!r}: {type(value).__name__} is not a supported type; expected a string, a number, a "
        'boolean or a list of these; of a group each key by itself ("worker.partition"), or text as in a '
        "configuration file"
    )


def _quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def init(lazy: bool = True, *, conf: PathOrText | None = None, set: Settings | None = None) -> None:
    """Join the job and wait until all its members are there.

    What the job is comes from the configuration: files, environment, and the arguments here. With
    ``byteps run`` nothing needs to be given. Without any configuration it is a job of this one process; that
    is refused if torchrun, srun or mpirun has started the process as one of several, unless
    ``cluster.workers`` is set to 1. A second call in a running job does nothing. After shutdown() it may be
    called again.

    Args:
        lazy: accepted for compatibility; without effect.
        conf: path of a configuration file.
        set: a dict of values, stronger than every file: ``{"worker.partition": "8 MiB", "worker.use": ["cuda",
            "sum"]}``. A value is a string, a number, a boolean, or a list of these.

    Raises:
        ConfigurationError: the configuration is wrong or a plugin was refused.
        TypeError: a value of ``set`` is of another type.
        TimeoutError: not all members joined in time; the message names the missing ones.
        Error: the job refused this process, or the network failed.
    """
    del lazy
    conf = None if conf is None else os.fspath(conf)
    settings = settings_texts(set)
    _join(conf, settings)
    _last.update(conf=conf, settings=settings)


def _join(conf, settings):
    global _job, _pacemaker, _candidate
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise InvalidError(
            "a process that multiprocessing has spawned, such as a DataLoader's worker, imports the program anew, and "
            'this call of init() with it; put what the program does below: if __name__ == "__main__":'
        )
    begins = not is_initialized()
    _bps.init(conf, settings)
    if begins:
        _job += 1
        _pacemaker = _candidate = None
    _suspended.clear()


def shutdown() -> None:
    """Finish the operations in flight and leave the job.

    A program that ends with status 0 does so automatically. One that ends with another status, by an exception or
    by os._exit(), as forked processes of multiprocessing do, is lost to the others, which learn of it immediately.

    Raises:
        NotInitializedError: this process is not in a job.
        LostError: the job had lost a member before; it is left nevertheless.
    """
    _bps.shutdown()


def suspend() -> None:
    """Leave the job like shutdown(), but remember the declared tensors for resume().

    Until the next job, rank(), size(), local_rank(), local_size(), cross_rank(), cross_size() and
    is_homogeneous() answer as they did in this one; is_initialized() is False.
    """
    answers = {question: question() for question in _QUESTIONS}
    _suspended.update(answers)
    _bps.suspend()


def resume(
    num_workers: int | None = None,
    num_servers: int | None = None,
    global_rank: int | None = None,
    context: object = None,
) -> None:
    """Join again after suspend(), possibly with another number of workers and servers, and declare all
    tensors again.

    The scheduler and the servers must be there: with ``cluster.stay``, as under ``byteps run``, they wait for
    the same numbers of workers and servers; otherwise they have ended and must be started again, which this waits for.

    Args:
        num_workers: number of machines, as in DMLC_NUM_WORKER, each with BYTEPS_LOCAL_SIZE workers; where
            that is not set, number of workers. Leave it out where machines have different numbers.
        num_servers: number of servers.
        global_rank: rank of this worker among all. None keeps, of each of the three, what the configuration
            says.
        context: accepted for compatibility; without effect.

    Raises:
        InvalidError: num_workers is not a whole number. The other exceptions are those of init().
    """
    del context
    if num_workers is not None:
        each = _whole("BYTEPS_LOCAL_SIZE", os.environ.get("BYTEPS_LOCAL_SIZE") or 1)
        num_workers = _whole("num_workers", num_workers) * each
    changes = {"cluster.workers": num_workers, "cluster.servers": num_servers, "cluster.rank": global_rank}
    settings = _last["settings"] + settings_texts({k: v for k, v in changes.items() if v is not None})
    _join(_last["conf"], settings)


# What reform() calls at its end, before the program goes on.
after_reform: list[Callable[[], object]] = []


def reform() -> None:
    """Continue, in an elastic job, with all remaining workers and those that wait to join; all call it.

    Rank and size may be other ones: survivors come first, in the order they had. Tensors keep their names. Operations
    in flight end first. Newcomers know nothing of what the others have learned: broadcast it from rank 0.

    Raises:
        Error: the job is not elastic (``cluster.min_workers``), and goes on. After any other failure it is over here.
        TimeoutError: fewer than ``cluster.min_workers`` have come.
    """
    _bps.reform()
    for function in after_reform:
        function()


def members_wait() -> int:
    """Return how many processes wait for this worker to call reform(): newcomers, and others that have called it.

    It costs nothing. Workers learn of it at different times, and need not: a worker that continues gets a
    MembershipError.
    """
    return _bps.members_wait()


def is_elastic() -> bool:
    """Return whether workers of this job may be lost and come while it trains: ``cluster.min_workers``."""
    return int(_bps.conf("cluster.min_workers")) > 0


def _whole(name, value):
    try:
        return int(str(value))
    except ValueError:
        raise InvalidError(f"{name} = {value!r} is not a whole number; expected 1 or more") from None


atexit.register(_bps.leave_at_exit)
os.register_at_fork(after_in_child=_suspended.clear)  # a child is no worker, suspended or not


# ---- questions -------------------------------------------------------------------------------------------


def is_initialized() -> bool:
    """Return whether this process is in a job."""
    return _bps.is_initialized()


_QUESTIONS = (
    _bps.rank,
    _bps.size,
    _bps.local_rank,
    _bps.local_size,
    _bps.cross_rank,
    _bps.cross_size,
    _bps.is_homogeneous,
)


def _answer(question):
    """Return the answer of this job, or of the last one after suspend()."""
    if _suspended and not _bps.is_initialized():
        return _suspended[question]
    return question()


def rank() -> int:
    """Return this worker's number, 0..size()-1.

    Raises NotInitializedError outside a job, unless suspend() has left it; so do the questions below.
    """
    return _answer(_bps.rank)


def size() -> int:
    """Return the number of workers."""
    return _answer(_bps.size)


def metrics() -> dict[str, Any]:
    """Return what this worker knows of how the job goes.

    ``pushed_bytes`` are those that it has pushed, ``coded_bytes`` those that it has sent coded. ``lateness`` is a list
    with a dict for each worker, of what all servers have seen until a second or two ago: ``rank`` and ``host``;
    ``rounds``: how often the sums have waited for somebody; ``last``: how often this worker was the last to come;
    ``median_seconds``: how long the others waited for it then, half of that time in longer waits; ``waited``: which
    part of the job's time that was, 0..1. ``host_last`` and ``host_median_seconds`` count when all workers of its host,
    who sum among themselves first, came late together. Waits that do not happen ten times are no median.
    """
    workers = range(size())
    return {
        "pushed_bytes": _bps.pushed_bytes(),
        "coded_bytes": _bps.coded_bytes()[1],
        "lateness": [_bps.lateness(worker) for worker in workers],
    }


def local_rank() -> int:
    """Return this worker's number among those on the same host, 0..local_size()-1."""
    return _answer(_bps.local_rank)


def local_size() -> int:
    """Return the number of workers on this host."""
    return _answer(_bps.local_size)


def cross_rank() -> int:
    """Return this worker's number among those with the same local_rank(), one per host, in order of rank."""
    return _answer(_bps.cross_rank)


def cross_size() -> int:
    """Return the number of hosts that have a worker with this local_rank(): all, if is_homogeneous()."""
    return _answer(_bps.cross_size)


def is_async() -> bool:
    """Return whether the job trains asynchronously: ``worker.async``, BYTEPS_ENABLE_ASYNC."""
    return _bps.conf("worker.async") in ("true", "1", "on", "yes")


def job_number() -> int:
    """Return the number of the job among those of this process, from 1 on; after its end, too."""
    return _job


def is_homogeneous() -> bool:
    """Return whether all hosts have the same number of workers."""
    return bool(_answer(_bps.is_homogeneous))


# ---- steps -----------------------------------------------------------------------------------------------


def step() -> None:
    """Say that a step of the training has ended: what starts from now on belongs to the next one.

    The timelines of the job (``trace.file``) and what shows them go by steps; nothing else does. Optimizers of BytePS
    call it by themselves. A program that does so itself decides alone, from its first call on, what a step is.
    Outside a job it has no effect.
    """
    global _pacemaker
    _pacemaker = _program
    _bps.step()


def _program():
    """Stand for the program, which goes before whatever else may end steps."""
    return _program


def end_step(owner: object) -> None:
    """Say that an optimizer, or whatever else makes steps, has ended one.

    Of several in a program the first one counts, as long as no other makes two in a row.
    """
    global _pacemaker, _candidate
    pacemaker = None if _pacemaker is None else _pacemaker()
    if pacemaker is _program:
        return
    last, _candidate = _candidate, None
    if pacemaker is not owner:
        reference = weakref.ref(owner)
        if pacemaker is not None and last is not reference:
            _candidate = reference
            return
        _pacemaker = reference
    _bps.step()


# ---- tensors ---------------------------------------------------------------------------------------------


def full_name(name: str | None) -> str | None:
    """Return the name that a tensor has in the job; None stays None, for an unnamed one."""
    return None if name is None else f"byteps.{name}"


# As enum bps_mode of byteps.h.
_MODES = {None: 0, "sync": 1, "async": 2}


def declare(name: str, compression: Coding = None, mode: str | None = None) -> None:
    """Announce a tensor before its first push_pull. Not needed, if neither compression nor mode is given.

    Args:
        name: of the tensor.
        compression: how its sums and averages are coded on the network, the same on all workers: a dictionary such
            as {"compressor": "onebit", "ef": "vanilla"}; the name of a compressor; False for not at all. None: as
            configured.
        mode: "sync": the result is made of what all workers push, and each waits for all. "async": the servers keep a
            value of the tensor; what a worker pushes is added to it, and the result is what it is then, without waiting
            for anybody. A broadcast sets the value. The same on all workers. None: as configured.
    """
    if mode not in _MODES:
        raise ValueError(f"mode is {mode!r}; expected 'sync', 'async' or None")
    _bps.declare([full_name(name)], coding_text(compression), _MODES[mode])


def require_equal(text: str, what: str, group: int = 0) -> None:
    """Raise MismatchError on all workers, or members of a group, that do not all have the same text about something."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    both = (ctypes.c_uint8 * 32)(*digest, *(255 - byte for byte in digest))
    tensor = (ctypes.addressof(both), (32,), _bps.dtypes["uint8"], both)
    run_push_pull(tensor, None, None, Max, 0, 1.0, 1.0, 0.0, group)
    if any(a + b != 255 for a, b in zip(both[:16], both[16:])):
        raise MismatchError(f"{what} differ between the workers in names, shapes or types; here: {text[:500]}")


# Functions that launch what other workers may wait for, so that nothing else waits for them.
before_operations: list[Callable[[], object]] = []


def start(operation: Callable[..., T], *arguments: Any) -> T:
    """Start an operation of the extension that the program asks for."""
    for launch in before_operations:
        launch()
    return operation(*arguments)


def run_push_pull(*arguments: Any) -> None:
    """Run the extension's push_pull to its end."""
    start(_bps.push_pull_wait, *arguments)


def shared_buffer(size: int) -> ctypes.Array[ctypes.c_ubyte] | None:
    """Return a writable buffer of zeroed shared memory, or None if there is none.

    The memory is freed when the last object that uses the buffer is gone; that may be after shutdown(). A
    forked child does not share it: there the buffer has zeros and is the child's own.
    """
    memory = _bps.alloc(size)
    if memory is None:
        return None
    address, owner = memory
    buffer: Any = (ctypes.c_ubyte * size).from_address(address)
    buffer.owner = owner
    return buffer


class Handle(Generic[T]):
    """An operation in flight, made by the functions whose names contain ``async``.

    It keeps its tensors alive. If it is dropped before the operation has ended, the operation goes on and
    its result is lost. Any thread may use it, several may wait, and after shutdown(), too.

    Attributes:
        output: the tensor that receives the result. Do not touch it before synchronize().
    """

    __slots__ = ("_finish", "_lock", "_native", "output")

    def __init__(self, native: Any, output: T, finish: Callable[[T], T] | None = None) -> None:
        """Wrap a handle of the extension; finish(output) makes the result of what has arrived."""
        self._native = native
        self._finish = finish
        self._lock: Any = None if finish is None else threading.RLock()
        self.output = output

    def poll(self) -> bool:
        """Return whether the operation has ended, well or not."""
        return self._native.poll()

    def wait(self) -> T:
        """Sleep until the operation has ended and return its result; raise if it failed."""
        self._native.wait()
        if self._finish is not None:
            with self._lock:  # of two threads that wait, one finishes, and the other must not be earlier
                if self._finish is not None:
                    self.output = self._finish(self.output)
                    self._finish = None
        return self.output


def poll(handle: Handle[Any]) -> bool:
    """Return whether the operation of a handle has ended, well or not. Does not block."""
    return handle.poll()


def synchronize(handle: Handle[T]) -> T:
    """Sleep until the operation of a handle has ended and return its result.

    Other Python threads run meanwhile, and Ctrl-C works. It may be called again for the same handle.

    Raises:
        MismatchError, LostError, Error: the operation failed; the text has the cause.
    """
    return handle.wait()


def wait_all(handles: Iterable[Handle[T]]) -> list[T]:
    """Wait for all handles, also after a failure, and return their results; then raise the first failure."""
    results, failure = [], None
    for handle in handles:
        try:
            results.append(handle.wait())
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results


def barrier() -> None:
    """Return when all workers have called it. Barriers meet in the order in which they are called."""
    Handle(start(_bps.barrier), None).wait()
