# SPDX-License-Identifier: Apache-2.0
"""The loops that people write around a step: scaling, clipping, skipping, several losses.

Each trains as one process does with the batches of all workers.
"""

import contextlib

import checks
import torch
from torch_device import generator

import byteps.torch as bps
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.ops import wait_all
from byteps.torch.parallel import DistributedDataParallel

STEPS = 20
BATCH = 12  # of all workers together; divisible by 1, 2, 3
BOUND = 0.05  # of the norm; every step is clipped


class Net(torch.nn.Module):
    """Two branches. `partly`: the second is used by worker 0 only."""

    def __init__(self, partly=False):
        super().__init__()
        self.partly, self.rank = partly, bps.rank()
        self.trunk = torch.nn.Linear(40, 300)
        self.first, self.second = torch.nn.Linear(300, 4), torch.nn.Linear(300, 4)

    def forward(self, x):
        x = torch.tanh(self.trunk(x))
        out = self.first(x)
        return out if self.partly and self.rank != 0 else out + self.second(x)


def loss_of(model, x):
    return model(x).pow(2).mean()


def batches(passes=1):
    source = generator(11)
    return [torch.randn(passes, BATCH, 40, generator=source) for _ in range(STEPS)]


class Plain:
    """In place of the scaler in loops without one."""

    def scale(self, loss):
        return loss

    def unscale_(self, optimizer):
        pass

    def step(self, optimizer):
        optimizer.step()

    def update(self):
        pass


def new_scaler(amp):
    return torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=5) if amp else Plain()


def finish_step(model, optimizer, scaler, unscale, clip):
    """What such loops have behind backward()."""
    if unscale:
        scaler.unscale_(optimizer)
    if clip:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), BOUND)
        assert norm > BOUND
    scaler.step(optimizer)
    scaler.update()


def alone(loop, partly=False, passes=1, optimizer=torch.optim.SGD, **options):
    torch.manual_seed(5)
    model = Net(partly).double()
    optimizer = optimizer(model.parameters(), lr=0.1, **options)
    scaler = new_scaler(loop["amp"])
    for batch in batches(passes):
        optimizer.zero_grad()
        for x in batch.double():
            for rank, part in enumerate(x.chunk(bps.size())):
                model.rank = rank
                scaler.scale(loss_of(model, part) / bps.size()).backward()
        finish_step(model, optimizer, scaler, loop["unscale"], loop["clip"])
    return model


def together(loop, how, partly=False, passes=1, optimizer=torch.optim.SGD, wait=False, **options):
    torch.manual_seed(5)
    model = run = Net(partly).double()
    optimizer = optimizer(model.parameters(), lr=0.1, **options)
    if how == "ddp":
        run = DistributedDataParallel(model)
    elif how == "barrier":
        optimizer = CrossBarrier(model, optimizer, model.named_parameters(), backward_passes_per_step=passes)
    else:
        compression = getattr(bps.Compression, how, bps.Compression.none)
        optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters(), compression, passes)
    scaler = new_scaler(loop["amp"])
    for batch in batches(passes):
        optimizer.zero_grad()
        for i, x in enumerate(batch.double()):
            local = how == "ddp" and i + 1 < passes
            with run.no_sync() if local else contextlib.nullcontext():
                scaler.scale(loss_of(run, x.chunk(bps.size())[bps.rank()])).backward()
        if wait:
            optimizer.synchronize()
        finish_step(model, optimizer, scaler, loop["unscale"], loop["clip"])
    if how == "barrier":
        optimizer.synchronize()
    return model


def compare(loop, how, tolerance=1e-12, **options):
    found, want = together(loop, how, **options), alone(loop, **{k: v for k, v in options.items() if k != "wait"})
    for (name, a), b in zip(found.named_parameters(), want.named_parameters()):
        torch.testing.assert_close(
            a, b[1], rtol=tolerance, atol=tolerance, msg=lambda text, n=name: f"{how}, {loop}, {n}: {text}"
        )
        assert torch.equal(bps.push_pull(a.detach(), op=bps.Max), bps.push_pull(a.detach(), op=bps.Min))


