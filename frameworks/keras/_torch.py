# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras on PyTorch: by the operations of byteps.torch, outside of what torch.compile compiles."""

import keras
import torch

from byteps._basics import wait_all
from byteps._coded_names import coding_of, declare_coded
from byteps.torch import _async
from byteps.torch.compression import Compression
from byteps.torch.ops import push_pull_async

__all__ = ["Compression", "Shared", "reduce"]


@torch.compiler.disable
def reduce(how, names, gradients, learning_rate):
    """Return the reduced gradients. The first ones are the most urgent: the next step begins with them."""
    group = how.group
    declare_coded(names, coding_of(how.compression))
    before, after = how.scales
    rate = float(keras.ops.convert_to_numpy(learning_rate))
    small = [how.compression.compress(_dense(gradient).detach()) for gradient in gradients]
    handles = [
        push_pull_async(
            tensor,
            name=name if group is None else None,
            priority=-i,
            op=how.op,
            prescale_factor=before,
            postscale_factor=after,
            learning_rate=rate,
            group=group,
        )
        for i, (name, (tensor, _)) in enumerate(zip(names, small))
    ]
    return [how.compression.decompress(result, kept) for result, (_, kept) in zip(wait_all(handles), small)]


def _dense(gradient):
    return gradient.to_dense() if gradient.is_sparse else gradient


class Shared:
    """The weights of an optimizer as the servers keep them."""

    def __init__(self):
        self._lists = {}  # ids of parameters -> what the servers keep of these

    def forget(self):
        """Have the next step set the servers' weights anew; all workers must do so."""
        self._lists.clear()

    def refresh(self):
        """Do nothing: all rows travel, as Keras makes gradients dense here."""

    def pull(self, variable, rows=None):
        """Take what a weight is now; all rows, as in a step."""
        del rows
        self.step([variable], lambda: None)

    @torch.compiler.disable
    def step(self, variables, update, gradients=()):
        """Return what update() returns, which makes a step."""
        del gradients
        parameters = [variable.value for variable in variables]
        key = tuple(map(id, parameters))
        if key not in self._lists:
            self._lists[key] = _async.Shared(("keras", parameter) for parameter in parameters)
        shared = self._lists[key]
        shared.begin()
        result = update()
        shared.exchange()
        return result
