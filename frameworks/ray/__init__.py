# SPDX-License-Identifier: Apache-2.0
"""BytePS under Ray Train: a backend for its trainers, with servers as actors.

    trainer = TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=4),
        torch_config=BytePSConfig(servers=2),
    )

In ``train`` the processes are workers of one job: bps.init(), and on as in any other.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.train.backend import Backend, BackendConfig
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import byteps
from byteps import _basics

if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager

    from ray.train.v2._internal.util import TrainingFramework

# In seconds: longer than bps.shutdown() waits for others, and than a scheduler waits for members that end.
_LEAVE_TIMEOUT = 10
_END_TIMEOUT = 5


@dataclass
class BytePSConfig(BackendConfig):
    """The ``torch_config`` of a TorchTrainer, or the configuration of the backend of any other trainer.

    Args:
        servers: how many actors serve. 0: the workers sum what they push among themselves.
        resources_per_server: what Ray sets aside for each, as in ``resources_per_worker``. They are spread over the
            nodes; a resource of your own ({"CPU": 4, "cpu_node": 1}) keeps them on certain ones.
        framework_config: the trainer's usual configuration, which is set up as well. For a TorchTrainer it is
            TorchConfig() unless another one is given: what Ray offers for PyTorch needs its process group.
        timeout_s: seconds to wait for the resources of the servers.
    """

    servers: int = 0
    resources_per_server: dict[str, float] = field(default_factory=lambda: {"CPU": 1})
    framework_config: BackendConfig = field(default_factory=BackendConfig)
    timeout_s: float = 60

    def __post_init__(self) -> None:
        """Refuse what would be found out only when the workers have been started."""
        if not isinstance(self.servers, int) or self.servers < 0:
            raise ValueError(f"servers={self.servers!r}: expected a number of actors, 0 or more")

    @property
    def backend_cls(self) -> type[Backend]:
        """What Ray Train starts and ends the job by."""
        return _BytePSBackend

    @property
    def backend(self) -> str | None:
        """What a TorchTrainer looks for in its configuration, and puts there if it is None."""
        return getattr(self.framework_config, "backend", None)

    @backend.setter
    def backend(self, name: str | None) -> None:
        from ray.train.torch import TorchConfig

        if not isinstance(self.framework_config, TorchConfig):
            self.framework_config = TorchConfig()
        self.framework_config.backend = name

    @property
    def train_func_context(self) -> Callable[[], ContextManager[Any]]:
        """What the training function runs in."""
        return self.framework_config.train_func_context

    @property
    def framework(self) -> TrainingFramework | None:
        """Which framework Ray Train is told of."""
        return self.framework_config.framework

    def to_dict(self) -> dict[str, Any]:
        """What Ray Train shows of it."""
        return {"servers": self.servers, "resources_per_server": self.resources_per_server}


# ---- in the processes of workers ---------------------------------------------------------------------------

_scheduler = None


def _host(job, secret):
    """In worker 0: run the scheduler, which stays for each init() of these workers, and return its address."""
    global _scheduler
    os.environ["BYTEPS_SECRET"] = secret
    host = ray.util.get_node_ip_address()
    listen = f"[{host}]:0" if ":" in host else f"{host}:0"
    _scheduler = byteps.Scheduler(set={**job, "cluster.scheduler": listen, "cluster.stay": True})
    return _scheduler.address


def _prepare(job, secret):
    """In a worker or a server: let this process find its job."""
    own = os.environ.get("BYTEPS_SET", "")
    os.environ["BYTEPS_SET"] = "\n".join([own, *(f"{key}={value}" for key, value in job.items())])
    os.environ["BYTEPS_SECRET"] = secret


def _leave():
    """In a worker: leave the job that the training function has left open."""
    try:
        if _basics.is_initialized():
            _basics.shutdown()
    except byteps.Error as error:
        print(f"byteps: {error}", file=sys.stderr)


def _close():
    """In worker 0, when all have left: let servers end with the scheduler."""
    if _scheduler is not None:
        _scheduler.close()


class BytePSServer:
    """The actor that is a server."""

    def __init__(self, job: dict[str, Any], secret: str) -> None:
        _prepare(job, secret)

    def ready(self) -> None:
        """Tell that the actor has begun, and byteps is installed where it is."""

    def serve(self) -> None:
        try:
            byteps.serve()
        except byteps.Error as error:
            print(f"byteps server: {error}", file=sys.stderr)


# ---- in the process of the trainer -------------------------------------------------------------------------


class _Servers:
    """The servers of one job, and the resources that they hold."""

    def __init__(self, config):
        """Wait for the resources."""
        self.config = config
        self.actors, self.serving = [], []
        self.group = None
        if config.servers > 0:
            self.group = placement_group([config.resources_per_server] * config.servers, strategy="SPREAD")
            if not self.group.wait(config.timeout_s):
                self.end()
                free = ray.available_resources()
                raise TimeoutError(
                    f"servers={config.servers} with {config.resources_per_server} each, every one on one node, did "
                    f"not fit beside the workers within {config.timeout_s:g} s; on all nodes together "
                    f"{ {kind: free.get(kind, 0) for kind in config.resources_per_server} } are free. Ask for less by "
                    "resources_per_server, or leave servers out: then workers sum"
                )

    def start(self, job, secret):
        """Start them; return when all are there."""
        resources = dict(self.config.resources_per_server)
        options = {"num_cpus": resources.pop("CPU", 0), "num_gpus": resources.pop("GPU", 0)}
        if "memory" in resources:
            options["memory"] = resources.pop("memory")
        for bundle in range(self.config.servers):
            place = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=bundle)
            actor = ray.remote(BytePSServer).options(**options, resources=resources, scheduling_strategy=place)
            self.actors.append(actor.remote(job, secret))
        ray.get([actor.ready.remote() for actor in self.actors])
        self.serving = [actor.serve.remote() for actor in self.actors]

    def end(self):
        """Give the resources back when the servers have ended with their job, or soon whatever they do."""
        if self.serving:
            ray.wait(self.serving, num_returns=len(self.serving), timeout=_END_TIMEOUT)
        for actor in self.actors:
            ray.kill(actor)
        if self.group is not None:
            remove_placement_group(self.group)
        self.actors, self.serving, self.group = [], [], None


class _BytePSBackend(Backend):
    """Begins a job with each group of workers that Ray Train starts, and ends it with them."""

    share_cuda_visible_devices = True  # workers of one host map each other's memory

    def __init__(self):
        self.servers: _Servers | None = None

    def on_start(self, worker_group, backend_config):
        self.end_servers()
        framework = backend_config.framework_config
        framework.backend_cls().on_start(worker_group, framework)
        self.servers = _Servers(backend_config)
        try:
            self.begin(worker_group, backend_config)
        except BaseException:
            self.end_servers()
            raise

    def begin(self, worker_group, backend_config):
        """Tell all processes of their job, and start the servers."""
        secret = secrets.token_hex(32)
        job = {"cluster.workers": len(worker_group), "cluster.servers": backend_config.servers}
        job["cluster.scheduler"] = worker_group.execute_single(0, _host, job, secret)
        ray.get(
            [
                worker_group.execute_single_async(rank, _prepare, {**job, "cluster.rank": rank}, secret)
                for rank in range(len(worker_group))
            ]
        )
        self.servers.start(job, secret)

    def on_training_start(self, worker_group, backend_config):
        framework = backend_config.framework_config
        framework.backend_cls().on_training_start(worker_group, framework)

    def on_shutdown(self, worker_group, backend_config):
        framework = backend_config.framework_config
        try:
            ray.get(worker_group.execute_async(_leave), timeout=_LEAVE_TIMEOUT)
            framework.backend_cls().on_shutdown(worker_group, framework)
        except GetTimeoutError:
            print(f"byteps: workers have not left their job within {_LEAVE_TIMEOUT} s", file=sys.stderr)
        finally:
            with contextlib.suppress(RayError):
                ray.get(worker_group.execute_single_async(0, _close), timeout=_END_TIMEOUT)
            self.end_servers()

    def end_servers(self):
        """Also those of a group that has ended without on_shutdown()."""
        if self.servers is not None:
            self.servers.end()
            self.servers = None


__all__ = ["BytePSConfig"]
