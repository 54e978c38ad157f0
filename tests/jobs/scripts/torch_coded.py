# SPDX-License-Identifier: Apache-2.0
"""Gradients that are coded on the network, against the same loop with what the formulas say, written anew.

Each worker pushes for itself. What all of them together do, coded_ops.Job computes from the gradients of all.
"""

import io
import os
import unittest.mock
import warnings

import checks
import coded_ops
import torch

import byteps
import byteps.torch as bps
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.ddp_hook import push_pull_hook
from byteps.torch.parallel import DistributedDataParallel

ONEBIT = {"compressor": "onebit", "ef": "vanilla"}
ALL = {**ONEBIT, "min_bytes": 0}  # else the gradients of these checks would be too small
ORIGINAL = {"compressor_type": "onebit", "ef_type": "vanilla", "compressor_onebit_scaling": True}
PLAIN = {"compressor": "onebit", "min_bytes": 0}
MOMENTUM = {**PLAIN, "momentum": "nesterov", "mu": 0.5, "scaling": False}
STEPS = 10
_kept = []  # optimizers: so each check has tensors that nothing has been left of by others


def distributed(*arguments, **how):
    """A DistributedOptimizer that stays to the end."""
    _kept.append(bps.DistributedOptimizer(*arguments, **how))
    return _kept[-1]


def jobs(names, **how):
    return {name: coded_ops.Job(**how) for name in names}


def shares(step, passes=1):
    """The batches of all workers in a step: (inputs, labels) for each pass of each worker."""
    draw = torch.Generator().manual_seed(1000 + step)
    found = []
    for _ in range(bps.size()):
        inputs = torch.randn(passes, 16, 6, generator=draw)
        found.append([(x, (x[:, :3] + x[:, 3:]).argmax(1)) for x in inputs])
    return found


class Net(torch.nn.Module):
    """Its first layer is frozen; `some` is used by every other worker, and by nobody in each third step."""

    def __init__(self, partly=False):
        super().__init__()
        self.frozen = torch.nn.Linear(6, 10)
        self.frozen.requires_grad_(False)
        self.hidden = torch.nn.Linear(10, 9)
        self.some = torch.nn.Linear(10, 9)
        self.some.requires_grad_(partly)
        self.unused = torch.nn.Linear(2, 2)
        self.out = torch.nn.Linear(9, 3)
        self.partly = partly

    def forward(self, x, rank, step):
        x = torch.tanh(self.frozen(x))
        y = self.hidden(x)
        if self.partly and rank % 2 == 0 and step % 3 < 2:
            y = y + self.some(x)
        return self.out(torch.tanh(y))


class Loop:
    """An ordinary loop: autocast, a scaler, clipping, a scheduler."""

    def __init__(self, amp=True, clip=True, partly=False, passes=1, make=torch.optim.SGD, rate=0.2, half=3):
        torch.manual_seed(4)
        self.model = Net(partly)
        self.named = dict(self.model.named_parameters())
        self.optimizer = make([{"params": list(self.model.out.parameters()), "lr": rate / 3},
                               {"params": [*self.model.hidden.parameters(), *self.model.some.parameters(),
                                           *self.model.unused.parameters()]}], lr=rate)
        self.passes, self.clip, self.amp, self.half = passes, clip, amp, half
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=4, enabled=amp)

    def wrap(self, compression, how="optimizer"):
        if how == "barrier":
            self.optimizer = CrossBarrier(self.model, self.optimizer, self.named.items(), compression, self.passes)
            _kept.append(self.optimizer)
        else:
            self.optimizer = distributed(self.optimizer, self.named.items(), compression, self.passes)

    def backward(self, rank, step, batches):
        for x, labels in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.amp):
                loss = torch.nn.functional.cross_entropy(self.model(x, rank, step), labels)
            self.scaler.scale(loss).backward()

    def finish(self, step):
        """All that follows on backward()."""
        if self.clip:
            if not self.amp and hasattr(self.optimizer, "synchronize"):
                self.optimizer.synchronize()  # CrossBarrier's gradients are on their way
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.4)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.5 if step % self.half == self.half - 1 else 1

    def weights(self):
        if hasattr(self.optimizer, "flush"):
            self.optimizer.flush()
        return {name: p.detach().clone() for name, p in self.named.items()}

    def step(self, step):
        self.optimizer.zero_grad()
        self.backward(bps.rank(), step, shares(step, self.passes)[bps.rank()])
        self.finish(step)
        return self.weights()


