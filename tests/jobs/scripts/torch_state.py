# SPDX-License-Identifier: Apache-2.0
"""Bringing workers to the same state: parameters, optimizers, after a checkpoint, after suspend()."""

import copy
import io
import pickle

import checks
import torch
from loader import loaded
from torch_device import DEVICE, generator

import byteps
import byteps.torch as bps
from byteps.torch.cross_barrier import CrossBarrier

OPTIMIZERS = [
    lambda p: torch.optim.SGD(p, 0.1),
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    lambda p: torch.optim.Adam(p, 0.01),
    lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, foreach=True),
    lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    lambda p: torch.optim.AdamW(p, torch.tensor(0.01), foreach=False),
    lambda p: torch.optim.NAdam(p, 0.01),
    lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.1, centered=True),
    lambda p: torch.optim.Rprop(p, 0.01),
    lambda p: torch.optim.Adagrad(p, 0.01),
    lambda p: torch.optim.ASGD(p, 0.01),
    lambda p: torch.optim.Adamax(p, 0.01),
]


def model_of(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    return model.to(DEVICE)


def steps(model, optimizer, count, seed):
    source = generator(seed)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(5, 4, generator=source, device=DEVICE)).pow(2).mean().backward()
        optimizer.step()


def text(optimizer):
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    return repr(torch.load(buffer, weights_only=False))


def check_optimizer_state():
    torch.set_printoptions(precision=20)
    for make in OPTIMIZERS:
        for ahead in (0, bps.size() - 1):  # only the root has made steps, or everyone some
            root = bps.size() - 1
            model = model_of(bps.rank())
            optimizer = make(model.parameters())
            if bps.rank() == root or ahead:
                steps(model, optimizer, 3 + bps.rank(), bps.rank())
            optimizer.param_groups[0]["lr"] *= 1 + bps.rank()
            before = [p.detach().clone() for p in model.parameters()]
            bps.broadcast_optimizer_state(optimizer, root_rank=root)
            assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
            assert text(optimizer) == bps.broadcast_object(text(optimizer), root), make
            bps.broadcast_parameters(model.state_dict(), root_rank=root)
            steps(model, optimizer, 2, 99)
            found = [p.tolist() for p in model.parameters()]
            assert found == bps.broadcast_object(found, root)


def check_every_optimizer():
    """Also if only the root has a state, or only others have."""
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    for kind in kinds:
        if not issubclass(kind, torch.optim.Optimizer) or kind in (torch.optim.Optimizer, torch.optim.LBFGS):
            continue
        for ahead in range(bps.size()):
            embedding = torch.nn.Embedding(5, 4, sparse=kind is torch.optim.SparseAdam).to(DEVICE)
            optimizer = kind(embedding.parameters(), lr=0.1)
            if bps.rank() == ahead:
                for row in range(3):
                    optimizer.zero_grad()
                    embedding(torch.tensor([row, 4], device=DEVICE)).pow(2).sum().backward()
                    optimizer.step()
            before = embedding.weight.detach().clone()
            bps.broadcast_optimizer_state(optimizer, root_rank=0)
            assert torch.equal(before, embedding.weight)
            assert text(optimizer) == bps.broadcast_object(text(optimizer), 0), kind


def check_wrapped_optimizer_state():
    for wrap in (lambda _, o: bps.DistributedOptimizer(o), bps.cross_barrier.CrossBarrier):
        model = model_of(bps.rank())
        bps.broadcast_parameters(model.state_dict())
        optimizer = wrap(model, torch.optim.Adam(model.parameters(), 0.01))
        steps(model, optimizer, 3, bps.rank())
        bps.broadcast_optimizer_state(optimizer)
        content = optimizer.state_dict()
        assert text(optimizer) == bps.broadcast_object(text(optimizer))
        del optimizer
        fresh = wrap(model, torch.optim.Adam(model.parameters(), 0.5))
        fresh.load_state_dict(content)
        assert fresh.param_groups[0]["lr"] == 0.01
        plain = torch.optim.Adam(model.parameters(), 0.5)
        plain.load_state_dict(content)  # needs nothing of BytePS
        assert plain.state_dict()["state"][0]["step"] == 3


def check_pickles():
    """An optimizer, its schedule and copies of them are those of the optimizer that was wrapped."""
    for wrap in (lambda model, plain: bps.DistributedOptimizer(plain), CrossBarrier):
        torch.manual_seed(3)
        model = torch.nn.Linear(3, 2)
        optimizer = wrap(model, torch.optim.SGD(model.parameters(), 0.5, momentum=0.9))
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            schedule.step()
        file = io.BytesIO()
        torch.save((optimizer, schedule), file)
        file.seek(0)
        again = pickle.loads(pickle.dumps((optimizer, schedule)))
        for one, its in (again, torch.load(file, weights_only=False), copy.deepcopy((optimizer, schedule))):
            assert type(one) is torch.optim.SGD and its.optimizer is one and its.last_epoch == 2
            group = one.param_groups[0]
            assert group["lr"] == optimizer.param_groups[0]["lr"]
            for a, b in zip(group["params"], model.parameters()):
                assert torch.equal(a, b)
                assert torch.equal(one.state[a]["momentum_buffer"], optimizer.state[b]["momentum_buffer"])
            one.step()
        bps.barrier()


