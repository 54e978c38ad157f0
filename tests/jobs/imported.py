# SPDX-License-Identifier: Apache-2.0
"""Interpreters that have imported a framework already: an import takes seconds, a fork milliseconds.

    python = imported.interpreter("/path/to/python", "torch", env)   # words in the place of that path in a command
    subprocess.run([*python, "script.py", "argument"], env=env)

A process that has done the imports, and nothing else, waits for the commands of one file of tests. For each it forks a
child, which runs the script as the interpreter would: with the caller's arguments, environment, folder, descriptors,
processors and namespaces. What stands in the interpreter's place passes signals on, and ends as the child ends; when it
is killed, so is the child. It runs the interpreter itself where a fork would not be the same: for options of the
interpreter, and where a variable that may matter to an import has another value.

A program that is about an import, or that a test finds by its process, asks for no such interpreter. Sets of strings
have one order in all children; a test of orders gives PYTHONHASHSEED.
"""

import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile

MATTER = tuple(
    "CUDA_ GOMP_ JAX_ KERAS_ KMP_ LD_ MALLOC_ MKL_ MXNET_ NCCL_ OMP_ OPENBLAS_ PYTHON PYTORCH_ TF_ TORCH_ XLA_".split()
)
"""How the names of the variables begin that an import may read."""
NOT = ("PYTHONDONTWRITEBYTECODE", "TF_CLI_CONFIG_FILE")
"""But these do not: no process here writes bytecode, and the second is another program's."""
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
MODULES = {
    "jax": ("jax", "optax"),
    "keras": ("keras",),
    "keras on torch": ("keras", "torch._dynamo"),
    "mxnet": ("mxnet",),
    "tensorflow": ("tensorflow", "keras"),
    "torch": ("torch", "torch._dynamo"),
}
"""What is imported for a framework: also what it imports later, in any training."""
NAMESPACES = ("ipc", "net", "uts", "mnt")
NUMBER = struct.Struct("i")


def matter(env):
    """The variables in which a fork and the process that asks for it must agree."""
    return {name: value for name, value in env.items() if name.startswith(MATTER) and name not in NOT}


# ---- in the file of tests ----

_servers = {}  # (interpreter, framework, variables) -> _Server


class _Server:
    """A process that imports the modules and then waits for commands. It ends with the process that started it."""

    def __init__(self, python, modules, env):
        self.folder = tempfile.TemporaryDirectory(prefix="byteps-imported-")
        self.path = os.path.join(self.folder.name, "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path)
            listener.listen(64)
            command = [python, "-B", __file__, "serve", str(listener.fileno()), *modules]
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
        atexit.register(self.end)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def interpreter(python, framework, env=None):
    """The words of a command that stand for this interpreter with a framework imported; `env`: that of the command."""
    if framework is None or os.environ.get("SANITIZER"):  # sanitizers watch a process from its start
        return [python]
    env = {**os.environ, **(env or {})}
    key = json.dumps([python, framework, matter(env)], sort_keys=True)
    if key not in _servers:
        _servers[key] = _Server(python, MODULES[framework], env)
    return [python, "-I", "-S", __file__, "run", _servers[key].path, python]


def servers():
    """The processes that wait for commands; their children run the scripts."""
    return [server.process.pid for server in _servers.values()]


# ---- in the interpreter's place ----


def run(path, python, *argv):
    """Has a command run by the server and ends as it has ended."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    words = argv[1:] if argv[:1] == ("-B",) else argv  # no process here writes bytecode
    alike = words and (words[0] == "-c" or not words[0].startswith("-"))
    request = {
        "argv": words,
        "env": dict(os.environ),
        "folder": os.getcwd(),
        "affinity": list(os.sched_getaffinity(0)),
        "alike": alike and matter(os.environ),
    }
    data = json.dumps(request).encode()
    socket.send_fds(server, [NUMBER.pack(len(data))], [0, 1, 2])
    server.sendall(data)
    if receive_number(server) == 0:
        os.execv(python, [python, *argv])
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: server.send(bytes([number])))
    status = receive_number(server)
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def receive(connection, length):
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            sys.exit("imported.py: the process at the other end is gone")
        data += more
    return data


def receive_number(connection):
    return NUMBER.unpack(receive(connection, NUMBER.size))[0]


# ---- the process that has imported ----


def serve(listener, *modules):
    """Imports the modules and waits for commands; returns in the process of each, with its words."""
    import gc  # what stands in an interpreter's place needs none of these
    import importlib
    import select

    before = dict(os.environ)
    for name in modules:
        importlib.import_module(name)
    set_by_imports = dict(os.environ.items() - before.items())
    gc.freeze()  # collections in the children leave these pages alone
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(fileno=int(listener))
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:  # the tests have ended
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return take(connection, before, set_by_imports)
        connection.close()


def take(connection, before, set_by_imports):
    """Forks the process of one command, and keeps to its caller meanwhile; returns in that process."""
    start, descriptors, _, _ = socket.recv_fds(connection, NUMBER.size, 3)
    request = json.loads(receive(connection, NUMBER.unpack(start)[0]))
    if request["alike"] != matter(before):
        connection.sendall(NUMBER.pack(0))
        os._exit(0)
    request["env"] = {**set_by_imports, **request["env"]}
    pid = os.fork()
    if pid == 0:
        become(request, descriptors, connection)
        return request["argv"]
    for descriptor in descriptors:
        os.close(descriptor)
    keep(connection, pid)


def keep(connection, pid):
    """Passes on the signals of the caller, whose end is that of the process, and the status to the caller."""
    import contextlib
    import select

    ended, number = os.pidfd_open(pid), None
    with contextlib.suppress(OSError):  # a caller may be killed at any time
        connection.sendall(NUMBER.pack(pid))
        while number != b"":
            ready, _, _ = select.select([connection, ended], [], [])
            if ended in ready:
                connection.sendall(NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
                os._exit(0)
            number = connection.recv(1)
            if number:
                os.kill(pid, number[0])
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def become(request, descriptors, connection):
    """Gives this process what its caller has."""
    caller = NUMBER.unpack_from(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * NUMBER.size))[0]
    connection.close()
    for space in NAMESPACES:
        join(caller, space)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["affinity"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # each process has random numbers of its own


def join(pid, space):
    """Enters a namespace of another process."""
    import ctypes

    if os.readlink(f"/proc/{pid}/ns/{space}") != os.readlink(f"/proc/self/ns/{space}"):
        with open(f"/proc/{pid}/ns/{space}", "rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns {space}")


def execute(argv):
    """Runs a script, or the code after -c, as the interpreter does."""
    import types

    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if argv[0] == "-c":
        sys.argv, sys.path[0], code = ["-c", *argv[2:]], "", compile(argv[1], "<string>", "exec")
    else:
        sys.argv, sys.path[0] = list(argv), os.path.dirname(os.path.realpath(argv[0]))
        module.__file__ = os.path.abspath(argv[0])
        with open(argv[0], "rb") as file:
            code = compile(file.read(), module.__file__, "exec")
    exec(code, module.__dict__)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:])
    execute(serve(*sys.argv[2:]))
