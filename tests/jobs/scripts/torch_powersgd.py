# SPDX-License-Identifier: Apache-2.0
"""powerSGD_hook against its formulas, written anew for NumPy, against PyTorch's own hook, and in training.

Most checks call the hook with a Bucket, as DistributedDataParallel would; the others need gloo's process group, whose
store is the file $STORE.
"""

import io
import os
import random
import types

import checks
import numpy as np
import torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as theirs
from torch.nn.parallel import DistributedDataParallel

import byteps.torch as bps
from byteps._native import bps as _bps
from byteps.torch.ddp_hook import push_pull_hook

# The first and the third are worth approximating at rank 1 and 2; a column, an empty one and a number never are.
SHAPES = ((20, 30), (20,), (8, 4, 3, 3), (7, 1), (0, 5), ())
LARGE = (0, 2)


class Bucket:
    """What a hook is given for the gradients of some parameters."""

    def __init__(self, parameters, gradients, index=0, is_last=True):
        self._parameters, self._index, self._is_last = parameters, index, is_last
        self._buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        sizes = [gradient.numel() for gradient in gradients]
        self._gradients = [part.view(g.shape) for part, g in zip(self._buffer.split(sizes), gradients)]

    def parameters(self):
        return self._parameters

    def gradients(self):
        return self._gradients

    def buffer(self):
        return self._buffer

    def index(self):
        return self._index

    def is_last(self):
        return self._is_last


def parameters(dtype=torch.float32, shapes=SHAPES):
    return [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]


