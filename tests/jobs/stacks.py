# SPDX-License-Identifier: Apache-2.0
"""What processes that do not go on are at: the stack of each of their threads and the state of their queues, by gdb."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "state_gdb.py")
LIMIT = 60.0
"""Seconds that gdb gets for one process."""
NOISE = ("[New LWP", "[Thread debugging", "Using host libthread_db", "warning: ", "[Inferior 1")


def command(pid):
    """The command line of a process, for messages and for finding it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"


def state(pid):
    """The state letter of a process' first thread (Z for a zombie), or "" if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def children(pid):
    """The descendants of a process, zombies among them."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                for child in map(int, file.read().split()):
                    found += [child, *children(child)]
    return found


def _by_gdb(pid):
    if shutil.which("gdb") is None:
        return "there is no gdb here"
    argv = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pid), "-x", SCRIPT]
    # What our tests preload into programs is not for gdb.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": env}
    try:
        found = subprocess.run(argv, encoding="utf-8", errors="replace", timeout=LIMIT, check=False, **how)
    except subprocess.TimeoutExpired:
        return f"gdb did not end within {LIMIT:g} s"
    return "\n".join(line for line in found.stdout.splitlines() if line and not line.startswith(NOISE))


def of(pids):
    """The stacks and queues of these processes as text.

    Programs in Python that have called faulthandler.enable() end by this, and write where they were to their stderr.
    """
    texts = [f"--- process {pid}, {state(pid)}: {command(pid)}\n{_by_gdb(pid)}" for pid in sorted(set(pids))]
    for pid in pids:
        if "python" in os.path.basename(command(pid).partition(" ")[0]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)
    time.sleep(1)
    return "\n".join(texts)
