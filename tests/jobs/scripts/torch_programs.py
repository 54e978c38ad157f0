# SPDX-License-Identifier: Apache-2.0
"""What programs for the original BytePS and for Horovod do with tensors, models and optimizers."""

import functools
import warnings

import checks
import torch
from torch_device import DEVICE, generator

import byteps.torch as bps
from byteps.torch.parallel import DistributedDataParallel


def tensors_of(rank, count=2):
    """The tensors of a worker, of several shapes, which require gradients."""
    source = generator(rank)
    shapes = [(3, 2), (4,), ()][:count]
    return [
        torch.randn(shape, generator=source, device=DEVICE, dtype=torch.float64, requires_grad=True)
        for shape in shapes
    ]


def loss_of(rank, results):
    """Another function of the results on each worker."""
    return sum((result**3 * (rank + 1.5)).sum() + result.sin().sum() for result in results)


def compare(together, alone):
    """Compare gradients and second gradients of together(tensors) with those of one process.

    alone(rows) computes from the tensors of all workers what each of them gets.
    """

    def gradients(loss, tensors):
        firsts = torch.autograd.grad(loss, tensors, create_graph=True)
        return firsts, torch.autograd.grad(sum((first**2).sum() for first in firsts), tensors)

    ranks = range(bps.size())
    rows = [tensors_of(rank) for rank in ranks]
    flat = [tensor for row in rows for tensor in row]
    wanted = gradients(sum(loss_of(rank, alone(rows, rank)) for rank in ranks), flat)
    mine = tensors_of(bps.rank())
    found = gradients(loss_of(bps.rank(), together(mine)), mine)
    place = slice(bps.rank() * len(mine), (bps.rank() + 1) * len(mine))
    for want, got in zip(wanted, found):
        torch.testing.assert_close(got, want[place])


def check_gradients_of_push_pull():
    for op, share in ((bps.Sum, 1.0), (bps.Average, 1.0 / bps.size())):

        def alone(rows, rank, share=share):
            return [share * torch.stack(column).sum(0) for column in zip(*rows)]

        def scaled(rows, rank, alone=alone):
            return [1.5 * result for result in alone(rows, rank)]

        scales = dict(op=op, prescale_factor=3.0, postscale_factor=0.5)
        compare(each(bps.push_pull, op=op), alone)
        compare(each(bps.allreduce, **scales), scaled)
        compare(each(bps.push_pull_inplace, change=True, op=op), alone)
        compare(each(bps.allreduce_, change=True, **scales), scaled)
        compare(each(bps.push_pull_async_inplace, change=True, op=op), alone)
        compare(each(bps.allreduce_async_, change=True, **scales), scaled)
        for name in (None, f"gradients.{op.name}"):
            compare(functools.partial(bps.grouped_allreduce, name=name, op=op), alone)
            compare(functools.partial(bps.grouped_allreduce, name=name, **scales), scaled)
            compare(lambda t, n=name, op=op: bps.grouped_allreduce_([x * 1 for x in t], name=n, op=op), alone)


def check_gradients_of_broadcast():
    for root in range(bps.size()):

        def alone(rows, rank, root=root):
            return [result + 0 * sum(row[i].sum() for row in rows) for i, result in enumerate(rows[root])]

        compare(each(bps.broadcast, root_rank=root), alone)
        compare(each(bps.broadcast_, change=True, root_rank=root), alone)
        compare(each(bps.broadcast_async_, change=True, root_rank=root), alone)


def each(call, change=False, **options):
    """Return a function of tensors that calls for each of them, or for one that may be changed; with a name."""

    def run(tensors):
        results = []
        for i, tensor in enumerate(tensors):
            result = call(tensor * 1 if change else tensor, name=f"gradients.{i}", **options)
            results.append(result.wait() if isinstance(result, bps.Handle) else result)
        return results

    return run


