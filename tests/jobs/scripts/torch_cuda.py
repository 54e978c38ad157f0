# SPDX-License-Identifier: Apache-2.0
"""What only tensors on a GPU have: streams, graphs, memory that is used again, a host beside them.

No check waits for the GPU between an operation and what uses its result: that order is the library's affair.
"""

import checks
import torch
from torch_device import DEVICE

import byteps
import byteps.torch as bps
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel

COUNT = 300_000
SLOW = 300_000_000  # cycles that a stream is busy before it makes what is sent


def total():
    return sum(range(1, bps.size() + 1))


def made_slowly(value, count=COUNT):
    """A tensor whose values come late on the current stream."""
    tensor = torch.zeros(count)
    torch.cuda._sleep(SLOW)
    return tensor.fill_(value)


def same(tensor, value):
    assert torch.equal(tensor.cpu(), torch.full(tensor.shape, float(value), device="cpu")), (tensor, value)


def check_nobody_waits_for_the_stream():
    """Neither beginning an operation nor its failure to be ready blocks the thread that feeds the GPU."""
    bps.push_pull_inplace(torch.ones(COUNT), name="late", op=bps.Sum)  # all workers know it
    source, filled = made_slowly(bps.rank() + 1), torch.cuda.Event()
    filled.record()
    handle = bps.push_pull_async_inplace(source, name="late", op=bps.Sum)
    assert not filled.query() and not bps.poll(handle)
    same(bps.synchronize(handle), total())


def check_streams():
    """The result is there for the stream of the call, and for the one that is current in synchronize()."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    for start in (bps.push_pull_async, bps.push_pull_async_inplace):
        handles = []
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                handles.append(start(made_slowly(i + bps.rank() + 1), name=f"stream.{i}", op=bps.Sum))
        for i, handle in enumerate(handles):
            same(bps.synchronize(handle) * 2, 2 * (total() + i * bps.size()))
    handle = bps.push_pull_async(made_slowly(bps.rank() + 1), name="default", op=bps.Sum)
    with torch.cuda.stream(streams[1]):
        same(bps.synchronize(handle) + 1, total() + 1)
    with torch.cuda.stream(streams[0]):
        same(bps.push_pull(made_slowly(bps.rank() + 1), op=bps.Sum) + 1, total() + 1)
        same(bps.broadcast(made_slowly(bps.rank()), bps.size() - 1) + 1, bps.size())


def check_backward_on_another_stream():
    """Gradients are sent from autograd's threads, behind the stream that computes them."""
    for how in (wrapped_optimizer, parallel, cross_barrier):
        model = torch.nn.Linear(500, 500, bias=False)
        bps.broadcast_parameters(model.state_dict())
        before = model.weight.detach().clone()
        run, optimizer = how(model)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x = made_slowly(bps.rank() + 1, 500)
            run(x).sum().backward()
            optimizer.step()
            after = model.weight.detach().clone()
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(after, before - total() / bps.size(), msg=str(how))


def wrapped_optimizer(model):
    return model, bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), model.named_parameters())


def parallel(model):
    return DistributedDataParallel(model), torch.optim.SGD(model.parameters(), 1.0)


def cross_barrier(model):
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    return model, CrossBarrier(model, optimizer, model.named_parameters(), num_steps=1)


def check_memory_is_used_again():
    """PyTorch hands memory that was dropped to the next tensor at once; what is sent from it is not changed."""
    handles = []
    for step in range(20):
        source = torch.full((COUNT,), float(bps.rank() + 1))
        handles.append(bps.push_pull_async(source, name=f"again.{step}", op=bps.Sum))
        del source
        torch.full((COUNT,), float("nan"))
    for handle in handles:
        same(bps.synchronize(handle), total())
    bps.push_pull_async(torch.ones(COUNT), name="dropped", op=bps.Sum)
    same(bps.push_pull(torch.ones(COUNT), name="dropped", op=bps.Sum), bps.size())


