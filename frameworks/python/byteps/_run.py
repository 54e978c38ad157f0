# SPDX-License-Identifier: Apache-2.0
"""byteps.run(): a whole job for one function, from a program or a notebook."""

from __future__ import annotations

import collections
import numbers
import os
import pickle
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from . import _config, _worker
from ._basics import is_initialized, settings_texts
from ._errors import Error, InvalidError, WorkerError

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping

    from ._types import Settings, T

_LAST_LINES = 20
_VERDICT = re.compile(r"byteps run: (worker (\d+) \(.*\) .*); ending the job$")


def run(
    fn: Callable[..., T],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int = 1,
    *,
    servers: int = 0,
    set: Settings | None = None,
    env: Mapping[str, str] | None = None,
) -> list[T]:
    """Start a job of np workers on this machine, each of which calls fn(*args, **kwargs); return what they return.

    The workers are new processes, with this interpreter, this ``sys.path`` and this folder. fn calls bps.init() as any
    program does that ``byteps run`` starts. What they print appears in ``sys.stdout`` and ``sys.stderr``, each line
    with its origin. Ctrl-C ends the job, a second one at once; so does the end of this process.

    fn, its arguments and what it returns travel by cloudpickle where that is installed; fn may then be a lambda, a
    closure, or defined in a notebook. Without it they travel by pickle, and workers import the program that has fn:
    there the call stands below ``if __name__ == "__main__":``.

    Threads may call it at the same time; each call is a job of its own.

    Args:
        fn: what each worker calls.
        args, kwargs: its arguments, the same for all.
        np: the number of workers.
        servers: the number of server processes. 0: the workers sum what they push among themselves.
        set: a dict of values for the whole job, as for init().
        env: a dict of variables that the job has besides those of this process.

    Returns:
        A list with what each worker has returned, in the order of rank().

    Raises:
        WorkerError: a worker has failed: fn has raised an exception, or the process was lost. Its text has the worker's
            traceback, its attribute ``rank`` the worker; of several it is the first.
        InvalidError: an argument is not allowed, or this process is itself in a job.
        TypeError: fn or its arguments cannot be pickled, or a value of ``set`` is of another type.
        Error: the job could not run, such as for its configuration; the text has what ``byteps run`` says.
    """
    _check(np, servers, env)
    with tempfile.TemporaryDirectory(prefix="byteps-run-") as folder:
        call = os.path.join(folder, "call")
        _worker.write_call(call, fn, args, kwargs)
        options = ["--caller", str(os.getpid()), "--workers", str(np), "--servers", str(servers)]
        options += [f"--set={text}" for text in settings_texts(set)]
        command = [_program(), "run", *options, "--", sys.executable, "-c", _worker.ENTRY, call]
        status, said = _run_program(command, {**os.environ, **(env or {})})
        _raise_failure(folder, np, status, said)
        return [_result(folder, rank) for rank in range(np)]


def _check(np, servers, env):
    for name, value, least in (("np", np, 1), ("servers", servers, 0)):
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
            raise InvalidError(f"{name}={value!r}: expected a whole number, {least} or more")
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidError(f"env: {name!r} = {value!r}: expected a string for a string")
    if "BYTEPS_OUTER" in os.environ:
        raise InvalidError(
            "byteps.run() starts a job, and this process is in one already. Call fn itself where `byteps run` has "
            "started the program. In a program whose workers byteps.run() starts, the call stands below: "
            'if __name__ == "__main__":'
        )
    if is_initialized():
        raise InvalidError(
            "byteps.run() starts workers, and this process is itself one since bps.init(); call that in fn alone, or "
            "bps.shutdown() before"
        )


def _program():
    """The program byteps of this installation, which may have been moved as a whole."""
    here = os.path.dirname(os.path.realpath(_config.__file__))
    moved = os.path.normpath(os.path.join(here, _config.PROGRAMS_FROM_HERE, "byteps"))
    for path in (os.environ.get("BYTEPS_PROGRAM"), moved, os.path.join(_config.PROGRAMS_DIRECTORY, "byteps")):
        if path and os.access(path, os.X_OK):
            return path
    path = shutil.which("byteps")
    if path is None:
        raise Error(f"the program byteps is neither {moved} nor in the PATH; name it in BYTEPS_PROGRAM")
    return path


# ---- the program -----------------------------------------------------------------------------------------


class _Copy:
    """Copies a pipe, line by line, to a file of this interpreter, which may be the output of a notebook's cell."""

    def __init__(self, pipe, file):
        self.pipe, self.file, self.rest = pipe, file, b""
        self.last = collections.defaultdict(lambda: collections.deque(maxlen=_LAST_LINES))
        """Of each part ("worker 1"; "": the program itself) the last lines, without prefix."""
        self.verdict = None
        """What the program says of the worker that has failed first."""

    def go_on(self):
        """Copy the available bytes; return whether more may come."""
        data = os.read(self.pipe.fileno(), 1 << 16)
        whole, newline, self.rest = (self.rest + data).rpartition(b"\n")
        text = (whole + newline).decode(errors="replace")
        for line in text.split("\n")[:-1]:
            part, words = re.fullmatch(r"(?:\[(\w+(?: \d+)?)\] )?(.*)", line).groups()
            self.last[part or ""].append(words)
            self.verdict = self.verdict or _VERDICT.match(line)
        encoding = getattr(self.file, "encoding", None) or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), end="", file=self.file, flush=True)
        return bool(data)


def _copy_all(copies):
    with selectors.DefaultSelector() as selector:
        for copy in copies:
            selector.register(copy.pipe, selectors.EVENT_READ, copy)
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.go_on():
                    selector.unregister(key.fileobj)


def _run_program(command, env):
    """Run it to its end; return its status, and the copy of its standard error.

    It has a session of its own, so that Ctrl-C reaches it only from here: a second one would mean to kill the job.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=env, start_new_session=True, **pipes) as process:
        copies = [_Copy(process.stdout, sys.stdout), _Copy(process.stderr, sys.stderr)]
        failure = None
        while process.returncode is None:
            try:
                _copy_all(copies)
                process.wait()
            except BaseException as error:  # Ctrl-C, or an output that takes no more
                failure = failure or error
                process.send_signal(signal.SIGINT)
        if failure is not None:
            raise failure
        return process.returncode, copies[1]


# ---- how it went -----------------------------------------------------------------------------------------


def _raise_failure(folder, np, status, said):
    """Raise the error of the first worker that has failed, or that of the program."""
    if status != 0:
        if said.verdict is None:
            raise Error("\n".join([f"the job has ended with status {status}:", *said.last[""]]))
        _raise_worker(folder, int(said.verdict.group(2)), said.verdict.group(1), said)
    for rank in range(np):
        if not os.path.exists(_worker.result_path(folder, rank)):
            _raise_worker(folder, rank, f"worker {rank} ended before fn returned", said)


def _raise_worker(folder, rank, how, said):
    try:
        with open(_worker.failure_path(folder, rank), encoding="utf-8") as file:
            text = file.read().rstrip()
    except FileNotFoundError:
        text = "\n".join(said.last[f"worker {rank}"])
    error = WorkerError(f"{how}\n{text}" if text else how)
    error.rank = rank
    raise error


def _result(folder, rank):
    with open(_worker.result_path(folder, rank), "rb") as file:
        try:
            return pickle.load(file)
        except Exception as error:
            raise Error(f"what worker {rank} has returned cannot be unpickled by the caller: {error}") from error
