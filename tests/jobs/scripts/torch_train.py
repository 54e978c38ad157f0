# SPDX-License-Identifier: Apache-2.0
"""Training on several workers gives the same parameters as one process with the whole batch."""

import inspect
import warnings

import checks
import torch
from loader import loaded
from torch_device import generator

import byteps
import byteps.torch as bps
from byteps.torch import _reducer
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel

STEPS = 8
# What programs give to PyTorch's own wrapper.
TAKEN = (
    "output_device dim init_sync process_group bucket_cap_mb find_unused_parameters check_reduction "
    "gradient_as_bucket_view static_graph"
).split()
BATCH = 12  # of all workers together; divisible by 1, 2, 3

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, foreach=False),
}


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 3),
    )


class Partial(torch.nn.Module):
    """Uses one branch or another, depending on the worker and the step; and one never."""

    def __init__(self):
        super().__init__()
        self.flatten = torch.nn.Flatten()
        self.first = torch.nn.Linear(72, 3)
        self.second = torch.nn.Linear(72, 3)
        self.never = torch.nn.Linear(72, 3)
        self.rank = bps.rank()
        self.step = 0

    def forward(self, x):
        branch = self.second if (self.step + self.rank) % 3 == 2 else self.first
        return branch(self.flatten(x))


class Tied(torch.nn.Module):
    """Attention, whose inner modules are not called, and weights that two layers share.

    In double precision, as some of its gradients are zero but for rounding, which Adam would blow up.
    """

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(12, 12)
        self.attention = torch.nn.TransformerEncoderLayer(12, 2, 16, dropout=0.0, batch_first=True)
        self.out = torch.nn.Linear(12, 12)
        self.out.weight = self.embed.weight
        self.scale = torch.nn.Parameter(torch.ones(12))

    def forward(self, x):
        x = x.reshape(-1, 6, 12).double()
        return self.out(self.attention(self.embed(x)) * self.scale).mean(1)[:, :3]


def batches(passes=1):
    source = generator(7)
    return [torch.randn(passes, BATCH, 2, 6, 6, generator=source) for _ in range(STEPS)]


def loss_of(model, x):
    return model(x).pow(2).mean()


def alone(make, optimizer, passes=1, scheduler=False):
    """What one process computes from the batches of all workers."""
    torch.manual_seed(1)
    model = make()
    optimizer = optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5) if scheduler else None
    for step, batch in enumerate(batches(passes)):
        optimizer.zero_grad()
        for x in batch:
            parts = x.chunk(bps.size())
            for rank, part in enumerate(parts):
                if isinstance(model, Partial):
                    model.rank, model.step = rank, step
                (loss_of(model, part) / bps.size()).backward()
        optimizer.step()
        if schedule:
            schedule.step()
    return model, optimizer


def together(
    make, optimizer, how, passes=1, scheduler=False, late_zero=False, compression=bps.Compression.none, load=iter
):
    """The same by all workers."""
    torch.manual_seed(1 + bps.rank())
    model = make()
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5) if scheduler and bps.rank() % 2 else None
    named = model.named_parameters()
    run = model
    if how == "optimizer":
        optimizer = bps.DistributedOptimizer(optimizer, named, compression, passes)
    elif how == "unnamed":
        optimizer = bps.DistributedOptimizer(optimizer, backward_passes_per_step=passes)
    elif how == "barrier":
        optimizer = CrossBarrier(model, optimizer, named, compression, passes, num_steps=STEPS)
    else:
        run = DistributedDataParallel(model, compression=compression)
    if scheduler and schedule is None:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    for step, batch in enumerate(load(batches(passes))):
        if not late_zero:
            optimizer.zero_grad()
        for i, x in enumerate(batch):
            if isinstance(model, Partial):
                model.step = step
            if how == "ddp" and i + 1 < passes:
                with run.no_sync():
                    loss_of(run, x.chunk(bps.size())[bps.rank()]).backward()
            else:
                loss_of(run, x.chunk(bps.size())[bps.rank()]).backward()
        optimizer.step()
        if late_zero:
            optimizer.zero_grad()
        if schedule:
            schedule.step()
    return model, optimizer


