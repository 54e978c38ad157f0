# SPDX-License-Identifier: Apache-2.0
"""What trainings with coded gradients come to: rows of a table for each task, and a plot."""

import statistics

BASE = 'none'
SHORT = 0.005  # of the accuracy without coding and with the same seed: who is that near has reached it
HEAD = ['method', 'accuracy', 'to none', 'MB a step', 'fewer', 'time a step', 'faster', 'to accuracy', 'faster']


def select(figures, task, method):
    """The trainings of a method, by seed."""
    return {each['seed']: each for each in figures['trainings'] if (each['task'], each['method']) == (task, method)}


def final(trainings):
    return [each['points'][-1][1] for each in trainings.values()]


def steps_until(points, target):
    """When the accuracy is reached, on the line between two points; None: never."""
    before = (0, 0.0)
    for step, accuracy in points:
        if accuracy >= target:
            return before[0] + (step - before[0]) * (target - before[1]) / (accuracy - before[1])
        before = step, accuracy
    return None


def seconds_until(trainings, base):
    """How long each seed has taken to the accuracy, without those that have not reached it."""
    times = []
    for seed, each in trainings.items():
        steps = steps_until(each['points'], final({seed: base[seed]})[0] - SHORT) if seed in base else None
        times += [] if steps is None else [steps * each['seconds']]
    return times


def mean(trainings, key):
    return statistics.mean(each[key] for each in trainings.values())


def points(difference):
    return f'{100 * difference:+.2f}'


def faster(base, seconds):
    return f'{base / seconds:.1f}' if base and seconds else '-'


def reached(times, trainings, base_times):
    """[the mean time to the accuracy, how many times as fast that is], if all have reached it; else how many have."""
    if len(times) < len(trainings):
        return [f'by {len(times)} of {len(trainings)}', '-']
    return [f'{statistics.mean(times):.1f} s', faster(statistics.mean(base_times), statistics.mean(times))]


def row(method, trainings, base):
    accuracy = final(trainings)
    common = [seed for seed in trainings if seed in base]
    pairs = [final({0: trainings[seed]})[0] - final({0: base[seed]})[0] for seed in common]
    spread = f'{100 * min(accuracy):.2f} to {100 * max(accuracy):.2f}'
    return [method, f'{100 * statistics.mean(accuracy):.2f} % ({spread})', points(statistics.mean(pairs)),
            f'{mean(trainings, "bytes") / 1e6:.3f}', f'{mean(base, "bytes") / mean(trainings, "bytes"):.1f}',
            f'{1e3 * mean(trainings, "seconds"):.0f} ms', faster(mean(base, 'seconds'), mean(trainings, 'seconds')),
            *reached(seconds_until(trainings, base), trainings, seconds_until(base, base))]


def tables(figures):
    """[(title, rows)] of the tasks that have been trained without coding, too."""
    found = []
    for task in figures['tasks']:
        base = select(figures, task, BASE)
        if base:
            rows = [row(method, select(figures, task, method), base) for method in figures['methods']
                    if select(figures, task, method)]
            found.append((f'{task}, {figures["steps"]} steps, seeds: {len(base)}; the accuracy to reach is that of none, '
                          f'less {100 * SHORT:.1f} %', rows))
    return found


def curve(trainings):
    """(steps, mean accuracy over the seeds)"""
    together = list(zip(*(each['points'] for each in trainings.values())))
    return [step[0][0] for step in together], [statistics.mean(each[1] for each in step) for step in together]


def draw(figures, path):
    import matplotlib

    matplotlib.use('Agg')  # draws without a display
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(figures['tasks']), 2, figsize=(12, 4.2 * len(figures['tasks'])), squeeze=False)
    for (left, right), task in zip(axes, figures['tasks']):
        for number, method in enumerate(figures['methods']):
            trainings = select(figures, task, method)
            if trainings:
                steps, accuracy = curve(trainings)
                style = {'label': method, 'color': pyplot.get_cmap('tab20')(number % 20), 'lw': 1.2,
                         'ls': '--' if method.startswith('DDP') else '-'}
                for place, key, unit in ((left, 'bytes', 1e6), (right, 'seconds', 1)):
                    place.plot([step * mean(trainings, key) / unit for step in steps], accuracy, **style)
        left.set(title=task, xlabel='MB that a worker has sent', ylabel='accuracy', xscale='log')
        right.set(title=task, xlabel=f's at {figures["rate"]}', xscale='log')
        right.legend(fontsize='x-small', loc='lower right')
        for place in (left, right):
            place.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=75)
