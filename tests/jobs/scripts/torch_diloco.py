# SPDX-License-Identifier: Apache-2.0
"""LocalSGD and DiLoCo: rare synchronisation of workers that train by themselves."""

import copy
import io

import checks
import torch

import byteps
import byteps.torch as bps

RATE = 1 / 64


def made(kind=torch.optim.SGD, lr=RATE, norm=False, **options):
    torch.manual_seed(1 + bps.rank())  # they begin as rank 0 all the same
    layers = [torch.nn.Linear(6, 5), torch.nn.Linear(5, 4), torch.nn.Linear(4, 1)]
    if norm:
        layers.insert(1, torch.nn.BatchNorm1d(5))
    model = torch.nn.Sequential(*layers)
    return model, kind(model.parameters(), lr, **options)


def outer_of(model, lr=1.0, **options):
    return torch.optim.SGD(model.parameters(), lr, **options)


def batch(step, rank=None):
    rank = bps.rank() if rank is None else rank
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(100 * step + rank))


def train(model, optimizer, steps):
    for step in steps:
        x = batch(step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()


def values(model):
    return torch.cat([tensor.detach().flatten().double() for tensor in model.state_dict().values()])


def are_equal(tensor):
    """Whether it has the same bits on all workers."""
    both = [bps.push_pull(tensor, op=op, name=f"equal {op.name} {tensor.numel()}") for op in (bps.Max, bps.Min)]
    return torch.equal(*both)


def begin_equally(model):
    bps.broadcast_parameters(model.state_dict())


def check_every_step_is_like_averaged_gradients():
    model, optimizer = made()
    other, plain = made()
    begin_equally(model)
    begin_equally(other)
    distributed = bps.DistributedOptimizer(plain, other.named_parameters())
    with bps.LocalSGD(model, optimizer, every=1):
        train(model, optimizer, range(6))
    train(other, distributed, range(6))
    assert torch.allclose(values(model), values(other), atol=1e-6)
    assert are_equal(values(model))


def check_local_between():
    model, optimizer = made(norm=True)
    with bps.LocalSGD(model, optimizer, 3):
        train(model, optimizer, range(2))
        assert bps.size() == 1 or not are_equal(values(model))
        train(model, optimizer, range(2, 3))
        assert are_equal(values(model))  # also the statistics
        train(model, optimizer, range(3, 7))
        assert bps.size() == 1 or not are_equal(values(model))
    assert not optimizer._optimizer_step_post_hooks and not optimizer._optimizer_step_pre_hooks


def check_outer_step_of_one_is_an_average():
    model, optimizer = made(torch.optim.AdamW)
    other, inner = made(torch.optim.AdamW)
    begin_equally(model)
    begin_equally(other)
    with bps.LocalSGD(model, optimizer, every=3), bps.DiLoCo(other, inner, outer_of(other), every=3):
        train(model, optimizer, range(9))
        train(other, inner, range(9))
    assert torch.allclose(values(model), values(other), atol=1e-6)


def check_nesterov():
    """By hand: one weight; a worker's gradient is its rank + 1, so that each inner step subtracts that."""
    weight = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(weight.weight)
    inner = torch.optim.SGD(weight.parameters(), 1.0)
    outer = outer_of(weight, 0.5, momentum=0.5, nesterov=True)
    mean, momentum, expected = (bps.size() + 1) / 2, 0.0, 0.0
    with bps.DiLoCo(weight, inner, outer, every=2):
        for step in range(6):
            mine = torch.tensor([[bps.rank() + 1.0]])
            weight.weight.grad = mine
            inner.step()
            assert weight.weight.grad is mine
            if step % 2:
                momentum = 0.5 * momentum + 2 * mean
                expected -= 0.5 * (2 * mean + 0.5 * momentum)
                assert weight.weight.item() == expected, (step, weight.weight, expected)
            else:
                assert weight.weight.item() == expected - (bps.rank() + 1)


def check_delay():
    """By hand: what is sent after step 3 takes effect after step 4, mixed with what the worker has then."""
    weight = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(weight.weight)
    inner = torch.optim.SGD(weight.parameters(), 1.0)
    mine, mean, common, local = bps.rank() + 1.0, (bps.size() + 1) / 2, 0.0, 0.0
    with bps.DiLoCo(weight, inner, outer_of(weight), every=4, delay=1, alpha=0.25):
        for step in range(1, 13):
            weight.weight.grad = torch.full((1, 1), mine)
            inner.step()
            local -= mine
            if step % 4 == 3:
                change = bps.push_pull(torch.tensor(common - local), name="change").item()
            if step % 4 == 0:
                common -= change
                local = common + 0.25 * (local - common)
                assert step > 4 or common == -3 * mean
            assert weight.weight.item() == local, (step, weight.weight, local)


def check_streaming():
    """All have the same global parameters after each synchronisation, and each fragment has its own time."""
    for fragments, delay, alpha in ((1, 0, 0.0), (3, 0, 0.0), (3, 1, 0.0), (3, 1, 0.5), (2, 2, 0.25), ("list", 1, 0)):
        model, inner = made(torch.optim.Adam)
        parts = fragments
        if fragments == "list":
            parts = [model[2], [*model[0].parameters(), *model[1].parameters()]]
        outer = outer_of(model, 0.5, momentum=0.5, nesterov=True)
        training = bps.DiLoCo(model, inner, outer, 7, parts, delay, alpha=alpha)
        count = len(training._parts)
        at = {(i + 1) * 7 // count for i in range(count)}
        before = None
        with training:
            for step in range(1, 15):
                train(model, inner, [step])
                bases = torch.cat([m.base.flatten() for m in training._members])
                assert are_equal(bases), (fragments, delay, step)
                if before is not None:
                    changed = (step - 1) % 7 + 1 in at
                    assert torch.equal(before, bases) != changed, (fragments, delay, step)
                before = bases
            assert not training._is_under_way()
            if count == 1:
                assert are_equal(values(model)) == (alpha == 0)


def check_fragments_make_the_whole():
    """Without delay and of SGD(1) the order of fragments does not matter: each is averaged at its time."""
    model, inner = made()
    begin_equally(model)
    with bps.DiLoCo(model, inner, outer_of(model), every=1):
        train(model, inner, range(4))
    other, optimizer = made()
    begin_equally(other)
    with bps.LocalSGD(other, optimizer, every=1):
        train(other, optimizer, range(4))
    assert torch.allclose(values(model), values(other), atol=1e-6)


def check_resume():
    """A training that goes on from what was saved, also with something in flight, is the one that was not stopped."""

    def parts():
        model, inner = made(torch.optim.Adam)
        outer = outer_of(model, 0.5, momentum=0.5, nesterov=True)
        return model, inner, outer, bps.DiLoCo(model, inner, outer, 6, 2, 2, alpha=0.25)

    model, inner, _, training = parts()
    with training:
        train(model, inner, range(8))
        file = io.BytesIO()
        torch.save([thing.state_dict() for thing in (model, inner, training)], file)
        assert training._is_under_way()
        train(model, inner, range(8, 20))
    file.seek(0)
    again, inner, _, training = parts()
    for thing, state in zip((again, inner, training), torch.load(file, weights_only=True)):
        thing.load_state_dict(state)
    with training:
        train(again, inner, range(8, 20))
    assert torch.equal(values(model), values(again))
    checks.raised(ValueError, lambda: bps.LocalSGD(*made(), 2).load_state_dict(
        {"steps": 1, "done": 0, "live": {"9.weight": True}, "results": None}), "9.weight")


def check_frozen():
    """What is frozen is not sent; what is frozen later is made equal once more; what is unfrozen is sent then."""
    for kind in ("local", "diloco"):
        model, optimizer = made()
        begin_equally(model)
        model[0].requires_grad_(False)
        first = model[0].weight.detach().clone()
        outer = outer_of(model, 0.5, momentum=0.5)
        training = bps.LocalSGD(model, optimizer, 2) if kind == "local" else bps.DiLoCo(model, optimizer, outer, 2)
        with training:
            train(model, optimizer, range(4))
            assert torch.equal(model[0].weight, first) and training._members[0].base is None
            model[0].requires_grad_(True)
            train(model, optimizer, range(4, 7))
            assert not torch.equal(model[0].weight, first)
            model[2].requires_grad_(False)
            train(model, optimizer, range(7, 8))
            assert are_equal(values(model))
            last = model[2].weight.detach().clone()
            train(model, optimizer, range(8, 12))
            assert torch.equal(model[2].weight, last) and are_equal(values(model))


def check_frozen_on_its_way():
    model, inner = made()
    with bps.DiLoCo(model, inner, outer_of(model, 0.5, momentum=0.5), 4, delay=2, alpha=0.5) as training:
        train(model, inner, range(3))
        assert training._is_under_way()
        model[2].requires_grad_(False)
        train(model, inner, range(3, 4))
        assert are_equal(values(model[2]))
        last = values(model[2])
        train(model, inner, range(4, 9))
        assert torch.equal(values(model[2]), last)


def check_users_loops():
    """A scheduler, step(closure), autocast, two models, groups that are added."""
    model, optimizer = made()
    other, second = made(torch.optim.AdamW, 0.01)
    begin_equally(model)
    begin_equally(other)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    outer = outer_of(other, 0.7, momentum=0.9, nesterov=True)
    outer_scheduler = torch.optim.lr_scheduler.LambdaLR(outer, lambda step: 1 / (1 + step))

    def closure(x):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        return loss

    with bps.LocalSGD(model, optimizer, 2), bps.DiLoCo(other, second, outer, 4, compression=bps.Compression.bf16):
        for step in range(8):
            loss = optimizer.step(lambda step=step: closure(batch(step)))
            assert loss is not None
            scheduler.step()
            train(other, second, [step])
            if step % 4 == 3:
                outer_scheduler.step()
    assert are_equal(values(model)) and are_equal(values(other))


def check_coded():
    torch.manual_seed(3)
    model = torch.nn.Linear(300, 100)
    inner = torch.optim.SGD(model.parameters(), RATE)
    coding = {"compressor": "onebit", "ef": "vanilla", "scaling": True}
    with bps.DiLoCo(model, inner, outer_of(model, 0.5), 2, compression=coding):
        for step in range(4):
            inner.zero_grad()
            x = torch.randn(4, 300, generator=torch.Generator().manual_seed(step + 9 * bps.rank()))
            model(x).square().mean().backward()
            inner.step()
    assert are_equal(values(model))
    model, inner = made()
    bad = bps.DiLoCo(model, inner, outer_of(model), 2, compression="no such one")
    with bad:
        checks.raised(ValueError, lambda: train(model, inner, [0]), "no such one")


def check_leaving():
    """What is in flight takes effect at the end; after an exception it does when the context is entered again."""
    model, inner = made()
    training = bps.DiLoCo(model, inner, outer_of(model), 4, 1, 2)
    with training:
        train(model, inner, range(2))
        assert training._is_under_way()
    assert not training._is_under_way() and are_equal(values(model))
    try:
        with training:
            train(model, inner, range(2, 6))
            assert training._is_under_way()
            raise KeyError("the program's own")
    except KeyError:
        assert training._is_under_way() and not inner._optimizer_step_post_hooks
    with training:
        train(model, inner, range(6, 8))
    assert not training._is_under_way() and are_equal(values(model))


def check_arguments():
    model, inner = made()
    outer = outer_of(model)

    def refused(kind, *texts, model=model, inner=inner, outer=outer, every=6, **how):
        checks.raised(kind, lambda: bps.DiLoCo(model, inner, outer, every, **how), *texts)

    refused(ValueError, "every=0 is too small", every=0)
    refused(TypeError, "every=1.5 is not a whole number", every=1.5)
    refused(ValueError, "delay=3 is too long", "after 3 steps", fragments=2, delay=3)
    refused(ValueError, "delay=-1", delay=-1)
    refused(ValueError, "7 fragments", "6 parameters", fragments=7, every=9)
    refused(ValueError, "3 fragments need", fragments=3, every=2)
    refused(TypeError, "fragments=2.5", fragments=2.5)
    refused(ValueError, "alpha=2", alpha=2)
    refused(ValueError, "'0.weight' is in fragments twice", fragments=[model, model[0]])
    refused(ValueError, "'2.weight' is in none", fragments=[model[0], model[1]])
    refused(ValueError, "fragments[1] has no parameters", fragments=[model, []])
    refused(TypeError, "fragments[0] is 3", fragments=[3])
    refused(ValueError, "not the model's", fragments=[model, torch.nn.Linear(1, 1)])
    refused(ValueError, "same optimizer", outer=inner)
    refused(ValueError, "LBFGS", outer=torch.optim.LBFGS(model.parameters()))
    refused(ValueError, "outer does not have the parameter '1.weight'", outer=outer_of(model[0]))
    refused(ValueError, "not the model's", inner=made()[1])
    refused(TypeError, "torch.optim.Optimizer, got int", inner=3)
    refused(TypeError, "torch.nn.Module, got list", model=[])
    state = bps.LocalSGD(model, inner, 2).state_dict()
    streaming = bps.DiLoCo(model, inner, outer, 2)
    checks.raised(ValueError, lambda: streaming.load_state_dict(state), "has no 'parameters', 'outer'")
    other, plain = made()
    wrapped = bps.DistributedOptimizer(plain, other.named_parameters())
    checks.raised(ValueError, lambda: bps.LocalSGD(other, wrapped, 2), "distributed already")
    checks.raised(ValueError, bps.LocalSGD(other, torch.optim.SGD(other.parameters(), 1), 2).__enter__, "Use one of")
    frozen = copy.deepcopy(model).requires_grad_(False)
    checks.raised(ValueError, lambda: bps.LocalSGD(frozen, outer_of(frozen), 2), "no parameter that is trained")
    frozen.number = torch.nn.Parameter(torch.ones(2, dtype=torch.int32), requires_grad=False)
    frozen[2].requires_grad_(True)
    bps.LocalSGD(frozen, outer_of(frozen), 2)
    refused(TypeError, "int32", model=frozen, inner=outer_of(frozen), outer=outer_of(frozen), fragments=[frozen])
    frozen.thin = torch.nn.Parameter(torch.eye(2).to_sparse())
    checks.raised(TypeError, lambda: bps.LocalSGD(frozen, outer_of(frozen), 2), "'thin' is sparse")
    with bps.LocalSGD(model, inner, 2) as training:
        checks.raised(ValueError, training.__enter__, "already")
        other = bps.DiLoCo(model, inner, outer, 2)
        checks.raised(ValueError, other.__enter__, "'0.weight' is synchronised by a LocalSGD")
    with bps.DiLoCo(model, inner, outer, 2):
        pass


def check_disagreement():
    if bps.size() == 1:
        return
    model, optimizer = made()
    with bps.LocalSGD(model, optimizer, every=2 + bps.rank()):
        checks.raised(byteps.MismatchError, lambda: train(model, optimizer, [0]), "every=", "differ")


def check_another_job():
    model, inner = made()
    training = bps.DiLoCo(model, inner, outer_of(model, 0.5, momentum=0.5), 4, 2, 1)
    with training:
        train(model, inner, range(5))
        bps.suspend()
        bps.resume()
        train(model, inner, range(5, 8))
    assert training._steps == 8 and training._done == 4
    assert are_equal(torch.cat([m.base.flatten() for m in training._members]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
