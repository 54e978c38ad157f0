# SPDX-License-Identifier: Apache-2.0
"""Compares the instructions of the hot paths with the recorded ones; with --record, records them.

Started by `make bench-check` and `make bench-record` in the build tree. Status 1: a path takes more instructions than
is tolerated; 77: nothing was judged, and the last line says why.
"""

import argparse
import concurrent.futures
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

COUNTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'counts.json')
TOLERANCE = 0.05
SKIPPED = 77
TIME_LIMIT = 120  # seconds for one case, should it hang

# The C library chooses by the processor how it copies; here it takes what every processor of this kind has.
PLAIN_COPIES = 'glibc.cpu.hwcaps=-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM'


class GuardError(Exception):
    pass


def output_of(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=TIME_LIMIT, check=False, **options)
    if done.returncode != 0:
        raise GuardError(f'{" ".join(command)}: status {done.returncode}\n{done.stdout}')
    return done.stdout


def line_of(table, key):
    return re.search(f'^ *{key} +(.*)$', table, re.MULTILINE).group(1)


def reason_to_skip(table):
    if shutil.which('valgrind') is None:
        return 'there is no valgrind (apt-get install valgrind)'
    checks = line_of(table, 'checks')
    if re.search(r'\b(sanitizer|debug|coverage): (?!no\b)', checks):
        return f'sanitizers, debugging and coverage have instructions of their own ({checks})'
    return None


def toolchain(table):
    """All that the counts depend on beside our code."""
    return ', '.join([line_of(table, 'compiler'), os.confstr('CS_GNU_LIBC_VERSION'), platform.machine(),
                      output_of(['valgrind', '--version']).strip()])


def count(program, name, times):
    """The instructions of one operation of a case."""
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, 'profile')
        output_of(['valgrind', '--tool=callgrind', f'--callgrind-out-file={profile}',
                   '--toggle-collect=hot_path_count', program, name],
                  env={**os.environ, 'GLIBC_TUNABLES': PLAIN_COPIES})
        with open(profile, encoding='ascii', errors='replace') as lines:
            total = next((int(line.split()[1]) for line in lines if line.startswith('totals:')), 0)
    if total == 0:
        raise GuardError(f'{name}: callgrind has counted nothing')
    return round(total / times)


def count_all(program):
    """{case: instructions}; as many cases at once as there are cores, which changes no count."""
    cases = [line.split() for line in output_of([program]).splitlines()]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counts = pool.map(lambda case: count(program, case[0], int(case[1])), cases)
        return dict(zip((name for name, _ in cases), counts))


def record(tools, counts):
    with open(COUNTS, 'w', encoding='ascii') as file:
        json.dump({'toolchain': tools, 'instructions': counts}, file, indent=4)
        file.write('\n')
    print(f'{len(counts)} counts recorded in {COUNTS}')


def compare(recorded, counts):
    """Prints a line for each case; returns what is wrong."""
    wrong = [f'{name}: recorded, but there is no such case' for name in recorded if name not in counts]
    print(f'{"instructions of one operation":<32}{"recorded":>10}{"now":>10}')
    for name, now in counts.items():
        before = recorded.get(name)
        if before is None:
            wrong.append(f'{name}: not recorded')
            print(f'{name:<32}{"-":>10}{now:>10}')
            continue
        growth = now / before - 1
        print(f'{name:<32}{before:>10}{now:>10}{growth:>+9.1%}')
        if growth > TOLERANCE:
            wrong.append(f'{name}: {now} instructions instead of {before}, {growth:.1%} more')
        elif growth < -TOLERANCE:
            print(f'    {-growth:.1%} less: record that, so that it cannot get lost unnoticed')
    return wrong


def check(known, tools, counts):
    """Prints how the counts compare with the known ones; returns the status to exit with."""
    wrong = compare(known['instructions'], counts)
    if known['toolchain'] != tools:
        print(f'skipped: recorded with {known["toolchain"]}; here is {tools}')
        return SKIPPED
    for text in wrong:
        print(f'FAIL: {text}')
    if wrong:
        print('If that is meant to be, `make bench-record` records the counts of today.')
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description='Compares the instructions of hot paths with those recorded.')
    parser.add_argument('program', help='bench/guard/hot_paths of the build')
    parser.add_argument('--record', action='store_true', help='record them instead')
    arguments = parser.parse_args()
    table = output_of(['byteps', 'info', '--build'])
    reason = reason_to_skip(table)
    if reason is not None:
        print(f'skipped: {reason}')
        return SKIPPED
    tools, counts = toolchain(table), count_all(arguments.program)
    if arguments.record:
        record(tools, counts)
        return 0
    with open(COUNTS, encoding='ascii') as file:
        return check(json.load(file), tools, counts)


if __name__ == '__main__':
    try:
        sys.exit(main())
    except (GuardError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f'instructions: {error}')