def loop(amp=False, unscale=False, clip=False):
    return {"amp": amp, "unscale": unscale, "clip": clip}


AMP, AMP_UNSCALE = loop(amp=True), loop(amp=True, unscale=True)
AMP_CLIP = loop(amp=True, unscale=True, clip=True)
CLIP = loop(clip=True)


def check_amp():
    for how in ("optimizer", "barrier", "ddp"):
        for one in (AMP, AMP_UNSCALE, AMP_CLIP):
            compare(one, how)


def check_amp_of_a_fused_optimizer():
    for how in ("optimizer", "barrier"):
        for one in (AMP, AMP_CLIP):
            compare(one, how, fused=True)


def check_amp_with_parameters_used_by_some():
    for how in ("optimizer", "barrier", "ddp"):
        for one in (AMP, AMP_UNSCALE, AMP_CLIP):
            compare(one, how, partly=True)


def check_amp_with_passes():
    for how in ("optimizer", "barrier", "ddp"):
        compare(AMP_CLIP, how, passes=3)


def check_amp_with_compression():
    for how in ("fp16", "bf16"):
        for one in (AMP, AMP_CLIP, CLIP):
            compare(one, how, tolerance=2e-2)


def check_clipping():
    compare(CLIP, "optimizer")
    compare(CLIP, "ddp")
    compare(CLIP, "optimizer", passes=3)
    compare(CLIP, "optimizer", optimizer=torch.optim.AdamW, wait=True)
    compare(CLIP, "barrier", wait=True)
    compare(CLIP, "optimizer", partly=True)
    compare(CLIP, "optimizer", partly=True, passes=3, wait=bps.size() > 1)


def check_infinity_on_one_worker():
    """All skip the step, and all lower their scale."""
    for how in ("optimizer", "barrier"):
        for unscale in (False, True):
            model = Net()
            bps.broadcast_parameters(model.state_dict())
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            if how == "optimizer":
                optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters())
            else:
                optimizer = CrossBarrier(model, optimizer, model.named_parameters())
            scaler = new_scaler(True)
            for step in range(6):
                if step % 2:
                    optimizer.zero_grad()
                else:
                    model.zero_grad()
                bad = step in (1, 2, 4) and bps.rank() == step % bps.size()
                before = [p.detach().clone() for p in model.parameters()]
                scale = scaler.get_scale()
                x = torch.randn(3, 40, generator=generator(step + bps.rank()))
                scaler.scale(loss_of(model, x) * (float("inf") if bad else 1)).backward()
                finish_step(model, optimizer, scaler, unscale, clip=False)
                skipped = all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
                assert skipped == (step in (1, 2, 4)), (how, unscale, step)
                assert (scaler.get_scale() < scale) == skipped


def check_a_step_left_out():
    """A program may drop the gradients of a backward pass, if all workers do."""
    model = torch.nn.Linear(3, 1, bias=False)
    bps.broadcast_parameters(model.state_dict())
    before = model.weight.detach().clone()
    for op, factor in ((bps.Average, 1), (bps.Sum, bps.size())):
        optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), op=op)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        torch.testing.assert_close(model.weight.detach(), before - factor)
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        del optimizer  # one wraps the model, before another one does


def check_two_backward_passes():
    """What is added to an average gives the average of both; to a sum it would be wrong, and is refused."""
    model = torch.nn.Linear(3, 1, bias=False)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0))
    for factor in (1, 2):
        model(torch.full((1, 3), float(factor * bps.rank()))).sum().backward()
    mean = sum(range(bps.size())) / bps.size()
    torch.testing.assert_close(model.weight.grad, torch.full((1, 3), 3 * mean))
    optimizer.step()
    del optimizer
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), op=bps.Sum)
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    again = model(torch.ones(1, 3)).sum()
    checks.raised(AssertionError, again.backward, "backward_passes_per_step")