def check_wrapping_keeps_state():
    model = model_of(0)
    plain = torch.optim.Adam(model.parameters(), 0.01)
    steps(model, plain, 2, 0)
    optimizer = bps.DistributedOptimizer(plain, model.named_parameters())
    assert type(optimizer).__name__ == "Adam" and isinstance(optimizer, torch.optim.Adam)
    assert optimizer.state_dict()["state"][0]["step"] == 2
    steps(model, optimizer, 1, 0)
    assert optimizer.state_dict()["state"][0]["step"] == 3


def check_parameters():
    for form in (
        lambda m: m.state_dict(),
        lambda m: m.named_parameters(),
        lambda m: list(m.named_parameters()),
        lambda m: dict(m.named_parameters()),
        lambda m: m.parameters(),
        lambda m: list(m.parameters()),
        lambda m: {"model": m.state_dict(), "parts": [tuple(m[0].parameters()), ("last", m[2].bias)]},
    ):
        for root in range(bps.size()):
            model = model_of(bps.rank())
            with torch.no_grad():
                model[0].bias.fill_(float("nan"))
            want = model_of(root)
            want[0].bias.data.fill_(float("nan"))
            bps.broadcast_parameters(form(model), root_rank=root)
            for (name, a), b in zip(model.named_parameters(), want.parameters()):
                assert torch.equal(a.detach().view(torch.int32), b.detach().view(torch.int32)), name
    bps.broadcast_parameters({"a": None, "b": torch.ones(2)})
    bps.broadcast_parameters({})
    bps.broadcast_parameters(torch.nn.Linear(7, 7).state_dict())  # same names, other shapes
    checks.raised(ValueError, lambda: bps.broadcast_parameters(torch.ones(3)), "invalid params")
    checks.raised(ValueError, lambda: bps.broadcast_parameters("text"), "invalid params")
    checks.raised(ValueError, lambda: bps.broadcast_parameters(iter([1.0])), "'0'", "float", "expected a tensor")
    checks.raised(ValueError, lambda: bps.broadcast_parameters({}, root_rank=99), "root_rank")
    if bps.size() > 1:
        checks.raised(
            byteps.MismatchError, lambda: bps.broadcast_parameters({}, root_rank=bps.rank()), "differ"
        )


class Counting(torch.nn.Linear):
    """Has more in its state than tensors."""

    count = 0

    def get_extra_state(self):
        return {"count": self.count, "sizes": (1, self.count)}

    def set_extra_state(self, state):
        self.count = state["count"]


def check_what_is_no_tensor():
    """It is replaced in its dict or list; load_state_dict() brings it into the model."""
    for root in range(bps.size()):
        model = Counting(2, 2)
        model.count = 10 + bps.rank()
        state = model.state_dict()
        bps.broadcast_parameters(state, root_rank=root)
        assert model.count == 10 + bps.rank()
        model.load_state_dict(state)
        assert model.count == 10 + root
        optimizer = torch.optim.Adam(model.parameters(), 0.5 + bps.rank(), betas=(0.1, 0.1 * bps.rank()))
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        checkpoint = {"epoch": bps.rank(), "names": ["a", "b" * bps.rank()], "optimizer": optimizer.state_dict()}
        bps.broadcast_parameters(checkpoint, root_rank=root)
        assert checkpoint["epoch"] == root and checkpoint["names"] == ["a", "b" * root]
        optimizer.load_state_dict(checkpoint["optimizer"])
        group = optimizer.param_groups[0]
        assert group["lr"] == 0.5 + root and group["betas"] == (0.1, 0.1 * root)
        assert text(optimizer) == bps.broadcast_object(text(optimizer), root)
    if bps.size() > 1:
        own = {"all": torch.ones(2), ("a" if bps.rank() == 0 else "b"): 1}
        checks.raised(byteps.MismatchError, lambda: bps.broadcast_parameters(own), "differ")


def check_lbfgs():
    optimizer = torch.optim.LBFGS(model_of(0).parameters())
    checks.raised(ValueError, lambda: bps.broadcast_optimizer_state(optimizer), "LBFGS")


def check_suspend():
    model = model_of(0)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    steps(model, optimizer, 2, bps.rank())
    rank = bps.rank()
    bps.suspend()
    checks.raised(byteps.NotInitializedError, lambda: steps(model, optimizer, 1, 0))
    bps.resume(global_rank=rank)
    for x in loaded([torch.full((5, 4), float(i)) for i in range(2)]):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
    for parameter in model.parameters():
        assert torch.equal(bps.push_pull(parameter.detach(), op=bps.Max), parameter)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_device("cpu")  # optimizers count their steps there, whatever the model is on
    checks.main(globals(), bps)