def check_gradients_in_part():
    """Not everything in a group requires a gradient, and not every result is used."""
    x, y = tensors_of(0)
    first, second, third = bps.grouped_allreduce([x, y, torch.arange(3)], op=bps.Sum)
    assert first.requires_grad and second.requires_grad and not third.requires_grad
    first.sum().backward()
    assert x.grad.eq(bps.size()).all() and y.grad.eq(0).all()
    with torch.no_grad():
        assert not bps.broadcast(x, 0).requires_grad
        assert not bps.grouped_allreduce([x])[0].requires_grad
    infinite = bps.broadcast(x, 0).sum() * float("inf")
    (gradient,) = torch.autograd.grad(infinite, x)
    assert gradient.isinf().all() if bps.rank() == 0 else gradient.eq(0).all()


def check_gradients_in_place_of_a_part():
    x, _ = tensors_of(0)
    y = x * 1
    bps.push_pull_inplace(y[1], op=bps.Sum)
    y.sum().backward()
    assert x.grad[1].eq(bps.size()).all() and x.grad[[0, 2]].eq(1).all()


def check_leaves_in_place():
    """A parameter is changed without a word to autograd, as programs expect that broadcast their parameters."""
    x, y = tensors_of(bps.rank())
    assert bps.broadcast_(x, 0) is x and x.requires_grad and x.is_leaf and torch.equal(x, tensors_of(0)[0])
    want = x.detach() * bps.size()
    bps.push_pull_inplace(x, op=bps.Sum)
    assert torch.equal(x, want) and x.is_leaf
    x.sum().backward()
    assert x.grad.eq(1).all()
    checks.raised(RuntimeError, lambda: bps.broadcast_async_(x[0], 0), "leaf Variable that requires grad")
    bps.broadcast_parameters({"y": y})
    assert torch.equal(y, tensors_of(0)[1])


def check_operations_without_gradients():
    for op in (bps.Min, bps.Max, bps.Product):
        x, y = tensors_of(bps.rank())
        for result in (
            bps.push_pull(x, op=op),
            bps.push_pull_inplace(x * 1, op=op),
            bps.grouped_allreduce([x, y], op=op)[1],
        ):
            checks.raised(NotImplementedError, result.sum().backward, f"op={op.name} has no gradient")


# ---- what cannot be sent ---------------------------------------------------------------------------------


