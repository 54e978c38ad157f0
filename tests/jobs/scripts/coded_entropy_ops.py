# SPDX-License-Identifier: Apache-2.0
"""Tensors coded as the original BytePS does it, or to bytes that depend on the elements, against formulas in NumPy."""

import os

import checks
import numpy as np

import byteps.numpy as bps

MASK = 2**64 - 1
METHOD = os.environ.get("METHOD", "")


def everyone(number, count, dtype=np.float32):
    """What each worker pushes in a round: small elements and large ones, and zeros."""
    draws = [np.random.default_rng([rank, number]) for rank in range(bps.size())]
    return [(draw.normal(size=count) ** 3 * (draw.random(count) > 0.2)).astype(dtype) for draw in draws]


def same_everywhere(array, name):
    """All workers have the same bytes."""
    mine = np.frombuffer(array.tobytes(), np.uint8)
    for op in (bps.Min, bps.Max):
        np.testing.assert_array_equal(bps.push_pull(mine, op=op, name=f"{name}.plain.{op}"), mine)


# ---- as the original ----------------------------------------------------------------------------------------


def mix(x):
    """The finalizer of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def shared(tensor, round_number):
    """What all draw from for the first slice of a tensor in a round, with the seed 0."""
    return mix(mix(mix(0) ^ tensor << 32) ^ round_number << 32)


def xorshift128p(seed, count):
    """Return the first numbers of the original's generator."""
    a = b = seed
    numbers = []
    for _ in range(count):
        t, s = a, b
        a = s
        t ^= t << 23 & MASK
        t ^= t >> 17
        t ^= s ^ s >> 26
        b = t
        numbers.append((t + s) & MASK)
    return np.array(numbers, np.uint64)