def same(found, want, tolerance=1e-5):
    for (name, a), b in zip(found.named_parameters(), want.parameters()):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
        )


def agree(model):
    """All workers have the very same bits."""
    for parameter in model.parameters():
        highest = bps.push_pull(parameter.detach(), op=bps.Max)
        lowest = bps.push_pull(parameter.detach(), op=bps.Min)
        assert torch.equal(highest, lowest)


def compare(make, kinds, hows, **options):
    for kind in kinds:
        passes, scheduler = options.get("passes", 1), options.get("scheduler", False)
        want, _ = alone(make, OPTIMIZERS[kind], passes, scheduler)
        for how in hows:
            found, _ = together(make, OPTIMIZERS[kind], how, **options)
            same(found, want)
            agree(found)


ALL = ("optimizer", "unnamed", "ddp", "barrier")


def check_optimizers():
    compare(network, OPTIMIZERS, ALL)


def check_data_loader():
    compare(network, ["momentum"], ALL, load=loaded)


def check_passes():
    compare(network, ["momentum"], ALL, passes=3)


def check_schedulers():
    compare(network, ["momentum", "adam"], ALL, scheduler=True)


def check_zero_grad_after_the_step():
    compare(network, ["momentum"], ALL, late_zero=True)


def check_parameters_used_by_some():
    compare(Partial, ["momentum", "adam"], ALL)
    compare(Partial, ["adamw"], ALL, late_zero=True)
    model, _ = together(Partial, OPTIMIZERS["adam"], "ddp")
    assert model.never.weight.grad is None and model.first.weight.grad is not None


def check_tied_weights_and_attention():
    compare(lambda: Tied().double(), ["momentum", "adam"], ALL)


def check_several_groups():
    def groups(parameters):
        some = list(parameters)
        return torch.optim.SGD([{"params": some[:2], "lr": 0.2}, {"params": some[2:], "momentum": 0.5}], 0.05)

    OPTIMIZERS["groups"] = groups
    compare(network, ["groups"], ALL)


def check_channels_last():
    compare(lambda: network().to(memory_format=torch.channels_last), ["momentum"], ALL)

    def mixed():  # the layout is a worker's own affair
        return network().to(memory_format=torch.channels_last) if bps.rank() % 2 else network()

    want, _ = alone(network, OPTIMIZERS["momentum"])
    model = mixed()
    bps.broadcast_parameters(model.named_parameters())
    same(together(network, OPTIMIZERS["momentum"], "optimizer")[0], want)


def check_memory_formats_that_differ():
    """Gradients travel in the order of memory, so the workers must have the same."""
    if bps.size() == 1:
        return
    model = torch.nn.Conv2d(3, 4, 3)  # the last three extents are the same in either order
    if bps.rank() == 1:
        model = model.to(memory_format=torch.channels_last)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())

    def step():
        model(torch.ones(1, 3, 4, 4)).sum().backward()
        optimizer.step()

    checks.raised(byteps.MismatchError, step, "memory format")


def check_groups_that_come_later():
    """Layers that are trained from the third step on, as with a model that is unfrozen bit by bit."""

    def train(model, optimizer, run):
        for step, (batch,) in enumerate(batches()):
            if step == 2:
                optimizer.add_param_group({"params": list(model[3].parameters()), "lr": 0.05})
            if step == 4:
                optimizer.add_param_group({"params": list(model[0].parameters())})
            optimizer.zero_grad()
            run(model, batch)
            optimizer.step()
        return model

    def whole(model, batch):
        for part in batch.chunk(bps.size()):
            (loss_of(model, part) / bps.size()).backward()

    def own(model, batch):
        loss_of(model, batch.chunk(bps.size())[bps.rank()]).backward()

    def start():
        torch.manual_seed(1)
        model = network()
        return model, OPTIMIZERS["momentum"](model[5].parameters())

    want = train(*start(), whole)
    model, optimizer = start()
    found = train(model, bps.DistributedOptimizer(optimizer), own)
    same(found, want)
    agree(found)
    model, optimizer = start()
    barrier = CrossBarrier(model, optimizer, num_steps=STEPS)
    found = train(model, barrier, own)
    same(found, want)
    agree(found)


