# SPDX-License-Identifier: Apache-2.0
"""Trains as examples/train_mxnet.py does, in one process without BytePS; prints the loss of each step."""

import json
import sys

import curves
import fashion_mnist
import mxnet as mx
import train_mxnet
from mxnet import autograd

images, labels = fashion_mnist.load("train")
mx.random.seed(curves.SEED)
net = train_mxnet.network()
loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
weights = list(net.collect_params().values())
velocity = [mx.nd.zeros(parameter.shape) for parameter in weights]
losses = []
for batch, factor in curves.plan():
    rate = float(sys.argv[1]) * factor
    with autograd.record():
        mean = loss(net(train_mxnet.pixels(images[batch])), mx.nd.array(labels[batch])).mean()
    mean.backward()
    for parameter, speed in zip(weights, velocity):
        change = rate * (parameter.grad() + 5e-4 * parameter.data())
        speed[:] = 0.9 * speed - change
        parameter.set_data(parameter.data() + 0.9 * speed - change)
    losses.append(float(mean.asscalar()))
print(json.dumps(losses))