def check_adversaries():
    """Two optimizers for one backward pass, whose gradients one of them does not want."""

    def train(wrap, ranks):
        torch.manual_seed(2)
        maker, judge = torch.nn.Linear(4, 8).double(), torch.nn.Linear(8, 1).double()
        optimizers = [torch.optim.Adam(net.parameters(), 0.01) for net in (maker, judge)]
        if wrap:
            optimizers = [bps.DistributedOptimizer(one) for one in optimizers]
        for step in range(STEPS):
            noise = torch.randn(bps.size(), 5, 4, generator=generator(step), dtype=torch.float64)
            judge.zero_grad()
            for rank in ranks:
                (judge(maker(noise[rank]).detach()).mean() / len(ranks)).backward()
                ((1 - judge(noise[rank].repeat(1, 2))).pow(2).mean() / len(ranks)).backward()
            optimizers[1].step()
            maker.zero_grad()
            for rank in ranks:
                (judge(maker(noise[rank])).pow(2).mean() / len(ranks)).backward()
            optimizers[0].step()
        return [*maker.parameters(), *judge.parameters()]

    for a, b in zip(train(True, [bps.rank()]), train(False, range(bps.size()))):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def check_changes_on_the_way():
    """While a gradient is missing, the others are on their way: who changes one is told."""

    def scale(gradient, parameter):
        gradient.mul_(2)

    def replace(gradient, parameter):
        parameter.grad = gradient * 2

    for change in (scale, replace):
        for how in ("optimizer", "fp16", "barrier"):
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            named = model.named_parameters()
            if how == "barrier":
                optimizer = CrossBarrier(model, optimizer, named)
            else:
                compression = getattr(bps.Compression, how, bps.Compression.none)
                optimizer = bps.DistributedOptimizer(optimizer, named, compression, 2)
                (model.trunk.weight.sum() + model.first.weight.sum()).backward()
            (model.trunk.weight.sum() + model.first.weight.sum()).backward()
            parameter = model.first.weight
            change(parameter.grad, parameter)

            def step(optimizer=optimizer):
                optimizer.step()
                optimizer.synchronize()

            error = checks.raised(RuntimeError, step, "'first.weight'", "synchronize()")
            assert "trunk" not in str(error)
            bps.barrier()  # the others have ended their rounds as well


def count_rounds(optimizer):
    """Return a list that gets an entry for each round of the optimizer's gradients."""
    reducer, rounds = optimizer._byteps, []
    launch = reducer.launch

    def counted(*arguments, **keywords):
        rounds.append(None)
        return launch(*arguments, **keywords)

    reducer.launch = counted
    return rounds


def check_checkpoints():
    """Recomputed layers have a backward pass of their own inside the backward pass."""
    from torch.utils.checkpoint import checkpoint

    for reentrant in (True, False):
        model = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(4))).double()
        bps.broadcast_parameters(model.state_dict())
        optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
        rounds = count_rounds(optimizer)
        for step in range(4):
            optimizer.zero_grad()
            gradients = []
            for rank in range(bps.size()):
                x = torch.randn(5, 6, generator=generator(10 * step + rank), dtype=torch.float64)
                gradients.append(torch.autograd.grad(model(x).pow(2).mean(), list(model.parameters())))
            x = torch.randn(5, 6, generator=generator(10 * step + bps.rank()), dtype=torch.float64)
            x = x.requires_grad_()
            for layer in model:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            x.pow(2).mean().backward()
            for parameter, *wants in zip(model.parameters(), *gradients):
                torch.testing.assert_close(parameter.grad, sum(wants) / bps.size())
            optimizer.step()
            assert len(rounds) == step + 1


# ---- layers that only some workers use, or nobody, and losses with a backward() each ---------------------------------