def check_a_round_that_is_given_up():
    """As after an interrupt in step(): what is on its way ends before its names are used again."""
    torch.manual_seed(1)
    model = network()
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    for _ in range(3):
        optimizer._byteps.launch()
        optimizer._byteps.forget()
        optimizer.zero_grad()
        loss_of(model, torch.ones(2, 2, 6, 6)).backward()
        optimizer.step()
    agree(model)


def check_types():
    for dtype in (torch.float64, torch.bfloat16):
        model = torch.nn.Linear(3, 2).to(dtype)
        bps.broadcast_parameters(model.state_dict())
        optimizer = bps.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 1.0), model.named_parameters()
        )
        model(torch.full((1, 3), float(bps.rank()), dtype=dtype)).sum().backward()
        optimizer.synchronize()
        want = sum(range(bps.size())) / bps.size()
        assert torch.equal(model.weight.grad, torch.full((2, 3), want, dtype=dtype)), model.weight.grad


def check_compression():
    for compression in (bps.Compression.fp16, bps.Compression.bf16):
        want, _ = alone(network, OPTIMIZERS["momentum"])
        for how in ("optimizer", "ddp", "barrier"):
            found, _ = together(network, OPTIMIZERS["momentum"], how, compression=compression)
            same(found, want, 3e-2)
            agree(found)


def check_clipping():
    """synchronize(), look at the gradients, step() without another synchronize()."""
    model = torch.nn.Linear(3, 1, bias=False)
    bps.broadcast_parameters(model.state_dict())
    before = model.weight.detach().clone()
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), op=bps.Sum)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.synchronize()
    assert torch.equal(model.weight.grad, torch.full((1, 3), float(bps.size())))
    with optimizer.skip_synchronize():
        optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - bps.size())
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()  # does not reduce again
    words = "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize()"
    assert [str(one.message).startswith(words) for one in caught] == [True], caught
    assert caught[0].filename == __file__, caught[0]
    torch.testing.assert_close(model.weight.detach(), before - 2 * bps.size())
    optimizer.zero_grad()
    optimizer.synchronize()
    model(torch.ones(1, 3)).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()  # reduces what has come since
    torch.testing.assert_close(model.weight.detach(), before - 3 * bps.size())
    agree(model)


def check_closure():
    def run(wrap):
        torch.manual_seed(3)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters()) if wrap else optimizer
        x = torch.randn(bps.size(), 3, 4)
        for _ in range(4):

            def closure():
                optimizer.zero_grad()
                loss = (
                    loss_of(model, x[bps.rank()]) if wrap else sum(loss_of(model, p) for p in x) / bps.size()
                )
                loss.backward()
                return loss

            assert optimizer.step(closure).item() > 0
        return model

    same(run(True), run(False))


class Recorder:
    """In place of the native module: notes the priorities of the gradients."""

    def __init__(self, native):
        self.native, self.priorities = native, {}

    def __getattr__(self, name):
        return getattr(self.native, name)

    def push_pull(self, source, target, name, op, priority, *scales):
        if name.startswith("byteps.Gradient."):
            self.priorities[name.split(".")[2]] = priority
        return self.native.push_pull(source, target, name, op, priority, *scales)


WIDE = 80  # of layers whose gradients do not travel together


class Backwards(torch.nn.Module):
    """Names its layers in another order than it uses them."""

    def __init__(self):
        super().__init__()
        self.third, self.first, self.never, self.second = (torch.nn.Linear(WIDE, WIDE, bias=False) for _ in range(4))

    def forward(self, x):
        return self.third(self.second(self.first(x)))


