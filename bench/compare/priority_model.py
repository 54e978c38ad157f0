# SPDX-License-Identifier: Apache-2.0
"""The iterations of a model whose computation and communication overlap, against the least time there is."""

import contextlib
import os
import re
import statistics
import tempfile

from bed_contestants import BedPushPull
from tables import progress

from testbed import Testbed, measure, shares

BACKWARD = 2  # a layer's backward pass takes so often the time of its forward pass
VGG16_SIDES = {0: 224, 2: 224, 5: 112, 7: 112, 10: 56, 12: 56, 14: 56, 17: 28, 19: 28, 21: 28}
RESNET50_SIDES = {'conv': 112, 'bn': 112, 'layer1': 56, 'layer2': 28, 'layer3': 14, 'layer4': 7}


def uses(model, name):
    """How often the forward pass of one sample uses each element of a tensor: at each pixel, or each word."""
    word, number = re.match(r'([a-z]+\d?)[^0-9]*(\d*)', name).groups()
    if model == 'vgg16':
        return VGG16_SIDES.get(int(number), 14) ** 2 if word == 'features' else 1
    if model == 'resnet50':
        return next((side for begin, side in RESNET50_SIDES.items() if name.startswith(begin)), 1) ** 2
    return 0 if word == 'embeddings' else 1


class Model:
    """Its tensors in the order of the forward pass: the bytes of each, and its share of the computation."""

    def __init__(self, name, scale):
        self.name, file = name, os.path.join(os.environ.get('BYTEPS_MODEL_PATH', 'models'), f'{name}.txt')
        with open(file, encoding='ascii') as lines:
            tensors = [line.split()[:2] for line in lines if not line.startswith('#')]
        self.bytes = [4 * max(1, int(int(count) * scale)) for _, count in tensors]
        self.shares = [int(count) * uses(name, title) for title, count in tensors]

    def forward(self, compute):
        """The seconds of each tensor's forward pass, if an iteration computes for so long."""
        return [compute * share / ((1 + BACKWARD) * sum(self.shares)) for share in self.shares]


def ideal(model, compute, rate, newest_first=True):
    """Seconds of an iteration on a network without latency that moves `rate` bytes of tensors per second.

    Gradients come last to first, so the newest is always the most urgent one: it takes the network at once. This is
    Jackson's rule with preemption, which no other order beats: a tensor that is there has still to wait for the
    forward passes from its layer on. With newest_first=False they go in the order in which they come.
    """
    forward = model.forward(compute)
    left = [size / rate for size in model.bytes]
    waiting, arrived = [], {}

    def send(now, until):
        while waiting and now < until:
            place = -1 if newest_first else 0
            i = waiting[place]
            seconds = min(left[i], until - now)
            left[i] -= seconds
            now += seconds
            if left[i] <= 0:
                arrived[waiting.pop(place)] = now
        return until

    now = 0.0
    for i in reversed(range(len(forward))):
        now = send(now, now + BACKWARD * forward[i])
        waiting.append(i)
    send(now, float('inf'))
    for i, seconds in enumerate(forward):
        now = max(now, arrived[i]) + seconds
    return now


class BedModel(BedPushPull):
    program = 'model'

    def train(self, priorities, compute, count):
        """(seconds of an iteration, idle part of the cores)"""
        times, idle = measure.watched(lambda: self.ask(priorities, compute * 1e9, count))
        return (max(end for _, end in times) - min(start for start, _ in times)) / count / 1e9, idle


def measure_model(name, n, k, options):
    """The figures of each ratio of communication to computation."""
    model = Model(name, options.scale or 0.1)
    size = sum(model.bytes)
    result = {'model': name, 'workers': n, 'servers': k, 'bytes': size, 'ratios': []}
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix='byteps-bench-'))
        tensors = os.path.join(directory, 'tensors')
        with open(tensors, 'w', encoding='ascii') as file:
            file.writelines(f'{size // 4} {share}\n' for size, share in zip(model.bytes, model.shares))
        options.servers = k
        options.bed = stack.enter_context(Testbed(n + k, options.rate))
        result['stream'] = measure.link_rate(options.bed, options.congestion)
        result['optimum'] = shares.optimum(n, k, size, result['stream'])
        contestant = BedModel(name, directory, tensors, n, options)
        stack.callback(contestant.stop)
        contestant.start()
        for ratio in options.ratio:
            compute, rate = result['optimum'] / ratio, size / result['optimum']
            figures = {'ratio': ratio, 'bound': ideal(model, compute, rate),
                       'ideal_fifo': ideal(model, compute, rate, newest_first=False), 'fifo': [], 'priority': []}
            for number in range(options.rounds):
                for title in ('fifo', 'priority')[:: 1 if number % 2 == 0 else -1]:
                    progress(f'{name}, {n} workers, {k} servers: {ratio:g}, {title}, round {number + 1}')
                    figures[title].append(contestant.train(title == 'priority', compute, options.iterations))
            result['ratios'].append(figures)
    progress('')
    return result


def print_model(result):
    print(f'\n{result["model"]}, {result["bytes"] / 1e6:.1f} MB; {result["workers"]} workers, {result["servers"]} '
          f'servers; one stream {result["stream"] * 8 / 1e6:.0f} Mbit/s; communication alone at least '
          f'{result["optimum"] * 1e3:.0f} ms')
    print(f'{"communication / computation":34}{"median":>10}{"fastest":>10}{"slowest":>10}{"ratio":>7}{"idle":>7}')
    for figures in result['ratios']:
        bound = figures['bound']
        print(f'{figures["ratio"]:<5g}{"bound":29}{bound * 1e3:>7.0f} ms{"":20}{1:>7.2f}')
        print(f'{"":5}{"bound of first come, first served":29}{figures["ideal_fifo"] * 1e3:>6.0f} ms'
              f'{"":20}{figures["ideal_fifo"] / bound:>7.2f}')
        for title in ('fifo', 'priority'):
            seconds, idle = zip(*figures[title])
            times = (statistics.median(seconds), min(seconds), max(seconds))
            print(f'{"":5}{title:29}{"".join(f"{each * 1e3:>7.0f} ms" for each in times)}{times[0] / bound:>7.2f}'
                  f'{100 * statistics.median(idle):>5.0f} %', flush=True)
