# SPDX-License-Identifier: Apache-2.0
"""Chains of operations that nobody waits for: a future tells the result.

A chain is a generator. It yields the Handle of each operation that it has started, is resumed with what that has
brought, and returns the result of all. It runs in its caller up to its first operation. From there on one thread
resumes all chains, one operation after the other in the order in which they were started.

When the interpreter ends, it ends that thread as soon as it comes back from C; where that is C++ of PyTorch's, the
process aborts. So an exit handler waits until the thread has left that, and keeps it out.
"""

import atexit
import queue
import threading

import torch

_started: "queue.SimpleQueue[tuple]" = queue.SimpleQueue()  # (handle, chain, future, stream) of what is on its way
_lock = threading.Lock()
_thread = None
_resuming = threading.Lock()  # held by the thread while it is in PyTorch


def _advance(resume, what, chain, future, stream):
    """Run a chain up to its next operation, or to its end."""
    try:
        handle = resume(what)
    except StopIteration as end:
        future.set_result(end.value)
    except Exception as error:
        future.set_exception(error)
    else:
        _started.put((handle, chain, future, stream))


def _resume():
    """Resume one chain after the other."""
    while True:
        handle, chain, future, stream = _started.get()
        with torch.cuda.stream(stream):  # behind whose work the future's result will be
            try:
                resume, what = chain.send, handle.wait()
            except Exception as error:
                resume, what = chain.throw, error
            with _resuming:
                _advance(resume, what, chain, future, stream)


def _start_thread():
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_resume, name="byteps-chains", daemon=True)
            _thread.start()
            atexit.register(_resuming.acquire)


def start(chain, device):
    """Start a chain whose tensors are on this device, and return a future of its result; an error makes it fail."""
    on_gpu = device.type == "cuda"
    future = torch.futures.Future(devices=[device] if on_gpu else None)
    result = future.then(lambda ended: ended.value())  # raises what set_exception() was given
    _start_thread()
    _advance(chain.send, None, chain, future, torch.cuda.current_stream(device) if on_gpu else None)
    return result
