# SPDX-License-Identifier: Apache-2.0
"""A communication hook for PyTorch's own DistributedDataParallel, which reduces its buckets by push_pull.

    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, bps.ddp_hook.push_pull_hook)

In place of None there may be how the buckets are coded on the network: {"compressor": "onebit", "ef": "vanilla"}.

The hook returns at once. DDP waits for the futures, in the order of the buckets, at the end of backward().
"""

from typing import TYPE_CHECKING

import torch

from byteps._basics import Average, declare, job_number
from byteps._names import unique_name

from ._chain import start
from .ops import push_pull_async_inplace

# PyTorch compares the annotations of a hook with these very objects, so they are no strings.
if TYPE_CHECKING or torch.distributed.is_available():
    from torch.distributed import GradBucket
else:
    GradBucket = None

if TYPE_CHECKING:
    from byteps._types import Coding

_declared: "set[tuple[int, str]]" = set()  # (number of the job, name) of what is there with its compression


def bucket_name(bucket: GradBucket) -> str:
    """Return a name that all workers give to this bucket, and that no other bucket has.

    DDP makes its buckets anew after the first backward pass, and numbers those of each model from 0.
    """
    buffer = bucket.buffer()
    name = f"Bucket.{bucket.index()}.{buffer.dtype}.{buffer.numel()}"
    return unique_name(name, bucket.parameters()[0])


def _declare(name, compression):
    """Declare a bucket when it comes for the first time."""
    if compression is not None and (job_number(), name) not in _declared:
        declare(name, compression)
        _declared.add((job_number(), name))


def _reduce(compression, bucket):
    name = bucket_name(bucket)
    _declare(name, compression)
    # The last bucket of a backward pass has what the next forward pass needs first.
    return (yield push_pull_async_inplace(bucket.buffer(), op=Average, name=name, priority=bucket.index()))


def push_pull_hook(state: "Coding", bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Replace a bucket of gradients by the average over all workers.

    Args:
        state: None, or how the buckets are coded on the network, as for byteps.torch.declare().
        bucket: a torch.distributed.GradBucket.

    Returns:
        A future of the bucket's tensor. An error makes it fail; backward() then raises a RuntimeError with
        its text.
    """
    return start(_reduce(state, bucket), bucket.buffer().device)
