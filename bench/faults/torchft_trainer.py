# SPDX-License-Identifier: Apache-2.0
"""What trainer.c does, with torchft: gradients are summed by a Manager over gloo. Or torchft's lighthouse.

torchft's DistributedDataParallel 0.2.0 over gloo does not survive a sum that fails: its hook asserts a future that is
only made after a wait that went well. So the sums are asked of the Manager, as its hook does.

usage: torchft_trainer.py lighthouse WORKERS JOIN_TIMEOUT_MS            prints its port and that of a store
       torchft_trainer.py RANK WORKERS ADDRESS LIGHTHOUSE:PORT STORE_PORT STEPS TENSORS ELEMENTS
"""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torchft
import torchft.coordination

MINUTE = datetime.timedelta(seconds=60)


def store_of(address, port=0):
    return dist.TCPStore(address, port, is_master=port == 0, wait_for_workers=False, timeout=MINUTE)


def lighthouse(workers, join_timeout):
    """Stays until it is ended."""
    server = torchft.coordination.LighthouseServer("[::]:0", min_replicas=workers - 1, join_timeout_ms=join_timeout)
    store = store_of("0.0.0.0")
    print("listens", server.address().rsplit(":", 1)[1], store.port, flush=True)
    signal.pause()


def meet(workers, address, port):
    """Returns when all workers are there, so that the first quorum has all of them."""
    store = store_of(address, port)
    if store.add("ready", 1) == workers:
        store.set("all", "")
    store.wait(["all"], MINUTE)


def train(rank, workers, address, house, store_port, steps, tensors, elements):
    torch.set_num_threads(1)
    own = store_of(address)
    parameters = [torch.nn.Parameter(torch.zeros(elements)) for _ in range(tensors)]
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(),
        load_state_dict=lambda state: None,  # nobody comes later
        state_dict=dict,
        min_replica_size=workers - 1,
        init_sync=False,  # all begin with the same
        rank=0,
        world_size=1,
        replica_id=f"replica{rank}",
        store_addr=address,
        store_port=own.port,
        lighthouse_addr=f"http://{house}",
        hostname=address,
    )
    optimizer = torchft.Optimizer(manager, torch.optim.SGD(parameters, 1e-3))
    meet(workers, house.rsplit(":", 1)[0], store_port)
    while manager.current_step() < steps:
        made = manager.current_step()
        optimizer.zero_grad()
        for parameter in parameters:
            parameter.grad = torch.ones(elements)
        for work in [manager.allreduce(parameter.grad) for parameter in parameters]:
            work.wait()
        optimizer.step()
        word = "step" if manager.current_step() > made else "again"
        print(word, made + 1, f"{time.monotonic():.6f}", flush=True)


def main():
    if sys.argv[1] == "lighthouse":
        lighthouse(int(sys.argv[2]), int(sys.argv[3]))
    rank, workers, address, house, *numbers = sys.argv[1:]
    train(int(rank), int(workers), address, house, *map(int, numbers))
    os._exit(0)  # whoever is still waiting for a lost worker is not waited for


if __name__ == "__main__":
    main()