def everyone(step, shapes=SHAPES):
    """The gradients of all workers."""
    draw = np.random.default_rng(step)
    return [[draw.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(bps.size())]


def mine(step, dtype=torch.float32, shapes=SHAPES):
    return [torch.from_numpy(np.array(g)).to(dtype) for g in everyone(step, shapes)[bps.rank()]]


def run(state, params, gradients):
    """Return what the hook makes of one bucket."""
    bucket = Bucket(params, gradients)
    assert bps.powerSGD_hook(state, bucket).wait() is not None
    return bucket.gradients()


def make(**options):
    return bps.PowerSGDState(**{"start_powerSGD_iter": 0, "random_seed": 5, **options})


class Reference:
    """The algorithm of the paper, for all workers at once, in float64; one bucket."""

    def __init__(self, rank=1, feedback=True, warm=True, dtype=torch.float32):
        self.rank, self.feedback, self.warm, self.dtype = rank, feedback, warm, dtype
        self.seeds, self.errors, self.qs = random.Random(5), {}, {}

    def begin(self, i, columns, draw):
        """Return Q of the step before, or the one that all workers draw."""
        if i in self.qs:
            return self.qs[i]
        return np.linalg.qr(torch.randn(columns, self.rank, generator=draw, dtype=self.dtype).double().numpy())[0]

    def step(self, gradients):
        """Return the results for the gradients of all workers."""
        results = means(gradients)
        draw = None if self.qs else torch.Generator().manual_seed(self.seeds.randrange(10**9))
        errors, qs = {}, {}
        for i in LARGE:
            rows = results[i].shape[0]
            matrices = [g[i].reshape(rows, -1).astype(np.float64) + self.errors.get((w, i), 0)
                        for w, g in enumerate(gradients)]
            q = self.begin(i, matrices[0].shape[1], draw)
            p = np.linalg.qr(np.mean([m @ q for m in matrices], axis=0))[0]
            q = np.mean([m.T @ p for m in matrices], axis=0)
            result = p @ q.T
            results[i] = result.reshape(results[i].shape)
            qs[i] = np.linalg.qr(q)[0]
            errors.update({(w, i): m - result for w, m in enumerate(matrices)})
        if self.feedback:
            self.errors = errors
        if self.warm:
            self.qs = qs
        return results


def means(gradients):
    return [np.mean(each, axis=0, dtype=np.float64) for each in zip(*gradients)]


def compare(found, want, dtype=torch.float32):
    tolerance = {torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float32: 3e-5, torch.float64: 1e-10}[dtype]
    for one, other in zip(found, want):
        assert one.dtype == dtype and one.shape == other.shape, (one.dtype, one.shape)
        np.testing.assert_allclose(one.double().numpy(), other, rtol=tolerance, atol=tolerance)
    same_everywhere(torch.cat([one.reshape(-1) for one in found]))


def same_everywhere(flat):
    """All workers have the same bits."""
    number = flat.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
    assert torch.equal(bps.push_pull(number, op=bps.Max), bps.push_pull(number, op=bps.Min))


# ---- the formulas ----------------------------------------------------------------------------------------


def check_the_formulas():
    for rank in (1, 2):
        for feedback in (True, False):
            for warm in (True, False):
                state = make(matrix_approximation_rank=rank, use_error_feedback=feedback, warm_start=warm)
                reference, params = Reference(rank, feedback, warm), parameters()
                for step in range(5):
                    compare(run(state, params, mine(step)), reference.step(everyone(step)))
                assert len(state.errors) == 2 * feedback and len(state.qs) == 2 * warm


def check_types():
    """Half precision is drawn and computed as float32."""
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        drawn = torch.float64 if dtype is torch.float64 else torch.float32
        state, reference, params = make(), Reference(dtype=drawn), parameters(dtype)
        for step in range(4):
            rounded = [[torch.from_numpy(np.array(g)).to(dtype).double().numpy() for g in one]
                       for one in everyone(step)]
            compare(run(state, params, mine(step, dtype)), reference.step(rounded), dtype)


def check_nothing_is_lost():
    """What the results lack of the gradients is what the workers keep as errors, with what half precision rounds."""
    for dtype in (torch.float32, torch.float16):
        state, params = make(), parameters(dtype)
        total = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
        for step in range(20):
            for lacking, gradient, result in zip(total, mine(step, dtype), run(state, params, mine(step, dtype))):
                lacking += bps.push_pull(gradient.double()) - result.double()
        for i in LARGE:
            assert total[i].abs().mean() > 0.1
            error = bps.push_pull(state.errors[i].double()).view(SHAPES[i])
            torch.testing.assert_close(error, total[i], rtol=1e-4, atol=1e-4)


def check_matrices_of_lower_rank():
    """Zeros and gradients of rank 1 are exact with rank 2, and what follows on them, too."""
    state = make(matrix_approximation_rank=2, use_error_feedback=False)
    params = parameters(shapes=[(20, 30)])
    for scale in (0, 1, 0, 0, 2, 3):
        one = scale * torch.arange(20.0)[:, None] * torch.linspace(-1, 1, 30)
        (found,) = run(state, params, [one.clone()])
        torch.testing.assert_close(found, one, rtol=1e-5, atol=1e-4)


def check_the_first_steps_are_whole():
    state, reference, params = make(start_powerSGD_iter=2), Reference(), parameters()
    for step in range(4):
        found, gradients = run(state, params, mine(step)), everyone(step)
        compare(found, means(gradients) if step < 2 else reference.step(gradients))
    assert state.iter == 4


def check_bytes():
    shapes, params = [(300, 200), (300,)], parameters(shapes=[(300, 200), (300,)])
    state = make(matrix_approximation_rank=4)
    before = _bps.pushed_bytes()
    run(state, params, mine(0, shapes=shapes))
    assert _bps.pushed_bytes() - before == 4 * (4 * (300 + 200) + 300), _bps.pushed_bytes() - before


# ---- steps that do not count -----------------------------------------------------------------------------


def left(state):
    return {**{("e", i): e.clone() for i, e in state.errors.items()}, **{i: q.clone() for i, q in state.qs.items()}}


def unchanged(state, before):
    now = left(state)
    return now.keys() == before.keys() and all(torch.equal(now[i], before[i]) for i in before)


def check_a_step_that_is_not_finite():
    """One worker's infinity or NaN, in one of two buckets, is seen by all, and changes what is kept of neither."""
    for bad, place in ((float("inf"), 0), (float("nan"), 2), (float("-inf"), 1)):
        state, params = make(matrix_approximation_rank=2), parameters()
        run_two(state, params, mine(0))
        before = left(state)
        assert len(before) == 4
        for wrong in (0, 1):  # the bucket
            gradients = mine(1)
            if bps.rank() == 1:
                gradients[place if wrong == 0 else 3].view(-1)[3] = bad
            buckets = run_two(state, params, gradients)
            assert not buckets[wrong].buffer().isfinite().all()
            assert unchanged(state, before)
        run_two(state, params, mine(2))
        assert not unchanged(state, before)
    state, reference, params = make(), Reference(), parameters()
    for step in range(5):
        gradients = mine(step)
        if step == 2:
            gradients[0][1, 1] = float("inf") if bps.rank() == 0 else 1
            assert not run(state, params, gradients)[0].isfinite().all()
        else:
            compare(run(state, params, gradients), reference.step(everyone(step)))


def run_two(state, params, gradients):
    """One step of two buckets, both on their way at once."""
    buckets = [Bucket(params[:3], gradients[:3], 0, False), Bucket(params[3:], gradients[3:], 1, True)]
    for future in [bps.powerSGD_hook(state, bucket) for bucket in buckets]:
        future.wait()
    return buckets


def check_a_step_that_fails():
    """All workers hear of it, and go on as if it had not been; it is no hang if they disagree about the beginning."""
    state, reference, params = make(), Reference(), parameters()
    for step in range(6):
        if step % 2:
            before = left(state)
            if bps.rank() == 0:
                state.matrix_approximation_rank, state.start_powerSGD_iter = ((2, 0), (1, 9), (1, 9))[step // 2]
            checks.raised(Exception, lambda: run(state, params, mine(step)), "worker 0 pushed")  # noqa: B023
            state.matrix_approximation_rank, state.start_powerSGD_iter = 1, 0
            assert unchanged(state, before)
        compare(run(state, params, mine(step)), reference.step(everyone(step)))


# ---- PyTorch's own wrapper -------------------------------------------------------------------------------


def wrapped(state, hook, dtype=torch.float32, megabytes=0.02):
    """With small buckets, so that there are several, which are others after the first backward pass."""
    if not torch.distributed.is_initialized():
        store = f"file://{os.environ['STORE']}"
        torch.distributed.init_process_group("gloo", init_method=store, rank=bps.rank(), world_size=bps.size())
    torch.manual_seed(3)
    layers = [torch.nn.Linear(40, 60), torch.nn.Tanh(), torch.nn.Linear(60, 60), torch.nn.Tanh()]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(60, 10)).to(dtype)
    model = DistributedDataParallel(module, bucket_cap_mb=megabytes)
    model.register_comm_hook(state, hook)
    return model


def train(model, steps, rate=0.05):
    """Return the losses, of all workers together."""
    optimizer = torch.optim.SGD(model.parameters(), rate)
    dtype = next(model.parameters()).dtype
    losses = []
    for step in steps:
        draw = torch.Generator().manual_seed(100 * step + bps.rank())
        inputs = torch.randn(16, 40, generator=draw).to(dtype)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), inputs[:, :10] - inputs[:, 10:20])
        loss.backward()
        optimizer.step()
        losses.append(bps.push_pull(loss.detach()).item())
    return losses


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def check_it_does_what_pytorchs_hook_does():
    """With one bucket: with several, the all-reduces of theirs may come in another order on another worker."""
    for rank in (1, 2, 4):
        options = {"matrix_approximation_rank": rank, "start_powerSGD_iter": 3, "min_compression_rate": 1}
        state = theirs.PowerSGDState(None, **options)
        state.rng = types.SimpleNamespace(randint=random.Random(0).randrange)
        want = wrapped(state, theirs.powerSGD_hook, torch.float64, megabytes=25)
        found = wrapped(bps.PowerSGDState(**options), bps.powerSGD_hook, torch.float64, megabytes=25)
        start = weights(found)
        train(want, range(12))
        train(found, range(12))
        torch.testing.assert_close(weights(found), weights(want), rtol=1e-9, atol=1e-9)
        assert not torch.equal(weights(found), start)
        same_everywhere(weights(found))


