# SPDX-License-Identifier: Apache-2.0
"""Training in MXNet equals that of one process with the batches of all workers, in each way to write the loop."""

import functools
import os
import tempfile
import unittest.mock

import checks
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import byteps.mxnet as bps
from byteps._native import bps as native

STEPS, BATCH = 20, 12  # the batch of all workers
RATE, MOMENTUM = 0.125, 0.875


def data(step):
    """The batch of a step, of all workers."""
    generator = np.random.default_rng(step)
    inputs = generator.normal(size=(BATCH, 6))
    return inputs, np.sin(inputs.sum(axis=1, keepdims=True))


def share(array):
    """This worker's part of it."""
    return array[bps.rank() :: bps.size()]


def first_weights(seed=5):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) / 2 for shape in ((9, 6), (9,), (1, 9), (1,))]


@functools.lru_cache(maxsize=None)
def reference(passes=1, clip=None):
    """The weights after training with all batches, by NumPy alone; several batches add up to a step."""
    weights = first_weights()
    velocity, sums = ([0 * value for value in weights] for _ in range(2))
    for step in range(STEPS):
        gradients = gradients_of(weights, *data(step))
        sums = [total + gradient for total, gradient in zip(sums, gradients)]
        if (step + 1) % passes:
            continue
        norm = np.sqrt(sum(np.sum(total**2) for total in sums))
        factor = 1 if clip is None else min(1, clip / norm)
        velocity = [MOMENTUM * v - RATE * factor * total for v, total in zip(velocity, sums)]
        weights = [w + v for w, v in zip(weights, velocity)]
        sums = [0 * total for total in sums]
    return weights


def gradients_of(weights, inputs, labels):
    a, b, c, d = weights
    hidden = np.tanh(inputs @ a.T + b)
    error = (hidden @ c.T + d - labels) / len(inputs)
    inner = error @ c * (1 - hidden**2)
    return [inner.T @ inputs, inner.sum(0), error.T @ hidden, error.sum(0)]


def assert_trained(weights, tolerance=1e-7, **how):
    """MXNet's optimizers have 1 / batch size in float32."""
    for mine, expected in zip(weights, reference(**how)):
        assert np.allclose(mine, expected, rtol=0, atol=tolerance), mine - expected


