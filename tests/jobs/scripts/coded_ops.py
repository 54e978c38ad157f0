# SPDX-License-Identifier: Apache-2.0
"""Tensors that are coded on the network, against what the formulas say: written here anew, for NumPy.

What "compressors" has as "small" is onebit with error feedback; all tensors of 256 bytes and more are coded so, but
those whose name has "plain" in it.
"""

import os

import checks
import numpy as np

import byteps
import byteps.numpy as bps
from byteps._native import bps as _bps

# Workers of one host push their sum; without hierarchy each pushes for itself.
GROUPS = [int(n) for n in os.environ["GROUPS"].split(",")]


def onebit(x, scaling=True):
    """Return what onebit makes of a slice: its signs, and the mean of its magnitudes."""
    scale = np.abs(x).astype(np.float64).mean().astype(x.dtype) if scaling else x.dtype.type(1)
    return np.where(np.signbit(x), -scale, scale)


class Coder:
    """One side of a coded tensor: error feedback, and momentum before it."""

    def __init__(self, feedback=True, mu=None, scaling=True):
        self.feedback, self.mu, self.scaling = feedback, mu, scaling
        self.error = self.momentum = 0
        self.rate = 0.0

    def __call__(self, gradient, rate=0.0, exact=False):
        x = gradient
        if self.mu is not None:
            self.momentum = x.dtype.type(self.mu) * self.momentum + x
            x = x + x.dtype.type(self.mu) * self.momentum
        if self.feedback:
            ratio = self.rate / rate if self.rate and rate else 1
            x = x + x.dtype.type(ratio) * self.error
        coded = x if exact else onebit(x, self.scaling)
        if self.feedback:
            self.error = x - coded
            self.rate = rate
        return coded


class Job:
    """All that push for themselves, and the server, of a tensor of one slice."""

    codes = True

    def __init__(self, feedback=True, mu=None, scaling=True):
        self.senders = [Coder(feedback, mu, scaling) for _ in GROUPS]
        self.server = Coder(feedback, None, scaling)

    def take_over_what_the_server_has(self, average=True):
        """What a worker of the first group does when its part is saved."""
        if isinstance(self.server.error, int):
            return  # there has been no round
        workers = sum(GROUPS) if average else 1
        self.senders[0].error = self.senders[0].error + self.server.error * self.server.error.dtype.type(workers)
        self.server.error = self.server.error * 0

    def round(self, gradients, average=True, rate=0.0, scale=1, exact=False):
        total, first = 0, 0
        for coder, members in zip(self.senders, GROUPS):
            total = total + coder(sum(gradients[first : first + members]), rate, exact)
            first += members
        return self.server(total * total.dtype.type(scale) / (len(gradients) if average else 1), rate, exact)


class Exact(Job):
    """The same of a tensor that is too small to be coded."""

    codes = False

    def round(self, gradients, **how):
        return super().round(gradients, exact=True, **how)


def gradient(rank, number, count, dtype):
    """What a worker pushes in a round."""
    wide = np.float64 if dtype == np.float64 else np.float32
    return np.random.default_rng([rank, number]).normal(size=count).astype(dtype).astype(wide)


def everyone(number, count, dtype=np.float32):
    return [gradient(rank, number, count, dtype) for rank in range(bps.size())]


def close(result, want, dtype=np.float32):
    """Equal but for the rounding of a mean."""
    assert result.dtype == dtype, result.dtype
    tolerance = 1e-12 if dtype == np.float64 else 2e-3 if dtype == np.float16 else 2e-6
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=tolerance, atol=tolerance)


def same_everywhere(array, name):
    """All workers have the same bytes."""
    mine = np.frombuffer(array.tobytes(), np.uint8)
    for op in (bps.Min, bps.Max):
        np.testing.assert_array_equal(bps.push_pull(mine, op=op, name=f"{name}.plain.{op}"), mine)