class Stack(torch.nn.Module):
    """Layers of which a step leaves some out, one that nobody uses, and two heads."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(5))
        self.pooler = torch.nn.Linear(6, 6)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(6, 1) for _ in range(2))
        self.double()

    def forward(self, x, left_out=(), head=0):
        for i, layer in enumerate(self.layers):
            x = x if i in left_out else torch.tanh(layer(x)) + x
        return self.heads[head](x)


def batch_of(rank, step, number):
    return torch.randn(5, 6, generator=generator(1000 * step + 10 * rank + number), dtype=torch.float64)


def compare_stacks(losses, passes=1, between=lambda loss: None, op=bps.Average):
    """Train with losses(model, rank, step, number), which yields those of a pass; each has its backward(); and clip."""

    def clip(model):
        assert model.pooler.weight.grad is None
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), BOUND))

    model, norms = Stack(), []
    plain = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer = bps.DistributedOptimizer(plain, model.named_parameters(), backward_passes_per_step=passes, op=op)
    for step in range(STEPS):
        optimizer.zero_grad()
        for number in range(passes):
            for loss in losses(model, bps.rank(), step, number):
                loss.backward()
                between(loss.detach())
        if passes == 1:
            clip(model)
            optimizer.step()
        else:
            optimizer.synchronize()
            clip(model)
            with optimizer.skip_synchronize():
                optimizer.step()
    found, norms_found = model, norms

    model, norms = Stack(), []
    plain = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(STEPS):
        plain.zero_grad()
        for number in range(passes):
            for rank in range(bps.size()):
                for loss in losses(model, rank, step, number):
                    (loss / (bps.size() if op == bps.Average else 1)).backward()
        clip(model)
        plain.step()
    torch.testing.assert_close(norms_found, norms, rtol=1e-11, atol=1e-11)
    for a, b in zip(found.parameters(), model.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def check_layers_that_nobody_uses():
    compare_stacks(lambda model, *which: [model(batch_of(*which)).pow(2).mean()])


def check_dropped_layers():
    """Others are left out by each worker in each pass; and metrics are averaged before the step."""

    def losses(model, *which):
        draw = torch.rand(5, generator=generator(sum(which) + 100 * which[0]))
        yield model(batch_of(*which), [i for i in range(1, 5) if draw[i] < 0.5]).pow(2).mean()

    def average(loss):
        bps.push_pull(loss, name="metric")
        bps.barrier()
        wait_all([bps.push_pull_async_inplace(loss), bps.broadcast_async(loss, 0)])

    for passes in (1, 2):
        compare_stacks(losses, passes)
        compare_stacks(losses, passes, average)


def check_losses_with_a_backward_each():
    """Those of two heads; the layers below are in both, and in the second pass one of them is not."""

    def losses(model, *which):
        for head in range(2):
            yield model(batch_of(*which), [3] * head, head).pow(2).mean()

    def of_one_layer_each(model, *which):
        for layer, head in zip(model.layers, model.heads):
            yield head(layer(batch_of(*which))).pow(2).mean()

    compare_stacks(losses)
    compare_stacks(of_one_layer_each)
    compare_stacks(of_one_layer_each, 2)
    compare_stacks(of_one_layer_each, 2, lambda loss: bps.push_pull(loss, name="metric"))
    compare_stacks(of_one_layer_each, op=bps.Sum)


# ---- what is frozen, and unfrozen later -----------------------------------------------------------------------------


def wrapped(how, model):
    """The model to call, and its optimizer."""
    plain = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    if how == "parallel":
        return DistributedDataParallel(model), plain
    if how == "barrier":
        return model, CrossBarrier(model, plain, model.named_parameters())
    return model, bps.DistributedOptimizer(plain, model.named_parameters() if how == "named" else None)


def losses(call, inputs):
    """The loss of this worker's part of a batch, or of all of it without BytePS."""
    return call(inputs).pow(2).mean()


