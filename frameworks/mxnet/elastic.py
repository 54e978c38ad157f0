# SPDX-License-Identifier: Apache-2.0
"""Training that goes on while workers come and go, as Horovod has it for other frameworks, but not for MXNet.

    @bps.elastic.run
    def train(state):
        while state.batch < batches:
            with autograd.record():
                loss = ...
            loss.backward()
            trainer.step(batch_size)
            state.batch += 1
            state.check_host_updates()

    train(bps.elastic.GluonState(net.collect_params(), trainer, batch=0))

The job must be elastic: ``cluster.min_workers``. A step in which a worker is lost changes no parameter, and train() is
called again with the state as it is.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import mxnet as mx
from mxnet import gluon

from byteps._basics import rank, reform
from byteps.elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run_fn
from byteps.numpy import broadcast_object

from ._life import settle
from .functions import arrays_of, broadcast_parameters
from .trainer import DistributedTrainer

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

__all__ = ["GluonState", "HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run"]


def _reform():
    """Go on with other workers, when all is over that the engine had for the last ones; no array keeps an error."""
    settle(in_queue=False)
    reform()
    with contextlib.suppress(Exception):
        mx.nd.waitall()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate func(state, ...), which trains: it is called again when workers are lost or wait to join.

    Before each call all workers get the state of rank 0, so that newcomers begin where the others are. No worker may
    use an operation of all workers between init() and this.
    """
    return run_fn(func, _reform)


class GluonState(ObjectState):
    """The state of a training: parameters, a trainer, and objects that can be pickled and copied, as attributes."""

    def __init__(
        self,
        params: Mapping[str, Any] | gluon.ParameterDict,
        trainer: DistributedTrainer | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a state of these attributes; all workers have the same ones.

        Args:
            params: what ``net.collect_params()`` returns, or a dict of parameters or arrays.
            trainer: its optimizer, with its states and its schedule of learning rates, is part of the state.
            kwargs: further attributes, such as ``epoch=0``.

        Raises:
            TypeError: the trainer is not a DistributedTrainer.
            ValueError: a parameter is not there yet.
        """
        if trainer is not None and not isinstance(trainer, DistributedTrainer):
            raise TypeError(
                f"GluonState: {type(trainer).__name__} makes a step part by part, and a lost worker would leave half "
                "of one; use DistributedTrainer"
            )
        missing = arrays_of(params)[1]
        if missing:
            raise ValueError(
                f"GluonState: the shape of {missing[0].name} is not known yet; give the layers their in_units or "
                "in_channels, or call the net once with a batch"
            )
        self.params, self.trainer = params, trainer
        super().__init__(broadcast_object, rank, **kwargs)
        self._save_arrays()

    def _save_arrays(self):
        self._values = [array.copyto(mx.cpu()) for array in self._arrays()]
        self._optimizer = _pack(self.trainer)

    def _arrays(self):
        return list(arrays_of(self.params)[0].values())

    def save(self) -> None:
        """Keep a copy of all."""
        self._save_arrays()
        super().save()

    def restore(self) -> None:
        """Go back to the last copy."""
        for array, value in zip(self._arrays(), self._values):
            value.copyto(array)
        _unpack(self.trainer, self._optimizer)
        super().restore()

    def sync(self) -> None:
        """Take what rank 0 has."""
        for parameter in self.params.values():
            if isinstance(parameter, gluon.Parameter) and parameter.grad_req != "null":
                _forget_gradients(parameter)
        broadcast_parameters(self.params, 0)
        _unpack(self.trainer, broadcast_object(_pack(self.trainer)))
        super().sync()


def _forget_gradients(parameter):
    """They are of a step that is not made."""
    parameter.zero_grad()
    for weight in parameter.list_data():
        weight._fresh_grad = False


def _pack(trainer):
    return None if trainer is None else trainer._updaters[0].get_states(dump_optimizer=True)


def _unpack(trainer, packed):
    """Give the optimizer what it had, with its states; it stays the object that the program may have."""
    if trainer is None:
        return
    optimizer = trainer._optimizer
    for updater in trainer._updaters:
        updater.set_states(packed)
        had, updater.optimizer = updater.optimizer, optimizer
    vars(optimizer).update(vars(had), param_dict=optimizer.param_dict)
