# SPDX-License-Identifier: Apache-2.0
"""torch.distributed by BytePS: import this file, and say init_process_group("byteps").

DistributedDataParallel, FSDP and what else uses torch.distributed runs unchanged then, over the workers and servers of
the job.
"""

from __future__ import annotations

import collections
import concurrent.futures
import datetime
import os
import socket
import threading
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from byteps import _basics
from byteps._basics import Handle, ReduceOp, start
from byteps._native import bps as _bps
from byteps._parts import Scheduler

from . import _memory

if TYPE_CHECKING:
    from typing import Any, Callable, List, Sequence

    Tensors = List[torch.Tensor]

__all__ = ["ProcessGroup"]

NAME = "byteps"

_OPS = {
    dist.ReduceOp.SUM: ReduceOp.Sum,
    dist.ReduceOp.AVG: ReduceOp.Average,
    dist.ReduceOp.MIN: ReduceOp.Min,
    dist.ReduceOp.MAX: ReduceOp.Max,
    dist.ReduceOp.PRODUCT: ReduceOp.Product,
}


# ---- work ------------------------------------------------------------------------------------------------

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


class _Work(dist.Work):
    """Operations in flight, and what makes the caller's tensors of their results."""

    def __init__(self, handles: Sequence[Handle[Any]], result: Tensors, finish: Callable[[], None] | None) -> None:
        super().__init__()
        self._handles, self._result, self._finish = handles, result, finish
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._done = False
        self._future: torch.futures.Future[Any] | None = None

    def _settle(self):
        """Wait, once; and tell the future."""
        with self._lock:
            if self._done:
                return
            try:
                for handle in self._handles:
                    handle.wait()
                if self._finish is not None:
                    self._finish()
            except BaseException as error:
                self._error = error
            self._done = True
            self._handles, self._finish = (), None
            future = self._future
        if future is not None:
            self._tell(future)

    def _tell(self, future):
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._result)

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Wait for the operations; the job's own time-outs end them. Raise if one failed."""
        del timeout
        self._settle()
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
            self._future, done = torch.futures.Future(), self._done
        if done:
            self._tell(self._future)
        else:
            _wait_elsewhere(self)
        return self._future


# ---- tensors ---------------------------------------------------------------------------------------------


def _require_op(given):
    for known, op in _OPS.items():
        if given == known:
            return op
    raise NotImplementedError(f"byteps has no {given}; there are SUM, AVG, MIN, MAX and PRODUCT")


def _real(tensors):
    """Return complex tensors, in lists or not, as views of real ones, which sums and moves are the same for."""
    if isinstance(tensors, torch.Tensor):
        return torch.view_as_real(tensors) if tensors.is_complex() else tensors
    return [_real(each) for each in tensors]


def _require_real(op, tensors):
    if op not in (ReduceOp.Sum, ReduceOp.Average) and any(tensor.is_complex() for tensor in tensors):
        raise ValueError(f"complex numbers have no {op.name.lower()}; there are SUM and AVG")


class _Sides:
    """The memory of an operation, and what is copied back from it."""

    def __init__(self):
        self._copies = []

    def read(self, tensor):
        """Return a plain tensor in host memory with what is sent."""
        host = _real(tensor.detach()).cpu()
        return host if _memory.is_plain(host) else _memory.plain_copy(host)

    def write(self, tensor):
        """Return one that a result goes to, which finish() copies, unless it is the caller's own."""
        own = _real(tensor.detach())
        if own.is_cpu and _memory.is_plain(own):
            return own
        place = torch.empty(own.shape, dtype=own.dtype, device="cpu")
        self._copies.append((own, place))
        return place

    def both(self, tensor):
        """Return one that is sent and that the result goes to."""
        place = self.write(tensor)
        if place.data_ptr() != tensor.data_ptr():
            place.copy_(_real(tensor.detach()))
        return place

    def parts(self, tensors):
        """Return one that the results for some tensors go to, one after the other."""
        tensors = _real([tensor.detach() for tensor in tensors])
        place = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype, device="cpu")
        pieces = place.split([tensor.numel() for tensor in tensors])
        self._copies += [(tensor, piece.view(tensor.shape)) for tensor, piece in zip(tensors, pieces)]
        return place

    def finish(self):
        for tensor, place in self._copies:
            tensor.copy_(place)