def check_the_formulas():
    for dtype in (np.float32, np.float64, np.float16):
        for count in (64, 1000, 4096 + 7):
            job, name = Job(), f"formula.{np.dtype(dtype).name}.{count}"
            if count * np.dtype(dtype).itemsize < 256:
                continue
            for number in range(6):
                gradients = everyone(number, count, dtype)
                result = bps.push_pull(gradients[bps.rank()].astype(dtype), name=name)
                close(result, job.round(gradients), dtype)
                same_everywhere(result, name)


def check_sums_scales_and_in_place():
    job = Job()
    for number in range(4):
        gradients = everyone(number, 500)
        mine = gradients[bps.rank()].copy()
        assert bps.push_pull_inplace(mine, average=False, name="sum", prescale_factor=0.5, postscale_factor=4) is mine
        halves = [g * np.float32(0.5) for g in gradients]
        close(mine, job.round(halves, average=False, scale=4))


def check_the_error_follows_the_learning_rate():
    job = Job()
    for number, rate in enumerate((0.1, 0.1, 0.01, 0.4, 0.4)):
        gradients = everyone(number, 300)
        result = bps.push_pull(gradients[bps.rank()], name="rate", learning_rate=rate)
        close(result, job.round(gradients, rate=rate))


def check_what_a_declaration_asks_for():
    bps.declare("asked", {"compressor": "onebit", "momentum": "nesterov", "mu": 0.5, "scaling": False})
    bps.declare("asked.not", False)
    original = {"compressor_type": "onebit", "compressor_onebit_scaling": "true", "ef_type": "vanilla"}
    bps.declare("asked.original", original)
    job, original = Job(feedback=False, mu=0.5, scaling=False), Job()
    for number in range(4):
        gradients = everyone(number, 300)
        close(bps.push_pull(gradients[bps.rank()], name="asked"), job.round(gradients))
        close(bps.push_pull(gradients[bps.rank()], name="asked.original"), original.round(gradients))
        exact = bps.push_pull(gradients[bps.rank()], name="asked.not")
        np.testing.assert_allclose(exact, np.mean(gradients, axis=0), rtol=1e-5, atol=1e-6)


def check_what_begins_later():
    """The first rounds lose nothing, but have momentum already."""
    for dtype in (np.float32, np.float64, np.float16):
        name = f"later.{np.dtype(dtype).name}"
        bps.declare(name, {"compressor": "onebit", "ef": "vanilla", "momentum": "nesterov", "mu": 0.5, "start": 3})
        job = Job(mu=0.5)
        for number in range(6):
            gradients = everyone(number, 300, dtype)
            result = bps.push_pull(gradients[bps.rank()].astype(dtype), name=name)
            close(result, job.round(gradients, exact=number < 3), dtype)
            same_everywhere(result, name)


def check_what_is_too_small():
    """It loses nothing, but has momentum if others have."""
    small = {"compressor": "onebit", "ef": "vanilla", "min_bytes": 1200}
    for count in (299, 300):
        bps.declare(f"small.plain.{count}", small)
        bps.declare(f"small.momentum.{count}", {**small, "momentum": "nesterov", "mu": 0.5})
        plain, momentum = Job(), Job(mu=0.5)
        for number in range(4):
            gradients = everyone(number, count)
            mine = gradients[bps.rank()]
            close(bps.push_pull(mine, name=f"small.plain.{count}"), plain.round(gradients, exact=count < 300))
            close(bps.push_pull(mine, name=f"small.momentum.{count}"), momentum.round(gradients, exact=count < 300))


def check_nothing_is_lost_for_good():
    count = 200_000  # of several slices, and partitions where these are small
    fixed, total = everyone(0, count), np.zeros(count)
    want = np.mean(fixed, axis=0)
    for _ in range(60):
        total += bps.push_pull(fixed[bps.rank()], name="long")
    error = np.abs(total / 60 - want).mean() / np.abs(want).mean()
    assert error < 0.1, error


