# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks print: a table for each workload, and the state of the machine."""

import os
import platform
import statistics
import subprocess
import sys

from contestants import BUILD

MIB = 1 << 20


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write(f'\r\033[K{text}')
        sys.stderr.flush()


def time_text(seconds):
    if seconds >= 1e-3:
        return f'{seconds * 1e3:.1f} ms'
    return f'{seconds * 1e6:.1f} us' if seconds >= 1e-5 else f'{seconds * 1e6:.2f} us'


def ratio_text(ratio):
    return f'{ratio:.2f}' if ratio < 100 else f'{ratio:.0f}'


def print_workload(result):
    """Adds the ratios to the result. The first contestant is what the others are compared with."""
    print(f'\n{result["title"]}: {result["setting"]}')
    print(f'{"":34}{"median":>10}{"fastest":>10}{"slowest":>10}{"ratio":>7}{"CPU time":>10}{"ratio":>7}')
    base = next(iter(result['seconds'].values()))
    base_cpu = sum(next(iter(result['cpu_seconds'].values())))
    result['ratios'] = {}
    for name, seconds in result['seconds'].items():
        ratio = ratio_of(seconds, base)
        cpu = sum(result['cpu_seconds'][name])
        cpu_ratio = ratio_text(cpu / base_cpu) if base_cpu else '-'
        result['ratios'][name] = ratio
        print(f'{name:34}{time_text(statistics.median(seconds)):>10}{time_text(min(seconds)):>10}'
              f'{time_text(max(seconds)):>10}{ratio_text(ratio):>7}{time_text(cpu):>10}{cpu_ratio:>7}')
    print_rivals(result['seconds'])
    if 'push_pull' in result['seconds']:
        print_push_pull(result)


def ratio_of(seconds, base):
    """The median over the rounds: what disturbed a round has mostly disturbed both."""
    return statistics.median(mine / theirs for mine, theirs in zip(seconds, base))


def print_rivals(seconds):
    rivals = [name for name in seconds if name.startswith(('gloo', 'OpenMPI'))]
    for name in seconds:
        if name.startswith('push_pull') and rivals:
            ratios = ', '.join(f'{rival} {ratio_text(ratio_of(seconds[rival], seconds[name]))}' for rival in rivals)
            print(f'{name}: times as long take {ratios}')


def print_push_pull(result):
    """What it costs a worker and, where there is one, the server, whose figures come last."""
    median = statistics.median(result['seconds']['push_pull'])
    workers, memory = list(result['cpu_seconds']['push_pull']), list(result['resident_bytes']['push_pull'])
    servers = [(workers.pop(), memory.pop())] if len(workers) > result['ranks'] else []
    cpu = [sum(workers) / len(workers), *(seconds for seconds, _ in servers)]
    gigabytes = result['bytes'] / 1e9
    if gigabytes > 0.01:
        rates = ', '.join(f'{who} {seconds / gigabytes:.2f} s' for who, seconds in zip(('worker', 'server'), cpu))
        print(f'push_pull: {gigabytes / median:.2f} GB/s each way and worker; CPU time per GB: {rates}')
    elif result['tensors'] > 1:
        print(f'push_pull: {time_text(median / result["tensors"])} for each tensor')
    else:
        rates = ', '.join(f'{who} {time_text(seconds)}' for who, seconds in zip(('worker', 'server'), cpu))
        print(f'push_pull: CPU time: {rates}')
    server = ''.join(f'; server {resident / MIB:.0f} MiB' for _, resident in servers)
    print(f'memory resident: worker {max(memory) / MIB:.0f} MiB, of which tensors '
          f'{result["bytes"] / MIB:.0f} MiB{server}')


# ---- the machine ----


def read_line(path):
    try:
        with open(path, encoding='ascii') as file:
            return file.readline().strip()
    except OSError:
        return ''


def cpu_model():
    with open('/proc/cpuinfo', encoding='utf-8') as lines:
        for line in lines:
            if line.startswith('model name'):
                return line.split(':', 1)[1].strip()
    return platform.machine()


def print_state(when):
    """Prints and returns how busy the machine is and how far its cores are from each other at the moment."""
    state = {'load': os.getloadavg()[0]}
    core = ''
    if len(os.sched_getaffinity(0)) > 1:
        output = subprocess.run([os.path.join(BUILD, 'machine')], check=True, stdout=subprocess.PIPE).stdout
        state['core_to_core_ns'] = float(output)
        core = f'core to core {state["core_to_core_ns"]:.0f} ns, '
    print(f'{when}: {core}load {state["load"]:.1f}', flush=True)
    return state