class _SparseSides(_Sides):
    """Those of the sum of a sparse tensor: all workers get the elements that each has, and add them up."""

    def __init__(self, tensor, divisor):
        super().__init__()
        self._tensor, self._divisor = tensor, divisor
        mine = tensor.detach().coalesce()
        self.sent = mine.indices().t(), mine.values()
        self.received = ()

    def expect(self, count):
        """Make room for so many elements of all workers."""
        self.received = [part.new_empty((count, *part.shape[1:])) for part in self.sent]

    def finish(self):
        super().finish()
        index, values = self.received
        total = torch.sparse_coo_tensor(index.t(), values, self._tensor.shape).coalesce()
        with torch.no_grad():
            self._tensor.copy_(total if self._divisor == 1 else total / self._divisor)


def _joined(tensors):
    return torch.cat([_real(tensor.detach()).reshape(-1).cpu() for tensor in tensors])


def _sizes(tensors):
    """Return the elements of each, where they are not all the same."""
    sizes = tuple(_real(tensor).numel() for tensor in tensors)
    return None if len(set(sizes)) == 1 else sizes


def _rows(tensor, splits, workers):
    """Return the elements for each worker, as splits say how many rows it gets; None: all get the same."""
    if not splits:
        if tensor.shape[0] % workers != 0:
            raise ValueError(f"the first dimension, {tensor.shape[0]}, is no multiple of the {workers} workers")
        return None
    if len(splits) != workers or sum(splits) != tensor.shape[0]:
        raise ValueError(f"the splits {list(splits)} do not add up to the first dimension, {tensor.shape[0]}")
    row = _real(tensor[0]).numel() if tensor.shape[0] > 0 else 0
    return tuple(split * row for split in splits)


# ---- the group -------------------------------------------------------------------------------------------


