# SPDX-License-Identifier: Apache-2.0
"""The sections of the report: from the figures of each benchmark to a table in Markdown."""

import functools
import statistics

import coded_figures
from tables import ratio_of, ratio_text, time_text


def table(head, rows):
    lines = [head, ['---'] * len(head), *rows]
    return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def spread(seconds, text=time_text):
    """The median, with the fastest and the slowest behind it."""
    return f'{text(statistics.median(seconds))} ({text(min(seconds))} to {text(max(seconds))})'


def percent(share):
    return f'{100 * share:.0f} %'


def mbit(rate):
    return f'{rate * 8 / 1e6:.0f} Mbit/s'


# ---- one host ----


def workload(result):
    seconds, cpu = result['seconds'], result['cpu_seconds']
    first = next(iter(seconds))
    base = sum(cpu[first])
    rows = [[name, spread(times), ratio_text(ratio_of(times, seconds[first])), time_text(sum(cpu[name])),
             ratio_text(sum(cpu[name]) / base) if base else '-'] for name, times in seconds.items()]
    before, after = (result[when].get('core_to_core_ns') for when in ('before', 'after'))
    cores = f'; cores {before:.0f} and {after:.0f} ns from each other' if before and after else ''
    return (f'{result["title"][0].upper()}{result["title"][1:]}: {result["setting"]}; load '
            f'{result["before"]["load"]:.1f} to {result["after"]["load"]:.1f}{cores}\n\n'
            + table(['', 'median (fastest to slowest)', 'ratio', 'CPU time', 'ratio'], rows))


def host(figures):
    return (f'### On one machine\n\nThe contenders alternate, {figures["rounds"]} rounds each; a ratio is the '
            'median of the ratios to the first row within a round.\n\n' +
            '\n'.join(map(workload, figures['workloads'])))


# ---- between hosts ----


def ring(n, size, rate):
    return 2 * (n - 1) * size / (n * rate)


def optimum_row(shape, rivals):
    all_seconds = {name: each['seconds'] for name, each in shape['contestants'].items()}
    own, least = shape['contestants']['push_pull'], shape['optimum']
    row = [f'{shape["workers"]}, {shape["servers"]}', time_text(least), f'{shape["plan"] / least:.2f}',
           spread(own['seconds']), f'{statistics.median(own["seconds"]) / least:.2f}',
           percent(statistics.median(own['idle']))]
    row += [ratio_text(ratio_of(all_seconds[each], own['seconds'])) if each in all_seconds else '-' for each in rivals]
    return [*row, f'{ring(shape["workers"], shape["bytes"], shape["stream"]) / least:.2f}']


def optimum(title, figures):
    rivals = [name for name in ('gloo', 'OpenMPI') if any(name in each['contestants'] for each in figures['shapes'])]
    head = ['workers, servers', 'optimum', '`byteps plan`', 'push_pull', 'to the optimum', 'idle cores',
            *(f'{name} / push_pull' for name in rivals), 'ring / optimum']
    rows = [optimum_row(shape, rivals) for shape in figures['shapes']]
    first = figures['shapes'][0]
    return (f'### {title}\n\nThe gradients of {figures["model"]}, {first["bytes"] / 1e6:.0f} MB; links of '
            f'{figures["rate"]}, which one TCP stream fills with {mbit(first["stream"])}.\n\n' + table(head, rows))


# ---- priority ----


def models(figures):
    rows = []
    for model in figures['models']:
        for each in model['ratios']:
            seconds = {way: [time for time, _ in each[way]] for way in ('fifo', 'priority')}
            bound = each['bound']
            rows.append([f'{model["model"]}, {each["ratio"]:g}', time_text(bound), f'{each["ideal_fifo"] / bound:.2f}',
                         *(f'{statistics.median(seconds[way]) / bound:.2f}' for way in ('fifo', 'priority')),
                         spread(seconds['priority']),
                         percent(statistics.median(idle for _, idle in each['priority']))])
    first = figures['models'][0]
    return (f'### Iterations of a model\n\n{first["workers"]} workers, {first["servers"]} server, links of '
            f'{figures["rate"]}; times of an iteration to the bound.\n\n'
            + table(['communication / computation', 'bound', 'ideal network, first come first served',
                     'all alike (`fifo`)', 'first layer first (`priority`)', 'time', 'idle cores'], rows))


def urgent_row(result):
    rounds = result['rounds']
    trips = {phase: [trip for each in rounds for trip in each[phase]['trips']] for phase in ('alone', 'both')}
    return [f'{result["place"]}, {result["workers"]}, {result["servers"]}', *map(spread, trips.values()),
            ratio_text(result['trip_ratio']), f'{result["huge_ratio"]:.2f}', f'{result["both_ratio"]:.2f}',
            f'{result["stream_ratio"]:.2f}',
            percent(statistics.median(each['both']['idle'] for each in rounds))]


