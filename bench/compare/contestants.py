# SPDX-License-Identifier: Apache-2.0
"""What is measured: programs whose processes all make the same rounds when they are told to (round.h)."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

SOURCE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.environ.get('top_builddir', '.'), 'bench', 'compare')
START_LIMIT = 60  # seconds until a contestant is ready
ROUND_LIMIT = 120  # seconds for one round
ROUND_AIM = 0.4  # seconds: a slow contestant makes fewer iterations


def succeeds(*command):
    """Whether a command can be run, and ends well."""
    nothing = subprocess.DEVNULL
    try:
        return subprocess.run(command, check=False, stdout=nothing, stderr=nothing).returncode == 0
    except OSError:
        return False


class BenchError(Exception):
    """A contestant that cannot take part."""


class Contestant:
    """Its processes and the seconds of its rounds. Settings are those of a variant of push_pull."""

    def __init__(self, title, directory, tensors, ranks, options, settings=()):
        self.title, self.directory, self.tensors = title, directory, tensors
        self.ranks, self.options, self.settings = self.size(ranks), options, settings
        self.label = type(self).__name__.lower()
        self.children, self.pids, self.seconds = [], [], []
        self.iterations = 1
        preload = os.path.join(BUILD, '.libs', 'congestion.so')
        self.env = dict(os.environ, LD_PRELOAD=preload, BENCH_CONGESTION=options.congestion)
        self.log = open(os.path.join(directory, f'{self.label}.log'), 'w+', encoding='utf-8')
        self.pipes = [(self.pipe(rank, 'go'), self.pipe(rank, 'done')) for rank in range(self.ranks)]

    def all_settings(self):
        """Those of push_pull, which chooses the congestion control of its sockets by itself."""
        return (f'transports.net.congestion={self.options.congestion}', *self.options.set, *self.settings)

    @classmethod
    def missing(cls):
        """Why it cannot take part here; None if it can."""
        return None

    def size(self, ranks):
        return ranks

    def pipe(self, rank, end):
        path = os.path.join(self.directory, f'{self.label}.{rank}.{end}')
        os.mkfifo(path)
        # Open for both, so that opening waits for nobody.
        return open(os.open(path, os.O_RDWR | os.O_CLOEXEC), 'r+b', buffering=0)

    def spawn(self, *command, stdout=None):
        child = subprocess.Popen(
            command, env=self.env, stdin=subprocess.DEVNULL, stdout=stdout or self.log, stderr=self.log,
            start_new_session=True)
        self.children.append(child)
        return child

    def spawn_ranks(self, *command):
        """One process for each rank, which is told its rank."""
        for rank in range(self.ranks):
            self.spawn(*command, str(rank), str(self.ranks))

    def start(self):
        self.launch()
        self.pids = [int(self.answer(done, START_LIMIT)) for _, done in self.pipes]
        server = self.server_pid()
        if server:
            self.pids.append(server)

    def server_pid(self):
        """The process between the workers; None: there is none."""
        return None

    def answer(self, pipe, limit):
        deadline = time.monotonic() + limit
        while not select.select([pipe], [], [], 0.2)[0]:
            if any(child.poll() for child in self.children) or time.monotonic() > deadline:
                self.log.seek(0)
                raise BenchError(self.log.read().strip()[-2000:] or 'it gave no answer')
        return pipe.readline()

    def ask(self, *numbers):
        """Tells all ranks what to do, and returns the numbers that each answers."""
        for go, _ in self.pipes:
            go.write(f'{" ".join(str(int(number)) for number in numbers)}\n'.encode())
        return [[int(word) for word in self.answer(done, ROUND_LIMIT).split()] for _, done in self.pipes]

    def calibrate(self, most, aim=ROUND_AIM):
        """Chooses the iterations of a round of `aim` seconds, at most `most`."""
        self.round()
        self.iterations = max(1, min(most, int(aim / self.seconds.pop())))
        self.cpu_before = [cpu_seconds(pid) for pid in self.pids]

    def cpu(self):
        """Seconds on the CPU that one iteration has taken since then, of each process, the server last."""
        iterations = len(self.seconds) * (self.iterations + 1)
        return [(cpu_seconds(pid) - before) / iterations for pid, before in zip(self.pids, self.cpu_before)]

    def round(self):
        """One round; notes the seconds of one iteration."""
        times = self.ask(self.iterations)
        start, end = min(start for start, _ in times), max(end for _, end in times)
        self.seconds.append((end - start) / self.iterations / 1e9)

    def stop(self):
        for pipes in self.pipes:
            for pipe in pipes:
                pipe.close()
        for child in self.children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self.log.close()


# ---- push_pull ----


class PushPull(Contestant):
    """Through one server, over TCP."""

    servers = 1
    program = 'push_pull'
    conf = ('worker.hierarchy=off', 'server.local=false')
    arguments = ()

    def launch(self):
        settings = [f'--set={setting}' for setting in (*self.conf, *self.all_settings())]
        self.spawn('byteps', 'run', '-n', str(self.ranks), '-s', str(self.servers), *settings, '--',
                   os.path.join(BUILD, self.program), self.directory, self.label, self.tensors, *self.arguments)

    def server_pid(self):
        """A descendant of `byteps run`."""
        if self.servers == 0:
            return None
        for name in filter(str.isdigit, os.listdir('/proc')):
            with contextlib.suppress(OSError), open(f'/proc/{name}/cmdline', 'rb') as cmdline:
                if b'server' in cmdline.read().split(b'\0')[1:2] and self.children[0].pid in ancestors(int(name)):
                    return int(name)
        raise BenchError('the server was not found')


class LocalPushPull(PushPull):
    """Between the workers of a host."""

    servers = 0
    conf = ()


class SharedPushPull(LocalPushPull):
    """With tensors in memory that the library shares between processes."""

    arguments = ('--alloc',)


# ---- the others ----


class Sockets(Contestant):
    def launch(self):
        program = os.path.join(BUILD, 'sockets')
        server = self.spawn(program, 'server', str(self.ranks), stdout=subprocess.PIPE)
        port = server.stdout.readline().decode().strip()
        server.stdout.close()
        self.server = server.pid
        for rank in range(self.ranks):
            self.spawn(program, 'worker', self.directory, self.label, self.tensors, str(rank), port)

    def server_pid(self):
        return self.server


class PingPong(Sockets):
    def size(self, ranks):
        return 1


class Limit(Contestant):
    def launch(self):
        self.spawn(os.path.join(BUILD, 'limit'), self.directory, self.label, self.tensors, str(self.ranks))


class Gloo(Contestant):
    python = None
    program = 'gloo.py'

    @classmethod
    def missing(cls):
        for python in (os.environ.get('PYTHON'), sys.executable):
            if python and succeeds(python, '-c', 'import torch.distributed'):
                cls.python = python
                return None
        return 'no PyTorch; install it by pip install torch==2.13.0 and give --python or PYTHON'

    def command(self):
        return self.python, '-B', os.path.join(SOURCE, self.program), self.directory, self.label, self.tensors

    def launch(self):
        self.env['GLOO_SOCKET_IFNAME'] = 'lo'
        self.spawn_ranks(*self.command())


class OpenMPI(Contestant):
    transport = ('--mca', 'btl', 'tcp,self', '--mca', 'btl_tcp_if_include', 'lo')
    sources = ('mpi.c', 'round.c')

    @classmethod
    def missing(cls):
        compiles = succeeds('mpicc', '-E', os.path.join(SOURCE, 'mpi.c'))
        if compiles and succeeds('mpirun', '--allow-run-as-root', '-n', '1', 'true'):
            return None
        return 'no OpenMPI that compiles and runs; install it by apt-get install openmpi-bin libopenmpi-dev'

    def build(self):
        program = os.path.join(self.directory, 'mpi')
        sources = [os.path.join(SOURCE, name) for name in self.sources]
        subprocess.run(['mpicc', '-std=gnu11', '-O2', '-o', program, *sources], check=True)
        return program

    def launch(self):
        program = self.build()
        self.spawn('mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '--mca', 'pml', 'ob1',
                   *self.transport, '-n', str(self.ranks), program, self.directory, self.label, self.tensors)


class SharedOpenMPI(OpenMPI):
    transport = ('--mca', 'btl', 'vader,self')


# ---- processes ----


def parent(pid):
    with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
        return int(stat.read().rsplit(')', 1)[1].split()[1])


def ancestors(pid):
    while pid > 1:
        pid = parent(pid)
        yield pid


def cpu_seconds(pid):
    """Time on the CPU of all threads of a process, ended ones too."""
    with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
        fields = stat.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def resident_bytes(pid):
    with open(f'/proc/{pid}/statm', encoding='ascii') as statm:
        return int(statm.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
