# SPDX-License-Identifier: Apache-2.0
"""Small gradients travel together.

A tensor of some hundred bytes takes as long to send as one of some thousand: what counts is that it is one. So those
small gradients that are neighbours in the list of parameters are copied into one buffer, a bucket, and come back from
it. All others have a bucket to themselves, and travel in their own memory.

A bucket is the same on all workers, as the list is. A flight is one journey of it. A gradient gets aboard when autograd
has finished it, and the flight departs when all are aboard, or with zeros for what is missing when a round is launched.
"""

import torch

from byteps._basics import Handle

from . import _memory, _rows, _shared

_Tensor, _strided = torch.Tensor, torch.strided
_FULL = 64 << 10  # bytes that a bucket stays below: tensors from there on are what configurations have coded


def plan(parameters, first, together):
    """Return the buckets of the gradients of parameters with the indexes from `first` on; not together: one each."""
    buckets = []
    members, total = [], 0
    for parameter in parameters:
        fits = together and members and _are_alike(members[-1], parameter) and total + parameter.nbytes < _FULL
        if members and not fits:
            buckets.append(Bucket(first, members))
            first += len(members)
            members, total = [], 0
        members.append(parameter)
        total += parameter.nbytes
    return [*buckets, Bucket(first, members)] if members else []


def _are_alike(one, other):
    """Return whether the gradients of two parameters can travel together."""
    return _is_small(one) and _is_small(other) and one.dtype == other.dtype and one.device == other.device


def _is_small(parameter):
    return parameter.layout is torch.strided and parameter.nbytes <= _shared.SMALL


class Bucket:
    """Gradients that travel together, of the parameters with some indexes.

    Attributes:
        members: these indexes, `size` of them.
        shared: whether it has several.
    """

    def __init__(self, first, parameters):
        self.members = range(first, first + len(parameters))
        self.size = len(parameters)
        self.shared = self.size > 1
        self._parameters = parameters
        self._buffer = None
        self._places = {}  # index -> its part of the buffer

    def gather(self, gradients, streams):
        """Return the tensor that holds {index: gradient}, made on these streams, and zeros for all others."""
        if not self.shared:
            return _in_memory_order(gradients[self.members[0]], self._parameters[0])
        self._make_buffer()
        for stream in streams:
            _memory.follow(stream)
        with torch.no_grad():
            if len(gradients) < self.size:
                self._buffer.zero_()
            torch._foreach_copy_([self._places[i] for i in gradients], list(gradients.values()))
        return self._buffer

    def scatter(self, gradients):
        """Bring results back into {index: gradient}."""
        if self._places and gradients:
            with torch.no_grad():
                torch._foreach_copy_(list(gradients.values()), [self._places[i] for i in gradients])

    def _make_buffer(self):
        like = self._parameters[0]  # a program may bring the model to another type or device
        if self._buffer is None or (self._buffer.dtype, self._buffer.device) != (like.dtype, like.device):
            sizes = [parameter.numel() for parameter in self._parameters]
            self._buffer = torch.empty(sum(sizes), dtype=like.dtype, device=like.device)
            parts = zip(self.members, self._buffer.split(sizes), self._parameters)
            self._places = {index: part.view(parameter.shape) for index, part, parameter in parts}


def _in_memory_order(gradient, parameter):
    """Return a gradient in the order of the parameter's memory, in which all workers send, whatever its layout."""
    wire = gradient.detach() if gradient.requires_grad else gradient
    if not (gradient.is_contiguous() and parameter.is_contiguous()):
        order = _memory.memory_order(parameter)
        wire = wire if order is None else wire.permute(order)
    return wire


def _address(gradient):
    return (gradient._values() if _rows.is_sparse(gradient) else gradient).data_ptr()


class Flight:
    """One journey of a bucket.

    What is known of gradients is kept by the flight: an object for each of thousands would keep Python's garbage
    collector busy.

    Attributes:
        aboard: {index: parameter.grad when the gradient got aboard}; None: zeros are sent in its place.
        gradients: {index: what is sent for it}, once it has departed: the above, or its dense form, or zeros.
        native: the operation, None until it has departed.
        sent, context: the tensor that is sent, and what decompressing it needs.
        rows: the journey of a sparse gradient, instead of these two; else None.
    """

    __slots__ = (
        *("_addresses", "_landed", "_stream", "_streams", "_versions", "_wire"),
        *("aboard", "bucket", "context", "gradients", "native", "rows", "sent"),
    )

    def __init__(self, bucket):
        self.bucket = bucket
        self.aboard = {}
        self.gradients = {}
        self.native = self.rows = self.sent = self.context = None
        self._versions = {}
        self._streams = set()
        self._landed = False

    def board(self, index, parameter):
        """Take the gradient of a parameter aboard, or zeros if it has none; return whether all are aboard."""
        self.aboard[index] = place = parameter.grad
        self._versions[index] = 0 if place is None else place._version
        if parameter.is_cuda:
            self._streams.add(_memory.stream_of(parameter))
        return len(self.aboard) == self.bucket.size

    @property
    def handle(self):
        """The Handle of the tensor that is sent, once it has departed."""
        return Handle(self.native, self.sent)

    def depart(self, dense, compression, start):
        """Let start() send a tensor that holds dense(index, parameter.grad) of all that are aboard.

        What it returns for one that travels alone may be sparse: then start() is given that.
        """
        self.gradients = gradients = {}
        for index, place in self.aboard.items():
            # Parameters of a bucket have one type and device, so the first gradient is looked at for all.
            usual = gradients and type(place) is _Tensor and place.layout is _strided
            gradients[index] = place if usual else dense(index, place)
            if place is None:
                self._versions[index] = gradients[index]._version
        self._addresses = {index: _address(gradient) for index, gradient in gradients.items()}
        if not self.bucket.shared and _rows.is_sparse(gradient := gradients[self.bucket.members[0]]):
            self.rows = start(gradient)
            self.native = self.rows.native
            return
        self._wire = self.bucket.gather(gradients, self._streams)
        self.sent, self.context = compression.compress(self._wire)
        if not _memory.is_plain(self.sent):
            self.sent = _memory.plain_copy(self.sent)
        self._stream = _memory.stream_of(self.sent)
        self.native = start(_memory.memory(self.sent))

    def find_changed(self, indexes, parameters):
        """Return the first of these gradients that somebody has changed or replaced since it got aboard, or None."""
        aboard, gradients, versions, addresses = self.aboard, self.gradients, self._versions, self._addresses
        for i in indexes:
            place, gradient = aboard[i], gradients[i]
            same = (gradient if place is None else place)._version == versions[i] and parameters[i].grad is place
            if not same or _address(gradient) != addresses[i]:
                return i
        return None

    def land(self, indexes, decompress):
        """Wait for the result and bring it into the gradients with these indexes; others may come later."""
        if self.rows is not None:
            if not self._landed:
                self.gradients[self.bucket.members[0]] = self.rows.land()
            self._landed = True
            return
        if not self._landed:
            self.native.wait()
            _memory.follow(self._stream)
            if self.sent is not self._wire:
                self._wire.copy_(decompress(self.sent, self.context))
            self._landed = True
        self.bucket.scatter({index: self.gradients[index] for index in indexes})
