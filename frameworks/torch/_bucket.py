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

from . import _memory, _shared

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
    """Gradients that travel together, of the parameters with some indexes."""

    def __init__(self, first, parameters):
        self.members = range(first, first + len(parameters))
        self._parameters = parameters
        self._buffer = None
        self._places = {}  # index -> its part of the buffer

    def gather(self, aboard):
        """Return the tensor that holds the gradients {index: Passenger}, and zeros for all others."""
        if len(self.members) == 1:
            return _in_memory_order(aboard[self.members[0]].gradient, self._parameters[0])
        self._make_buffer()
        for stream in {passenger.stream for passenger in aboard.values()}:
            _memory.follow(stream)
        with torch.no_grad():
            if len(aboard) < len(self.members):
                self._buffer.zero_()
            torch._foreach_copy_([self._places[i] for i in aboard], [one.gradient for one in aboard.values()])
        return self._buffer

    def scatter(self, aboard):
        """Bring results back into the gradients {index: Passenger}."""
        if self._places and aboard:
            with torch.no_grad():
                torch._foreach_copy_([one.gradient for one in aboard.values()], [self._places[i] for i in aboard])

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


class Passenger:
    """One gradient on its way."""

    __slots__ = ("address", "flight", "gradient", "place", "stream", "version")

    def __init__(self, flight, gradient, parameter):
        self.flight = flight
        self.gradient = gradient
        self.place = parameter.grad  # the gradient, its sparse form, or None if it stands for one not there
        self.version, self.address = (gradient if self.place is None else self.place)._version, gradient.data_ptr()
        self.stream = _memory.stream_of(gradient)

    def is_untouched(self, parameter):
        """Return whether nobody has changed or replaced the gradient since it got aboard."""
        version = (self.gradient if self.place is None else self.place)._version
        same = version == self.version and self.gradient.data_ptr() == self.address
        return same and parameter.grad is self.place


class Flight:
    """One journey of a bucket.

    Attributes:
        aboard: {index: Passenger} until it departs; these keep the flight, which does not keep them then.
        native: the operation, None until it has departed.
        sent, context: the tensor that is sent, and what decompressing it needs.
    """

    __slots__ = ("_landed", "_stream", "_wire", "aboard", "bucket", "context", "native", "sent")

    def __init__(self, bucket):
        self.bucket = bucket
        self.aboard = {}
        self.native = None
        self._landed = False

    @property
    def handle(self):
        """The Handle of the tensor that is sent, once it has departed."""
        return Handle(self.native, self.sent)

    @property
    def full(self):
        """Whether all gradients of the bucket are aboard."""
        return len(self.aboard) == len(self.bucket.members)

    def depart(self, compression, start):
        """Let start() send a tensor that holds the gradients."""
        self._wire = self.bucket.gather(self.aboard)
        self.aboard = {}
        self.sent, self.context = compression.compress(self._wire)
        if not _memory.is_plain(self.sent):
            self.sent = _memory.plain_copy(self.sent)
        self._stream = _memory.stream_of(self.sent)
        self.native = start(_memory.memory(self.sent))

    def land(self, passengers, decompress):
        """Wait for the result and bring it into the gradients {index: Passenger}; others may come later."""
        if not self._landed:
            self.native.wait()
            _memory.follow(self._stream)
            if self.sent is not self._wire:
                self._wire.copy_(decompress(self.sent, self.context))
            self._landed = True
        self.bucket.scatter(passengers)
