# SPDX-License-Identifier: Apache-2.0
"""torch.distributed by BytePS: import this file, and call init_process_group("byteps").

DistributedDataParallel, FSDP and what else uses torch.distributed runs unchanged then, over the workers and servers of
the job.
"""

from __future__ import annotations

import collections
import datetime
import functools
import os
import socket
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from byteps import _basics
from byteps._basics import ReduceOp, start
from byteps._errors import TimeoutError
from byteps._native import bps as _bps
from byteps._parts import Scheduler

from . import _memory
from ._messages import FromAny, Post, clerk
from ._untraced import untraced
from ._waiters import Waiters
from ._work import Patience, Work

if TYPE_CHECKING:
    from typing import Any, List, Sequence

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
_BITS = {
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}
"""Of all_reduce only: the ranks get the tensors of all."""


# ---- tensors ---------------------------------------------------------------------------------------------


def _find(table, given):
    """Return what a table has for an operation, which cannot be hashed."""
    return next((found for known, found in table.items() if given == known), None)


def _require_op(given):
    op = _find(_OPS, given)
    if op is not None:
        return op
    name = str(getattr(given, "op", given)).rpartition(".")[2]
    raise NotImplementedError(
        f"byteps has no {name} here; supported are SUM, AVG, MIN, MAX and PRODUCT, and of all_reduce BAND, BOR and BXOR"
    )


def _real(tensors):
    """Return complex tensors, in lists or not, as views of real ones, which sums and moves are the same for."""
    if isinstance(tensors, torch.Tensor):
        return torch.view_as_real(tensors) if tensors.is_complex() else tensors
    return [_real(each) for each in tensors]


def _require_real(op, tensors):
    if op not in (ReduceOp.Sum, ReduceOp.Average) and any(tensor.is_complex() for tensor in tensors):
        raise ValueError(f"complex numbers have no {op.name.lower()}; supported are SUM and AVG")


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


class _BitSides(_Sides):
    """Those of a bitwise reduction: all workers get the tensors of all, and combine them."""

    def __init__(self, combine):
        super().__init__()
        self._combine, self._reduced = combine, []

    def rows(self, tensor, workers):
        """Return the tensor that those of all workers go to."""
        place = torch.empty((workers, *tensor.shape), dtype=tensor.dtype)
        self._reduced.append((tensor.detach(), place))
        return place

    def finish(self):
        super().finish()
        for tensor, place in self._reduced:
            tensor.copy_(functools.reduce(self._combine, place))


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
            raise ValueError(f"the first dimension, {tensor.shape[0]}, is not a multiple of the {workers} workers")
        return None
    if len(splits) != workers or sum(splits) != tensor.shape[0]:
        raise ValueError(f"the splits {list(splits)} do not add up to the first dimension, {tensor.shape[0]}")
    row = _real(tensor[0]).numel() if tensor.shape[0] > 0 else 0
    return tuple(split * row for split in splits)


MESSAGES = ("send", "recv")


def _what(call):
    """Return what an operation is called, as a call of the extension has it."""
    function, what = call[:2]
    return {_bps.push_pull: "all_reduce", _bps.broadcast: "broadcast"}.get(function) or what


# ---- the group -------------------------------------------------------------------------------------------