def check_unfrozen():
    """The trunk is trained from the sixth step on, and the head is frozen at the twelfth: as in one process."""
    inputs = [torch.randn(BATCH, 6, generator=generator(step)).double() for step in range(18)]
    for how in ("named", "numbered", "parallel", "barrier"):
        torch.manual_seed(2)
        models = [torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 1)).double() for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())
        for model in models:
            model[0].requires_grad_(False)
        call, optimizer = wrapped(how, models[0])
        alone = torch.optim.SGD(models[1].parameters(), 0.1, momentum=0.9)
        for step, x in enumerate(inputs):
            for model in models:
                model[0].requires_grad_(step >= 6)
                model[1].requires_grad_(step < 12)
            optimizer.zero_grad()
            losses(call, x[bps.rank() :: bps.size()]).backward()
            if how in ("named", "parallel"):
                torch.nn.utils.clip_grad_norm_(models[0].parameters(), 0.5)
            optimizer.step()
            alone.zero_grad()
            losses(models[1], x).backward()
            if how in ("named", "parallel"):
                torch.nn.utils.clip_grad_norm_(models[1].parameters(), 0.5)
            alone.step()
        if how == "barrier":
            optimizer.flush()
        for one, other in zip(models[0].parameters(), models[1].parameters()):
            torch.testing.assert_close(one, other)


def check_gradients_that_are_never_reduced():
    """A step with them is an error, which says what to do."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    for how in (lambda o: bps.DistributedOptimizer(o, model[1].named_parameters()),
                lambda o: CrossBarrier(model, o, model[1].named_parameters())):  # fmt: skip
        model[0].requires_grad_(False)
        optimizer = how(torch.optim.SGD(model.parameters(), 0.1))
        losses(model, torch.ones(1, 2)).backward()
        optimizer.step()
        optimizer.zero_grad()
        model[0].requires_grad_(True)
        losses(model, torch.ones(1, 2)).backward()
        checks.raised(RuntimeError, optimizer.step, "shape (2, 2) in group 0", "add_param_group()")
        optimizer.synchronize()
        optimizer.zero_grad()
        model.zero_grad()
        del optimizer


def check_fewer_passes():
    """The last group of an epoch has fewer passes: to clip before synchronize() is an error."""
    for wrong in (False, True):
        model = torch.nn.Linear(3, 1, bias=False)
        bps.broadcast_parameters(model.state_dict())
        optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), backward_passes_per_step=4)
        for _ in range(2):
            model(torch.full((1, 3), bps.rank() + 1.0)).sum().backward()
        if wrong:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            checks.raised(RuntimeError, optimizer.step, "'noname.0' was changed before it was reduced", "synchronize()")
        else:
            optimizer.synchronize()
            assert torch.all(model.weight.grad == bps.size() + 1), model.weight.grad
            with optimizer.skip_synchronize():
                optimizer.step()


def check_one_wrapper():
    """A second one for a parameter is refused, whatever it calls it, until the first one is gone."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))

    def refuse(first):
        one = wrapped(first, model)
        for second in ways:
            checks.raised(ValueError, lambda how=second: wrapped(how, model), "belongs to another", "reduced twice")
        head = torch.optim.SGD(model[1].parameters(), 0.1)
        checks.raised(ValueError, lambda: bps.DistributedOptimizer(head), "parameter 'noname.0'")
        _, other = wrapped("numbered", torch.nn.Linear(2, 1))
        group = {"params": list(model[1].parameters())}
        checks.raised(ValueError, lambda: other.add_param_group(group), "belongs to another")
        assert len(other.param_groups) == 1
        torch.optim.lr_scheduler.StepLR(one[1], 1)  # it refers to the optimizer, and that to it

    ways = ("named", "numbered", "parallel", "barrier")
    for first in ways:
        refuse(first)
    wrapped("named", model)[1].step()


def check_torch_wrapper():
    """PyTorch's own DistributedDataParallel, left in a script, reduces the same gradients: it is refused, too."""
    from torch import distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    for first in (True, False):
        model = torch.nn.Linear(2, 1)
        if first:
            theirs = torch.nn.parallel.DistributedDataParallel(model)
            checks.raised(ValueError, lambda: wrapped("named", model), "parameter 'weight'", "push_pull_hook")  # noqa: B023
        else:
            _, optimizer = wrapped("named", model)
            theirs = torch.nn.parallel.DistributedDataParallel(model)
            checks.raised(ValueError, optimizer.step, "parameter 'weight'", "push_pull_hook")
            del optimizer
        del theirs
        wrapped("named", model)[1].step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