def check_graphs():
    """An operation in a CUDA graph would be missing in its later runs: it is refused, and nothing else is lost."""
    x = torch.full((COUNT,), bps.rank() + 1.0)
    beside = bps.push_pull_async(made_slowly(bps.rank() + 1), name="beside", op=bps.Sum)
    graph = torch.cuda.CUDAGraph()
    errors = []
    with torch.cuda.graph(graph):
        y = x * 2
        for call in (bps.push_pull, bps.push_pull_async, bps.push_pull_inplace, bps.push_pull_async_inplace):
            errors.append(checks.raised(byteps.Error, lambda call=call: call(x, name="captured"), "CUDA graph"))
        errors.append(checks.raised(byteps.Error, lambda: bps.broadcast(x, 0), "CUDA graph"))
    same(bps.synchronize(beside), total())
    graph.replay()
    same(bps.push_pull(y, name="captured", op=bps.Sum), 2 * total())
    assert len(errors) == 5


def check_host_and_gpu_in_one_operation():
    """Where a worker has its tensor is its own affair."""
    for device in ("cpu", DEVICE) if bps.rank() % 2 else (DEVICE, "cpu"):
        mine = torch.full((COUNT,), bps.rank() + 1.0, device=device)
        same(bps.push_pull(mine, name="either", op=bps.Sum), total())
        assert bps.push_pull(mine, op=bps.Max).device == mine.device
        same(bps.broadcast(mine, bps.size() - 1), bps.size())


class Halves(torch.nn.Module):
    """The first layer on the GPU, the second one on the host."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(50, 40, bias=False)
        self.second = torch.nn.Linear(40, 3, bias=False, device="cpu")

    def forward(self, x):
        return self.second(self.first(x).cpu())


def check_model_on_host_and_gpu():
    for how in (wrapped_optimizer, parallel, cross_barrier):
        torch.manual_seed(bps.rank())
        model = Halves()
        bps.broadcast_parameters(model.state_dict())
        run, optimizer = how(model)
        for _ in range(3):
            optimizer.zero_grad()
            run(torch.full((4, 50), bps.rank() + 1.0)).mean().backward()
            optimizer.step()
        for parameter in model.parameters():
            weight = parameter.detach()
            assert torch.equal(bps.push_pull(weight, op=bps.Max), bps.push_pull(weight, op=bps.Min)), how


def check_state_of_optimizers_meets_its_parameters():
    """A worker on the host resumes from a root on the GPU, and the other way round."""
    for root in range(bps.size()):
        device = DEVICE if (bps.rank() + root) % 2 else "cpu"
        model = torch.nn.Linear(5, 3, device=device)
        bps.broadcast_parameters(model.state_dict())
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        if bps.rank() == root:
            model(torch.ones(2, 5, device=device)).sum().backward()
            optimizer.step()
        bps.broadcast_parameters(model.state_dict(), root)
        bps.broadcast_optimizer_state(optimizer, root)
        model(torch.ones(2, 5, device=device)).sum().backward()
        optimizer.step()
        assert optimizer.state_dict()["state"][0]["exp_avg"].device.type == device


def check_mixed_precision():
    """Scaled losses: gradients are reduced before they are unscaled and clipped."""
    model = torch.nn.Linear(20, 1, bias=False)
    bps.broadcast_parameters(model.state_dict())
    before = model.weight.detach().clone()
    _, optimizer = wrapped_optimizer(model)
    scaler = torch.amp.GradScaler(init_scale=1024.0)
    with torch.autocast("cuda", torch.float16):
        loss = model(torch.full((1, 20), bps.rank() + 1.0)).sum()
    scaler.scale(loss).backward()
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    same(model.weight.grad, total() / bps.size())
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(model.weight.detach(), before - total() / bps.size())


if __name__ == "__main__":
    checks.main(globals(), bps)
