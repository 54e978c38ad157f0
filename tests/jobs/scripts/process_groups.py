# SPDX-License-Identifier: Apache-2.0
"""Process groups, and messages, of NumPy's arrays or PyTorch's tensors: FRAMEWORK in the environment."""

import functools
import importlib
import os

import byteps
import checks

FRAMEWORK = os.environ["FRAMEWORK"]
bps = importlib.import_module(f"byteps.{FRAMEWORK}")
library = importlib.import_module(FRAMEWORK)


def filled(count, value):
    return library.full((count,), float(value))


@functools.cache
def some():
    """Return a group of the last and the first worker, or of the only one."""
    return bps.new_group([bps.size() - 1, 0] if bps.size() > 1 else [0])


def each_operation(group):
    own, ranks, size = float(bps.rank()), group.ranks, group.size()
    last = size - 1
    assert bps.push_pull(filled(3, own), average=False, group=group).tolist() == [float(sum(ranks))] * 3
    inplace = filled(3, own)
    bps.push_pull_inplace(inplace, op=bps.Max, group=group)
    assert inplace.tolist() == [float(max(ranks))] * 3
    assert bps.broadcast(filled(3, own), last, group=group).tolist() == [float(ranks[last])] * 3
    rows = bps.all_gather(filled(1 + group.rank(), own), group=group)
    assert rows.tolist() == [float(rank) for place, rank in enumerate(ranks) for _ in range(1 + place)]
    assert bps.reduce_scatter(filled(2 * size, own), average=False, group=group).tolist() == [float(sum(ranks))] * 2
    total = bps.reduce(filled(2, own), last, average=False, group=group)
    assert (total is None) == (group.rank() != last)
    every = bps.gather(filled(2, own), 0, group=group)
    assert (every is None) == (group.rank() != 0)
    part = bps.scatter(filled(2 * size, own) if group.rank() == last else None, last, group=group)
    assert part.tolist() == [float(ranks[last])] * 2
    got, counts = bps.all_to_all(filled(2 * size + 1, own), [2] * last + [3], group=group)
    assert counts.tolist() == [3 if group.rank() == last else 2] * size
    assert got.tolist() == [float(rank) for rank in ranks for _ in range(counts[0])]
    group.barrier()


def check_operations():
    """A worker may be in a group or not, and in several."""
    alone = [bps.new_group([rank]) for rank in range(bps.size())]
    if some().rank() >= 0:
        each_operation(some())
    each_operation(alone[bps.rank()])


def check_messages():
    """They meet in order for each tag; and differ for both."""
    group = some()
    if group.size() == 1 or group.rank() < 0:
        return
    if group.rank() == 0:
        first = bps.send_async(filled(5, 1.0), 1, group=group)
        bps.send(filled(2, 2.0), 1, tag=3, group=group)
        first.wait()
        checks.raised(byteps.MismatchError, lambda: bps.send(filled(2, 0.0), 1, group=group), "message.1 (from worker")
    else:
        assert bps.recv(filled(2, 0.0), 0, tag=3, group=group).tolist() == [2.0] * 2
        assert bps.recv_async(filled(5, 0.0), 0, group=group).wait().tolist() == [1.0] * 5
        checks.raised(byteps.MismatchError, lambda: bps.recv(filled(3, 0.0), 0, group=group), "message.1 (from worker")


def check_refusals():
    """Of ranks, of who is not a member, and of what groups do not have."""
    group = some()
    checks.raised(byteps.InvalidError, lambda: bps.new_group([0, 0]), "")
    checks.raised(byteps.InvalidError, lambda: bps.new_group([-1]), "none can be below 0")
    if group.rank() < 0:
        call = functools.partial(bps.all_gather, filled(1, 0.0), group=group)
        checks.raised(byteps.InvalidError, call, f"worker {bps.rank()} is not a member of Group(ranks=")
        return
    call = functools.partial(bps.push_pull, filled(1, 0.0), name="x", group=group)
    checks.raised(byteps.Error, call, "takes no name")
    call = functools.partial(bps.broadcast, filled(1, 0.0), group.size(), group=group)
    checks.raised(byteps.InvalidError, call, f"root_rank={group.size()} is not the rank of a member")


def check_gradients():
    """Of what PyTorch's tensors have."""
    if FRAMEWORK == "torch":
        group = bps.new_group(range(bps.size()))
        tensor = library.full((3,), 1.0, requires_grad=True)
        bps.push_pull(tensor, average=False, group=group).sum().backward()
        assert tensor.grad.tolist() == [float(bps.size())] * 3
        group.free()


def check_the_end():
    """Who has freed a group cannot use it."""
    some().free()
    checks.raised(byteps.InvalidError, some().barrier, "was freed")


checks.main(globals(), bps)
