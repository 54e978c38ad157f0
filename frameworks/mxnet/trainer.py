# SPDX-License-Identifier: Apache-2.0
"""A trainer of Gluon whose gradients are averaged over all workers."""

import warnings

from mxnet import gluon

from byteps._basics import Average

from .compression import from_parameters
from .functions import broadcast_parameters
from .kvstore import BytePS
from .optimizer import DistributedOptimizer


class DistributedTrainer(gluon.Trainer):
    """A gluon.Trainer for all workers: step() averages the gradients first.

    All workers get the parameters of worker root_rank when the trainer is made, and once more in the first step, as
    they may have been loaded meanwhile. ``trainer.step()`` takes the batch size of this worker. To clip the averaged
    gradients, call ``allreduce_grads()``, clip, and ``update()``.
    """

    def __init__(self, params, optimizer, optimizer_params=None, root_rank=0, compression_params=None):
        """Make a trainer.

        Args:
            params: what ``net.collect_params()`` returns, or a dict or list of parameters, the same on all workers.
            optimizer: name of an optimizer, or one.
            optimizer_params: of the optimizer, if it is given by name.
            root_rank: the worker whose parameters all begin with.
            compression_params: a dict: ``{"fp16": True}`` sends gradients as float16.

        Raises:
            NotImplementedError: compression_params names another method.
        """
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn("DistributedTrainer averages gradients itself; it takes the optimizer inside", stacklevel=2)
            optimizer = optimizer.inner
        from_parameters(compression_params)  # refuses what is not there now, and not in the first step
        super().__init__(
            params,
            optimizer,
            optimizer_params,
            kvstore=BytePS(root_rank, Average),
            compression_params=compression_params,
            update_on_kvstore=False,
        )
        broadcast_parameters({parameter.name: parameter for parameter in self._params}, root_rank)
