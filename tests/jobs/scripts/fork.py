# SPDX-License-Identifier: Apache-2.0
"""Forked children of a worker: they find no job, hold nothing of it, end in every way, and disturb nobody."""

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

import checks
import numpy as np

import byteps
import byteps.numpy as bps

DEADLINE = 60


def descriptors():
    """What this process has open: {number: target}, without the one of the listing itself."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    return found


BEFORE = set(descriptors().values())


def ours():
    """What is open and was not before the job."""
    return {fd: target for fd, target in descriptors().items() if target not in BEFORE}


def library():
    """libbyteps as this process has loaded it."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        return ctypes.CDLL(next(line.split()[-1] for line in file if "libbyteps.so" in line))


def c_interface():
    """Every function of byteps.h that needs a job, with arguments that a running job would mind."""
    state, handle, forever = -10, ctypes.c_uint64(1 << 32), ctypes.c_uint64(-1)
    c = library()
    places = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    for name in (*places, "is_homogeneous", "group_size"):
        assert c[f"bps_{name}"]() == state, name
    request = (ctypes.c_size_t * 512)(4096)  # its size, as of a later version; tensor 0 without a name
    report = ctypes.create_string_buffer(1024)
    for name, arguments in (
        ("bps_init", (None,)),
        ("bps_shutdown", ()),
        ("bps_suspend", ()),
        ("bps_declare", (None, ctypes.c_size_t(0), None)),
        ("bps_push_pull", (request, forever, None)),
        ("bps_push_pull_async", (request, None)),
        ("bps_broadcast_async", (request, 0, None)),
        ("bps_wait", (handle, forever)),
        ("bps_barrier", ()),
        ("bps_barrier_async", (None, None, None)),
    ):
        report.value = b""
        assert c[name](*arguments, report) == state, name
        assert b"forked child" in report.value, (name, report.value)
    assert c.bps_poll(handle) == state
    assert c.bps_conf(b"worker.partition", report, ctypes.c_size_t(1024)) == state


def no_job():
    """Every call says that there is none, and returns."""
    c_interface()
    assert not bps.is_initialized()
    for call in (
        bps.rank,
        bps.size,
        bps.local_rank,
        bps.local_size,
        bps.init,
        bps.shutdown,
        bps.suspend,
        bps.barrier,
        lambda: bps.declare("child"),
        lambda: bps.push_pull(np.ones(2)),
        lambda: bps.push_pull(np.ones(2), name="child"),
        lambda: bps.broadcast(np.ones(2), 0, name="child"),
    ):
        checks.raised(byteps.NotInitializedError, call, "forked child")


def nothing_of_the_job():
    """Files that another thread was reading do not matter."""
    left = {fd: target for fd, target in ours().items() if target[0] != "/" or target.startswith("/memfd:")}
    assert not left, left
    assert len(os.listdir("/proc/self/task")) == 1
    with open("/proc/self/maps", encoding="utf-8") as file:
        mapped = [line for line in file if "memfd:byteps" in line]
    assert not mapped, mapped


def forked(work, leave=os._exit):
    """Forks a child that does some work and ends by leave(status); returns its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.alarm(DEADLINE)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    leave(status)
    os.abort()


def ended_well(*children):
    for child in children:
        status = os.waitpid(child, 0)[1]
        assert status == 0, f"child ended with {status}"


def works(name="x"):
    assert bps.push_pull(np.ones(5000), name=name, op=bps.Sum)[-1] == bps.size()


def c_exit(status):
    """exit() of the C library, with what libraries have registered for it, but without Python's own end."""
    ctypes.CDLL(None).exit(status)


def check_every_end():
    for leave in (os._exit, c_exit):
        works()
        ended_well(forked(lambda: (no_job(), nothing_of_the_job()), leave))
    works()


def check_grandchildren():
    def work():
        nothing_of_the_job()
        ended_well(forked(lambda: (no_job(), nothing_of_the_job()), c_exit))

    ended_well(forked(work))
    works()


def check_operations_in_flight():
    """Their handles are dead in the child, also where the other workers come later."""
    handles = [bps.push_pull_async(np.ones(300000), name=f"flight.{i}", op=bps.Sum) for i in range(8)]

    def work():
        no_job()
        for handle in handles:
            checks.raised(byteps.NotInitializedError, handle.wait)
        handles.clear()
        nothing_of_the_job()

    children = [forked(work, leave) for leave in (os._exit, c_exit)]
    ended_well(*children)
    for handle in handles:
        assert handle.wait()[-1] == bps.size()
    works()


def check_forks_among_threads():
    """Operations of other threads start and end while children are made, at any point of theirs."""
    failures = []
    rounds = 60

    def run(number):
        try:
            for i in range(rounds):
                result = bps.push_pull(np.full(20000, float(i)), name=f"thread.{number}", op=bps.Sum)
                assert result[-1] == i * bps.size()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        ended_well(forked(lambda: (no_job(), nothing_of_the_job())))
    for thread in threads:
        thread.join()
    assert not failures, failures
    works()


