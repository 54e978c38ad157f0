# SPDX-License-Identifier: Apache-2.0
"""GluonState, and what DistributedTrainer does in an elastic job, whose workers stay the same here."""

import checks
import mxnet as mx
from mxnet import autograd, gluon

import byteps
import byteps.mxnet as bps


def make(**layers):
    net = gluon.nn.Dense(1, use_bias=False, weight_initializer=mx.init.Constant(bps.rank()), **layers)
    net.initialize()
    schedule = mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=2.0**-bps.rank())
    optimizer = mx.optimizer.create("sgd", momentum=0.5, lr_scheduler=schedule)
    return net, bps.DistributedTrainer(net.collect_params(), optimizer)


def step(net, trainer):
    with autograd.record():
        loss = net(mx.nd.ones((1, 1)))
    loss.backward()
    trainer.step(1)


def check_state():
    net, trainer = make(in_units=1)
    optimizer = trainer.optimizer
    state = bps.elastic.GluonState(net.collect_params(), trainer, count=bps.rank())
    calls = []

    @bps.elastic.run
    def train(state):
        calls.append((net.weight.data().asscalar(), trainer.learning_rate, optimizer.num_update, state.count))
        if len(calls) == 3:
            return calls
        assert net.weight.grad().asscalar() == 0
        step(net, trainer)
        checks.raised(UserWarning, lambda: trainer.step(1), "has not been updated")
        state.count += 1
        if len(calls) == 1:
            raise bps.elastic.HostsUpdatedInterrupt
        raise bps.elastic.HorovodInternalError("not a number")

    first, second, third = train(state)
    assert first == (0, 1, 0, 0) and second[2:] == (1, 1) and third == second, calls
    assert trainer.optimizer is optimizer and optimizer.param_dict[0] is net.weight


def check_refusals():
    net, trainer = make()
    state = bps.elastic.GluonState
    checks.raised(ValueError, lambda: state(net.collect_params(), trainer), "the shape of ", " is not known yet")
    plain = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_byteps")
    checks.raised(TypeError, lambda: state(net.collect_params(), plain), "use DistributedTrainer")


def check_unsynced():
    """A trainer of an elastic job sends no parameters, and goes on only with those that have been sent."""
    net, trainer = make(in_units=1)
    assert net.weight.data().asscalar() == bps.rank()
    checks.raised(RuntimeError, lambda: step(net, trainer), "GluonState, or call broadcast_parameters()")
    bps.broadcast_parameters(net.collect_params())
    step(net, trainer)


def check_errors():
    """Errors that tell of no lost member stay what they are."""
    error = checks.raised(mx.base.MXNetError, lambda: bps.push_pull(mx.nd.ones(1 + bps.rank())), "worker 0 pushed")
    assert not isinstance(error, byteps.LostError)


if __name__ == "__main__":
    checks.main(globals(), bps)
