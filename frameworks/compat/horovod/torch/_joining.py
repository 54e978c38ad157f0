# SPDX-License-Identifier: Apache-2.0
"""join(): a worker that has no more data takes part in what the others do, with zeros, until all have joined.

What that is, they tell it. Before each operation a worker gives a small block to an all_gather, and does not wait for
it: as all workers do the same operations, the blocks of all meet. One that has joined gives blocks that say so, reads
those of the others, and does what they say. A text that is too long for a block goes on in the next one. Workers may
do operations that have names in different orders, so the texts of each worker are counted for themselves.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from collections import Counter
from typing import TYPE_CHECKING

import torch

from byteps import torch as bps
from byteps._basics import Average, Handle, ReduceOp, Sum, after_reform, before_operations, rank, size, wait_all
from byteps._native import bps as _bps
from byteps.torch.ops import is_compiling

from ..process_sets import process_sets

if TYPE_CHECKING:
    from typing import Any

    from byteps._groups import Group
    from byteps.torch.compression import Choice

_BLOCK = 256
_JOINED, _ENDS, _GOES_ON = b"joined", b"ends", b"more"
_KIND = 8  # bytes for one of these
_URGENT = 2**30

_rounds = 0  # of blocks so far
_joined = False  # whether this worker has
_reducers: weakref.WeakSet[Any] = weakref.WeakSet()  # of the optimizers of this process


def _give(kind, text):
    """Give a block to the all_gather; return its handle, whose result has the blocks of all."""
    global _rounds
    _rounds += 1
    block = ctypes.create_string_buffer(kind.ljust(_KIND) + text, _BLOCK)
    blocks = ctypes.create_string_buffer(_BLOCK * size())
    source, target = (
        (ctypes.addressof(memory), (len(memory),), _bps.dtypes["uint8"], memory) for memory in (block, blocks)
    )
    native = _bps.collective("all_gather", source, target, None, None, Sum, 0, _URGENT, 1.0, 1.0)
    return Handle(native, blocks)


def _is_heard():
    return size() > 1 and not _joined and not is_compiling()


def _tell(**what):
    text, room = json.dumps(what).encode(), _BLOCK - _KIND - 1
    for begin in range(0, len(text), room):
        _give(_GOES_ON if begin + room < len(text) else _ENDS, text[begin : begin + room])


def announce(kind: str, group: Group | None = None) -> None:
    """Tell workers that have joined of an operation that does not go without them. In a group there are none."""
    if group is None and _is_heard():
        _tell(kind=kind)


def announce_allreduces(
    tensors: list[torch.Tensor],
    names: list[str | None],
    op: ReduceOp,
    scales: tuple[float, float],
    compression: Choice,
) -> None:
    """Tell workers that have joined of the allreduces of tensors, which follow one after the other."""
    if not _is_heard():
        return
    if op not in (Average, Sum):
        announce(f"allreduce with op={op.name}, which zeros would change,")
    elif not hasattr(compression, "compress"):
        announce("allreduce of a tensor that is coded on the network")
    elif any(tensor.layout is not torch.strided for tensor in tensors):
        announce("allreduce of a sparse tensor")
    else:
        each = [(name, _type(tensor, compression), *tensor.shape) for tensor, name in zip(tensors, names)]
        _tell(kind="allreduce", op=op, scales=scales, each=each)


def _type(tensor, compression):
    """Return the name of the type in which a tensor is sent."""
    small, _ = compression.compress(torch.empty(0, dtype=tensor.dtype))
    return str(small.dtype).split(".")[1]


def announce_rounds(optimizer: Any) -> None:
    """Have workers that have joined told of each round of an optimizer's gradients."""
    reducer = optimizer._byteps
    if hasattr(reducer, "on_round"):  # else it is asynchronous, without rounds
        reducer.on_round = _announce_round
        _reducers.add(reducer)


def _announce_round(reducer):
    if _is_heard():
        _tell(kind="round", name=reducer.round_name, steps=reducer.steps)


# ---- a worker that has joined ----------------------------------------------------------------------------


class _Others:
    """What the other workers do.

    Attributes:
        joined: in which round of blocks each worker has joined, by its rank.
    """

    def __init__(self):
        self.joined = {}
        self._texts = [b""] * size()
        self._told = [Counter() for _ in range(size())]
        self._done = Counter()
        self._unnamed = []
        self._named = {}  # the last operation under each name

    def hear(self, worker, block):
        """Do what a block of a worker says, unless another worker has said it before."""
        kind, text = block[:_KIND].rstrip(), block[_KIND:].rstrip(b"\0")
        if kind == _JOINED:
            self.joined[worker] = int(text)
            return
        self._texts[worker] += text
        if kind == _ENDS:
            text, self._texts[worker] = self._texts[worker], b""
            self._told[worker][text] += 1
            if self._told[worker][text] > self._done[text]:
                self._done[text] += 1
                self._do(worker, **json.loads(text))

    def _do(self, worker, kind, **how):
        if kind == "allreduce":
            for name, type, *shape in how["each"]:
                self._add_zeros(name, torch.zeros(shape, dtype=getattr(torch, type)), how["op"], how["scales"])
        elif kind == "round":
            self._reducer(worker, how["name"]).contribute_nothing(how["steps"])
        else:
            raise NotImplementedError(
                f"join: worker {worker} calls {kind} while worker {rank()} has joined, which cannot take part in that: "
                "call it on all workers before the first join(), or after all have joined"
            )

    def _add_zeros(self, name, zeros, op, scales):
        if name in self._named:  # it has ended for the others, who use the name again
            self._named.pop(name).wait()
        handle = bps.allreduce_async_(zeros, None, name, ReduceOp(op), *scales)
        if name is None:
            self._unnamed.append(handle)
        else:
            self._named[name] = handle

    def _reducer(self, worker, name):
        for reducer in _reducers:
            if reducer.round_name == name:
                return reducer
        raise RuntimeError(
            f"join: worker {worker} makes a step of a DistributedOptimizer that worker {rank()} does not have any "
            "more; keep it until join() has returned"
        )

    def settle(self):
        """Wait for what has been started."""
        wait_all([*self._unnamed, *self._named.values()])


def join(device: int = -1) -> int:
    """Say that this worker has no more data, and take part in what the others do until all of them have joined.

    It gives zeros to their allreduces, an Average being divided by size() as ever, and to the steps of their
    DistributedOptimizers; its own parameters stay as they are, so broadcast them afterwards from the worker that was
    last. Other operations end the job, with an error here that names them; so does an allreduce by another op.
    It is refused while there are process sets.

    Args:
        device: accepted; without effect.

    Returns:
        The rank of the worker that has joined last.
    """
    del device
    global _joined
    if len(process_sets()) > 1:
        raise NotImplementedError(
            f"join: there is {process_sets()[1]}; a worker that has joined cannot take part in what the others do in "
            "process sets, so they would wait for it for ever. Give every worker the same number of batches, or remove "
            "the sets on all workers before one joins"
        )
    for launch in before_operations:
        launch()
    others, mine = _Others(), str(_rounds).encode()
    _joined = True
    try:
        while len(others.joined) < size():
            blocks = _give(_JOINED, mine).wait().raw
            for worker in range(size()):
                others.hear(worker, blocks[_BLOCK * worker : _BLOCK * (worker + 1)])
        others.settle()
    finally:
        _joined = False
    return max(others.joined, key=lambda worker: (others.joined[worker], worker))


def begin() -> None:
    """Count anew, in a job that begins or goes on with other workers."""
    global _rounds
    _rounds = 0


after_reform.append(begin)