def check_training_goes_on_from_a_file():
    state = bps.PowerSGDState(matrix_approximation_rank=2, start_powerSGD_iter=3)
    model, file = wrapped(state, bps.powerSGD_hook), io.BytesIO()
    train(model, range(6))
    torch.save({"model": model.module.state_dict(), "state": state}, file)
    train(model, range(6, 10))
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    assert saved["state"].iter == 6 and len(saved["state"].errors) == 3, saved["state"].errors.keys()
    other = wrapped(saved["state"], bps.powerSGD_hook)
    other.module.load_state_dict(saved["model"])
    train(other, range(6, 10))
    torch.testing.assert_close(weights(other), weights(model), rtol=1e-6, atol=1e-7)


def check_it_learns():
    exact = train(wrapped(None, push_pull_hook), range(150), 0.3)
    state = bps.PowerSGDState(start_powerSGD_iter=20)
    low = train(wrapped(state, bps.powerSGD_hook), range(150), 0.3)
    print(f"loss {exact[0]:.3f}, exact {exact[-1]:.3f}, of rank 1 {low[-1]:.3f}", flush=True)
    assert len(state.errors) == 3 and low[:20] == exact[:20]
    assert low[-1] < exact[-1] + 0.02 * exact[0], (low[-1], exact[-1])


# ---- refusals --------------------------------------------------------------------------------------------


def check_refusals():
    for options, text in (
        ({"matrix_approximation_rank": 0}, "matrix_approximation_rank=0 must be an integer of at least 1"),
        ({"matrix_approximation_rank": 1.5}, "an integer"),
        ({"start_powerSGD_iter": -1}, "start_powerSGD_iter=-1"),
        ({"min_compression_rate": "2"}, "min_compression_rate='2' must be a number"),
    ):
        checks.raised(ValueError, lambda: bps.PowerSGDState(**options), text)  # noqa: B023
    checks.raised(TypeError, lambda: bps.PowerSGDState(None, 1), "positional")
    state = make()
    run(state, parameters(), mine(0))
    saved = state.__getstate__()
    state.__setstate__(saved)
    other = [(30, 20), *SHAPES[1:]]
    checks.raised(Exception, lambda: run(state, parameters(shapes=other), mine(1, shapes=other)), "another model's")


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