def check_what_is_not_coded():
    ones = np.full(1000, 1.5, np.float32) + np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(bps.push_pull(ones, name="plain"), ones)
    np.testing.assert_array_equal(bps.push_pull(ones, name=None), ones)
    np.testing.assert_array_equal(bps.push_pull(ones, op=bps.Max, name="max"), ones)
    np.testing.assert_array_equal(bps.broadcast(ones, 0, "b"), ones)
    for dtype in (np.int32, np.int64, np.uint8):
        numbers = np.arange(999).astype(dtype)
        np.testing.assert_array_equal(bps.push_pull(numbers, name="ints"), numbers)


def exact():
    """Chosen where no tensor leaves the host."""
    bps.declare("exact", {"compressor": "onebit", "ef": "vanilla"})
    for number in range(3):
        gradients = everyone(number, 3000)
        result = bps.push_pull(gradients[bps.rank()], name="exact")
        np.testing.assert_allclose(result, np.mean(gradients, axis=0), rtol=1e-5, atol=1e-6)


def large():
    """Slices that are worth other threads, more of them than there are threads; the last one is the most urgent."""
    counts = [(390_000, np.float32), (350_001, np.float16), (40_000, np.float32), (190_000, np.float64)] * 3
    names = [f"large.{i}" for i in range(len(counts))]
    jobs = [Job() for _ in names]
    for number in range(3):
        pushed = [everyone(number * 100 + i, *of) for i, of in enumerate(counts)]
        handles = [
            bps.push_pull_async(pushed[i][bps.rank()].astype(of[1]), name=names[i], priority=i)
            for i, of in enumerate(counts)
        ]
        for i, (handle, (_, dtype)) in enumerate(zip(handles, counts)):
            result = bps.synchronize(handle)
            close(result, jobs[i].round(pushed[i]), dtype)
            same_everywhere(result, names[i])


def check_sizes():
    bps.declare("empty", "onebit")
    assert bps.push_pull(np.zeros(0, np.float32), name="empty").size == 0
    for count in (1, 2, 7, 8, 9, 63, 65, 8128, 8129, 16384, 16385, 50_001):
        name = f"size.{count}"
        bps.declare(name, "onebit")
        result = bps.push_pull(np.full(count, bps.rank() + 1, np.float32), name=name, average=False)
        close(result, np.full(count, bps.size() * (bps.size() + 1) / 2))


def check_a_size_that_changes():
    for count in (300, 500, 300):
        job = Job()  # what was lost of another size is dropped
        for number in range(3):
            gradients = everyone(number, count)
            close(bps.push_pull(gradients[bps.rank()], name="changes"), job.round(gradients))


def check_a_round_that_fails_changes_nothing():
    job = Job()
    for number in range(6):
        gradients = everyone(number, 300)
        if number % 2 == 1 and bps.size() > 1:
            wrong = gradients[bps.rank()] if bps.rank() > 0 else np.zeros(200, np.float32)
            checks.raised(byteps.MismatchError, lambda: bps.push_pull(wrong, name="fails"), "worker 0 pushed [200]")  # noqa: B023
        close(bps.push_pull(gradients[bps.rank()], name="fails", average=False), job.round(gradients, average=False))


def a_part_fails():
    """Chosen with partitions of 4 KiB, and the stage nanguard: the others have been summed when one fails."""
    parts = 4
    bps.declare("parts", {"compressor": "onebit", "ef": "vanilla", "momentum": "nesterov"})
    jobs = [Job(mu=0.9) for _ in range(parts)]
    for number in range(8):
        gradients = everyone(number, parts * 1024)
        if number % 2 == 1:
            wrong = gradients[bps.rank()].copy()
            wrong[2500] = np.nan if bps.rank() == bps.size() - 1 else 0
            checks.raised(byteps.Error, lambda: bps.push_pull(wrong, name="parts"), "stage nanguard")  # noqa: B023
        result = bps.push_pull(gradients[bps.rank()], name="parts")
        for job, mine, own in zip(jobs, np.split(result, parts), zip(*(np.split(g, parts) for g in gradients))):
            close(mine, job.round(own))


def saved(name):
    return _bps.save_feedback(f"byteps.{name}")