def urgent(figures):
    sizes = figures['urgent'][0]
    return (f'### An urgent tensor beside a huge one\n\n{sizes["urgent_bytes"] / 1024:.0f} KiB and '
            f'{sizes["huge_bytes"] / (1 << 20):.0f} MiB; links of the bed of {figures["rate"]}.\n\n'
            + table(['workers, servers', 'round trip alone', 'beside the huge one', 'ratio', 'huge one beside / alone',
                     'both / huge one alone', 'to the TCP stream', 'idle cores'], map(urgent_row, figures['urgent'])))


def training(figures):
    rows = []
    for result in figures['training']:
        for each in result['ratios']:
            ways = {way: [time for time, _ in each[way]] for way in ('alone', 'DistributedOptimizer', 'CrossBarrier')}
            rows.append([f'{each["ratio"]:g}', *map(spread, ways.values()),
                         f'{ratio_of(ways["CrossBarrier"], ways["DistributedOptimizer"]):.2f}',
                         percent(statistics.median(idle for _, idle in each['CrossBarrier']))])
    first = figures['training'][0]
    return (f'### CrossBarrier in a training\n\nPyTorch, {first["bytes"] / 1e6:.1f} MB; {first["workers"]} workers, '
            f'{first["servers"]} server, links of {figures["rate"]}; the time of a step.\n\n'
            + table(['communication / computation', 'without communication', 'DistributedOptimizer', 'CrossBarrier',
                     'ratio of the last two', 'idle cores'], rows))


# ---- slow links ----


def slow_links_case(result):
    plain = result['codings']['not coded']['seconds']
    rows = [[f'`{title}`' if title != 'not coded' else title, f'{each["share"]:.3f}', spread(each['seconds']),
             ratio_text(ratio_of(plain, each['seconds'])), time_text(each['least']),
             f'{statistics.median(each["seconds"]) / each["least"]:.2f}', time_text(each['cpu']),
             percent(statistics.median(each['idle']))] for title, each in result['codings'].items()]
    size = '' if result['scale'] == 1 else f' times {result["scale"]:g}'
    head = ['coding', 'bytes', 'push_pull', 'times as fast', 'least time of the bytes', 'to that', 'CPU time',
            'idle cores']
    return (f'{result["model"]}{size}, {result["bytes"] / 1e6:.1f} MB; {result["workers"]} workers, '
            f'{result["servers"]} servers, links of {result["rate"]}, which one TCP stream fills with '
            f'{mbit(result["stream"])}; load {result["load"]:.1f}\n\n' + table(head, rows))


def slow_links(figures):
    return '### Coded on slow links\n\n' + '\n'.join(map(slow_links_case, figures['results']))


# ---- the defaults ----


def sweep(figures):
    keys = ('worker.partition', 'worker.slice', 'worker.credit')
    cells = {tuple(each[key] for key in keys): each['ratio'] for each in figures['results']}
    partitions, slices, credits = (list(dict.fromkeys(each[key] for each in figures['results'])) for key in keys)
    rows = [[partition, credit, *(f'{cells[partition, size, credit]:.2f}' for size in slices)]
            for credit in credits for partition in partitions]
    best = figures['best']
    idle = statistics.median(each['idle'] for each in figures['results'])
    return (f'### The defaults beside other settings\n\n{figures["model"]}, {figures["shape"][0]} workers, '
            f'{figures["shape"][1]} servers, links of {figures["rate"]}; times in times of those with the defaults, '
            f'{percent(idle)} of the cores idle.\n\n'
            + table(['partition', 'credit', *(f'slice {each}' for each in slices)], rows)
            + f'\nThe best, {" / ".join(best[key] for key in keys)}, took {best["ratio"]:.2f}, and measured once more '
            f'{best["again"]:.2f}.\n')


# ---- what coding does to a training ----


def compression(figures):
    workers, servers = figures['shape']
    sections = [f'\n{title}:\n\n{table(coded_figures.HEAD, rows)}' for title, rows in coded_figures.tables(figures)]
    return (f'### Trainings with coded gradients\n\n{workers} workers, {servers} servers, links of {figures["rate"]}.\n'
            + ''.join(sections))


SECTIONS = {
    'host': host,
    'optimum': functools.partial(optimum, 'Between hosts'),
    'more-hosts': functools.partial(optimum, 'Between more hosts'),
    'large-model': functools.partial(optimum, 'A larger model'),
    'models': models,
    'urgent': urgent,
    'training': training,
    'slow-links': slow_links,
    'sweep': sweep,
    'compression': compression,
}
