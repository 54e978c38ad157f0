# SPDX-License-Identifier: Apache-2.0
"""Trains in an elastic job until worker 0 sees the gate "end", and prints how far it is, with a digest of the weights.

    mxnet_elastic.py step|clip

Each step subtracts RATE from a counter among the parameters, so that a step that is lost or made twice shows. A worker
that begins anew starts with other weights than the others. With the gate "die", worker 1 kills itself in the middle of
a step: when the first gradients have been averaged, and the others, with the rows of an embedding, have not.
"""

import hashlib
import os
import signal
import sys

import mxnet as mx
from mxnet import autograd, gluon

import byteps.mxnet as bps

WAY, RATE, BATCH = sys.argv[1], 1 / 64, 4


def gate(name):
    return os.path.exists(os.path.join(os.environ["GATES"], name))


class Net(gluon.nn.Block):
    def __init__(self):
        super().__init__()
        self.layers = gluon.nn.Sequential()
        self.layers.add(gluon.nn.Dense(300, in_units=20), gluon.nn.BatchNorm(in_channels=300))
        self.layers.add(gluon.nn.Dense(1, in_units=300))
        self.table = gluon.nn.Embedding(500, 20, sparse_grad=True)
        self.steps = self.params.get("steps", shape=(1,), init="zeros")

    def forward(self, x):
        words = mx.nd.random.randint(0, 500, shape=(BATCH,))
        return (self.layers(x + self.table(words)) ** 2).mean() + self.steps.data()


def flat(values):
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from flat(value)
        elif value is not None:
            yield value


def digest():
    states = trainer._updaters[0].states
    arrays = [*(parameter.data() for parameter in trained), *flat(states[number] for number in sorted(states))]
    return hashlib.sha256(b"".join(array.asnumpy().tobytes() for array in arrays)).hexdigest()[:16]


class Dying:
    """Pushes some of the gradients, and dies when they have been averaged, if it is asked to."""

    def __init__(self, push):
        self.push, self.gradients = push, []

    def __call__(self, key, value, out=None, priority=0):
        self.gradients = [*self.gradients, *value] if key else [*value]
        self.push(key, value, out, priority)
        if first_rank == 1 and len(self.gradients) == 3 and gate("die"):
            for gradient in self.gradients:
                gradient.wait_to_read()
            os.kill(os.getpid(), signal.SIGKILL)


def step():
    if WAY == "step":
        trainer.step(1)
        return
    trainer.allreduce_grads()
    gluon.utils.clip_global_norm([parameter.grad() for parameter in trained if parameter is not net.steps], 1.0)
    trainer.update(1, ignore_stale_grad=True)


bps.init()
first_rank = bps.rank()
mx.random.seed(os.getpid())
net = Net()
net.initialize(mx.init.Normal(0.1))
optimizer, coding = ("adam", {}) if WAY == "step" else ("sgd", {"fp16": True})
trainer = bps.DistributedTrainer(net.collect_params(), optimizer, {"learning_rate": RATE}, compression_params=coding)
trainer._store.pushpull = Dying(trainer._store.pushpull)
trained = [parameter for parameter in trainer._params if parameter.grad_req != "null"]
print(f"joins as {bps.rank()} of {bps.size()}", flush=True)


@bps.elastic.run
def train(state):
    print(f"goes on as {bps.rank()} of {bps.size()}", flush=True)
    while True:
        over = bps.push_pull(mx.nd.array([bps.rank() == 0 and gate("end")]), op=bps.Max, name="over").asscalar() > 0
        with autograd.record():
            loss = net(mx.nd.random.normal(shape=(BATCH, 20)))
        loss.backward()
        step()
        state.numbers.append(len(state.numbers))
        if len(state.numbers) % 50 == 3:
            print("trains", flush=True)
        if over:
            return
        if len(state.numbers) % 7 == 0:
            state.commit()
        state.check_host_updates()


state = bps.elastic.GluonState(net.collect_params(), trainer, numbers=[])
state.register_reset_callbacks([lambda: print(f"resets to {bps.size()}", flush=True)])
train(state)
count = len(state.numbers)
assert state.numbers == list(range(count)), state.numbers
assert trainer.optimizer.num_update == count, (trainer.optimizer.num_update, count)
counted = round(-net.steps.data().asscalar() / RATE)
print(f"is at {count} of {counted} with {digest()}, as {bps.rank()} of {bps.size()}", flush=True)
