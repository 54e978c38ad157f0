# SPDX-License-Identifier: Apache-2.0
"""A communication hook for PyTorch's own DistributedDataParallel, which reduces its buckets by push_pull.

    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, bps.ddp_hook.push_pull_hook)

In place of None there may be how the buckets are coded on the network: {"compressor": "onebit", "ef": "vanilla"}.

The hook returns at once. One thread waits for the operations, in the order in which they were started, and
completes their futures; DDP waits for these, in the same order, at the end of backward().
"""

import queue
import threading

import torch

from byteps._basics import Average, declare, job_number
from byteps._names import unique_name

from .ops import push_pull_async_inplace

_started = queue.SimpleQueue()  # of what is on its way
_lock = threading.Lock()
_thread = None
_declared = set()  # (number of the job, name) of what is there with its compression


def _complete():
    """Complete one future after the other."""
    while True:
        future, handle, stream = _started.get()
        try:
            with torch.cuda.stream(stream):  # behind whose work the future's result will be
                future.set_result(handle.wait())
        except Exception as error:
            future.set_exception(error)


def _start_thread():
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_complete, name="byteps-ddp-hook", daemon=True)
            _thread.start()


def _name(bucket):
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


def push_pull_hook(state, bucket):
    """Replace a bucket of gradients by the average over all workers.

    Args:
        state: None, or how the buckets are coded on the network, as for byteps.torch.declare().
        bucket: a torch.distributed.GradBucket.

    Returns:
        A future of the bucket's tensor. An error makes it fail; backward() then raises a RuntimeError with
        its text.
    """
    buffer = bucket.buffer()
    future = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
    result = future.then(lambda reduced: reduced.value())  # raises what set_exception() was given
    try:
        _start_thread()
        name = _name(bucket)
        _declare(name, state)
        # The last bucket of a backward pass has what the next forward pass needs first.
        handle = push_pull_async_inplace(buffer, op=Average, name=name, priority=bucket.index())
    except Exception as error:
        future.set_exception(error)
    else:
        _started.put((future, handle, torch.cuda.current_stream(buffer.device) if buffer.is_cuda else None))
    return result