class Wanted(Loop):
    """The same by one process, which sums what all workers would send as they would."""

    def __init__(self, coders, **how):
        super().__init__(**how)
        self.coders = coders

    def step(self, step):
        rates = {p: group["lr"] for group in self.optimizer.param_groups for p in group["params"]}
        everyone = []
        for rank, batches in enumerate(shares(step, self.passes)):
            self.optimizer.zero_grad()
            self.backward(rank, step, batches)
            everyone.append({name: p.grad for name, p in self.named.items()})
        for name, p in self.named.items():
            if all(mine[name] is None for mine in everyone):
                continue  # nobody sends it
            gradients = [torch.zeros_like(p) if mine[name] is None else mine[name] for mine in everyone]
            reduced = self.coders[name].round([g.numpy() for g in gradients], rate=rates[p])
            p.grad = torch.from_numpy(reduced.astype("float32"))
        self.finish(step)
        return self.weights()


def compare(compression, how="optimizer", coding=None, **options):
    found, wanted = Loop(**options), Wanted({}, **options)
    wanted.coders = jobs(wanted.named, **(coding or {}))
    found.wrap(compression, how)
    for step in range(STEPS):
        a, b = found.step(step), wanted.step(step)
        for name in a:
            torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-5, msg=lambda text, n=name, s=step:
                                       f"{n} in step {s}: {text}")
    assert found.model.unused.weight.grad is None
    flat = torch.cat([w.flatten() for w in a.values()])
    assert torch.equal(bps.push_pull(flat, op=bps.Max), bps.push_pull(flat, op=bps.Min))


# ---- loops -----------------------------------------------------------------------------------------------


def check_a_loop():
    compare(ALL)
    compare({**ORIGINAL, "min_bytes": 0}, amp=False)
    compare(PLAIN, clip=False, coding={"feedback": False})
    compare(MOMENTUM, amp=False, coding={"feedback": False, "mu": 0.5, "scaling": False})


def check_parameters_used_partly():
    compare(ALL, partly=True)
    compare(ALL, partly=True, amp=False, clip=False)


def check_passes():
    compare(ALL, passes=3)
    compare(ALL, passes=2, partly=True)


def check_cross_barrier():
    compare(ALL, "barrier", amp=False, clip=False)
    compare(ALL, "barrier")


def check_an_optimizer_of_another_kind():
    compare(ALL, make=torch.optim.AdamW, rate=0.01)
    compare({**MOMENTUM, "ef": "vanilla"}, make=torch.optim.Adagrad, rate=0.01, coding={"mu": 0.5, "scaling": False})


def check_distributed_data_parallel():
    torch.manual_seed(4)
    model = DistributedDataParallel(torch.nn.Linear(6, 3), compression=ALL)
    coders = jobs(["weight", "bias"])
    for step in range(STEPS):
        gradients = []
        for rank, ((x, labels),) in enumerate(shares(step)):
            alone = torch.nn.Linear(6, 3)
            alone.load_state_dict(model.module.state_dict())
            torch.nn.functional.cross_entropy(alone(x), labels).backward()
            gradients.append({name: p.grad.numpy() for name, p in alone.named_parameters()})
            if rank == bps.rank():
                mine = (x, labels)
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(mine[0]), mine[1]).backward()
        for name, p in model.module.named_parameters():
            want = coders[name].round([one[name] for one in gradients])
            torch.testing.assert_close(p.grad, torch.from_numpy(want), rtol=1e-5, atol=1e-6)
            p.data -= 0.1 * p.grad


