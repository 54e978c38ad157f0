# SPDX-License-Identifier: Apache-2.0
"""init, shutdown, suspend, resume, signals, forks: the life of a job in one process."""

import os
import signal
import sys
import threading
import time

import checks
import numpy as np

import byteps
import byteps.numpy as bps
from byteps._basics import shared_buffer


def resources():
    """The numbers of descriptors and threads."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def settles_at(want):
    """Whether the resources become what they were; the kernel needs a moment to bury a thread."""
    end = time.monotonic() + 30
    while resources() != want and time.monotonic() < end:
        time.sleep(0.001)
    return resources() == want


def works():
    assert bps.push_pull(np.ones(5), name="x", op=bps.Sum).tolist() == [bps.size()] * 5


def check_memory_of_another_thread():
    """Shared memory comes and goes, under the interpreter's lock, while jobs begin and end."""
    over = threading.Event()

    def come_and_go():
        while not over.is_set():
            memory = [shared_buffer(4096 * (i + 1)) for i in range(4)]
            assert None not in memory

    thread = threading.Thread(target=come_and_go)
    thread.start()
    for _ in range(5):
        works()
        bps.shutdown()
        bps.init()
    over.set()
    thread.join()


def check_repeated():
    works()
    before = None
    for i in range(int(os.environ.get("ROUNDS", "30"))):
        bps.shutdown()
        assert not bps.is_initialized()
        checks.raised(byteps.NotInitializedError, bps.rank, "init")
        checks.raised(ValueError, bps.size)
        checks.raised(byteps.NotInitializedError, lambda: bps.push_pull(np.ones(2)))
        checks.raised(byteps.NotInitializedError, bps.shutdown)
        if i == 3:
            time.sleep(0.2)
            before = resources()
        assert before is None or settles_at(before), (before, resources())
        bps.init()
        works()


def check_suspend():
    for name in ("a", "b", "c"):
        bps.declare(name)
    rank = bps.rank()
    for _ in range(20):
        bps.suspend()
        assert not bps.is_initialized()
        bps.resume(int(os.environ["DMLC_NUM_WORKER"]), int(os.environ["DMLC_NUM_SERVER"]), rank)
        assert (bps.rank(), bps.size()) == (rank, bps_size)
        works()
        assert bps.push_pull(np.ones(5), name="b", op=bps.Sum)[0] == bps.size()


def check_resume_as_in_the_original():
    """DMLC_NUM_WORKER counts machines: this one."""
    assert os.environ["DMLC_NUM_WORKER"] == "1"
    for servers in (os.environ["DMLC_NUM_SERVER"], int(os.environ["DMLC_NUM_SERVER"])):
        bps.suspend()
        bps.resume(os.environ["DMLC_NUM_WORKER"], servers)
        assert bps.size() == bps_size
        works()
    bps.suspend()
    for wrong in ("two", 1.5, True):
        checks.raised(byteps.InvalidError, lambda wrong=wrong: bps.resume(wrong), f"num_workers = {wrong!r}")
    for wrong in (0, -1):
        checks.raised(byteps.ConfigurationError, lambda wrong=wrong: bps.resume(wrong), "cluster.workers")
    if bps_size > 1:
        workers = f"cluster.workers = {2 * bps_size}"
        checks.raised(byteps.Error, lambda: bps.resume(2), "the configurations differ", workers)
    bps.resume()
    works()


def check_results_after_the_end():
    """What shutdown() finishes has results, also when the next job has begun; what it gives up has errors."""
    for end in (bps.shutdown, bps.suspend):
        array = np.ones((300, 400)).T
        handles = [bps.push_pull_async(np.full(n, 2.0), op=bps.Sum) for n in (3, 100003)]
        handles.append(bps.push_pull_async(np.full(5, 3.0), name="named", op=bps.Sum))
        handles += [bps.push_pull_async(np.ones(4 + bps.rank() % 2), name="differs", op=bps.Sum)]
        waiter = threading.Thread(target=handles[1].wait)
        waiter.start()
        in_place = bps.push_pull_async_inplace(array, op=bps.Sum)
        end()
        waiter.join()
        for again in range(2):
            assert handles[0].poll()
            assert handles[0].wait().tolist() == [2.0 * bps_size] * 3
            assert handles[1].wait()[100002] == 2.0 * bps_size
            if again:
                bps.init()
                works()
            assert handles[2].wait().tolist() == [3.0 * bps_size] * 5
            if bps_size > 1:
                checks.raised(byteps.MismatchError, handles[3].wait, "differs")
        assert in_place.wait()[0, 0] == bps_size


def check_fork():
    works()
    handle = bps.push_pull_async(np.ones(1000), name="forked", op=bps.Sum)
    child = os.fork()
    if child == 0:
        try:
            assert not bps.is_initialized()
            checks.raised(byteps.NotInitializedError, bps.rank)
            checks.raised(byteps.NotInitializedError, lambda: bps.push_pull(np.ones(2)))
            del handle
            status = 0
        except BaseException as error:
            print("child:", error, flush=True)
            status = 1
        sys.stdout.flush()
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert handle.wait()[0] == bps.size()
    works()


def check_threads():
    failures = []

    def work(number):
        try:
            for i in range(20):
                result = bps.push_pull(np.full(100, float(i)), name=f"thread.{number}", op=bps.Sum)
                assert result[0] == i * bps.size()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures


def check_interrupt():
    """Ctrl-C ends a wait for a worker that does not come, and other Python threads run meanwhile."""
    if bps.rank() == 0:
        ticks = []
        stop = threading.Event()

        def tick():
            while not stop.is_set():
                ticks.append(1)
                if len(ticks) == 100:
                    os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.001)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        ticker = threading.Thread(target=tick)
        handle = bps.push_pull_async(np.ones(3), name="interrupted", op=bps.Sum)
        ticker.start()
        checks.raised(KeyboardInterrupt, handle.wait)
        stop.set()
        ticker.join()
        assert len(ticks) >= 100
    bps.barrier()
    if bps.rank() == 0:
        assert handle.wait()[0] == bps.size()
    else:
        works_later = bps.push_pull(np.ones(3), name="interrupted", op=bps.Sum)
        assert works_later[0] == bps.size()
    works()


if __name__ == "__main__":
    bps.init()
    bps_size = bps.size()
    checks.main(globals(), bps)
