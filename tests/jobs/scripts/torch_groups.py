# SPDX-License-Identifier: Apache-2.0
"""What trains in a process group: workers 2 and 0 of three make steps together, and worker 1 others with worker 2."""

import checks
import torch

import byteps.torch as bps
from byteps import _basics

bps.init()
ME = bps.rank()
PAIR = bps.new_group([2, 0])
TAIL = bps.new_group([1, 2])


def mine():
    """Return the groups that this worker is in."""
    return [group for group in (PAIR, TAIL) if group.rank() >= 0]


def weights(group, model):
    """Return a parameter of all members."""
    return bps.all_gather(model[0].weight.detach().unsqueeze(0), group=group)


def small_model():
    """Return one that differs between workers, with a buffer."""
    torch.manual_seed(ME)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))


def train(model, optimizer, step):
    """Make a step with data of this worker's own."""
    optimizer.zero_grad()
    model(torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + ME))).square().mean().backward()
    optimizer.step()


def check_optimizer():
    for group in mine():
        model = small_model()
        bps.broadcast_parameters(model.state_dict(), root_rank=1, group=group)
        optimizer = torch.optim.Adam(model.parameters(), 0.1 * (1 + ME))
        bps.broadcast_optimizer_state(optimizer, root_rank=1, group=group)
        assert optimizer.param_groups[0]["lr"] == 0.1 * (1 + group.ranks[1])
        optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters(), group=group)
        for step in range(3):
            train(model, optimizer, step)
        one, two = weights(group, model)
        assert torch.equal(one, two) and optimizer.seconds_waited > 0
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)


def check_who_is_no_member():
    if ME == 1:
        model = torch.nn.Linear(2, 1)
        plain = torch.optim.SGD(model.parameters(), 1.0)
        for use in (
            lambda: bps.DistributedOptimizer(plain, group=PAIR),
            lambda: bps.parallel.DistributedDataParallel(model, process_group=PAIR),
            lambda: bps.SyncBatchNorm(2, process_group=PAIR)(torch.ones(2, 2)),
            lambda: bps.broadcast_object(None, group=PAIR),
        ):
            checks.raised(ValueError, use, "worker 1 is not a member of Group(ranks=[2, 0])")


def check_ddp():
    for group in mine():
        model = bps.parallel.DistributedDataParallel(small_model(), process_group=group)
        want = bps.broadcast(model.module[0].weight.detach(), 0, group=group)
        assert torch.equal(want, model.module[0].weight)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(3):
            train(model, optimizer, step)
        one, two = weights(group, model.module)
        assert torch.equal(one, two)
        with model.no_sync():
            model(torch.randn(5, 3)).sum().backward()


def check_sync_batch_norm():
    torch.manual_seed(1)
    batches = torch.randn(3, 4, 2)
    for group in mine():
        alone = torch.nn.BatchNorm1d(2)
        layer = bps.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm1d(2)), group)
        assert layer[0].process_group is group
        x, whole = batches[ME].clone().requires_grad_(), batches[list(group.ranks)].flatten(0, 1).requires_grad_()
        result, want = layer(x), alone(whole)
        result.square().sum().backward()
        want.square().sum().backward()
        place = slice(4 * group.rank(), 4 * group.rank() + 4)
        torch.testing.assert_close(result, want[place])
        torch.testing.assert_close(x.grad, whole.grad[place], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(layer[0].running_mean, alone.running_mean)


def check_names_of_others():
    """What was made in groups leaves the names of the job as they are."""
    model = small_model()
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    train(model, optimizer, 0)
    assert torch.equal(*weights(None, model)[:2])


def check_later_job():
    """Groups end with the job, or when it goes on with other workers: later ones have their numbers."""
    ended, model = bps.new_group([0, 1, 2]), small_model()
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), group=ended)
    train(model, optimizer, 0)
    if _basics.is_elastic():
        _basics.reform()
    else:
        bps.suspend()
        bps.resume()
    later = [bps.new_group([0, 2, 1]) for _ in range(4)]
    for use in (
        ended.barrier,
        lambda: bps.push_pull(torch.ones(1), group=ended),
        lambda: bps.all_gather(torch.ones(1), group=ended),
        lambda: train(model, optimizer, 1),
        lambda: bps.DistributedOptimizer(torch.optim.SGD(small_model().parameters(), 0.1), group=ended),
    ):
        checks.raised(ValueError, use, "Group(ranks=[0, 1, 2]) has ended")
    ended.free()
    for group in later:
        assert bps.push_pull(torch.ones(1), average=False, group=group).item() == 3


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