def kept(k, count):
    """Return how many of float32 the original keeps, which fills a slice up to 32 elements."""
    part = np.float32(k) * np.float32(-(-count // 32) * 32 * 4) / np.float32(4)
    return int(k) if k >= 1 else max(1, int(part))


def topk(x, numbers, k):
    """Return what the original makes of float32, where no two magnitudes are the same."""
    places = np.argsort(-np.abs(x))[: kept(k, x.size)]
    return np.where(np.isin(np.arange(x.size), places), x, np.float32(0))


def randomk(x, numbers, k):
    """Return what the original makes of float32: drawn with replacement, and assigned."""
    places = numbers(kept(k, x.size)) % np.uint64(x.size)
    return np.where(np.isin(np.arange(x.size), places), x, np.float32(0))


def dithering(x, numbers, levels, partition, normalize):
    """Return what the original makes of float32."""
    scale = np.abs(x).max().astype(np.float64) if normalize == "max" else np.sqrt((x.astype(np.float64) ** 2).sum())
    top = np.float64(levels if partition == "linear" else 2 ** (levels - 1))
    v = (np.abs(x) / scale * top).astype(np.float32)
    if partition == "linear":
        low = np.floor(v)
        length = np.ones_like(low)
    else:
        up = np.ceil(v).astype(np.uint32)
        low = np.array([1 << int(n - 1).bit_length() >> 1 if n > 0 else 0 for n in up], np.float32)
        length = np.maximum(low, 1)
    p = ((v - low) / length).astype(np.float64)
    level = low + length * (numbers(x.size).astype(np.float64) < p * float(MASK))
    return np.sign(x) * (level * np.float32(scale) / np.float32(top))


def coded_twice(method, gradients, numbers, **form):
    """Return what comes of these of all workers: coded by each, and their sum by the server."""
    return method(sum(method(g, numbers, **form) for g in gradients), numbers, **form)


def compare_with_the_original(method, places, **form):
    """Compare three rounds; among the first tensors and rounds so many places draw what this one has drawn."""
    name = f"original.{method.__name__}.{form}"
    bps.declare(name, {"compressor": method.__name__, "compat": True, **form})
    gradients, results = [], []
    for number in range(3):
        gradients.append(everyone(number, 3000))
        results.append(bps.push_pull(gradients[-1][bps.rank()], name=name, average=False))
        same_everywhere(results[-1], name)

    def matches(tensor, number, first):
        def numbers(count):
            return xorshift128p(shared(tensor, first + number), count)

        return np.allclose(results[number], coded_twice(method, gradients[number], numbers, **form), rtol=1e-6)

    # Which number the job has given to the tensor, and to its first round, is nobody's business but the core's.
    found = [(tensor, first) for tensor in range(100) for first in range(2) if matches(tensor, 0, first)]
    assert len(found) == places, (name, found)
    assert all(matches(found[0][0], number, found[0][1]) for number in range(3)), name


def check_the_original():
    for levels, partition, normalize in ((5, "linear", "max"), (127, "linear", "l2"), (6, "natural", "max"),
                                         (20, "natural", "l2")):  # fmt: skip
        compare_with_the_original(dithering, 1, levels=levels, partition=partition, normalize=normalize)
    for k in (0.0506, 40):
        compare_with_the_original(topk, 200, k=k)  # it draws nothing
        compare_with_the_original(randomk, 1, k=k)


def check_the_seed_of_the_original():
    """Its numbers go on from round to round."""
    for method, form in ((randomk, {"k": 40}), (dithering, {"levels": 5, "partition": "linear", "normalize": "max"})):
        name = f"seed.{method.__name__}"
        bps.declare(name, {"compressor": method.__name__, "compat": True, "seed": 11, **form})
        for number in range(4):

            def numbers(count, number=number):
                return xorshift128p(11, (number + 1) * count)[-count:]

            gradients = everyone(number, 3000)
            result = bps.push_pull(gradients[bps.rank()], name=name, average=False)
            np.testing.assert_allclose(result, coded_twice(method, gradients, numbers, **form), rtol=1e-6)


# ---- dithering ----------------------------------------------------------------------------------------------


def check_dithering_has_no_bias():
    rounds = 400
    for dtype in (np.float32, np.float64, np.float16):
        for partition, levels in (("linear", 3), ("natural", 3)):
            name = f"mean.{partition}.{np.dtype(dtype).name}"
            bps.declare(name, {"compressor": "dithering", "partition": partition, "levels": levels})
            fixed = everyone(0, 500, dtype)
            exact = np.mean(np.asarray(fixed, np.float64), axis=0)
            total = np.zeros(500)
            for _ in range(rounds):
                result = bps.push_pull(fixed[bps.rank()], name=name)
                total += result
            same_everywhere(result, name)
            # Workers and the server round once each: half a distance of levels at most is their deviation.
            scale = np.abs(fixed).max().astype(np.float64)
            assert np.abs(total / rounds - exact).max() < 6 * 0.5 * scale * 2**0.5 / rounds**0.5, name


def check_feedback_loses_nothing_for_good():
    bps.declare("feedback", {"compressor": "dithering", "levels": 3, "ef": "vanilla"})
    bps.declare("chance", {"compressor": "dithering", "levels": 3})
    fixed = everyone(0, 40_000)
    exact, error = np.mean(fixed, axis=0), {}
    for name in ("feedback", "chance"):
        total = np.zeros(exact.size)
        for _ in range(50):
            total += bps.push_pull(fixed[bps.rank()], name=name)
        error[name] = np.abs(total / 50 - exact).mean() / np.abs(exact).mean()
    assert error["feedback"] < 0.6 * error["chance"], error


def check_dithering_hides_nothing():
    for name, option in (("zeros", "levels"), ("broken", "compressor_k")):
        bps.declare(name, {"compressor": "dithering", option: 5})
    np.testing.assert_array_equal(bps.push_pull(np.zeros(300, np.float32), name="zeros"), np.zeros(300))
    x = np.ones(300, np.float32)
    if bps.rank() == 0:
        x[7] = np.nan
    assert np.isnan(bps.push_pull(x, name="broken")).all()


# ---- lossless -----------------------------------------------------------------------------------------------


def lossless():
    """Chosen where the compressor has been built: "METHOD" is one of its libraries."""
    for dtype in (np.float32, np.float64, np.float16):
        for count in (1, 300, 16384, 50_001):
            name = f"{np.dtype(dtype).name}.{count}"
            bps.declare(f"lossless.{name}", {"compressor": "lossless", "method": METHOD})
            bps.declare(f"plain.{name}", False)
            for number in range(2):
                mine = everyone(number, count, dtype)[bps.rank()]
                coded = bps.push_pull(mine, name=f"lossless.{name}", average=False)
                exact = bps.push_pull(mine, name=f"plain.{name}", average=False)
                assert coded.tobytes() == exact.tobytes(), name
                same_everywhere(coded, name)
            large = np.full(count, np.finfo(dtype).max * dtype(0.75))  # the mean is a number of the type, the sum none
            mean = bps.push_pull(large, name=f"lossless.{name}")
            np.testing.assert_allclose(mean, large, rtol=2 * np.finfo(dtype).eps)


if __name__ == "__main__":
    checks.main(globals(), bps)
