# SPDX-License-Identifier: Apache-2.0
"""The least time that links of any rates allow to a push_pull, and what each host then sends."""

PRECISION = 60
"""Halvings of an interval, far below what a measurement tells."""


def servings(n, rates, size, seconds):
    """The parts of all bytes that each host could sum in that time; the first n hosts have workers."""
    parts = [rate * seconds / size for rate in rates]
    own = [0.0 if part < 1 else min((part - 1) / (n - 2), 1.0) if n > 2 else 1.0 for part in parts[:n]]
    return own + [min(part / n, 1.0) for part in parts[n:]]


def fluid(n, rates, size):
    """(seconds, [bytes of each host in each direction]) if `size` bytes could be divided at will among all hosts.

    A host with workers sends what others sum, and to n - 1 others what it sums itself; a host without sends what it
    sums to all n. `rates` has the bytes per second of each host in each direction; the first n hosts have workers.
    """
    least = size / min(rates[:n])
    most = least * n
    for _ in range(PRECISION):
        middle = (least + most) / 2
        if sum(servings(n, rates, size, middle)) < 1:
            least = middle
        else:
            most = middle
    able = servings(n, rates, size, most)
    further = min(sum(able[n:]), 1.0)  # more than all is needed of nobody, so those with workers get what is left
    sums = [part * (1 - further) / max(sum(able[:n]), 1e-12) for part in able[:n]]
    sums += [part * further / max(sum(able[n:]), 1e-12) for part in able[n:]]
    return most, [size * (1 + (n - 2) * part if host < n else n * part) for host, part in enumerate(sums)]


def optimum(n, k, size, rate):
    """The seconds for n workers, at least 2, and k further servers, each on a host of its own with such a link."""
    return fluid(n, [rate] * (n + k), size)[0]