class ProcessGroup(dist.ProcessGroup):
    """All workers of the job, or some. Made by init_process_group() and new_group().

    The operations have no names: all ranks call them in the same order, as with other backends. Tensors on a device go
    through host memory. Where workers host shards, a group of workers of one host does not use the network.
    """

    def __init__(self, rank: int, size: int, number: int = 0) -> None:
        super().__init__(rank, size)
        self._number = number  # as the extension has it; 0: all workers
        self._name = self._description = ""
        # DistributedDataParallel.join() has C++ code wait for how many still train, and drops what is Python's of that.
        self._kept: collections.deque[dist.Work] = collections.deque(maxlen=256)

    # What PyTorch asks a group.

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    # Starting operations.

    def _start(self, calls, result, sides):
        """Start operations; each call is a function of the extension with its arguments."""
        if self.size() == 1:
            raise AssertionError("a group of one has no operations")
        if calls and torch.autograd._profiler_enabled():
            return self._start_profiled(calls, result, sides)
        return _Work([Handle(start(*call), None) for call in calls], result, sides.finish)

    def _start_profiled(self, calls, result, sides):
        """Start operations that PyTorch's profiler shows until their end."""
        function, what = calls[0][:2]
        name = {_bps.push_pull: "all_reduce", _bps.broadcast: "broadcast"}.get(function) or what
        with torch.profiler.record_function(f"{NAME}:{name}") as record:
            work = _Work([Handle(start(*call), None) for call in calls], result, sides.finish)
            record._call_end_callbacks_on_future(work.get_future())
        return work

    def _over(self, pairs, result):
        """In a group of one: the result is what was sent."""
        for target, source in pairs:
            if target.data_ptr() != source.data_ptr():
                target.detach().copy_(source.detach().view(target.shape))
        return _Work((), result, None)

    def _collective(self, kind, source, target, counts=(None, None), op=ReduceOp.Sum, root=0):
        memory = [None if tensor is None else _memory.memory(tensor) for tensor in (source, target)]
        return (_bps.collective, kind, *memory, *counts, op, root, 0, 1.0, 1.0, self._number)

    # Reductions.

    def allreduce(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        if tensors[0].is_sparse:  # PyTorch gives one tensor
            return self._allreduce_sparse(tensors, _require_op(dist.ReduceOp.SUM if opts is None else opts.reduceOp))
        work = self.allreduce_coalesced(tensors, opts)
        if tensors[0].numel() == 1:
            self._kept.append(work)
        return work

    def _allreduce_sparse(self, tensors, op):
        if op not in (ReduceOp.Sum, ReduceOp.Average):
            raise NotImplementedError(f"byteps has no {op.name.upper()} of sparse tensors; there are SUM and AVG")
        if self.size() == 1:
            return self._over((), tensors)
        sides = _SparseSides(tensors[0], self.size() if op == ReduceOp.Average else 1)
        counts = torch.empty(self.size(), dtype=torch.int64)
        self.all_gather_single(counts, torch.tensor([len(sides.sent[1])])).wait()
        sides.expect(int(counts.sum()))
        calls = []
        for source, target in zip(sides.sent, sides.received):
            if target.numel() > 0:
                row = _real(target[0]).numel()
                sizes = (None, tuple(count * row for count in counts.tolist()))
                calls.append(self._collective("all_gather", sides.read(source), sides.write(target), sizes))
        return self._start(calls, tensors, sides)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        op, sides = _require_op(dist.ReduceOp.SUM if opts is None else opts.reduceOp), _Sides()
        _require_real(op, tensors)
        if self.size() == 1:
            return self._over((), tensors)
        calls = [
            (_bps.push_pull, _memory.memory(sides.both(tensor)), None, None, op, 0, 1.0, 1.0, 0.0, self._number)
            for tensor in tensors
        ]
        return self._start(calls, tensors, sides)

    def reduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        op, sides, root = _require_op(opts.reduceOp), _Sides(), opts.rootRank
        _require_real(op, tensors)
        if self.size() == 1:
            return self._over((), tensors)
        calls = []
        for tensor in tensors:
            source = sides.both(tensor) if root == self.rank() else sides.read(tensor)
            target = source if root == self.rank() else None
            calls.append(self._collective("reduce", source, target, op=op, root=root))
        return self._start(calls, tensors, sides)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> dist.Work:
        op, sides = _require_op(dist.ReduceOp.SUM if opts is None else opts.reduceOp), _Sides()
        _require_real(op, outputs)
        if self.size() == 1:
            return self._over([(outputs[0], inputs[0][0])], outputs)
        calls = [
            self._collective("reduce_scatter", _joined(source), sides.write(target), (_sizes(source), None), op)
            for target, source in zip(outputs, inputs)
        ]
        return self._start(calls, outputs, sides)

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> dist.Work:
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        op, sides = _require_op(dist.ReduceOp.SUM if opts is None else opts.reduceOp), _Sides()
        _require_real(op, outputs)
        if self.size() == 1:
            return self._over(list(zip(outputs, inputs)), outputs)
        calls = [
            self._collective("reduce_scatter", sides.read(source), sides.write(target), op=op)
            for target, source in zip(outputs, inputs)
        ]
        return self._start(calls, outputs, sides)

    # Moving tensors.

    def broadcast(self, tensors: Tensors, opts: Any) -> dist.Work:
        sides, root = _Sides(), opts.rootRank
        if self.size() == 1:
            return self._over((), tensors)
        calls = [
            (_bps.broadcast, _memory.memory(sides.both(tensor)), None, None, root, 0, self._number)
            for tensor in tensors
        ]
        return self._start(calls, tensors, sides)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        del opts
        sides = _Sides()
        if self.size() == 1:
            return self._over([(outputs[0][0], inputs[0])], outputs[0])
        calls = [
            self._collective("all_gather", sides.read(source), sides.parts(targets), (None, _sizes(targets)))
            for targets, source in zip(outputs, inputs)
        ]
        return self._start(calls, outputs[0], sides)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        # Here outputs[r] has the tensors of rank r.
        return self.allgather([list(targets) for targets in zip(*outputs)], inputs, opts)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> dist.Work:
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        del opts
        sides = _Sides()
        if self.size() == 1:
            return self._over(list(zip(outputs, inputs)), outputs)
        calls = [
            self._collective("all_gather", sides.read(source), sides.write(target))
            for target, source in zip(outputs, inputs)
        ]
        return self._start(calls, outputs, sides)

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> dist.Work:
        sides, root = _Sides(), opts.rootRank
        if self.size() == 1:
            return self._over([(outputs[0][0], inputs[0])], outputs[0])
        targets = outputs[0] if root == self.rank() else []
        place = sides.parts(targets) if targets else None
        call = self._collective("gather", sides.read(inputs[0]), place, root=root)
        return self._start([call], targets, sides)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> dist.Work:
        sides, root = _Sides(), opts.rootRank
        if self.size() == 1:
            return self._over([(outputs[0], inputs[0][0])], outputs)
        source = _joined(inputs[0]) if root == self.rank() else None
        call = self._collective("scatter", source, sides.write(outputs[0]), root=root)
        return self._start([call], outputs, sides)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        del opts
        sides = _Sides()
        if self.size() == 1:
            return self._over([(outputs[0], inputs[0])], outputs)
        counts = [tuple(tensor.numel() for tensor in _real(tensors)) for tensors in (inputs, outputs)]
        call = self._collective("all_to_all", _joined(inputs), sides.parts(outputs), counts)
        return self._start([call], outputs, sides)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> dist.Work:
        del opts
        sides = _Sides()
        if self.size() == 1:
            return self._over([(output, source)], [output])
        counts = (
            _rows(source, input_split_sizes, self.size()),
            _rows(output, output_split_sizes, self.size()),
        )
        call = self._collective("all_to_all", sides.read(source), sides.write(output), counts)
        return self._start([call], [output], sides)

    # Before PyTorch 2.13 these had other names.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # The rest.

    def barrier(self, opts: Any = None) -> dist.Work:
        del opts
        return self.allreduce([torch.zeros(1)])

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait for all; the text of a time-out names who is missing, by cluster.stall_timeout."""
        del wait_all_ranks
        self.barrier(opts).wait()

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> dist.Work:
        sides = _Sides()
        calls = [(*self._collective("send", sides.read(tensor), None, root=self._peer(dst)), tag) for tensor in tensors]
        return self._start(calls, tensors, sides)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> dist.Work:
        sides = _Sides()
        calls = [
            (*self._collective("recv", None, sides.write(tensor), root=self._peer(src)), tag) for tensor in tensors
        ]
        return self._start(calls, tensors, sides)

    def _peer(self, rank):
        if rank == self.rank():
            raise ValueError(f"rank {rank} would send to itself")
        return rank

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        raise NotImplementedError("byteps has no recv() from any rank; say from which one")

    def shutdown(self) -> None:
        """End the use of a group that new_group() has made; the job ends with the process, or by byteps.shutdown()."""
        if self._number != 0 and _bps.is_initialized():
            _bps.group_free(self._number)
        self._number = 0

    def abort(self) -> None:
        """Likewise."""
        self.shutdown()


# ---- joining ---------------------------------------------------------------------------------------------

_scheduler: Scheduler | None = None  # of a job whose processes know each other by PyTorch's store alone


def _join_by_store(store, rank, size):
    """Make a job of the processes that share a store: rank 0 has its scheduler."""
    global _scheduler
    if rank == 0:
        _scheduler = Scheduler(set={"cluster.workers": size})
        store.set("byteps/scheduler", _scheduler.address)
    address = store.get("byteps/scheduler").decode()
    _basics.init(set={"cluster.scheduler": address, "cluster.workers": size, "cluster.rank": rank})


def _is_told():
    """Whether the environment, or a file, says what the job is."""
    return any(name in os.environ for name in ("BYTEPS_CONF", "DMLC_ROLE", "DMLC_NUM_WORKER", "RANK"))


def _create(options, _):
    """Return the process group that PyTorch is about to make. The time-outs are the job's, cluster.stall_timeout."""
    rank, size, store = options.group_rank, options.group_size, options.store
    if not _basics.is_initialized():
        if size == 1 or _is_told():
            _basics.init()
        else:
            _join_by_store(store, rank, size)
    if size == 1:
        return ProcessGroup(rank, size)
    if dist.is_initialized():
        return ProcessGroup(rank, size, _open_group(store, rank, options.global_ranks_in_group))
    if (_basics.size(), _basics.rank()) != (size, rank):
        raise RuntimeError(
            f"init_process_group() has {size} ranks, of which this process is number {rank}, and the job of byteps "
            f"{_basics.size()} workers, of which it is number {_basics.rank()}; they must be the same"
        )
    return ProcessGroup(rank, size)


def _open_group(store, rank, ranks):
    """Open a group of some of the workers, who agree on its number by the store: PyTorch makes it on them alone."""
    if rank == 0:
        store.set("byteps/group", str(dist.distributed_c10d._get_default_store().add("byteps/groups", 1)))
    return _bps.group_open(int(store.get("byteps/group")), tuple(ranks))


def _own_address():
    """Return the address of this host that the way to the scheduler begins at."""
    host, _, port = _bps.conf("cluster.scheduler").rpartition(":")
    if not host:
        return "127.0.0.1"  # a job of one process
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((host.strip("[]"), int(port)))
        return way.getsockname()[0]


def _meet(url, timeout=datetime.timedelta(minutes=5), **_):
    """Return store, rank and size of the job that there is: by ``byteps run`` processes have no RANK for env://."""
    del url
    _basics.init()
    rank, size, place = _basics.rank(), _basics.size(), bytearray(64)
    store = dist.TCPStore(_own_address(), 0, size, True, timeout, wait_for_workers=False) if rank == 0 else None
    if store is not None:
        text = f"{store.port} {store.host}".encode()
        place[: len(text)] = text
    memory = torch.tensor(list(place), dtype=torch.uint8)
    Handle(start(_bps.broadcast, _memory.memory(memory), None, None, 0, 0), None).wait()
    port, host = bytes(memory.tolist()).rstrip(b"\0").decode().split()
    yield store or dist.TCPStore(host, int(port), size, False, timeout), rank, size


dist.register_rendezvous_handler(NAME, _meet)
dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