class Measured(torch.Tensor):
    """A class that decides itself what operations do."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        return super().__torch_function__(function, types, arguments, keywords or {})


class Own(torch.Tensor):
    """One that does not."""


def distributed_tensor():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    # Without gloo sending anything: ThreadSanitizer sees races in its threads.
    return torch.distributed.tensor.DTensor.from_local(torch.ones(3, device="cpu"), mesh, run_check=False)


def check_tensors_that_are_refused():
    ones = torch.ones(3, device="cpu")
    lists = [torch.ones(2), torch.ones(3)]
    with torch._subclasses.fake_tensor.FakeTensorMode():
        fake = torch.ones(3)
    refused = [
        (fake, ("FakeTensor", "FakeTensorMode")),
        (ones.as_subclass(Measured), ("Measured", "as_subclass(torch.Tensor)")),
        (torch.masked.masked_tensor(ones, ones > 0), ("MaskedTensor", "to_tensor")),
        (torch.nn.UninitializedParameter(), ("UninitializedParameter", "first forward pass")),
        (torch.nested.nested_tensor(lists), ("nested", "to_padded_tensor")),
        (torch.nested.nested_tensor(lists, layout=torch.jagged), ("NestedTensor", "to_padded_tensor")),
        (torch.quantize_per_tensor(ones, 0.1, 0, torch.quint8), ("quint8", "dequantize()")),
        (torch.complex(ones, ones).conj(), ("complex64", "view_as_real()")),
    ]
    if torch.distributed.is_available():
        refused.append((distributed_tensor(), ("DTensor", ".to_local()")))
    for tensor, words in refused:
        for call in (bps.push_pull, bps.push_pull_inplace, bps.push_pull_async, lambda t: bps.broadcast(t, 0)):
            checks.raised(TypeError, lambda call=call, tensor=tensor: call(tensor), *words)
        checks.raised(TypeError, lambda tensor=tensor: bps.grouped_allreduce([tensor]), *words)
        checks.raised(TypeError, lambda tensor=tensor: bps.broadcast_parameters({"x": tensor}), "'x'", *words)
    for fine in (ones, torch.nn.Parameter(ones), ones.as_subclass(Own)):
        assert bps.push_pull(fine, op=bps.Sum).tolist() == [bps.size()] * 3


# ---- training --------------------------------------------------------------------------------------------


def check_parallel_on_a_cpu_with_device_ids():
    """Programs for GPUs name one, and run on a CPU as well."""
    for device_ids in ([0], ["cuda:1"], [torch.device("cuda", 0)]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            module = torch.nn.Linear(2, 1, bias=False, device="cpu")
            model = DistributedDataParallel(module, device_ids, True, bps.Compression.fp16)
        assert [str(one.message) for one in caught] == [
            f"device_ids={device_ids!r} has no effect: the module has no parameters on a CUDA device, but on cpu; "
            "move it there first, or leave device_ids out"
        ]
        assert caught[0].filename == __file__
        model(torch.full((1, 2), float(bps.rank()), device="cpu")).sum().backward()
        assert module.weight.grad.eq((bps.size() - 1) / 2).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DistributedDataParallel(torch.nn.Linear(2, 1, device="cpu"), ["cpu"])
        checks.raised(UserWarning, lambda: DistributedDataParallel(torch.nn.Tanh(), [0]), "device_ids=[0]")
    bps.barrier()


def check_gradients_that_only_some_have():
    """After synchronize(), all have the gradient of what any worker has used; what none has used keeps None."""
    for op, share in ((bps.Average, 1.0 / bps.size()), (bps.Sum, 1.0)):
        first, last, never = (torch.nn.Linear(2, 1, bias=False, device=DEVICE) for _ in range(3))
        model = torch.nn.ModuleList([first, last, never])
        optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.5)
        optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters(), op=op)
        for set_to_none in (True, False):
            optimizer.zero_grad(set_to_none)
            used = first if bps.rank() == 0 else last
            used(torch.ones(1, 2, device=DEVICE)).sum().backward()
            optimizer.synchronize()
            assert first.weight.grad.eq(share).all()
            if bps.size() > 1:
                assert last.weight.grad.eq(share * (bps.size() - 1)).all()
            assert never.weight.grad is None
            before = never.weight.detach().clone()
            optimizer.step()
            assert torch.equal(never.weight, before)


class Late(torch.autograd.Function):
    """The identity, whose backward pass goes on when the gradient of another parameter has been reduced."""

    @staticmethod
    def forward(ctx, x, reducer, index):
        ctx.reducer, ctx.index = reducer, index
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        ctx.reducer._flying[ctx.index].handle.wait()
        return gradient, None, None


def check_gradients_that_share_memory():
    """A gradient that autograd has still to read is not changed by the sum of a view of it."""
    for rows in (1, 2):
        zeros = torch.zeros(3000, dtype=torch.float64, device=DEVICE)  # too large to travel with others
        weight, bias = torch.nn.Parameter(zeros), torch.nn.Parameter(zeros.clone())
        optimizer = bps.DistributedOptimizer(torch.optim.SGD([weight, bias], 0.1), op=bps.Sum)
        factors = torch.arange(1.0, 3001.0, dtype=torch.float64, device=DEVICE)
        output = Late.apply(weight.repeat(rows, 1), optimizer._byteps, 1) + bias.view(1, -1)
        (output * factors).sum().backward()
        for parameter in (weight, bias):
            assert torch.equal(parameter.grad, factors * rows * bps.size()), parameter.grad


# ---- batch normalisation ---------------------------------------------------------------------------------


def sizes():
    """Of the batches of the workers."""
    return [1, 4, 0][: bps.size()] if bps.size() > 1 else [5]


def part(batch):
    return batch.split(sizes())[bps.rank()]


def compare_batch_norms(batch_norm, shape, dtype=torch.float64, tolerance=1e-9, **options):
    """Compare SyncBatchNorm with the whole batch in one process; values far from 0 must not cost accuracy."""
    alone = batch_norm(3, device=DEVICE, dtype=dtype, **options)
    together = bps.SyncBatchNorm(3, device=DEVICE, dtype=dtype, **options)
    source = generator(5)
    if alone.affine:
        torch.nn.init.normal_(alone.weight, generator=source)
        torch.nn.init.normal_(alone.bias, generator=source)
    together.load_state_dict(alone.state_dict())
    close = functools.partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance)
    for mode in (True, True, False):
        alone.train(mode)
        together.train(mode)
        batch = torch.randn((sum(sizes()), 3, *shape), generator=source, device=DEVICE, dtype=dtype) + 100
        factors = torch.randn(batch.shape, generator=source, device=DEVICE, dtype=dtype)
        whole = batch.clone().requires_grad_()
        mine = part(batch).clone().requires_grad_()
        want, found = alone(whole), together(mine)
        close(found, part(want))
        (want * factors).sum().backward()
        (found * part(factors)).sum().backward()
        close(mine.grad, part(whole.grad))
        for (name, state), other in zip(together.state_dict().items(), alone.state_dict().values()):
            close(state, other, msg=lambda text, name=name: f"{name}: {text}")
    for a, b in zip(together.parameters(), alone.parameters()):
        close(bps.push_pull(a.grad, op=bps.Sum), b.grad)


def check_batch_norm():
    compare_batch_norms(torch.nn.BatchNorm1d, ())
    compare_batch_norms(torch.nn.BatchNorm1d, (2,))
    compare_batch_norms(torch.nn.BatchNorm2d, (2, 3))
    compare_batch_norms(torch.nn.BatchNorm3d, (2, 3, 2))
    compare_batch_norms(torch.nn.BatchNorm2d, (2, 3), eps=0.1, momentum=0.7)
    compare_batch_norms(torch.nn.BatchNorm2d, (2, 3), momentum=None)
    compare_batch_norms(torch.nn.BatchNorm2d, (2, 3), affine=False)
    compare_batch_norms(torch.nn.BatchNorm2d, (2, 3), track_running_stats=False)
    compare_batch_norms(torch.nn.BatchNorm2d, (2, 3), dtype=torch.float32, tolerance=2e-3)
    compare_batch_norms(torch.nn.BatchNorm2d, (20, 30), dtype=torch.bfloat16, tolerance=0.25)


def check_batch_norm_trains():
    """A converted model gives the parameters of one process with the whole batch."""

    def network():
        torch.manual_seed(2)
        layers = [torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Tanh(), torch.nn.Linear(3, 1)]
        return torch.nn.Sequential(torch.nn.Sequential(*layers[:2]), *layers[2:]).double().to(DEVICE)

    def train(model, optimizer, share, scale):
        source = generator(3)
        for _ in range(5):
            batch = torch.randn(sum(sizes()), 4, generator=source, device=DEVICE, dtype=torch.float64)
            optimizer.zero_grad()
            (model(share(batch)).square().sum() * scale).backward()
            optimizer.step()
        return model

    alone = network()
    alone = train(alone, torch.optim.SGD(alone.parameters(), 0.1), lambda batch: batch, 0.2)
    model = network()
    weight = model[0][1].weight
    model = bps.SyncBatchNorm.convert_sync_batchnorm(model)
    assert isinstance(model[0][1], bps.SyncBatchNorm) and model[0][1].weight is weight
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(), op=bps.Sum
    )
    train(model, optimizer, part, 0.2)
    for (name, found), want in zip(model.state_dict().items(), alone.state_dict().values()):
        torch.testing.assert_close(found, want, msg=lambda text, name=name: f"{name}: {text}")
    assert model.state_dict().keys() == network().state_dict().keys()
    single = bps.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm2d(2).eval())
    assert isinstance(single, bps.SyncBatchNorm) and not single.training
    assert bps.SyncBatchNorm.convert_sync_batchnorm(single) is single


def check_batch_norm_of_too_little():
    layer = bps.SyncBatchNorm(3)
    checks.raised(ValueError, lambda: layer(torch.ones(3)), "2 dimensions")
    count = 1 if bps.rank() == 0 else 0
    checks.raised(ValueError, lambda: layer(torch.ones(count, 3)), "Expected more than 1 value per channel")


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
