# SPDX-License-Identifier: Apache-2.0
"""Contestants whose processes run on the hosts of a test bed (../testbed), a rank on each of the first hosts."""

import argparse
import os
import shlex
import subprocess
import sys

from contestants import BUILD, SOURCE, Contestant, Gloo, OpenMPI, cpu_seconds

sys.path.insert(0, os.path.dirname(SOURCE))

from testbed import SWITCH, Job, Shape  # noqa: E402  (found by the line above)

SUBNET = '10.77.0.0/24'


def shape(text):
    """(workers, further servers) of an option."""
    words = text.split(',')
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[0]) < 2:
        raise argparse.ArgumentTypeError(f"'{text}' is not WORKERS,SERVERS, such as 4,2")
    return int(words[0]), int(words[1])


def read_model(name):
    """The elements of each gradient, in the order of the forward pass; of a model or a file."""
    file = name if os.sep in name else os.path.join(os.environ.get('BYTEPS_MODEL_PATH', 'models'), f'{name}.txt')
    with open(file, encoding='ascii') as lines:
        return [int(line.split()[1]) for line in lines if not line.startswith('#')]


def write_tensors(directory, counts):
    """The file that tells contestants the elements of each tensor."""
    path = os.path.join(directory, 'tensors')
    with open(path, 'w', encoding='ascii') as file:
        file.writelines(f'{count}\n' for count in counts)
    return path


class OnBed(Contestant):
    """Options name the bed, the ranks and the further servers of the shape that is measured."""

    def __init__(self, *args):
        super().__init__(*args)
        self.bed = self.options.bed

    def spawn_on(self, host, *command):
        self.children.append(self.bed.popen(host, command, env=self.env, stdin=subprocess.DEVNULL, stdout=self.log,
                                            stderr=self.log))

    def spawn_ranks(self, *command):
        for rank in range(self.ranks):
            self.spawn_on(rank, *command, str(rank), str(self.ranks))

    def calibrate(self, most):
        """A round on a bed takes seconds: one iteration is enough."""
        self.iterations = 1


class BedPushPull(OnBed):
    program = 'push_pull'

    def launch(self):
        # The scheduler and the servers inherit the environment of this process, the workers get ours.
        self.job = Job(self.bed, Shape([1] * self.ranks, self.options.servers), self.command(),
                       settings=self.all_settings(), tell=self.note)
        self.children = [part.process for part in self.job.parts.values()]

    def command(self):
        return [os.path.abspath(os.path.join(BUILD, self.program)), self.directory, self.label, self.tensors]

    def note(self, part, stream, line):
        if not self.log.closed:
            print(f'{part.name}: {line}', file=self.log, flush=True)

    def stop(self):
        super().stop()
        if hasattr(self, 'job'):
            self.job.close()


class BedCoded(BedPushPull):
    """With normally distributed tensors that are coded by this text; "": not at all."""

    def __init__(self, coding, *args):
        super().__init__(*args)
        self.coding = coding

    def command(self):
        return [*super().command(), '--coding', self.coding]

    def cpu_seconds(self):
        """Time on the CPU of all processes of the job so far."""
        return sum(cpu_seconds(part.process.pid) for part in self.job.parts.values())

    def coded_bytes(self):
        """That a worker has pushed coded in one iteration."""
        with open(os.path.join(self.directory, f'{self.label}.0.coded'), encoding='ascii') as file:
            return int(file.read())


class BedGloo(OnBed, Gloo):
    def launch(self):
        self.env['GLOO_SOCKET_IFNAME'] = 'eth0'
        self.spawn_ranks(*self.command())


class BedOpenMPI(OnBed, OpenMPI):
    """mpirun has the network of the switch, and enters the hosts by the test bed where it would use ssh."""

    def launch(self):
        agent = os.path.join(self.directory, 'agent')
        testbed = os.path.join(os.path.dirname(SOURCE), 'testbed', 'testbed')
        enter = shlex.join([sys.executable, testbed, 'exec', '--bed', self.bed.name])
        with open(agent, 'w', encoding='utf-8') as file:
            print(f'#!/bin/sh\nhost=$1\nshift\nexec {enter} "$host" -- sh -c "$*"', file=file)
        os.chmod(agent, 0o755)
        hosts = ','.join(self.bed.hostname(rank) for rank in range(self.ranks))
        program = self.build()
        network = f'--net=/run/netns/{self.bed.namespace(SWITCH)}'
        self.spawn('nsenter', network, 'mpirun', '--allow-run-as-root', '--bind-to', 'none', '--host', hosts,
                      '--mca', 'plm_rsh_agent', agent, '--mca', 'oob_tcp_if_include', SUBNET,
                      '--mca', 'pml', 'ob1', '--mca', 'btl', 'tcp,self', '--mca', 'btl_tcp_if_include', SUBNET,
                      '--mca', 'mpi_yield_when_idle', '1', '-x', 'LD_PRELOAD', '-x', 'BENCH_CONGESTION',
                      '-n', str(self.ranks), program, self.directory, self.label, self.tensors)