def check_priorities():
    """They follow the order of the first backward pass."""
    model = Backwards()
    bps.broadcast_parameters(model.state_dict())
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    recorder = _reducer._bps = Recorder(_reducer._bps)
    try:
        for _ in range(2):
            model(torch.ones(1, WIDE)).sum().backward()
            optimizer.step()
    finally:
        _reducer._bps = recorder.native
    order = sorted(recorder.priorities, key=recorder.priorities.get, reverse=True)
    assert order == ["first", "second", "third"], recorder.priorities  # nobody has used "never"


def check_mistakes():
    model = torch.nn.Linear(3, 3)
    bps.broadcast_parameters(model.state_dict())
    plain = torch.optim.SGD(model.parameters(), 0.1)
    weight, bias = model.weight, model.bias
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(plain, [weight, bias]), "tuples")
    checks.raised(
        ValueError, lambda: bps.DistributedOptimizer(plain, [("a", weight), ("a", bias)]), "duplicates: a"
    )
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(plain, [("a", weight)]), "1 of")
    checks.raised(
        ValueError, lambda: bps.DistributedOptimizer(plain, backward_passes_per_step=0), "at least 1"
    )
    checks.raised(TypeError, lambda: bps.DistributedOptimizer(model), "Optimizer")
    optimizer = bps.DistributedOptimizer(plain, model.named_parameters())
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(optimizer), "already")
    checks.raised(ValueError, lambda: CrossBarrier(model, optimizer), "already")
    optimizer.set_backward_passes_per_step(2)
    for _ in range(2):
        weight.sum().backward()  # of the bias there is no gradient yet
    checks.raised(AssertionError, optimizer.zero_grad, "race condition")
    checks.raised(AssertionError, weight.sum().backward, "backward_passes_per_step")
    checks.raised(RuntimeError, optimizer.step, "'weight'", "synchronize()")  # the third pass has changed it
    optimizer.zero_grad()
    for _ in range(2):
        model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def check_two_models_with_the_same_names():
    models = [torch.nn.Linear(3, 2), torch.nn.Linear(4, 5)]
    wrapped = []
    for model in models:
        bps.broadcast_parameters(model.state_dict())
        wrapped.append(
            bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
        )
    for model in models:
        model(torch.full((1, model.in_features), float(bps.rank()))).sum().backward()
    for optimizer in reversed(wrapped):
        optimizer.step()
    for model in models:
        agree(model)


def check_parallel_module():
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)))
    plain = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    for name in ("process_group", "mixed_precision", "device_mesh"):
        checks.raised(ValueError, lambda n=name: DistributedDataParallel(plain, **{n: 1}), name)
    torch_own = inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters
    theirs = {name: torch_own[name].default for name in TAKEN}
    other = DistributedDataParallel(plain, **{**theirs, "find_unused_parameters": True, "static_graph": True})
    agree(model)
    for step in range(3):
        x = torch.randn(6, 3, generator=generator(10 * step + bps.rank()))
        (model(x).pow(2).sum() + other(x).pow(2).sum()).backward()
        for module in (model, other):
            for parameter in module.parameters():
                assert torch.equal(bps.push_pull(parameter.grad, op=bps.Max), parameter.grad)
            module.zero_grad()
    model(torch.ones(2, 3))  # brings the statistics of worker 0 to all, before it changes them
    model.eval()
    kinds = (ValueError, UserWarning)  # on a GPU, on a CPU
    checks.raised(kinds, lambda: DistributedDataParallel(torch.nn.Linear(1, 1), device_ids=[99]), "device_ids")
    assert list(model.state_dict())[0] == "module.0.weight"
    bps.barrier()


def check_lost_in_backward():
    """A failure of user code in backward() leaves DistributedDataParallel usable."""
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    out = model(torch.ones(1, 3))

    def fail(gradient):
        raise RuntimeError("planted")

    out.register_hook(fail)
    checks.raised(RuntimeError, out.sum().backward, "planted")
    model.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.ones(3, 3))


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*fork")  # newer Pythons warn of it where there are threads
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # on one core
    checks.main(globals(), bps)
