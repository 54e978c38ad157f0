# SPDX-License-Identifier: Apache-2.0
"""An urgent tensor beside a huge one: what the urgent one waits, and what it costs the huge one."""

import contextlib
import statistics
import subprocess
import tempfile

from bed_contestants import BedPushPull, write_tensors
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
    with contextlib.ExitStack() as stack:
        options.bed = stack.enter_context(Testbed(n + k, options.rate)) if place == 'bed' else Loopback()
        rate = measure.link_rate(options.bed, options.congestion)
        sizes = [max(int(size * (options.scale or 1)), 4096) // 4 * 4 for size in (HUGE, URGENT)]
        return urgent_rounds(place, (n, k), rate, sizes, options)


def urgent_rounds(place, hosts, rate, sizes, options):
    """The same on options.bed, whose links carry so many bytes per second, for tensors of these bytes."""
    (n, options.servers), rounds = hosts, []
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix='byteps-bench-'))
        tensors = write_tensors(directory, [size // 4 for size in sizes])
        kind = LoopUrgent if place == 'loopback' else BedUrgent
        contestant = kind('urgent', directory, tensors, n, options)
        contestant.servers = options.servers
        stack.callback(contestant.stop)
        contestant.start()
        contestant.phase(True, 0, 0)  # warms up
        period = sizes[1] / (SHARE * rate)
        count = max(10, int(sizes[0] / rate / period))
        for number in range(options.rounds):
            progress(f'{place}, {n} workers, {options.servers} servers: round {number + 1} of {options.rounds}')
            rounds.append({'alone': contestant.phase(False, period, count), 'huge': contestant.phase(True, 0, 0),
                           'both': contestant.phase(True, period, 0)})
    progress('')
    return {'place': place, 'workers': n, 'servers': options.servers, 'huge_bytes': sizes[0], 'urgent_bytes': sizes[1],
            'stream': rate, 'optimum': shares.optimum(*hosts, sizes[0], rate), 'rounds': rounds}


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
