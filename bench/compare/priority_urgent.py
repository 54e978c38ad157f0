# SPDX-License-Identifier: Apache-2.0
"""An urgent tensor beside a huge one: what the urgent one waits, and what it costs the huge one."""

import contextlib
import os
import statistics
import subprocess
import tempfile

from bed_contestants import BedPushPull
from contestants import PushPull
from tables import progress, time_text

from testbed import Testbed, measure, shares

HUGE, URGENT = 128 << 20, 64 << 10  # bytes
SHARE = 0.01  # of the link, for the urgent tensor


class Loopback:
    """What measure.streams() needs of a bed, where all hosts are this machine."""

    def popen(self, host, command, **how):
        return subprocess.Popen(command, **how)

    def address(self, host):
        return '127.0.0.1'


class Urgent:
    """A huge tensor and an urgent one: bench_urgent."""

    program = 'urgent'

    def phase(self, huge, period, count):
        """Seconds of the huge tensor, if it is sent, and of the urgent one's round trips, on all ranks."""
        answers, idle = measure.watched(lambda: self.ask(huge, period * 1e9, count))
        result = {'idle': idle}
        if huge:
            result['seconds'] = (max(each[-1] for each in answers) - min(each[0] for each in answers)) / 1e9
        result['trips'] = [trip / 1e9 for each in answers for trip in each[1:-1]]
        return result


class BedUrgent(Urgent, BedPushPull):
    pass


class LoopUrgent(Urgent, PushPull):
    pass


def measure_urgent(place, n, k, options):
    """The figures of each round: the urgent tensor alone, the huge one alone, both."""
    huge, urgent = (max(int(size * (options.scale or 1)), 4096) // 4 for size in (HUGE, URGENT))
    rounds = []
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix='byteps-bench-'))
        tensors = os.path.join(directory, 'tensors')
        with open(tensors, 'w', encoding='ascii') as file:
            file.write(f'{huge}\n{urgent}\n')
        on_bed = place == 'bed'
        options.servers = k
        options.bed = stack.enter_context(Testbed(n + k, options.rate)) if on_bed else Loopback()
        rate = measure.link_rate(options.bed, options.congestion)
        contestant = (BedUrgent if on_bed else LoopUrgent)('urgent', directory, tensors, n, options)
        contestant.servers = k
        stack.callback(contestant.stop)
        contestant.start()
        contestant.phase(True, 0, 0)  # warms up
        period = 4 * urgent / (SHARE * rate)
        count = max(10, int(4 * huge / rate / period))
        for number in range(options.rounds):
            progress(f'{place}, {n} workers, {k} servers: round {number + 1} of {options.rounds}')
            rounds.append({'alone': contestant.phase(False, period, count), 'huge': contestant.phase(True, 0, 0),
                           'both': contestant.phase(True, period, 0)})
    progress('')
    return {'place': place, 'workers': n, 'servers': k, 'huge_bytes': 4 * huge, 'urgent_bytes': 4 * urgent,
            'stream': rate, 'optimum': shares.optimum(n, k, 4 * huge, rate), 'rounds': rounds}


def both_ratio(result):
    """As the throughput of the huge one beside / alone, but for the bytes of the urgent one: its server's link has to
    carry these as well, from and to each worker."""
    ratios = []
    for each in result['rounds']:
        urgent = len(each['both']['trips']) * result['urgent_bytes'] / result['stream']
        ratios.append((each['huge']['seconds'] + urgent) / each['both']['seconds'])
    return statistics.median(ratios)


def print_urgent(result):
    rounds = result['rounds']
    trips = {phase: [trip for each in rounds for trip in each[phase]['trips']] for phase in ('alone', 'both')}
    seconds = {phase: [each[phase]['seconds'] for each in rounds] for phase in ('huge', 'both')}
    result['trip_ratio'] = statistics.median(trips['both']) / statistics.median(trips['alone'])
    result['huge_ratio'] = statistics.median(a / b for a, b in zip(seconds['huge'], seconds['both']))
    result['both_ratio'] = both_ratio(result)
    result['stream_ratio'] = result['optimum'] / statistics.median(seconds['both'])
    print(f'\n{result["place"]}, {result["huge_bytes"] / 1e6:.1f} MB and {result["urgent_bytes"] / 1e3:.1f} kB; '
          f'{result["workers"]} workers, {result["servers"]} servers; '
          f'one stream {result["stream"] * 8 / 1e6:.0f} Mbit/s')
    print(f'{"":34}{"median":>10}{"fastest":>10}{"slowest":>10}{"idle":>7}')
    for title, values, phase in (
            ('urgent alone', trips['alone'], 'alone'), ('urgent beside the huge one', trips['both'], 'both'),
            ('huge alone', seconds['huge'], 'huge'), ('huge beside the urgent one', seconds['both'], 'both')):
        idle = statistics.median(each[phase]['idle'] for each in rounds)
        times = ''.join(f'{time_text(each):>10}' for each in (statistics.median(values), min(values), max(values)))
        print(f'{title:34}{times}{100 * idle:>5.0f} %')
    print(f'round trip beside / alone {result["trip_ratio"]:.2f} ({len(trips["both"])} and {len(trips["alone"])} '
          f'trips); throughput of the huge one beside / alone {result["huge_ratio"]:.3f}, with the urgent '
          f'one\'s bytes {result["both_ratio"]:.3f}, to the stream {result["stream_ratio"]:.3f}', flush=True)
