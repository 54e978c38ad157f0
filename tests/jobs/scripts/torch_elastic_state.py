# SPDX-License-Identifier: Apache-2.0
"""What the state of an elastic training means, in a job whose workers stay the same."""

import checks
import torch

import byteps.torch as bps
from byteps.torch import elastic


def made(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.5)
    return model, bps.DistributedOptimizer(optimizer, model.named_parameters())


def weight_of(state):
    return state.model.weight[0, 0].item()


def step(state):
    state.model(torch.ones(1, 3)).sum().backward()
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.done.append(weight_of(state))


def interrupted(state, error):
    """Commit after a step, raise the error after another one; return what the weight was after each, and then."""
    seen, calls = [], []

    @elastic.run
    def train(state):
        calls.append(len(state.done))
        if len(calls) == 1:
            step(state)
            state.commit()
            step(state)
            seen.extend(state.done)
            raise error
        return weight_of(state)

    last = train(state)
    return (*seen, last, calls[1])


def check_what_stays():
    """After HostsUpdatedInterrupt all that was done; after HorovodInternalError what was committed."""
    for error, kept in ((elastic.HostsUpdatedInterrupt(), 2), (elastic.HorovodInternalError("not a number"), 1)):
        state = elastic.TorchState(*made(bps.rank()), done=[])
        *seen, last, done = interrupted(state, error)
        assert done == kept == len(state.done), (error, done)
        assert last == seen[kept - 1], (error, seen, last)
        step(state)
        assert len(state.optimizer.state) == 2
        weight = weight_of(state)
        assert float(bps.push_pull(torch.tensor(weight), op=bps.Max)) == weight


def check_callbacks():
    """They are called before all get the state of rank 0, and again where one of them fails."""
    state = elastic.ObjectState(bps.broadcast_object, bps.rank, value=bps.rank() + 5, calls=0)

    def callback():
        state.calls += 1
        state.value = 10 + bps.rank()
        if state.calls == 1:  # as where a worker is lost meanwhile
            raise elastic.HostsUpdatedInterrupt

    @elastic.run
    def train(state):
        assert state.value == (10 if state.calls else 5), state.value
        if state.calls < 3:
            raise elastic.HostsUpdatedInterrupt
        return state.calls

    state.register_reset_callbacks([callback])
    assert train(state) == 3


def check_other_errors():
    """They are the program's."""

    @elastic.run
    def train(state):
        raise KeyError("mine")

    checks.raised(KeyError, lambda: train(elastic.TorchState()), "mine")


def check_sampler():
    for shuffle in (True, False):
        sampler = elastic.ElasticSampler(range(11), shuffle=shuffle, seed=3)
        all_of_them = sampler.remaining_indices[:]
        assert sorted(all_of_them) == list(range(11)) and (shuffle or all_of_them == list(range(11)))
        mine = list(sampler)
        assert len(mine) == len(sampler) == -(-11 // bps.size())
        assert mine == (all_of_them + all_of_them)[bps.rank() : len(mine) * bps.size() : bps.size()]
        sampler.record_batch(0, 2)
        sampler.load_state_dict(sampler.state_dict())
        assert sampler.remaining_indices == all_of_them[2 * bps.size() :]
        sampler.record_batch(1, 100)
        sampler.reset()
        assert list(sampler) == [] and len(sampler) == 0
        sampler.set_epoch(1)
        assert len(sampler.remaining_indices) == 11 and (not shuffle or sampler.remaining_indices != all_of_them)


def check_attributes():
    model, optimizer = made(0)
    state = elastic.TorchState(model, optimizer, other=torch.nn.Linear(1, 1), count=1)
    state.other = other = torch.nn.Linear(2, 2)
    bias = other.bias.detach().clone()
    with torch.no_grad():
        other.bias += 1
    state.count = 2
    state.restore()
    assert state.other is other and torch.equal(other.bias, bias) and state.count == 1
    assert bps.members_wait() == 0
    model = torch.nn.Linear(1, 1)
    plain = torch.optim.SGD(model.parameters(), 0.1)
    crossing = bps.cross_barrier.CrossBarrier(model, plain, model.named_parameters())
    checks.raised(ValueError, lambda: elastic.TorchState(model, crossing), "use DistributedOptimizer")


def check_another_job():
    """A model that was made in one job goes on in the next one."""
    state = elastic.TorchState(*made(bps.rank()), done=[])
    interrupted(state, elastic.HostsUpdatedInterrupt())
    bps.suspend()
    bps.resume()
    *seen, last, done = interrupted(state, elastic.HostsUpdatedInterrupt())
    assert done == 4 and seen[-1] == last


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
