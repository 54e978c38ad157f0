# SPDX-License-Identifier: Apache-2.0
"""Gradients of MXNet that are coded on the network, against the formulas."""

import warnings

import checks
import coded_ops
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import byteps.mxnet as bps

COUNT = 300
ONEBIT = {"compressor": "onebit", "ef": "vanilla"}
ALL = {**ONEBIT, "min_bytes": 0}  # else the gradients of these checks would be too small


def parameter():
    weight = gluon.Parameter("weight", shape=(COUNT,))
    weight.initialize(mx.init.Zero())
    return weight


def trainer(weight, params, make=bps.DistributedTrainer, rate=0.5, **optimizer):
    options = {"learning_rate": rate, **optimizer}
    return make({"weight": weight}, "sgd", options, compression_params=params)


def backward(weight, gradients):
    with autograd.record():
        loss = (weight.data() * mx.nd.array(gradients[bps.rank()])).sum()
    loss.backward()


def follow(weight, train, coder, rates=(0.5,) * 4, average=True, tolerance=2e-6):
    for number, rate in enumerate(rates):
        gradients = coded_ops.everyone(number, COUNT)
        before = weight.data().asnumpy()
        backward(weight, gradients)
        train.set_learning_rate(rate)
        train.step(1)
        want = coder.round(gradients, average=average, rate=rate)
        np.testing.assert_allclose(weight.grad().asnumpy(), want, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(weight.data().asnumpy(), before - rate * want, rtol=1e-5, atol=10 * tolerance)


def check_error_feedback_follows_the_learning_rate():
    for rates in ((0.5,) * 4, (0.5, 0.5, 0.125, 0.25)):
        weight = parameter()
        follow(weight, trainer(weight, ALL), coded_ops.Job(), rates)


def check_small_gradients_lose_nothing():
    weight = parameter()
    follow(weight, trainer(weight, ONEBIT), coded_ops.Exact())


def check_momentum_moves_from_the_optimizer_to_the_coding():
    weight, given = parameter(), {"learning_rate": 0.5, "momentum": 0.75}
    params = {**ALL, "momentum": "nesterov", "scaling": False, "threshold": 3}
    train = bps.DistributedTrainer({"weight": weight}, "sgd", given, compression_params=params)
    assert given["momentum"] == 0.75 and train._optimizer.momentum == 0
    follow(weight, train, coded_ops.Job(mu=0.75, scaling=False))
    checks.raised(KeyError, lambda: trainer(parameter(), params), "momentum")


def check_both_kinds_of_compression():
    weight = parameter()
    train, halves = trainer(weight, {**ALL, "fp16": True}), coded_ops.Job()
    for number in range(2):
        gradients = [g.astype(np.float16).astype(np.float32) for g in coded_ops.everyone(number, COUNT)]
        backward(weight, gradients)
        train.step(1)
        np.testing.assert_allclose(weight.grad().asnumpy(), halves.round(gradients, rate=0.5), rtol=4e-3, atol=4e-3)


def check_a_store():
    def make(*args, **how):
        return gluon.Trainer(*args, kvstore="dist_byteps", **how)

    weight = parameter()
    follow(weight, trainer(weight, ALL, make), coded_ops.Job(), average=False)


ORIGINAL = {"compressor": "", "ef": "", "momentum": "", "scaling": False, "k": 1, "fp16": False}  # of its example


def check_the_dictionary_of_the_original():
    """It has the keys of all compressors, whichever is in use."""
    for compressor, coder in (("onebit", coded_ops.Job(scaling=False)), ("topk", None), ("randomk", None)):
        params = {**ORIGINAL, "compressor": compressor, "ef": "vanilla", "min_bytes": 0}
        train, weight = None, parameter()
        train = trainer(weight, params)
        if coder is not None:
            follow(weight, train, coder)
        else:
            backward(weight, coded_ops.everyone(0, COUNT))
            train.step(1)
            assert np.count_nonzero(weight.grad().asnumpy()) == 1  # k = 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(parameter(), {**ORIGINAL, "momentum": "nesterov"}, momentum=0.5)
    assert ["no effect" in str(one.message) for one in caught if "compression" in str(one.message)] == [True], caught


def check_signs_move_by_the_learning_rate():
    """Whatever the size of the batch; those of gradients that are not coded, as small ones, are its mean."""
    for params, moves in (({"min_bytes": 0}, 0.5), ({}, None)):
        weight = parameter()
        train = trainer(weight, {**ORIGINAL, "compressor": "onebit", **params})
        train._init_params()
        gradients = coded_ops.everyone(3, COUNT)
        backward(weight, gradients)
        train.step(16)
        found = weight.data().asnumpy()
        if moves is None:
            np.testing.assert_allclose(found, -0.5 / 16 * np.mean(gradients, axis=0), rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_allclose(np.abs(found), moves)


def check_arguments_of_horovod():
    halves, divided = {"compression": bps.Compression.fp16}, {"gradient_predivide_factor": 4.0}
    for how in (halves, divided, {"prefix": "p", "num_groups": 2}):
        weight = parameter()
        train = bps.DistributedTrainer({"weight": weight}, "sgd", {"learning_rate": 0.5}, **how)
        gradients = coded_ops.everyone(0, COUNT)
        backward(weight, gradients)
        train.step(2)
        np.testing.assert_allclose(weight.data().asnumpy(), -0.25 * np.mean(gradients, axis=0), rtol=2e-3, atol=2e-3)
    make = lambda **how: bps.DistributedTrainer({"weight": parameter()}, "sgd", **how)  # noqa: E731
    checks.raised(ValueError, lambda: make(compression="onebit"), "onebit")
    checks.raised(ValueError, lambda: make(gradient_predivide_factor=0), "positive")


def check_nothing_is_coded_without():
    for params in (None, {}, ORIGINAL, {**ORIGINAL, "momentum": "nesterov"}, {"fp16": False}):
        weight = parameter()
        train = trainer(weight, params, momentum=0.5)
        gradients = coded_ops.everyone(0, COUNT)
        backward(weight, gradients)
        train.step(1)
        np.testing.assert_allclose(weight.grad().asnumpy(), np.mean(gradients, axis=0), rtol=1e-5, atol=1e-6)


def check_the_name_of_the_original():
    bps.byteps_declare_tensor("declared", byteps_compressor_type="onebit", byteps_ef_type="vanilla")
    coder = coded_ops.Job()
    for number, rate in enumerate((0.1, 0.2, 0.05)):
        gradients = coded_ops.everyone(number, COUNT)
        found = bps.push_pull(mx.nd.array(gradients[bps.rank()]), name="declared", learning_rate=rate)
        coded_ops.close(found.asnumpy(), coder.round(gradients, rate=rate))


def check_refusals():
    for params, text in (
        ({"ef": "vanilla"}, "names no compressor"),
        ({"compresor": "onebit"}, "names no compressor"),
        ({"compressor": "twobit"}, "twobit"),
        ({**ONEBIT, "scalling": True}, "scaling"),
        ({**ONEBIT, "ef": "sparse"}, "vanilla"),
    ):
        checks.raised(ValueError, lambda: trainer(parameter(), params), text)  # noqa: B023


def check_workers_that_disagree():
    weight = parameter()
    train = trainer(weight, {**ONEBIT, "scaling": bps.rank() == 0})
    backward(weight, coded_ops.everyone(0, COUNT))
    train.allreduce_grads()
    checks.raised(mx.base.MXNetError, lambda: weight.grad().asnumpy(), "scaling=true", "scaling=false")


if __name__ == "__main__":
    checks.main(globals(), bps)
