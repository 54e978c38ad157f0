# SPDX-License-Identifier: Apache-2.0
"""PowerSGD for PyTorch's own DistributedDataParallel: gradients travel as products of two thin matrices.

    state = bps.PowerSGDState(matrix_approximation_rank=2, start_powerSGD_iter=100)
    model.register_comm_hook(state, bps.powerSGD_hook)

The method is that of Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", 2019. A gradient of n rows and m columns is M on each worker, with what was lost of it before added. All
have the same Q, m x r, with orthonormal columns, and do one step of power iteration:

    P = mean of M Q over the workers,  P = orthonormal basis of P,  Q = mean of M^T P,  result = P Q^T

So (n + m) r elements are pushed instead of n m. What a worker has lost is M - P Q^T, its error; the next step begins
with Q. The bases are those of Householder's QR decomposition, which also has one where columns are zero or depend on
each other.
"""

import random
from typing import Dict, List, Sequence, Tuple

import torch

from byteps._basics import Average

from ._chain import start
from .ddp_hook import GradBucket, bucket_name, push_pull_hook
from .ops import push_pull_async_inplace

_Left = Dict[int, torch.Tensor]  # what a bucket leaves of its parameters
_Step = Dict[int, Tuple[_Left, _Left]]  # errors and Qs, by the index of a bucket


class PowerSGDState:
    """How gradients are approximated, and what the steps before have left on this worker. One for each model.

    It can be pickled, with torch.save() too. To go on as if there had been no end, each worker saves its own, and
    loads it before its new model's first backward pass.

    Attributes:
        iter: steps so far; the same on all workers.
        rng: where the seeds of the first Q come from; the same on all workers.
        errors: {number of a parameter: error, n x m}; each worker has its own.
        qs: {number of a parameter: Q, m x r}; the same on all workers.
    """

    _SAVED = (
        "matrix_approximation_rank",
        "start_powerSGD_iter",
        "min_compression_rate",
        "use_error_feedback",
        "warm_start",
        "iter",
        "rng",
        "errors",
        "qs",
    )
    __slots__ = (*_SAVED, "_numbers", "_step")

    def __init__(
        self,
        *,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,  # noqa: N803 (the names are PyTorch's)
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        random_seed: int = 0,
    ) -> None:
        """Choose how to approximate; the arguments are those of PyTorch's PowerSGDState, and equal on all workers.

        Args:
            matrix_approximation_rank: r, the columns of P and Q; more are more exact, and more to push.
            start_powerSGD_iter: the step with which it begins; before, whole gradients are reduced.
            min_compression_rate: a gradient is approximated only if this times (n + m) r is less than n m.
            use_error_feedback: add to each gradient what was lost of it in the step before.
            warm_start: begin with Q of the step before, not with random numbers.
            random_seed: of the random numbers.
        """
        _check("matrix_approximation_rank", matrix_approximation_rank, int, 1)
        _check("start_powerSGD_iter", start_powerSGD_iter, int, 0)
        _check("min_compression_rate", min_compression_rate, (int, float), 0)
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.iter = 0
        self.rng = random.Random(random_seed)
        self.errors: Dict[int, torch.Tensor] = {}
        self.qs: Dict[int, torch.Tensor] = {}
        self._forget_model()

    def __getstate__(self):
        """Return what is saved."""
        return {name: getattr(self, name) for name in self._SAVED}

    def __setstate__(self, saved):
        """Take what was saved, for a model that has not come yet."""
        for name in self._SAVED:
            setattr(self, name, saved[name])
        self._forget_model()

    def _forget_model(self):
        self._numbers = {}  # parameter -> its place in the order of their first coming
        self._step = {}  # index of a bucket of this step that has ended well -> what it leaves

    def enter(self, bucket: GradBucket) -> Tuple[List[int], _Step]:
        """Return the numbers of a bucket's parameters and its step; the last bucket of a step counts it.

        DDP makes other buckets after the first step; a parameter keeps its number.
        """
        if bucket.index() == 0:
            self._step = {}  # buckets of a step that has failed may still end, in the one before
        self.iter += bucket.is_last()
        return [self._numbers.setdefault(p, len(self._numbers)) for p in bucket.parameters()], self._step

    def rank_of(self, gradient: torch.Tensor) -> int:
        """Return how many columns P and Q of a gradient have; 0: it stays whole."""
        if gradient.dim() < 2 or gradient.numel() == 0:
            return 0
        rows, columns = gradient.shape[0], gradient[0].numel()
        rank = min(rows, columns, self.matrix_approximation_rank)
        return rank if (rows + columns) * rank * self.min_compression_rate < rows * columns else 0

    def matrices(self, gradients: Sequence[torch.Tensor], numbers: Sequence[int]) -> List["_Matrix"]:
        """Return a _Matrix for each of the gradients that do not stay whole, each with its Q."""
        ranks = map(self.rank_of, gradients)
        found = [_Matrix(*each) for each in zip(gradients, numbers, ranks) if each[-1]]
        if self.use_error_feedback:
            for one in found:
                one.add_error(self.errors.get(one.number))
        new = [one for one in found if not one.take_q(self.qs.get(one.number))]
        if new:
            draw = torch.Generator("cpu").manual_seed(self.rng.randrange(1_000_000_000))
            for one in new:
                one.draw_q(draw)
        return found

    def leave(self, matrices: Sequence["_Matrix"]) -> Tuple[_Left, _Left]:
        """Return what the matrices of a bucket leave for the next step: errors and Qs."""
        errors = {one.number: one.error() for one in matrices if self.use_error_feedback}
        return errors, {one.number: _basis(one.q) for one in matrices if self.warm_start}

    def keep(self, step: _Step) -> None:
        """Keep what the buckets of a step leave."""
        for errors, qs in step.values():
            self.errors.update(errors)
            self.qs.update(qs)