def check_pytorchs_own_wrapper():
    """Its process group has this worker alone: the hook reduces."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    for compression, how in ((ONEBIT, {}), ("onebit", {"feedback": False})):
        torch.manual_seed(4)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 30, bias=False))
        model.register_comm_hook(compression, push_pull_hook)
        coder = coded_ops.Job(**how)
        for step in range(STEPS):
            gradients = [inputs.sum(0).repeat(30, 1) for ((inputs, _),) in shares(step)]
            ((inputs, _),) = shares(step)[bps.rank()]
            model.zero_grad()
            model(inputs).sum().backward()
            want = coder.round([gradient.numpy() for gradient in gradients])
            torch.testing.assert_close(model.module.weight.grad, torch.from_numpy(want), rtol=1e-5, atol=1e-5)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 30))
    model.register_comm_hook({"compressor": "twobit"}, push_pull_hook)
    checks.raised(RuntimeError, lambda: model(torch.ones(1, 6)).sum().backward(), "twobit")


# ---- learning rates, types -------------------------------------------------------------------------------


def pushed(weight, gradient):
    """Let the weight have this gradient."""
    weight.grad = None
    (weight * gradient).sum().backward()
    return weight.grad


def follow(weight, optimizer, coder, rates, set_rate):
    for number, rate in enumerate(rates):
        set_rate(rate)
        gradients = coded_ops.everyone(number, weight.numel())
        mine = torch.from_numpy(gradients[bps.rank()]).to(weight.dtype)
        if weight.dtype is torch.bfloat16:
            gradients = [torch.from_numpy(g).bfloat16().float().numpy() for g in gradients]
        gradients = [torch.from_numpy(g).to(weight.dtype).double().numpy().astype(
            "float64" if weight.dtype is torch.float64 else "float32") for g in gradients]
        found = pushed(weight, mine)
        optimizer.synchronize()
        want = torch.from_numpy(coder.round(gradients, rate=rate))
        tolerance = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(weight.dtype, 2e-6)
        torch.testing.assert_close(found, want.to(weight.dtype), rtol=tolerance, atol=tolerance)
        optimizer.step()


def check_learning_rates():
    rates = (0.1, 0.1, 0.01, 0.4, 0.0, 0.3)
    for kind in ("number", "tensor", "loaded", "added"):
        weight = torch.nn.Parameter(torch.zeros(300))
        rate = torch.tensor(0.1, dtype=torch.float64) if kind == "tensor" else 0.1
        other = torch.nn.Parameter(torch.zeros(2))
        first = [other] if kind == "added" else [weight]
        optimizer = distributed(torch.optim.SGD(first, rate, foreach=False), compression=ALL)
        if kind == "added":
            optimizer.add_param_group({"params": [weight], "lr": 3.0})

        coder = coded_ops.Job()

        def set_rate(value, optimizer=optimizer, kind=kind, coder=coder):
            if kind == "loaded":
                state = optimizer.state_dict()
                state["param_groups"][-1]["lr"] = value
                optimizer.load_state_dict(state)
                coder.take_over_what_the_server_has()
            elif kind == "tensor":
                optimizer.param_groups[-1]["lr"].fill_(value)
            else:
                optimizer.param_groups[-1]["lr"] = value

        follow(weight, optimizer, coder, rates, set_rate)


def check_types():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        weight = torch.nn.Parameter(torch.zeros(200, dtype=dtype))
        optimizer = distributed(torch.optim.SGD([weight], 0.0), compression=ALL)
        follow(weight, optimizer, coded_ops.Job(), [0.0] * 4, lambda rate: None)


def check_sums_and_what_is_never_coded():
    for op, coded in ((bps.Sum, True), (bps.Max, False)):
        weight = torch.nn.Parameter(torch.zeros(200))
        distributed(torch.optim.SGD([weight], 0.0), compression=ALL, op=op)
        gradients = coded_ops.everyone(0, 200)
        found = pushed(weight, torch.from_numpy(gradients[bps.rank()]))
        want = coded_ops.Job().round(gradients, average=False) if coded else [max(g) for g in zip(*gradients)]
        torch.testing.assert_close(found, torch.as_tensor(want), rtol=2e-6, atol=2e-6)


def configured():
    """Chosen where the configuration says how all large tensors are coded: the learning rate goes along, too."""
    for compression, coder in ((bps.Compression.none, coded_ops.Job()), (None, coded_ops.Job())):
        weight = torch.nn.Parameter(torch.zeros(300))
        optimizer = distributed(torch.optim.SGD([weight], 0.1), compression=compression)

        def set_rate(rate, optimizer=optimizer):
            optimizer.param_groups[0]["lr"] = rate

        follow(weight, optimizer, coder, (0.1, 0.4, 0.02), set_rate)
    weight = torch.nn.Parameter(torch.zeros(300))
    optimizer = distributed(torch.optim.SGD([weight], 0.1), compression=False)
    push_some(weight, coded=False)


# ---- small gradients -------------------------------------------------------------------------------------


def lossy(compression):
    """Return the sizes of the gradients, in elements, that lose something."""
    parameters = [torch.nn.Parameter(torch.zeros(count)) for count in (300, 16383, 16384)]
    optimizer = distributed(torch.optim.SGD(parameters, 0.1), compression=compression)
    gradients = [[torch.from_numpy(g) for g in coded_ops.everyone(7, p.numel())] for p in parameters]
    sum((p * each[bps.rank()]).sum() for p, each in zip(parameters, gradients)).backward()
    optimizer.synchronize()
    exact = [torch.stack(each).mean(0) for each in gradients]
    return [p.numel() for p, want in zip(parameters, exact) if not torch.allclose(p.grad, want, 1e-5, 1e-6)]


def check_small_gradients_lose_nothing():
    for compression, variable, want in (
        ("onebit", "", [16384]),
        (ONEBIT, "", [16384]),
        (ONEBIT, "1200", [300, 16383, 16384]),
        (ONEBIT, "65537", []),
        (PLAIN, "65537", [300, 16383, 16384]),
        ({**ONEBIT, "min_bytes": "60 KiB"}, "65537", [16383, 16384]),
    ):
        with unittest.mock.patch.dict(os.environ, BYTEPS_MIN_COMPRESS_BYTES=variable):
            found = lossy(compression)
        assert found == want, (compression, variable, found)
    with unittest.mock.patch.dict(os.environ, BYTEPS_MIN_COMPRESS_BYTES="64k"):
        checks.raised(ValueError, lambda: lossy(ONEBIT), "BYTEPS_MIN_COMPRESS_BYTES = '64k'")
        lossy(ALL)
        lossy(bps.Compression.none)


# ---- several optimizers ----------------------------------------------------------------------------------


def check_two_models_with_two_compressions():
    one, two, plain = Loop(), Loop(amp=False), Loop(amp=False, clip=False)
    one.wrap(ALL)
    two.wrap({**ALL, "scaling": False})
    plain.wrap(False)
    wants = [Wanted(jobs(one.named)), Wanted(jobs(two.named, scaling=False), amp=False)]
    for step in range(STEPS):
        plain.step(step)
        for loop, want in zip((one, two), wants):
            a, b = loop.step(step), want.step(step)
            for name in a:
                torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-5)


def check_one_that_is_still_there():
    weight, coder = torch.nn.Parameter(torch.zeros(100)), coded_ops.Job()
    first = distributed(torch.optim.SGD([weight], 0.1), [("still", weight)], ALL)
    follow(weight, first, coder, [0.1] * 3, lambda rate: None)

    def another(compression):
        return bps.DistributedOptimizer(torch.optim.SGD([weight], 0.1), [("still", weight)], compression)

    for compression in ("onebit", False, bps.Compression.none, ALL):
        checks.raised(ValueError, lambda: another(compression), "'still' belongs to another")  # noqa: B023
    follow(weight, first, coder, [0.1] * 3, lambda rate: None)


def check_it_outlives_a_job():
    weight, coder = torch.nn.Parameter(torch.zeros(100)), coded_ops.Job()
    optimizer = distributed(torch.optim.SGD([weight], 0.1), [("later", weight)], ALL)
    follow(weight, optimizer, coder, [0.1] * 3, lambda rate: None)
    bps.suspend()
    bps.resume()
    coder.take_over_what_the_server_has()
    follow(weight, optimizer, coder, [0.1] * 3, lambda rate: None)


# ---- errors ----------------------------------------------------------------------------------------------


def check_the_state_of_an_optimizer():
    """A checkpoint has what was lost; a plain optimizer takes it, and another worker does without."""
    layer = torch.nn.Linear(20, 30)
    bps.broadcast_parameters(layer.state_dict(), 0)
    optimizer = distributed(
        torch.optim.SGD(layer.parameters(), 0.1), named_parameters=layer.named_parameters(), compression=ALL
    )

    def steps(n):
        for _ in range(n):
            optimizer.zero_grad()
            layer(torch.randn(4, 20)).square().mean().backward()
            optimizer.step()

    steps(3)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    kept = state["byteps_feedback"]["gradients"]
    assert set(kept) == {"weight", "bias"} and kept["weight"].numel() > 20 * 30 * 4, kept
    steps(2)
    assert not torch.equal(optimizer.state_dict()["byteps_feedback"]["gradients"]["weight"], kept["weight"])
    optimizer.load_state_dict(state)
    assert torch.equal(optimizer.state_dict()["byteps_feedback"]["gradients"]["weight"], kept["weight"])
    del kept["bias"]
    optimizer.load_state_dict(state)
    assert set(optimizer.state_dict()["byteps_feedback"]["gradients"]) == {"weight"}
    steps(2)
    torch.optim.SGD(layer.parameters(), 0.1).load_state_dict(state)
    state["byteps_feedback"]["rank"] += 1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        optimizer.load_state_dict(state)
    assert any("continues without" in str(one.message) for one in said), said
    another = torch.nn.Linear(20, 30)
    plain = bps.DistributedOptimizer(torch.optim.SGD(another.parameters(), 0.1), compression=False)
    assert "byteps_feedback" not in plain.state_dict()


def check_refusals():
    weight = torch.nn.Parameter(torch.zeros(100))

    def make(compression, wrap=bps.DistributedOptimizer, momentum=0.0):
        return wrap(torch.optim.SGD([weight], 0.1, momentum=momentum), compression=compression)

    for compression, kind, text in (
        (3, TypeError, "dictionary"),
        (bps.Compression, TypeError, "dictionary"),
        ({"ef": "vanilla"}, ValueError, "names no compressor"),
        ("twobit", ValueError, "twobit"),
        ({"compressor": "onebit", "scalling": True}, ValueError, "scaling"),
        ({"compressor": "onebit", "ef": "sparse"}, ValueError, "vanilla"),
    ):
        checks.raised(kind, lambda: make(compression), text)  # noqa: B023
        checks.raised(kind, lambda: DistributedDataParallel(torch.nn.Linear(2, 2), compression=compression), text)  # noqa: B023
    barrier = lambda optimizer, **how: CrossBarrier(torch.nn.Linear(2, 2), optimizer, **how)  # noqa: E731
    for wrap in (bps.DistributedOptimizer, barrier):
        checks.raised(ValueError, lambda: make(MOMENTUM, wrap, 0.9), "momentum=0")  # noqa: B023
    make(ALL, momentum=0.9)
    optimizer = make(MOMENTUM)
    other = {"params": [torch.nn.Parameter(torch.zeros(3))], "momentum": 0.9}
    checks.raised(ValueError, lambda: optimizer.add_param_group(other), "momentum=0")
    assert len(optimizer.param_groups) == 1


def check_workers_that_disagree():
    if bps.size() == 1:
        return
    mine = bps.rank() == 0
    for compressions in (
        (ALL, {**ALL, "scaling": False}),
        (ALL, "onebit"),
        (ALL, False),
        (bps.Compression.none, ALL),
    ):
        weight = torch.nn.Parameter(torch.zeros(100))
        optimizer = distributed(torch.optim.SGD([weight], 0.1), compression=compressions[mine])
        for _ in range(2):
            checks.raised(byteps.MismatchError, lambda: pushed(weight, torch.ones(100)), "plugin=onebit")  # noqa: B023
        optimizer.zero_grad()
        assert weight.tolist() == [0] * 100
    weight = torch.nn.Parameter(torch.zeros(100))
    optimizer = distributed(torch.optim.SGD([weight], 0.1), compression=ALL)
    follow(weight, optimizer, coded_ops.Job(), [0.1] * 3, lambda rate: None)


# ---- push_pull -------------------------------------------------------------------------------------------


def check_push_pull():
    coder, inplace = coded_ops.Job(), coded_ops.Job()
    bps.declare("torch.inplace", ORIGINAL)
    for number, rate in enumerate((0.1, 0.02, 0.3)):
        gradients = coded_ops.everyone(number, 300)
        mine = torch.from_numpy(gradients[bps.rank()])
        found = bps.push_pull(mine, name="torch.declared", compression=ONEBIT, learning_rate=rate)
        torch.testing.assert_close(found, torch.from_numpy(coder.round(gradients, rate=rate)), rtol=2e-6, atol=2e-6)
        work = mine.clone()
        bps.synchronize(bps.push_pull_async_inplace(work, name="torch.inplace", learning_rate=rate))
        torch.testing.assert_close(work, torch.from_numpy(inplace.round(gradients, rate=rate)), rtol=2e-6, atol=2e-6)
        bps.push_pull_inplace(mine.clone(), name="torch.other", learning_rate=rate)
        bps.synchronize(bps.push_pull_async(mine, name="torch.other", learning_rate=rate))
    checks.raised(ValueError, lambda: bps.push_pull(torch.ones(300), compression=ONEBIT), "needs a name")
    checks.raised(ValueError, lambda: bps.grouped_allreduce([torch.ones(3)], compression="onebit"), "needs a name")
    checks.raised(TypeError, lambda: bps.push_pull(torch.ones(300), name="n", compression=3), "dictionary")
    ones = torch.ones(300, requires_grad=True)
    group = bps.grouped_allreduce([ones, ones * 2], name="torch.group", compression=ONEBIT)
    sum(group).sum().backward()
    torch.testing.assert_close(torch.stack([*group, ones.grad]).mean(1), torch.tensor([1.0, 2.0, 3.0]))


def check_bytes():
    before = byteps.coded_bytes()
    bps.push_pull(torch.ones(1 << 16), name="torch.bytes", compression="onebit")
    bps.push_pull(torch.ones(1 << 16), name="torch.bytes.plain")
    plain, coded = (now - then for now, then in zip(byteps.coded_bytes(), before))
    assert plain == 4 << 16 and plain / 33 < coded < plain / 31, (plain, coded)


# ---- does it learn? --------------------------------------------------------------------------------------


def learn(compression):
    torch.manual_seed(9)
    model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    plain = torch.optim.SGD(model.parameters(), 0.3, momentum=0.5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(plain, 300)
    optimizer = distributed(plain, model.named_parameters(), compression)
    losses = []
    for step in range(300):
        ((x, labels),) = shares(step)[bps.rank()]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(bps.push_pull(loss.detach(), name="loss").item())
    return sum(losses[-50:]) / 50, sum(losses[:10]) / 10


def check_it_learns_as_well():
    exact, before = learn(bps.Compression.none)
    coded, _ = learn(ALL)
    print(f"loss {exact:.4f}, coded {coded:.4f}, at the beginning {before:.4f}", flush=True)
    assert exact < before / 3 and coded < exact + 0.05 * before, (exact, coded, before)


# ---- names that are used again: these come last, as the tensors of others may get what they leave ---------


def push_some(weight, coded):
    """Let the weight have the average of the workers' gradients, coded with one magnitude or not at all."""
    gradients = [torch.from_numpy(g) for g in coded_ops.everyone(7, weight.numel())]
    found = pushed(weight, gradients[bps.rank()])
    if coded:
        assert found.abs().unique().numel() == 1, found
    else:
        torch.testing.assert_close(found, torch.stack(gradients).mean(0), rtol=1e-5, atol=1e-6)


def check_another_compression():
    """The names that an optimizer leaves may be coded otherwise, also if it is in a circle of references."""
    weight = torch.nn.Parameter(torch.zeros(100))
    optimizer = None
    for compression in (ALL, False, bps.Compression.none, PLAIN, ALL, bps.Compression.none):
        optimizer = None  # else it would be there until the new one is
        plain = torch.optim.SGD([weight], 0.1)
        torch.optim.lr_scheduler.StepLR(plain, 1)
        optimizer = bps.DistributedOptimizer(plain, [("another", weight)], compression)
        for _ in range(3):
            push_some(weight, compression not in (False, bps.Compression.none))
            optimizer.step()


def check_the_same_optimizer_wrapped_again():
    weight = torch.nn.Parameter(torch.zeros(100))
    plain = torch.optim.SGD([weight], 0.1)
    for compression in (PLAIN, ALL, False):
        optimizer = bps.DistributedOptimizer(plain, compression=compression)
        push_some(weight, compression is not False)
        optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", ".*skip_synchronize")
    checks.main(globals(), bps)
