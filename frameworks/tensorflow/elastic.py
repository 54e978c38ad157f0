# SPDX-License-Identifier: Apache-2.0
"""Training that goes on while workers come and go, under Horovod's names.

    @bps.elastic.run
    def train(state):
        while state.batch < batches:
            step(*next(data))
            state.batch += 1
            state.check_host_updates()

    train(bps.elastic.TensorFlowKerasState(model, optimizer, batch=0))

The job must be elastic: ``cluster.min_workers``. A step in which a worker is lost changes no variable, and train() is
called again with the state as it is. byteps.keras.elastic has the callbacks for model.fit().
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from byteps._basics import rank, reform
from byteps.elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run_fn

from ._failures import as_in_byteps
from .functions import broadcast_object, broadcast_variables

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from byteps.keras.elastic import KerasState as TensorFlowKerasState

__all__ = [
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate func(state, ...), which trains: it is called again when workers are lost or wait to join.

    Before each call all workers get the state of rank 0, so that newcomers begin where the others are. No worker may
    use an operation of all workers between init() and this. A tf.errors.InternalError that tells of a lost worker is a
    MembershipError here.
    """
    return run_fn(func, reform, as_in_byteps)


class TensorFlowState(ObjectState):
    """The state of a training: variables, and objects that can be pickled and copied; each is an attribute."""

    def __init__(self, variables: Iterable[tf.Variable] | None = None, **kwargs: Any) -> None:
        """Make a state of these variables and attributes; all workers have the same ones.

        Args:
            variables: a list of variables of TensorFlow or Keras, those of the optimizer among them.
            kwargs: the attributes.

        Raises:
            ValueError: there are no variables, or they are of a session.
        """
        if variables is None or not tf.executing_eagerly():
            raise ValueError("TensorFlowState: give the variables of the model and the optimizer; sessions have none")
        self.variables = list(variables)
        super().__init__(broadcast_object, rank, **kwargs)
        self._save_variables()

    def _save_variables(self):
        self._values = [variable.numpy() for variable in self.variables]

    def save(self) -> None:
        """Keep a copy of all."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Go back to the last copy."""
        for variable, value in zip(self.variables, self._values):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Take what rank 0 has."""
        broadcast_variables(self.variables, 0)
        super().sync()


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import Keras only for those who need it."""
        if name != "TensorFlowKerasState":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from byteps.keras.elastic import KerasState

        return KerasState