def make_net(seed, contexts=None, units=6):
    """Two layers in float64; with units=0 they learn their shapes from the first batch."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(9, activation="tanh", in_units=units), gluon.nn.Dense(1, in_units=units and 9))
    net.cast("float64")
    net.initialize(mx.init.Uniform(0.3), ctx=contexts)
    if units:
        for parameter, value in zip(parameters(net), first_weights(seed)):
            parameter.set_data(mx.nd.array(value, dtype="float64"))
    return net


def parameters(net):
    return [parameter for layer in net for parameter in (layer.weight, layer.bias)]


def weights_of(net):
    return [parameter.list_data()[-1].asnumpy() for parameter in parameters(net)]


def backward(net, step):
    inputs, labels = (mx.nd.array(share(part), dtype="float64") for part in data(step))
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(inputs), labels)
    loss.backward()
    return len(inputs)


SGD = ("sgd", {"learning_rate": RATE, "momentum": MOMENTUM})


def check_trainer():
    for hybrid in (False, True):
        net = make_net(5 + bps.rank())  # the first step gives all those of worker 0
        if hybrid:
            net.hybridize()
        trainer = bps.DistributedTrainer(net.collect_params(), *SGD)
        for step in range(STEPS):
            trainer.step(backward(net, step))
        assert_trained(weights_of(net))


def check_steps():
    net = make_net(5)
    trainer = bps.DistributedTrainer(net.collect_params(), *SGD)
    with unittest.mock.patch.object(native, "step") as ended:
        for step in range(2):
            trainer.step(backward(net, step))
        assert ended.call_count in (1, 2), ended.call_count  # an earlier trainer may still be what decides
        batch = backward(net, 2)
        trainer.allreduce_grads()
        before = ended.call_count
        trainer.update(batch)
    assert ended.call_count == before + 1


def check_root_of_the_trainer():
    last = bps.size() - 1
    net = make_net(5 + last - bps.rank())
    trainer = bps.DistributedTrainer(net.collect_params(), *SGD, root_rank=last)
    for step in range(STEPS):
        trainer.step(backward(net, step))
    assert_trained(weights_of(net))


def check_deferred_shapes():
    """Parameters that are made in the first forward pass are equal on all workers from then on."""
    mx.random.seed(bps.rank())
    net = make_net(None, units=0)
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    for step in range(2):
        trainer.step(backward(net, step))
    for i, mine in enumerate(weights_of(net)):
        largest = bps.push_pull(mx.nd.array(mine, dtype="float64"), op=bps.Max, name=f"largest.{i}")
        assert np.array_equal(largest.asnumpy(), mine)


def check_clipping():
    net = make_net(5 + bps.rank())
    trainer = bps.DistributedTrainer(net.collect_params(), *SGD)
    for step in range(STEPS):
        size = backward(net, step)
        trainer.allreduce_grads()
        gradients = [parameter.grad() for parameter in parameters(net)]
        norm = sum((gradient**2).sum() for gradient in gradients).sqrt() / size
        for gradient in gradients:
            gradient *= mx.nd.minimum(1.0, 0.5 / norm)
        trainer.update(size)
    assert_trained(weights_of(net), clip=0.5)


def check_accumulation():
    """grad_req="add": only sums are sent."""
    net = make_net(5 + bps.rank())
    net.collect_params().setattr("grad_req", "add")
    trainer = bps.DistributedTrainer(net.collect_params(), *SGD)
    before = native.pushed_bytes()
    for step in range(STEPS):
        size = backward(net, step)
        if (step + 1) % 4 == 0:
            trainer.step(size)
            net.collect_params().zero_grad()
    assert_trained(weights_of(net), passes=4)
    elements = sum(value.size for value in first_weights())
    assert native.pushed_bytes() - before == 8 * elements * STEPS / 4


def check_stale_gradients():
    """What some workers use is updated alike on all of them, what nobody uses not at all."""
    blocks = [gluon.nn.Dense(1, in_units=2, use_bias=False) for _ in range(3)]
    for block in blocks:
        block.initialize(mx.init.One())
    used, sometimes, never = blocks
    every = {f"weight {i}": block.weight for i, block in enumerate(blocks)}
    trainer = bps.DistributedTrainer(every, "sgd", {"learning_rate": 1.0, "wd": 0.5, "rescale_grad": 1.0})
    expected = np.ones((1, 2))
    for step in range(3):
        turn = step < 2 and bps.rank() == step % bps.size()
        with autograd.record():
            loss = used(mx.nd.ones((1, 2)))
            if turn:
                loss = loss + 4 * sometimes(mx.nd.ones((1, 2)))
        loss.backward()
        trainer.step(1, ignore_stale_grad=True)
        if step < 2:
            expected = expected - (4 / bps.size() + 0.5 * expected)
        assert np.allclose(sometimes.weight.data().asnumpy(), expected), (step, sometimes.weight.data(), expected)
        assert np.all(never.weight.data().asnumpy() == 1)
    with autograd.record():
        loss = used(mx.nd.ones((1, 2)))
    loss.backward()
    checks.raised(UserWarning, lambda: trainer.step(1), sometimes.weight.name)


def check_kvstore():
    """gluon.Trainer with our store: step() takes the batch size of all workers."""
    for store in ("dist_byteps", bps.BytePS()):
        net = make_net(5 + bps.rank())
        bps.broadcast_parameters(net.collect_params())
        trainer = gluon.Trainer(net.collect_params(), *SGD, kvstore=store)
        for step in range(STEPS):
            backward(net, step)
            trainer.step(BATCH)
        assert_trained(weights_of(net))
        with autograd.record():
            loss = sum(parameter.data().sum() for parameter in net[1].collect_params().values())
        loss.backward()  # nothing tells the store that all workers have left out the same
        checks.raised(RuntimeError, lambda: trainer.step(BATCH, ignore_stale_grad=True), "DistributedTrainer")  # noqa: B023
        backward(net, STEPS)
        trainer.step(BATCH)
    store = mx.kv.create("dist_byteps")
    assert (store.rank, store.num_workers, store.type) == (bps.rank(), bps.size(), "byteps")
    out = mx.nd.zeros((3,))
    store.pushpull("key", mx.nd.full((3,), bps.rank()), out=out)
    assert np.all(out.asnumpy() == sum(range(bps.size())))
    store.broadcast("key", mx.nd.full((3,), bps.rank() + 7), out=out)
    assert np.all(out.asnumpy() == 7)


def check_several_devices_of_a_worker():
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = make_net(5 + bps.rank(), contexts)
    trainer = bps.DistributedTrainer(net.collect_params(), *SGD)
    for step in range(STEPS):
        inputs, labels = (
            gluon.utils.split_and_load(mx.nd.array(share(part), dtype="float64"), contexts) for part in data(step)
        )
        with autograd.record():
            losses = [gluon.loss.L2Loss()(net(x), y) for x, y in zip(inputs, labels)]
        autograd.backward(losses)
        trainer.step(BATCH // bps.size())
    assert_trained(weights_of(net))


def check_two_models():
    nets = [make_net(5 + bps.rank()) for _ in range(2)]
    trainers = [bps.DistributedTrainer(net.collect_params(), *SGD) for net in nets]
    for step in range(STEPS):
        sizes = [backward(net, step) for net in nets]
        for trainer, size in zip(trainers, sizes):
            trainer.step(size)
    for net in nets:
        assert_trained(weights_of(net))


def check_saved_states():
    net = make_net(5 + bps.rank())
    trainer = bps.DistributedTrainer(net.collect_params(), *SGD)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(STEPS):
            if step == STEPS // 2:
                trainer.save_states(os.path.join(folder, "states"))
                net.save_parameters(os.path.join(folder, "net"))
                net = make_net(77)
                net.load_parameters(os.path.join(folder, "net"))
                trainer = bps.DistributedTrainer(net.collect_params(), *SGD)
                trainer.load_states(os.path.join(folder, "states"))
            trainer.step(backward(net, step))
    assert_trained(weights_of(net))


def check_float16():
    net = make_net(5 + bps.rank())
    trainer = bps.DistributedTrainer(net.collect_params(), *SGD, compression_params={"fp16": True})
    before = native.pushed_bytes()
    for step in range(STEPS):
        trainer.step(backward(net, step))
    assert_trained(weights_of(net), tolerance=0.05)
    assert native.pushed_bytes() - before == 2 * sum(value.size for value in first_weights()) * STEPS
    nothing = {"compressor": "", "ef": None, "momentum": "", "scaling": False}  # as the original's example has it
    bps.DistributedTrainer(net.collect_params(), *SGD, compression_params=nothing)


def check_module():
    """Module.fit() with DistributedOptimizer, as the original's examples for ImageNet have it."""
    symbol = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=9, name="a")
    symbol = mx.sym.FullyConnected(mx.sym.Activation(symbol, act_type="tanh"), num_hidden=1, name="b")
    symbol = mx.sym.LinearRegressionOutput(symbol, mx.sym.Variable("label"), name="out")
    inputs, labels = (np.concatenate(parts) for parts in zip(*[map(share, data(step)) for step in range(STEPS)]))
    batch = BATCH // bps.size()
    batches = mx.io.NDArrayIter({"data": inputs}, {"label": labels}, batch)
    module = mx.mod.Module(symbol, data_names=["data"], label_names=["label"])
    module.bind(batches.provide_data, batches.provide_label)
    names = ("a_weight", "a_bias", "b_weight", "b_bias")
    first = {name: mx.nd.array(value) for name, value in zip(names, first_weights(5 + bps.rank()))}
    bps.broadcast_parameters(first, root_rank=0)
    module.init_params(arg_params=first)
    optimizer = mx.optimizer.create(*SGD[:1], rescale_grad=1 / batch, sym=symbol, **SGD[1])
    optimizer = bps.DistributedOptimizer(optimizer, sym=symbol)
    assert optimizer.momentum == MOMENTUM and optimizer.learning_rate == RATE
    module.fit(batches, num_epoch=1, kvstore=None, optimizer=optimizer, eval_metric="mse")
    trained, _ = module.get_params()
    assert_trained([trained[name].asnumpy() for name in names], tolerance=1e-5)  # it trains in float32


def check_loader_processes():
    """gluon.data.DataLoader forks; its processes have no job."""
    inputs, labels = data(0)
    dataset = gluon.data.ArrayDataset(inputs, labels)
    net = make_net(5 + bps.rank())
    trainer = bps.DistributedTrainer(net.collect_params(), *SGD)
    seen = 0
    for x, y in gluon.data.DataLoader(dataset, batch_size=4, num_workers=2):
        with autograd.record():
            loss = gluon.loss.L2Loss()(net(x), y)
        loss.backward()
        trainer.step(4)
        seen += len(x)
    assert seen == BATCH


if __name__ == "__main__":
    checks.main(globals(), bps)