def check_what_was_lost_can_be_saved():
    """Back to a checkpoint: as if nothing had been since."""
    bps.declare("saved", {"compressor": "onebit", "ef": "vanilla", "momentum": "nesterov"})
    bps.declare("other", {"compressor": "onebit", "ef": "vanilla"})
    job, other = Job(mu=0.9), Job()
    for number in range(3):
        gradients = everyone(number, 300)
        close(bps.push_pull(gradients[bps.rank()], name="saved"), job.round(gradients))
    state = saved("saved")
    assert saved("saved") == state  # nothing has moved
    assert saved("never pushed") == b""
    assert len(state) > 300 * 4 or (not state and len(GROUPS) < bps.size()), len(state)
    for number in range(3):
        bps.push_pull(everyone(number, 300)[bps.rank()], name="saved")
    if state:
        _bps.load_feedback("byteps.saved", state)
        _bps.load_feedback("byteps.other", state)  # of another coding: not taken
        assert saved("saved") == state
        for wrong in (b"x", state[:-1], state + b"x", b"\0" + state[1:]):
            checks.raised(byteps.Error, lambda: _bps.load_feedback("byteps.saved", wrong), "not a complete state")  # noqa: B023
    job.take_over_what_the_server_has()
    for number in range(3, 6):
        gradients = everyone(number, 300)
        close(bps.push_pull(gradients[bps.rank()], name="saved"), job.round(gradients))
        close(bps.push_pull(gradients[bps.rank()], name="other"), other.round(gradients))


def of_neighbour(state):
    """Return what the worker before this one in its group, or the last one of that, has for `state`."""
    first = 0
    for members in GROUPS:
        if first <= bps.rank() < first + members:
            break
        first += members
    room = np.zeros((bps.size(), 1 << 17), np.uint8)
    sizes = np.zeros(bps.size(), np.int64)
    sizes[bps.rank()] = len(state)
    room[bps.rank(), : len(state)] = np.frombuffer(state, np.uint8)
    sizes, room = bps.push_pull(sizes, average=False, name="sizes"), bps.push_pull(room, average=False, name="room")
    before = first + (bps.rank() - first - 1) % members
    return room[before, : sizes[before]].tobytes()


def roles_change(name, count, part):
    """What one worker has saved of a tensor with such partitions another one of its host loads."""
    bps.declare(name, {"compressor": "onebit", "ef": "vanilla", "momentum": "nesterov"})
    jobs = [Job(mu=0.9) for _ in range(0, count, part)]

    def rounds(numbers, rate):
        for number in numbers:
            gradients = everyone(number, count)
            result = bps.push_pull(gradients[bps.rank()], name=name, learning_rate=rate)
            for i, job in enumerate(jobs):
                at = slice(i * part, (i + 1) * part)
                close(result[at], job.round([g[at] for g in gradients], rate=rate))

    rounds(range(3), 0.1)
    _bps.load_feedback(f"byteps.{name}", of_neighbour(saved(name)))
    kept = saved(name)
    for job in jobs:
        job.take_over_what_the_server_has()
    rounds(range(3, 5), 0.1)
    assert not kept or saved(name) != kept  # it has counted, and counts no more
    rounds(range(5, 8), 0.2)


def check_another_worker_of_the_host_leads():
    roles_change("led", 300, 300)


def partitions_of_others():
    """Chosen with partitions of 4 KiB: all workers of a host lead some."""
    roles_change("led.parts", 5000, 1024)