@untraced
class ProcessGroup(dist.ProcessGroup):
    """All workers of the job, or some. Made by init_process_group() and new_group().

    The operations have no names: all ranks call them in the same order, as with other backends. Tensors on a device go
    through host memory. Where workers host shards, a group of workers of one host does not use the network.
    """

    def __init__(self, rank: int, size: int, options: Any, number: int = 0) -> None:
        super().__init__(rank, size)
        self._number = number  # as the extension has it; 0: all workers
        self._name = self._description = ""
        self._waiters = Waiters(options.store, rank, size)
        self._post = Post(options.store, rank, options.global_ranks_in_group or range(size))
        self._timeout = options.timeout
        self._operations = 0
        self._reducing, self._priority = (), 0  # the last reduction
        self._broken = ""  # what has timed out
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

    # PyTorch would ask its own backends of each type of device, which are none here.
    supports_splitting = supports_time_estimate = False

    @property
    def _device_types(self):
        return [torch.device("cpu")] + [torch.device("cuda")] * torch.cuda.is_available()

    def _get_backend(self, device):
        del device
        return self

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout

    # Starting operations.

    def _start(self, calls, result, sides, opts=None, what=None):
        """Start operations; each call is a function of the extension with its arguments."""
        self._require_usable()
        what = what or (_what(calls[0]) if calls else "")
        if calls and torch.autograd._profiler_enabled():
            with torch.profiler.record_function(f"{NAME}:{what}") as record:  # shown until their end
                work = self._start_plain(calls, result, sides, opts, what)
                record._call_end_callbacks_on_future(work.get_future())
            return work
        return self._start_plain(calls, result, sides, opts, what)

    def _require_usable(self):
        if self.size() == 1:
            raise AssertionError("a group of one has no operations")
        if self._broken:
            raise TimeoutError(f"{self._own_name()} cannot be used any more: {self._broken}")

    def _start_plain(self, calls, result, sides, opts, what):
        return Work([start(*call) for call in calls], result, sides.finish, self._patience(opts, what))

    def _patience(self, opts, what):
        """Return how long an operation may take: as it says itself, or the group; by default, the job."""
        self._operations += what not in MESSAGES
        timeout = self._timeout
        if opts is not None and opts.timeout.total_seconds() >= 0:
            timeout = opts.timeout
        elif timeout == dist.default_pg_timeout:
            return None
        number, seconds = self._operations, timeout.total_seconds()
        if what in MESSAGES:
            return Patience(seconds, give_up=lambda: self._give_up(what, "", seconds))
        return Patience(
            seconds,
            lambda: self._waiters.tell(number),
            lambda: self._give_up(what, self._say_missing(number), seconds),
        )

    def _say_missing(self, number):
        missing = self._waiters.missing(number)
        if not missing:
            return ""
        many = len(missing) > 1
        return f"; rank{'s' * many} {', '.join(map(str, missing))} {'do' if many else 'does'} not wait in it"

    def _give_up(self, what, why, seconds):
        """Return the error of an operation that takes too long. It cannot be taken back: the others may still come."""
        own = f"Rank {self.rank()} timed out in {what}"
        self._broken = self._broken or f"{own}, which did not end within the timeout of {seconds:g} s{why}"
        return TimeoutError(f"{self._own_name()} cannot be used any more: {self._broken}")

    def _own_name(self):
        of = f" ({self._description})" if self._description not in ("", "undefined") else ""
        return f"process group {self._name}{of} of {self.size()} ranks"

    def _over(self, pairs, result):
        """In a group of one: the result is what was sent."""
        for target, source in pairs:
            if target.data_ptr() != source.data_ptr():
                target.detach().copy_(source.detach().view(target.shape))
        return Work((), result, None)

    def _reduction(self, tensor, sides, op, priority=0):
        memory = _memory.memory(sides.both(tensor))
        return (_bps.push_pull, memory, None, None, op, priority, 1.0, 1.0, 0.0, self._number)

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
            raise NotImplementedError(f"byteps has no {op.name.upper()} of sparse tensors; supported are SUM and AVG")
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
        given = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        op, combine = _find(_OPS, given), _find(_BITS, given)
        if combine is not None:
            return self._allreduce_bits(tensors, combine, opts)
        op, sides = _require_op(given), _Sides()
        _require_real(op, tensors)
        if self.size() == 1:
            return self._over((), tensors)
        calls = [self._reduction(tensor, sides, op, self._next_priority()) for tensor in tensors]
        work = self._start(calls, tensors, sides, opts)
        self._reducing = work._handles
        return work

    def _allreduce_bits(self, tensors, combine, opts):
        odd = next((tensor.dtype for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()), None)
        if odd is not None:
            raise ValueError(f"tensors of {odd} have no bitwise reduction; expected integers or booleans")
        if self.size() == 1:
            return self._over((), tensors)
        sides = _BitSides(combine)
        calls = [
            self._collective("all_gather", sides.read(tensor), sides.rows(tensor, self.size())) for tensor in tensors
        ]
        return self._start(calls, tensors, sides, opts, "all_reduce")

    def _next_priority(self):
        """Return that of a reduction: the higher, the more are in flight before it.

        A backward pass begins with the last layers, and what it reduces last is what the next step needs first.
        """
        busy = any(not handle.poll() for handle in self._reducing)
        self._priority = self._priority + 1 if busy else 0
        return self._priority

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
        return self._start(calls, tensors, sides, opts)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> dist.Work:
        op, sides = _require_op(dist.ReduceOp.SUM if opts is None else opts.reduceOp), _Sides()
        _require_real(op, outputs)
        if self.size() == 1:
            return self._over([(outputs[0], inputs[0][0])], outputs)
        calls = [
            self._collective("reduce_scatter", _joined(source), sides.write(target), (_sizes(source), None), op)
            for target, source in zip(outputs, inputs)
        ]
        return self._start(calls, outputs, sides, opts)

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
        return self._start(calls, outputs, sides, opts)

    # Moving tensors.

    def broadcast(self, tensors: Tensors, opts: Any) -> dist.Work:
        sides, root = _Sides(), opts.rootRank
        if self.size() == 1:
            return self._over((), tensors)
        calls = [
            (_bps.broadcast, _memory.memory(sides.both(tensor)), None, None, root, 0, self._number)
            for tensor in tensors
        ]
        return self._start(calls, tensors, sides, opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        sides = _Sides()
        if self.size() == 1:
            return self._over([(outputs[0][0], inputs[0])], outputs[0])
        calls = [
            self._collective("all_gather", sides.read(source), sides.parts(targets), (None, _sizes(targets)))
            for targets, source in zip(outputs, inputs)
        ]
        return self._start(calls, outputs[0], sides, opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        # Here outputs[r] has the tensors of rank r.
        return self.allgather([list(targets) for targets in zip(*outputs)], inputs, opts)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> dist.Work:
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        sides = _Sides()
        if self.size() == 1:
            return self._over(list(zip(outputs, inputs)), outputs)
        calls = [
            self._collective("all_gather", sides.read(source), sides.write(target))
            for target, source in zip(outputs, inputs)
        ]
        return self._start(calls, outputs, sides, opts)

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> dist.Work:
        sides, root = _Sides(), opts.rootRank
        if self.size() == 1:
            return self._over([(outputs[0][0], inputs[0])], outputs[0])
        targets = outputs[0] if root == self.rank() else []
        place = sides.parts(targets) if targets else None
        call = self._collective("gather", sides.read(inputs[0]), place, root=root)
        return self._start([call], targets, sides, opts)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> dist.Work:
        sides, root = _Sides(), opts.rootRank
        if self.size() == 1:
            return self._over([(outputs[0], inputs[0][0])], outputs)
        source = _joined(inputs[0]) if root == self.rank() else None
        call = self._collective("scatter", source, sides.write(outputs[0]), root=root)
        return self._start([call], outputs, sides, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        sides = _Sides()
        if self.size() == 1:
            return self._over([(outputs[0], inputs[0])], outputs)
        counts = [tuple(tensor.numel() for tensor in _real(tensors)) for tensors in (inputs, outputs)]
        call = self._collective("all_to_all", _joined(inputs), sides.parts(outputs), counts)
        return self._start([call], outputs, sides, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> dist.Work:
        sides = _Sides()
        if self.size() == 1:
            return self._over([(output, source)], [output])
        counts = (
            _rows(source, input_split_sizes, self.size()),
            _rows(output, output_split_sizes, self.size()),
        )
        call = self._collective("all_to_all", sides.read(source), sides.write(output), counts)
        return self._start([call], [output], sides, opts)

    # Before PyTorch 2.13 these had other names.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # The rest.

    def barrier(self, opts: Any = None) -> dist.Work:
        return self._barrier(opts, "barrier")

    def _barrier(self, opts, what):
        sides, tensor = _Sides(), torch.zeros(1)
        if self.size() == 1:
            return self._over((), [tensor])
        return self._start([self._reduction(tensor, sides, ReduceOp.Sum)], [tensor], sides, opts, what)

    def monitored_barrier(self, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all; the message of a timeout names the missing ranks."""
        del wait_all_ranks
        opts = dist.BarrierOptions()
        if timeout is not None:
            opts.timeout = timeout
        self._barrier(opts, "monitoredBarrier").wait()

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> dist.Work:
        sides = _Sides()
        calls = [(*self._collective("send", sides.read(tensor), None, root=self._peer(dst)), tag) for tensor in tensors]
        work, to, number = self._start(calls, tensors, sides), self._post, self._post.count_sent(dst, tag)
        clerk.watch(work.is_completed, lambda: to.announce(dst, tag, number))
        return work

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> dist.Work:
        sides = _Sides()
        calls = [self._receive(sides.write(tensor), self._peer(src), tag) for tensor in tensors]
        work = self._start(calls, tensors, sides)
        self._post.count_received(src, tag)
        return work

    def _receive(self, place, src, tag):
        return (*self._collective("recv", None, place, root=src), tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        self._require_usable()
        sides = _Sides()
        place = sides.write(tensors[0])  # PyTorch gives one

        def begin(src):
            function, *arguments = self._receive(place, src, tag)
            handle = function(*arguments)
            self._post.count_received(src, tag)
            return [handle]

        return FromAny(lambda: self._post.find(tag), begin, tensors, sides.finish, self._patience(None, "recv"))

    def _peer(self, rank):
        if rank == self.rank():
            raise ValueError(f"rank {rank} would send to itself")
        return rank

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
    """Return the process group that PyTorch is about to make."""
    rank, size, store = options.group_rank, options.group_size, options.store
    if not _basics.is_initialized():
        if size == 1 or _is_told():
            _basics.init()
        else:
            _join_by_store(store, rank, size)
    if size == 1:
        return ProcessGroup(rank, size, options)
    if dist.is_initialized():
        return ProcessGroup(rank, size, options, _open_group(store, rank, options.global_ranks_in_group))
    if (_basics.size(), _basics.rank()) != (size, rank):
        raise RuntimeError(
            f"init_process_group() has {size} ranks, of which this process is number {rank}, and the job of byteps "
            f"{_basics.size()} workers, of which it is number {_basics.rank()}; they must be the same"
        )
    return ProcessGroup(rank, size, options)


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
    start(_bps.broadcast, _memory.memory(memory), None, None, 0, 0).wait()
    port, host = bytes(memory.tolist()).rstrip(b"\0").decode().split()
    yield store or dist.TCPStore(host, int(port), size, False, timeout), rank, size


dist.register_rendezvous_handler(NAME, _meet)
dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
