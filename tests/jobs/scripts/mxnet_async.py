# SPDX-License-Identifier: Apache-2.0
"""DistributedTrainer and DistributedOptimizer of MXNet with BYTEPS_ENABLE_ASYNC: the servers have the weights."""

import time

import byteps
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


ROWS, WIDTH = 4000, 16


def table_and_step(optimizer, options):
    net = gluon.nn.Embedding(ROWS, WIDTH, sparse_grad=True, weight_initializer=mx.init.Constant(bps.rank()))
    net.initialize()
    trainer = bps.DistributedTrainer(net.collect_params(), optimizer, {"learning_rate": RATE, **options})

    def step(value, rows):
        with autograd.record():
            loss = (net(mx.nd.array(rows)) * value).sum()
        loss.backward()
        trainer.step(1)

    return net.weight, step, trainer


def pushed(step):
    """Bytes that a step pushes."""
    mx.nd.waitall()
    before = byteps.metrics()["pushed_bytes"]
    step()
    mx.nd.waitall()
    return byteps.metrics()["pushed_bytes"] - before


def check_rows():
    """Of a sparse gradient only its rows travel; the others are as rank 0 had them, until they are asked for."""
    mine, last = bps.rank(), ROWS - 1
    others = [rank for rank in range(bps.size()) if rank != mine]
    for optimizer, options, travel in (
        ("sgd", {}, 3),
        ("sgd", {"momentum": 0.5, "wd": 0.1}, 3),
        ("adam", {}, 3),
        ("adam", {"lazy_update": False}, ROWS),
        ("adagrad", {}, ROWS),
    ):
        weight, step, trainer = table_and_step(optimizer, options)
        step(0, [0])
        assert (weight.data().asnumpy() == 0).all(), "not those of rank 0"
        meet("table begins")
        for _ in range(STEPS):
            sent = pushed(lambda: step(1, [mine, 7, mine, last]))  # noqa: B023
            assert sent == travel * WIDTH * 4, (optimizer, options, sent)
        meet("table ends")
        if travel == 3:
            assert (weight.data().asnumpy()[others] == 0).all(), "a row of others"
        trainer.pull_rows(weight, [*others, 7, 7, last])
        now = weight.data().asnumpy()
        changed = now.any(1).nonzero()[0].tolist()
        assert changed == [*range(bps.size()), 7, last], (optimizer, options, changed)
        if optimizer == "sgd" and not options:
            assert (now[:2] == -2 * RATE * STEPS).all() and (now[7] == -RATE * STEPS * bps.size()).all(), now[:8]
        meet("table seen")


def check_no_row_and_all():
    weight, step, trainer = table_and_step("sgd", {})
    step(0, [0])
    meet("no row begins")
    if bps.rank() == 0:
        step(1, [5, 6])
    meet("no row ends")
    if bps.rank() != 0:
        trainer.pull_rows(weight, [])
        assert not weight.data().asnumpy().any()
        trainer.pull_rows(weight)
        assert (weight.data().asnumpy()[5:7] == -RATE).all()


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


def check_rows_of_optimizer():
    optimizer = bps.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=RATE))
    updater = mx.optimizer.get_updater(optimizer)
    weight = mx.nd.zeros((ROWS, WIDTH))
    gradient = mx.nd.sparse.row_sparse_array((mx.nd.ones((2, WIDTH)), [bps.rank(), 7]), (ROWS, WIDTH))
    updater(0, gradient * 0, weight)
    meet("rows begin")
    assert pushed(lambda: updater(0, gradient, weight)) == 2 * WIDTH * 4
    meet("rows end")
    optimizer.pull_rows(0, weight)
    now = weight.asnumpy()
    assert (now[: bps.size()] == -RATE).all() and (now[7] == -RATE * bps.size()).all(), now[:8]
    assert now.any(1).sum() == bps.size() + 1


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