def check_states_are_added():
    """A worker that does not lead has a state of an earlier learning rate; the leader goes on with its own."""
    bps.declare("added", {"compressor": "onebit", "ef": "vanilla", "momentum": "nesterov"})
    job = Job(mu=0.9)
    for number in range(3):
        gradients = everyone(number, 300)
        close(bps.push_pull(gradients[bps.rank()], name="added", learning_rate=0.1), job.round(gradients, rate=0.1))
    state = saved("added")
    others = of_neighbour(state)
    kept = [(coder.error, coder.momentum) for coder in job.senders]
    kept[0] = (kept[0][0] + np.float32(bps.size()) * job.server.error, kept[0][1])
    gradients = everyone(3, 300)
    close(bps.push_pull(gradients[bps.rank()], name="added", learning_rate=0.4), job.round(gradients, rate=0.4))
    if not state:
        _bps.load_feedback("byteps.added", others)
        assert saved("added") == others
    for coder, members, (error, momentum) in zip(job.senders, GROUPS, kept):
        if members > 1:
            coder.error = coder.error + np.float32(0.1 / 0.4) * error
            coder.momentum = coder.momentum + momentum
    for number in range(4, 7):
        gradients = everyone(number, 300)
        close(bps.push_pull(gradients[bps.rank()], name="added", learning_rate=0.4), job.round(gradients, rate=0.4))
        assert state or not saved("added")  # it has been given away


def check_it_outlives_a_pause():
    job = Job()
    for number in range(8):
        gradients = everyone(number, 300)
        close(bps.push_pull(gradients[bps.rank()], name="pause"), job.round(gradients))
        if number % 2 == 1:
            bps.suspend()
            bps.resume()
            job.take_over_what_the_server_has()
        if number > 3 and number % 2 == 1:  # with other roles
            _bps.load_feedback("byteps.pause", of_neighbour(saved("pause")))


def check_a_name_that_is_forgotten_begins_anew():
    for _ in range(3):
        job = Job()
        for number in range(3):
            gradients = everyone(number, 300)
            close(bps.push_pull(gradients[bps.rank()], name="forgotten"), job.round(gradients))
        _bps.forget(["byteps.forgotten"])
        bps.barrier()


def check_overflow_stays_visible():
    x = np.ones(1000, np.float32)
    if bps.rank() == 0:
        x[500] = np.inf
    assert not np.isfinite(bps.push_pull(x, name="overflow")).all()
    job = Job()
    for number in range(6):
        gradients = everyone(number, 300)
        if number % 2 == 1:  # a step that mixed precision drops: as if it had never been
            wrong = gradients[bps.rank()].copy()
            wrong[7] = np.inf if bps.rank() == 0 else wrong[7]
            assert not np.isfinite(bps.push_pull(wrong, name="dropped", average=False)).all()
        close(bps.push_pull(gradients[bps.rank()], name="dropped", average=False), job.round(gradients, average=False))


def check_refusals():
    wrong = {
        "no compressor": ({"ef": "vanilla"}, ValueError, "names no compressor"),
        "no such one": ({"compressor": "twobit"}, byteps.Error, "twobit"),
        "no such option": ({"compressor": "onebit", "scalling": True}, byteps.Error, "scaling"),
        "no such feedback": ({"compressor": "onebit", "ef": "sparse"}, ValueError, "vanilla"),
        "no dictionary": (3, TypeError, "dictionary"),
        "two in one": ({"compressor": "onebit;x=1"}, ValueError, "';'"),
    }
    for name, (compression, kind, text) in wrong.items():
        checks.raised(kind, lambda: bps.declare(name, compression), text)  # noqa: B023
    bps.declare("twice", "onebit")
    bps.declare("twice", {"compressor": "onebit"})
    other = {"compressor": "onebit", "ef": "vanilla"}
    checks.raised(byteps.MismatchError, lambda: bps.declare("twice", other), "feedback=true")


def check_workers_that_disagree():
    if bps.size() == 1:
        return
    bps.declare("disagree", {"compressor": "onebit", "scaling": bps.rank() == 0})
    for _ in range(2):
        checks.raised(
            byteps.MismatchError,
            lambda: bps.push_pull(np.ones(300, np.float32), name="disagree"),
            "scaling=true",
            "scaling=false",
        )
    bps.declare("one only", "onebit" if bps.rank() == 0 else False)
    checks.raised(
        byteps.MismatchError, lambda: bps.push_pull(np.ones(300, np.float32), name="one only"), "coded by plugin=onebit"
    )


if __name__ == "__main__":
    checks.main(globals(), bps)
