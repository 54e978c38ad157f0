# SPDX-License-Identifier: Apache-2.0
"""A training of Ray Train, by torch_config=BytePSConfig(...).

    ray_train.py FOLDER '{"workers": 2, "servers": 1, ...}'

"kill": the worker of this rank, or with "server" a server, dies in the first attempt; "raise": the worker of this rank
has an error; "stays": a job is left open at the end. Says how the training has ended, and whether its actors are gone.
"""

import contextlib
import json
import os
import runpy
import signal
import sys
import time

import ray
from byteps.ray import BytePSConfig
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def kill_server():
    """Kills a server of this host, which runs in an actor."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", encoding="utf-8") as file:
            if file.read().startswith("ray::BytePSServer"):
                os.kill(int(process), signal.SIGKILL)
                return
    raise RuntimeError("no server")


def train(config):
    """What a user would write, and what is to go wrong."""
    import byteps.torch as bps
    import torch

    rank = ray.train.get_context().get_world_rank()
    assert ray.train.get_context().get_world_size() == config["workers"]
    mark = os.path.join(config["folder"], "mark")
    if "kill" in config and not os.path.exists(mark):
        bps.init()
        bps.push_pull(torch.ones(3), name="x")
        if rank == 0:
            open(mark, "w", encoding="ascii").close()
        bps.barrier()
        if config["kill"] == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["kill"] == "server" and rank == 0:
            kill_server()
        while True:
            bps.push_pull(torch.ones(3), name="x")
    if "raise" in config:
        bps.init()
        bps.push_pull(torch.ones(3), name="x")
        if rank == config["raise"]:
            raise ValueError("as a user's mistake does")
        while True:
            bps.push_pull(torch.ones(3), name="x")
    ones = torch.ones(1)
    torch.distributed.all_reduce(ones)  # the process group of PyTorch is there, too
    assert ones.item() == config["workers"]
    runpy.run_path(config["program"])
    if "stays" in config:
        bps.init()


def is_free():
    """Whether nobody holds anything of the cluster any more."""
    there, free = ray.cluster_resources(), ray.available_resources()
    return all(free.get(kind) == there[kind] for kind in ("CPU", "gpu_node", "cpu_node"))


def main(folder, config):
    """Runs the trainer."""
    ray.init(log_to_driver=True, logging_level="error")
    trainer = TorchTrainer(
        train,
        train_loop_config={**config, "folder": folder},
        scaling_config=ScalingConfig(num_workers=config["workers"], resources_per_worker={"CPU": 1, "gpu_node": 1}),
        run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures="kill" in config)),
        torch_config=BytePSConfig(
            servers=config["servers"],
            resources_per_server={"CPU": config.get("cores", 1), "cpu_node": 1},
            timeout_s=10,
        ),
    )
    try:
        trainer.fit()
        print("the training has ended well")
    except Exception as error:
        print(f"the training has failed: {error}")
        if "cores" in config:
            return  # Ray gives the workers' resources back when the program ends
    deadline = time.monotonic() + 30
    while not is_free() and time.monotonic() < deadline:
        time.sleep(0.1)
    print("all is free" if is_free() else f"left: {ray.available_resources()}", flush=True)


main(sys.argv[1], json.loads(sys.argv[2]))
