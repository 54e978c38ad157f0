# SPDX-License-Identifier: Apache-2.0
"""A trainer of Gluon whose gradients are averaged over all workers."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np
from mxnet import gluon

from byteps._async import check_arguments, refuse
from byteps._basics import Average, end_step, is_async, is_elastic
from byteps._coded_names import refuse_coding
from byteps._horovod import predivide_scales
from byteps._names import unique_name

from . import _grouped
from ._async import Shared, check_optimizer, touched_rows
from ._devices import spread, sum_of
from ._failures import wait_all
from ._rows import clear, is_rows
from .compression import Compression, sends_signs, take_momentum
from .functions import broadcast_parameters, synced
from .kvstore import BytePS
from .optimizer import DistributedOptimizer

if TYPE_CHECKING:
    import mxnet as mx

    from byteps._groups import Group
    from byteps._types import Coding

    from .compression import NoneCompressor


class DistributedTrainer(gluon.Trainer):
    """A gluon.Trainer for all workers: step() averages the gradients first.

    All workers get the parameters of worker root_rank when the trainer is made, and once more in the first step, as
    they may have been loaded meanwhile. ``trainer.step()`` takes the batch size of this worker. To clip the averaged
    gradients, call ``allreduce_grads()``, clip, and ``update()``.

    A gradient that backward() has not made anew since the last step counts as zeros. With ``ignore_stale_grad=True``,
    the same on all workers, a parameter is left out where no worker has used it; where some have, all update it.

    Of a row-sparse gradient, as of ``gluon.nn.Embedding(sparse_grad=True)``, only rows that some worker has are sent.

    In an elastic job (``cluster.min_workers``) a step changes nothing before all its gradients are there: one that
    fails can be made again. Newcomers make their first step with workers that have made many, so the trainer sends
    no parameters: elastic.GluonState does, or broadcast_parameters().

    With BYTEPS_ENABLE_ASYNC=1 (``worker.async``) gradients stay this worker's own. A step changes the parameters by
    them, pushes by what, and takes what the parameters are with the changes of all workers. The first one sets those of
    worker root_rank.
    """

    def __init__(
        self,
        params: Mapping[str, Any] | gluon.ParameterDict,
        optimizer: str | mx.optimizer.Optimizer,
        optimizer_params: Mapping[str, Any] | None = None,
        root_rank: int = 0,
        compression_params: Mapping[str, Any] | None = None,
        *,
        compression: type[NoneCompressor] | Coding = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        group: Group | None = None,
    ) -> None:
        """Make a trainer.

        Args:
            params: what ``net.collect_params()`` returns, or a dict or list of parameters, the same on all workers.
            optimizer: name of an optimizer, or one.
            optimizer_params: of the optimizer, if it is given by name.
            root_rank: the worker whose parameters all begin with.
            compression_params: a dict: ``{"fp16": True}`` sends gradients as float16. ``{"compressor": "onebit",
                "ef": "vanilla"}`` and the like say how the network codes them, with the original's keys: compressor,
                ef, momentum, scaling, k, seed, partition, normalize, or those of ``declare()``; the same on all
                workers. With ``"momentum": "nesterov"`` each worker gives its gradients momentum before they are
                coded, by the ``momentum`` of optimizer_params, and the optimizer itself has none. Error feedback
                follows the learning rate. Small gradients lose nothing: those below "min_bytes", or below
                BYTEPS_MIN_COMPRESS_BYTES (64 KiB) if that is not set. An empty compressor is none, and keys of
                other compressors are left out. ``"scaling": False`` of onebit sends signs alone: as in the original,
                step() then moves weights by the learning rate whatever the batch size.
            compression: Horovod's argument: Compression.none or .fp16.
            gradient_predivide_factor: f divides by f before the sum and by size() / f after it.
            prefix, num_groups: Horovod's, without effect: names are told apart, and nothing is sent in groups.
            group: of the workers whose gradients are averaged, see new_group(), in which root_rank counts;
                None: all. Row-sparse gradients travel there as dense ones, and nothing is coded. On a worker that is
                not a member the trainer makes its steps alone.

        Raises:
            TypeError, ValueError: compression_params or another argument makes no sense.
            KeyError: it has momentum, and optimizer_params has none.
        """
        del prefix, num_groups
        if compression not in (Compression.none, Compression.fp16):
            raise ValueError(f"compression={compression!r} is not known; expected Compression.none or Compression.fp16")
        if compression is Compression.fp16:
            compression_params = {**(compression_params or {}), "fp16": True}
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn("DistributedTrainer averages gradients itself; it takes the optimizer inside", stacklevel=2)
            optimizer = optimizer.inner
        self._shared = None
        if is_async():
            check_arguments(bool(compression_params), gradient_predivide_factor)
            if group is not None:
                refuse("shares the parameters of all workers: leave group= out")
            self._shared = Shared(root_rank)
        compression_params, optimizer_params = take_momentum(compression_params, optimizer_params)
        scales = predivide_scales(gradient_predivide_factor, Average)
        self._signs, self._steps = sends_signs(compression_params), False
        self._group, self._scales = group, scales
        self._store = BytePS(root_rank, Average, takes_stale=True, scales=scales)
        self._store.set_gradient_compression(compression_params)  # refuses what makes no sense now, not in a step
        if group is not None:
            refuse_coding(self._store.compression)
        super().__init__(
            params,
            optimizer,
            optimizer_params,
            kvstore=self._store if group is None else None,
            compression_params=compression_params,
            update_on_kvstore=False,
        )
        self._contains_sparse_grad = False  # with some, Gluon refuses stores that are not its own
        if self._shared is None and group is None:
            coded = (i for i, one in enumerate(self._params) if one.grad_req != "null" and one._grad_stype == "default")
            self._store.declare_gradients(coded)
        elif self._shared is not None:
            check_optimizer(self._optimizer)
        self._whole = is_elastic()
        if not self._whole and not self._is_alone():
            broadcast_parameters({parameter.name: parameter for parameter in self._params}, root_rank, group=group)

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Average the gradients over all workers and make a step of the optimizer; batch_size: of this worker."""
        self._steps = True
        try:
            super().step(batch_size, ignore_stale_grad)
        finally:
            self._steps = False

    def _is_alone(self):
        return self._group is not None and self._group.rank() < 0

    def _init_params(self):
        """Bring parameters to all workers; programs for the original call it before the first step."""
        if not self._kv_initialized:
            self._init_kvstore()
        if self._whole:
            self._require_synced()
        else:
            super()._init_params()

    def _require_synced(self):
        """Raise if parameters may differ between the workers of an elastic job."""
        missing = [parameter.name for parameter in self._params if parameter not in synced]
        if missing:
            raise RuntimeError(
                f"in an elastic job (cluster.min_workers) DistributedTrainer does not broadcast parameters, such as "
                f"{missing[0]}: train with byteps.mxnet.elastic.run and a GluonState, or call broadcast_parameters()"
            )
        self._params_to_init = []

    def _allreduce_grads(self):
        if self._shared is not None or self._is_alone():
            self._sum_over_devices()
            return
        self._store.learning_rate = self.learning_rate
        # Signs forget what gradients are divided by, so that has to be done before.
        before = self._optimizer.rescale_grad if self._signs and self._steps else 1.0
        for parameter in self._trained():
            for weight, gradient in zip(parameter.list_data(), parameter.list_grad()):
                if not weight._fresh_grad:  # it is the average of an earlier step
                    if is_rows(gradient):
                        clear(gradient)
                    else:
                        gradient[:] = 0
                elif before != 1:
                    gradient *= before
        waited = self._start_reducing()
        if self._whole:
            waited += [gradient for parameter in self._trained() for gradient in parameter.list_grad()]
        wait_all(waited)
        if before != 1:
            self._optimizer.rescale_grad = 1.0

    def _start_reducing(self):
        """Give all gradients to the store; return the rows, which are given last, as Python waits for them."""
        if self._group is not None:
            gradients = (parameter.list_grad() for parameter in self._trained())
            _grouped.average_gradients(gradients, self._store.compression, self._scales, self._group)
            return []
        gradients = [(i, one.list_grad()) for i, one in enumerate(self._params) if one.grad_req != "null"]
        for i, arrays in gradients:
            if not is_rows(arrays[0]):
                self._store.pushpull(i, arrays, priority=-i)
        return [self._store.start_rows(i, arrays, arrays, -i) for i, arrays in gradients if is_rows(arrays[0])]

    def _sum_over_devices(self):
        for parameter in self._trained():
            gradients = parameter.list_grad()
            if len(gradients) > 1:
                total = sum_of(gradients, gradients[0])
                for gradient in gradients:
                    total.copyto(gradient)

    def _update(self, ignore_stale_grad=False):
        if self._shared is not None:
            self._update_and_exchange(ignore_stale_grad)
        else:
            if ignore_stale_grad and not self._is_alone():
                self._agree_what_is_fresh()
            super()._update(ignore_stale_grad)
        end_step(self)

    def _update_and_exchange(self, ignore_stale_grad):
        trained = {unique_name("AsyncWeight", parameter): parameter for parameter in self._trained()}
        touched = {
            name: touched_rows(self._optimizer, parameter.list_data()[0], parameter.list_grad()[0])
            for name, parameter in trained.items()
        }
        self._exchange(trained, lambda: super(DistributedTrainer, self)._update(ignore_stale_grad), touched)

    def _exchange(self, named, update, touched):
        """Make a step of named parameters by update(), and bring what they are then to all devices."""
        touched = {name: rows for name, rows in touched.items() if rows is not None}
        firsts = {name: parameter.list_data()[0] for name, parameter in named.items()}
        self._shared.step(firsts, update, self._whole, touched)
        for parameter in named.values():
            spread(parameter.list_data())

    def pull_rows(self, parameter: gluon.Parameter, rows: Any = None) -> None:
        """Take from the servers what these rows of a parameter are now, such as those that the next batch needs.

        Asynchronous training needs it, where only the rows of a sparse gradient travel: otherwise each row is as the
        servers had it when this worker had a gradient of it last. To them it is a push of zeros, so that with
        worker.staleness it counts.

        Args:
            parameter: one of this trainer's.
            rows: their numbers, in any order. None: all.

        Raises:
            ValueError: training is not asynchronous.
            LostError, Error: the servers could not be reached.
        """
        if self._shared is None:
            raise ValueError("pull_rows() is for asynchronous training (worker.async, BYTEPS_ENABLE_ASYNC)")
        name = unique_name("AsyncWeight", parameter)
        rows = None if rows is None else np.unique(np.asarray(rows, np.int64))
        self._exchange({name: parameter}, lambda: None, {name: rows})

    def _agree_what_is_fresh(self):
        """Mark as fresh, so that they are updated, the gradients that some worker has made in this step."""
        trained = self._trained()
        mine = [any(weight._fresh_grad for weight in parameter.list_data()) for parameter in trained]
        group = self._group
        fresh = self._store.any_worker("fresh", mine) if group is None else _grouped.any_member(mine, group)
        for parameter, is_fresh in zip(trained, fresh):
            for weight in parameter.list_data():
                weight._fresh_grad = is_fresh

    def _trained(self):
        return [parameter for parameter in self._params if parameter.grad_req != "null"]
