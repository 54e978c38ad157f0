# SPDX-License-Identifier: Apache-2.0
"""DistributedTrainer and DistributedOptimizer of MXNet with BYTEPS_ENABLE_ASYNC: the servers have the weights."""

import time

import checks
import mxnet as mx
from mxnet import autograd, gluon

import byteps.mxnet as bps

RATE, STEPS = 1 / 64, 8


def made(optimizer="sgd", **options):
    net = gluon.nn.Dense(2, in_units=3, weight_initializer=mx.init.Constant(bps.rank()))
    net.initialize()
    return net, bps.DistributedTrainer(net.collect_params(), optimizer, {"learning_rate": RATE, **options})


def step(net, trainer, value=None):
    """Make a step whose gradient is the value everywhere."""
    with autograd.record():
        loss = (net(mx.nd.ones((1, 3))) * (bps.rank() + 1 if value is None else value)).sum()
    loss.backward()
    trainer.step(1)


def values(net):
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def all_changes():
    return -RATE * STEPS * sum(range(1, bps.size() + 1))


def meet(what):
    mx.nd.waitall()
    bps.push_pull(mx.nd.zeros(1), name=f"meet {what}").wait_to_read()


def check_sum_of_all_changes():
    models = [made(), made()]  # the second one makes two steps for one of the first
    for net, trainer in models:
        step(net, trainer, 0)
    meet("begun")
    for _ in range(STEPS):
        for times, (net, trainer) in enumerate(models, 1):
            for _ in range(times):
                step(net, trainer)
    meet("ended")
    for times, (net, trainer) in enumerate(models, 1):
        step(net, trainer, 0)
        for value in values(net):
            assert (value == times * all_changes()).all(), (value, all_changes())


def check_frozen():
    net, trainer = made()
    net.bias.grad_req = "null"
    step(net, trainer)
    meet("frozen")
    step(net, trainer, 0)
    assert (net.bias.data().asnumpy() == 0).all()
    net.bias.grad_req = "write"
    step(net, trainer)
    meet("unfrozen")
    step(net, trainer, 0)
    same(net)
    assert (net.bias.data().asnumpy() != 0).all()


def same(net):
    for i, value in enumerate(values(net)):
        low, high = (bps.push_pull(mx.nd.array(value), name=f"{op}{i}", op=op).asnumpy() for op in (bps.Min, bps.Max))
        assert (low == high).all(), (low, high)


def check_stale():
    """A worker need not make all gradients in all steps, nor the same ones as others."""
    net, trainer = made()
    step(net, trainer, 0)
    if bps.rank() == 0:
        checks.raised(UserWarning, lambda: trainer.step(1), "has not been updated")
        trainer.step(1, ignore_stale_grad=True)
    meet("stale")
    for value in values(net):
        assert (value == 0).all(), value


def check_nobody_waits():
    net, trainer = made("adam")
    step(net, trainer, 0)
    if bps.rank() == bps.size() - 1:
        for _ in range(STEPS):
            step(net, trainer)
        net.weight.data().wait_to_read()
    meet("the others have waited")


def check_optimizer():
    """As Module uses it."""
    updater = mx.optimizer.get_updater(bps.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=RATE)))
    weight = mx.nd.full((3,), bps.rank())
    updater(0, mx.nd.zeros(3), weight)
    meet("optimizer begins")
    for _ in range(STEPS):
        updater(0, mx.nd.full((3,), bps.rank() + 1), weight)
    meet("optimizer ends")
    updater(0, mx.nd.zeros(3), weight)
    assert (weight.asnumpy() == all_changes()).all(), (weight, all_changes())


def check_refused():
    net, _ = made()
    plain = mx.optimizer.create("sgd", learning_rate=RATE, multi_precision=True)
    parameters = net.collect_params()
    for text, call in (
        ("no compression", lambda: bps.DistributedTrainer(parameters, "sgd", compression_params={"fp16": True})),
        ("no gradient_predivide", lambda: bps.DistributedTrainer(parameters, "sgd", gradient_predivide_factor=2.0)),
        ("no gradient_predivide", lambda: bps.DistributedOptimizer(plain, gradient_predivide_factor=2.0)),
        ("no multi_precision", lambda: bps.DistributedTrainer(parameters, plain)),
        ("no multi_precision", lambda: bps.DistributedOptimizer(plain)),
    ):
        checks.raised(ValueError, call, text)
    meet("end")


def check_another_job():
    net, trainer = made()
    step(net, trainer)
    meet("before")
    bps.suspend()
    bps.resume()
    step(net, trainer)
    meet("after")
    step(net, trainer, 0)
    same(net)


def in_step():
    """With worker.staleness=0 all make the same steps, and end alike."""
    net, trainer = made()
    for _ in range(4):
        if bps.rank() == 0:
            time.sleep(0.02)
        step(net, trainer)
    same(net)


def after_reform():
    """In an elastic job, rank 0 sets the weights once more."""
    net, trainer = made()
    for value in range(2):
        net.weight.set_data(mx.nd.full((2, 3), value + bps.rank()))
        bps.broadcast_parameters(net.collect_params())
        step(net, trainer, 0)
        assert (net.weight.data().asnumpy() == value).all(), (value, net.weight.data())
        meet("before reform")
        bps.reform()


if __name__ == "__main__":
    checks.main(globals(), bps)