def _check(name, value, kind, least):
    if not isinstance(value, kind) or isinstance(value, bool) or not value >= least:
        number = "an integer" if kind is int else "a number"
        raise ValueError(f"{name}={value!r} must be {number} of at least {least}")


class _Matrix:
    """A gradient as a matrix, and its factors. Half precision is computed as float32, and rounded when it travels.

    Attributes:
        number: that of the parameter.
        gradient: receives the result.
        m: the gradient with the error of the step before, n x m.
        p, q: the factors, n x r and m x r.
    """

    __slots__ = ("gradient", "m", "number", "p", "q", "rank")

    def __init__(self, gradient, number, rank):
        self.gradient, self.number, self.rank = gradient, number, rank
        self.m = gradient.flatten(1).to(torch.promote_types(gradient.dtype, torch.float32))
        self.p = self.q = None

    def add_error(self, error):
        """Add the error of the step before; None: there is none. From here on m does not share memory."""
        if error is not None and error.shape != self.m.shape:
            raise ValueError(
                f"the PowerSGDState is another model's: its parameter number {self.number} has an error of "
                f"{list(error.shape)}, here the gradient is {list(self.m.shape)}; make a new state for this model"
            )
        self.m = self.m.clone() if error is None else self.m + error.to(self.m)

    def take_q(self, q):
        """Begin with Q of the step before; return whether there is one of this shape."""
        fits = q is not None and q.shape == (self.m.shape[1], self.rank)
        self.q = q.to(self.m) if fits else None
        return fits

    def draw_q(self, generator):
        """Begin with random directions, on all devices the same."""
        self.q = _basis(torch.randn(self.m.shape[1], self.rank, generator=generator, dtype=self.m.dtype, device="cpu"))
        self.q = self.q.to(self.m)

    def decompress(self):
        """Bring P Q^T into the gradient."""
        self.gradient.copy_((self.p @ self.q.T).view(self.gradient.shape))

    def error(self):
        """Return what the gradient has lost; it is decompressed."""
        return self.m - self.gradient.flatten(1)


def _basis(matrix):
    """Return orthonormal columns that span those of a matrix, all that it has."""
    return torch.linalg.qr(matrix).Q


def _flat(tensors, dtype, device):
    """Return a new tensor with the elements of several, one after the other."""
    flat = torch.empty(sum(t.numel() for t in tensors), dtype=dtype, device=device)
    for part, tensor in zip(flat.split([t.numel() for t in tensors]), tensors):
        part.copy_(tensor.reshape(-1))
    return flat


def _parts(flat, like):
    """Return the parts of a flat tensor, in the shapes and types of these."""
    parts = flat.split([t.numel() for t in like])
    return [part.view(t.shape).to(t.dtype) for part, t in zip(parts, like)]


@torch.no_grad()
def _reduce(state, bucket, numbers, step):
    """Two operations: P, with the gradients that stay whole, and then Q."""
    buffer, gradients, index, is_last = bucket.buffer(), bucket.gradients(), bucket.index(), bucket.is_last()
    name = bucket_name(bucket)  # as for the bucket itself: workers that disagree get an error, and do not wait

    def average(tensors, name):
        flat = _flat(tensors, buffer.dtype, buffer.device)
        return push_pull_async_inplace(flat, op=Average, name=name, priority=index)

    whole = [gradient for gradient in gradients if not state.rank_of(gradient)]
    matrices = state.matrices(gradients, numbers)
    sent = [*whole, *(one.m @ one.q for one in matrices)]
    received = _parts((yield average(sent, name)), sent)
    for gradient, mean in zip(whole, received):
        gradient.copy_(mean)
    for one, mean in zip(matrices, received[len(whole) :]):
        one.p = _basis(mean)
    sent = [one.m.T @ one.p for one in matrices]
    received = _parts((yield average(sent, f"{name}.Q")), sent)
    for one, mean in zip(matrices, received):
        one.q = mean
        one.decompress()
    if buffer.isfinite().all():
        step[index] = state.leave(matrices)
    if is_last and len(step) == index + 1:
        state.keep(step)
    return buffer


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Replace a bucket of gradients by approximations of low rank of their averages over all workers.

    All workers have the same result. What a step loses is kept only if it ends well on all buckets and nothing in
    them is infinite or NaN: one that fails, or that a GradScaler drops, changes neither errors nor Qs.

    Args:
        state: a PowerSGDState, made alike on all workers.
        bucket: a torch.distributed.GradBucket, whose tensor receives the result.

    Returns:
        A future of the bucket's tensor, as from push_pull_hook().
    """
    begun = state.iter >= state.start_powerSGD_iter
    numbers, step = state.enter(bucket)
    if not begun:
        return push_pull_hook(None, bucket)
    return start(_reduce(state, bucket, numbers, step), bucket.buffer().device)
