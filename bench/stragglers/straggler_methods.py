# SPDX-License-Identifier: Apache-2.0
"""What is compared: ways to train, situations, and tasks, as the driver and the trainers know them."""

WORKERS, SERVERS = 4, 2
SLOW = WORKERS - 1
"""The worker that is slow, or pauses; worker 0 never does."""


class Method:
    """A way to train: its kind (straggler_trainer.py has each), what a job has set for it, after how many steps its
    parameters are those of all workers, and whether what workers change is added, not averaged."""

    def __init__(self, kind, settings=(), every=1, adds=False):
        self.kind, self.settings, self.every, self.adds = kind, list(settings), every, adds


def asynchronous(*settings):
    return Method("optimizer", ["worker.async=true", *settings], adds=True)


METHODS = {
    "synchronous": Method("optimizer"),
    "DDP over gloo": Method("ddp"),
    "asynchronous": asynchronous(),
    "staleness 1": asynchronous("worker.staleness=1"),
    "staleness 4": asynchronous("worker.staleness=4"),
    "staleness 16": asynchronous("worker.staleness=16"),
    "backup 1": Method("optimizer", ["server.quorum=n-1"]),
    "LocalSGD 8": Method("local", every=8),
    "DiLoCo 20": Method("diloco", every=20),
    "DiLoCo 20, streaming": Method("streaming", every=20),
    "torchft LocalSGD 8": Method("torchft", every=8),
}
BASE = "synchronous"

SITUATIONS = {
    "slow worker": "one worker takes 3 times as long for each step",
    "pauses": "one worker pauses before each 20th step on average, for 20 steps",
    "slow link": "a link of 20 Mbit/s and 50 ms of round trip between two halves of the workers",
}
FACTOR = 3.0
PAUSE_CHANCE, PAUSE = 0.05, 20
TASKS = ("Fashion-MNIST", "text")
