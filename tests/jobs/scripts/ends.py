# SPDX-License-Identifier: Apache-2.0
"""The ways in which a worker ends, for any framework: `FRAMEWORK_ends.py HOW RANK`.

Worker RANK ends in that way, and the other tells what it hears. The script of a framework calls main() with its loops
and an operation.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time

import byteps.numpy as bps
from byteps._native import bps as native


def tell(*words):
    print(*words, flush=True)


def await_file():
    """Return when the other worker lets the job go on."""
    while not os.path.exists(os.environ["FILE"]):
        time.sleep(0.01)


def write_file():
    with open(os.environ["FILE"], "w", encoding="ascii"):
        pass


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def raise_error():
    raise RuntimeError("an error of the user")


def leave():
    sys.exit(3)


ENDS = {"killed": kill, "exception": raise_error, "exit": leave}


class Ends:
    """The ways that need no more than this.

    Args:
        loops: by name, functions that train for some steps; each calls its argument `end` in the middle, if that
            is given.
        reduce: a function that reduces so many tensors of 1000 float32, all in flight at once, and waits.
        errors: the exceptions of an operation that fails.
        describe: a function that returns the kind of such an exception in a word.
        mine: whether this worker is the one that ends.
    """

    def __init__(self, loops, reduce, errors, describe, mine):
        self.loops, self.reduce, self.errors, self.describe, self.mine = loops, reduce, errors, describe, mine
        self.train = next(iter(loops.values()))

    def in_a_loop(self, loop, end):
        """Worker RANK ends in the middle of a loop; the others tell the error of theirs and its kind."""
        if self.mine:
            self.loops[loop](ENDS[end])
        try:
            self.loops[loop](None)
            tell("no error")
        except self.errors as error:
            tell(f"{self.describe(error)}: {str(error).splitlines()[0]} {error}".replace("\n", " "))

    def thread(self):
        """The program ends with status 0 while a thread of it waits for the other worker, which never joins."""
        if self.mine:
            threading.Thread(target=lambda: self.reduce(4), daemon=True).start()
            while native.pushed_bytes() < 4 * 4000:
                time.sleep(0.01)
            write_file()
        else:
            await_file()

    def fork(self):
        """A forked process finds no job, and its parent goes on."""
        self.train(None)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()

        def child():
            try:
                native.rank()
            except ValueError as error:
                queue.put(str(error))

        process = context.Process(target=child)
        process.start()
        assert "forked" in queue.get(timeout=60)
        process.join()
        self.train(None)
        tell("trained")

    def interrupted(self):
        """SIGINT comes while an operation waits for the other worker: KeyboardInterrupt, when that has joined."""
        self.reduce(8)
        if self.mine:
            thread = threading.Thread(target=self._interrupt)
            thread.start()
            try:
                self.reduce(8)
                time.sleep(10)
                tell("no interrupt")
            except KeyboardInterrupt:
                tell("interrupted")
            thread.join()
        else:
            await_file()
            self.reduce(8)
        self.train(None)
        tell("trained")

    def _interrupt(self):
        before = native.pushed_bytes()
        while native.pushed_bytes() < before + 8 * 4000:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        write_file()

    def caught(self):
        """An exception in the user's own code, caught: nothing is left in flight, and training goes on."""
        for loop in self.loops.values():
            try:
                loop(raise_error)
            except RuntimeError:
                pass
            self.reduce(2)
        self.train(None)
        tell("trained")


def main(loops, reduce, errors, describe):
    """Join the job and end as the command line says."""
    bps.init()
    how, rank = sys.argv[1], int(sys.argv[2])
    ends = Ends(loops, reduce, errors, describe, bps.rank() == rank)
    if " " in how:
        ends.in_a_loop(*how.split(" "))
    else:
        getattr(ends, how)()
