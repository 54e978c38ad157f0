# SPDX-License-Identifier: Apache-2.0
"""What CrossBarrier is worth in a training with PyTorch, beside DistributedOptimizer and no communication at all."""

import contextlib
import os
import statistics
import tempfile

from bed_contestants import BedPushPull
from contestants import SOURCE, BenchError, Gloo
from tables import progress

from testbed import Testbed, measure, shares

WAYS = ('alone', 'DistributedOptimizer', 'CrossBarrier')  # those of training.py
PARAMETERS = 1_938_922  # of its network, float32
FIRST_BATCH = 64


class BedTraining(BedPushPull):
    """PyTorch takes the place of the program that pushes without computing."""

    def command(self):
        return [Gloo.python, os.path.join(SOURCE, 'training.py'), self.directory, self.label]

    def train(self, way, batch, count):
        """(seconds of a step, idle part of the cores)"""
        times, idle = measure.watched(lambda: self.ask(WAYS.index(way), batch, count))
        return (max(end for _, end in times) - min(start for start, _ in times)) / count / 1e9, idle


def batch_for(contestant, compute):
    """The images of a step that computes for so many seconds."""
    seconds, _ = contestant.train('alone', FIRST_BATCH, 2)
    return max(1, round(FIRST_BATCH * compute / seconds))


def measure_training(n, k, options):
    """The figures of each ratio of communication to computation."""
    missing = Gloo.missing()
    if missing:
        raise BenchError(missing)
    result = {'workers': n, 'servers': k, 'bytes': 4 * PARAMETERS, 'ratios': []}
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix='byteps-bench-'))
        options.servers = k
        options.bed = stack.enter_context(Testbed(n + k, options.rate))
        result['stream'] = measure.link_rate(options.bed, options.congestion)
        result['optimum'] = shares.optimum(n, k, result['bytes'], result['stream'])
        contestant = BedTraining('training', directory, None, n, options)
        stack.callback(contestant.stop)
        contestant.start()
        for ratio in options.ratio:
            figures = {'ratio': ratio, 'batch': batch_for(contestant, result['optimum'] / ratio),
                       **{way: [] for way in WAYS}}
            for number in range(options.rounds):
                for way in WAYS[:: 1 if number % 2 == 0 else -1]:
                    progress(f'training, {n} workers, {k} servers: {ratio:g}, {way}, round {number + 1}')
                    figures[way].append(contestant.train(way, figures['batch'], options.iterations))
            result['ratios'].append(figures)
    progress('')
    return result


def print_training(result):
    print(f'\ntraining with PyTorch, {result["bytes"] / 1e6:.1f} MB; {result["workers"]} workers, {result["servers"]} '
          f'servers; one stream {result["stream"] * 8 / 1e6:.0f} Mbit/s; communication alone at least '
          f'{result["optimum"] * 1e3:.0f} ms')
    print(f'{"communication / computation":34}{"median":>10}{"fastest":>10}{"slowest":>10}{"ratio":>7}{"idle":>7}')
    for figures in result['ratios']:
        base = [seconds for seconds, _ in figures['DistributedOptimizer']]
        print(f'{figures["ratio"]:<5g}{figures["batch"]} images in a step')
        for way in WAYS:
            seconds, idle = zip(*figures[way])
            times = (statistics.median(seconds), min(seconds), max(seconds))
            ratio = statistics.median(mine / theirs for mine, theirs in zip(seconds, base))
            print(f'{"":5}{way:29}{"".join(f"{each * 1e3:>7.0f} ms" for each in times)}{ratio:>7.2f}'
                  f'{100 * statistics.median(idle):>5.0f} %', flush=True)