def check_multiprocessing():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, range(-20, 0)) == list(range(20, 0, -1))
        works()
    works()


def check_other_programs():
    """What a program that is started inherits is what the process had before the job."""
    for how in ({"close_fds": False}, {"close_fds": False, "preexec_fn": lambda: None}):
        out = subprocess.run(["ls", "-l", "/proc/self/fd"], check=True, stdout=subprocess.PIPE, **how).stdout
        assert not [target for target in ours().values() if target.encode() in out], out
    works()


def no_connection():
    """What else is just being handed over, such as memory to be shared, or a datagram socket that asks the kernel for
    an address, does no harm."""
    checks.raised(byteps.NotInitializedError, bps.rank)
    sockets = [socket.socket(fileno=int(fd)) for fd, target in ours().items() if target.startswith("socket:")]
    left = [each for each in sockets if each.type in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]
    assert not left, left


def check_shared_memory():
    """A child can free what its parent has allocated, and allocate for itself; the parent's memory stays."""
    c = library()
    c.bps_alloc.restype = ctypes.c_void_p
    c.bps_alloc.argtypes = [ctypes.c_size_t]
    c.bps_free.argtypes = [ctypes.c_void_p]
    count = 100000
    memory = [c.bps_alloc(4 * count) for _ in range(3)]
    assert all(memory)

    def work():
        for address in memory:
            c.bps_free(address)
        no_connection()
        own = c.bps_alloc(4096)
        assert own
        c.bps_free(own)

    ended_well(forked(work), forked(work, c_exit))
    arrays = [np.ctypeslib.as_array((ctypes.c_float * count).from_address(address)) for address in memory]
    for i, array in enumerate(arrays):
        array[:] = i + 1
        assert bps.push_pull(array, name=f"shared.{i}", op=bps.Sum)[-1] == bps.size() * (i + 1)
    arrays.clear()
    for address in memory:
        c.bps_free(address)


def check_init_under_way():
    """The last worker comes late; the others fork while they wait for it in init()."""
    last = bps.size() - 1
    rank = bps.rank()
    bps.barrier()
    bps.suspend()
    if rank == last:
        time.sleep(1)
        bps.resume(None, None, rank)
    else:
        joining = threading.Thread(target=bps.resume, args=(None, None, rank))
        joining.start()
        while joining.is_alive():
            ended_well(forked(no_connection))
        joining.join()
    assert bps.rank() == rank
    works()


def hold_children():
    """Worker 0 is killed while a child of its lives: the connections must end with the parent."""
    bps.init()
    works()
    if bps.rank() == 0:
        forked(lambda: time.sleep(30))
        print("ready", flush=True)
        time.sleep(DEADLINE)
    started = time.monotonic()
    try:
        works("never")
    except byteps.LostError as error:
        print(f"{time.monotonic() - started:.1f} s: {error}", flush=True)
        sys.exit(3)


def leave_the_script():
    """A child that ends as scripts do, with all that Python runs then, while handles of the parent are alive."""
    bps.init()
    works()
    handle = bps.push_pull_async(np.ones(1000), name="left", op=bps.Sum)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        no_job()
        nothing_of_the_job()
        sys.exit(0)
    ended_well(child)
    assert handle.wait()[0] == bps.size()
    print("passed 1", flush=True)


def begin_and_end():
    """Jobs of one process begin and end in one thread while another forks; no child may hang."""
    stop = threading.Event()

    def live():
        while not stop.is_set():
            bps.init()
            works()
            bps.shutdown()

    def child():
        try:
            bps.init()  # there was no job when it was made, or there was one
            works()
            bps.shutdown()
        except byteps.NotInitializedError:
            pass

    thread = threading.Thread(target=live)
    thread.start()
    try:
        for i in range(150):
            ended_well(forked(child, (os._exit, c_exit)[i % 2]))
    finally:
        stop.set()
        thread.join()
    print("passed 1", flush=True)


def beside_a_scheduler():
    """A child has nothing of what its parent hosts, can do no harm to it, and may begin a job of its own."""
    with byteps.Scheduler(set={"cluster.scheduler": "127.0.0.1:0"}) as scheduler:

        def child():
            assert not [target for target in ours().values() if target.startswith(("socket:", "anon_inode:"))]
            scheduler.close()
            with byteps.Scheduler(set={"cluster.scheduler": "127.0.0.1:0"}):
                pass

        ended_well(forked(child), forked(child, c_exit))
        bps.init(set={"cluster.scheduler": scheduler.address})
        works()
        bps.shutdown()
    print("passed 1", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["hold"]:
        hold_children()
    elif sys.argv[1:2] == ["leave"]:
        leave_the_script()
    elif sys.argv[1:2] == ["alone"]:
        begin_and_end()
    elif sys.argv[1:2] == ["hosts"]:
        beside_a_scheduler()
    else:
        checks.main(globals(), bps)
