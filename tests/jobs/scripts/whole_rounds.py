# SPDX-License-Identifier: Apache-2.0
"""A stage behind push_pull that takes whole rounds: clip_global with max_norm = 1, which scales a step's gradients."""

import threading
import time

import byteps.numpy as bps
import byteps.torch
import checks
import numpy as np
import torch

SHAPES = (1, 1000, (300, 70), 0)


def gradients(seed, scale):
    rng = np.random.default_rng(seed)
    return [(scale * rng.standard_normal(shape)).astype(np.float32) for shape in SHAPES]


def clipped(parts):
    norm = np.sqrt(sum(float(np.square(one, dtype=np.float64).sum()) for one in parts))
    return [one * min(1.0, 1.0 / norm) for one in parts]


def push(parts, name):
    return [bps.push_pull_async(one, name=f"{name}.{i}") for i, one in enumerate(parts)]


def same(handles, expected):
    for handle, one in zip(handles, expected):
        np.testing.assert_allclose(bps.synchronize(handle), one, rtol=1e-5, atol=1e-9)


def check_steps():
    for scale in (3.0, 1e-3, 100.0):
        parts = gradients(1, scale)
        same(push(parts, "step"), clipped(parts))


def check_started_late():
    """The round ends when somebody waits, not when all that was started so far has arrived."""
    parts = gradients(2, 5.0)
    handles = push(parts[:2], "late")
    time.sleep(0.3)
    handles += [bps.push_pull_async(one, name=f"late.more.{i}") for i, one in enumerate(parts[2:])]
    same(handles, clipped(parts))


def check_one_by_one():
    """Each of them is a round of its own if it is waited for."""
    for one in gradients(3, 2.0):
        np.testing.assert_allclose(bps.push_pull(one, name=f"alone.{one.size}"), clipped([one])[0], rtol=1e-5)


def check_threads():
    """A round of two threads that wait at once has what both have started: no deadlock, and nothing is lost."""
    parts = gradients(4, 1e-3)
    results = [None, None]

    def run(i):
        results[i] = bps.push_pull(parts[i + 1], name=f"thread.{i}")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for i, thread in enumerate(threads):
        thread.join()
        np.testing.assert_allclose(results[i], parts[i + 1], rtol=1e-5)


def check_other_operations():
    """Those that pass no stage neither wait nor hold a round up."""
    parts = gradients(5, 3.0)
    handles = push(parts, "mixed")
    assert bps.broadcast(np.float32([bps.rank()]), 0, name="mixed.root")[0] == 0
    assert bps.push_pull(np.int64([1]), name="mixed.count", average=False)[0] == bps.size()
    same(handles, clipped(parts))


def check_optimizer():
    """As torch.nn.utils.clip_grad_norm_() between backward() and step()."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Tanh(), torch.nn.Linear(30, 1))
    other = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Tanh(), torch.nn.Linear(30, 1))
    other.load_state_dict(net.state_dict())
    plain = torch.optim.SGD(net.parameters(), lr=0.5)
    optimizer = byteps.torch.DistributedOptimizer(plain, named_parameters=net.named_parameters())
    reference = torch.optim.SGD(other.parameters(), lr=0.5)
    for step in range(4):
        data = [torch.randn(16, 40, generator=torch.Generator().manual_seed(step * 100 + r)) for r in range(bps.size())]
        optimizer.zero_grad()
        (net(data[bps.rank()]) * 30).square().mean().backward()
        optimizer.step()
        reference.zero_grad()
        (sum((other(one) * 30).square().mean() for one in data) / len(data)).backward()
        assert torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0) > 1
        reference.step()
    for one, two in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def check_left_in_flight():
    """Nobody waits for these: they end with the job."""
    push(gradients(6, 1.0), "left")


checks.main(globals(), bps)
