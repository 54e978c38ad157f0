# SPDX-License-Identifier: Apache-2.0
"""The other parts of a job, for programs that start its processes themselves: the scheduler and the servers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._basics import settings_texts
from ._native import bps as _bps

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import PathOrText, Settings


class Scheduler:
    """A job's scheduler on a thread of this process, as ``byteps scheduler`` is one in a process of its own.

    It ends with close(), which ends its job, too, or with the process. Use it as a context, or keep it.

    Args:
        conf: path of a configuration file.
        set: a dict of values, as for init(). ``cluster.scheduler`` says where it listens: with "10.0.0.7:0" at a free
            port of that address; without it at one that this host alone reaches.

    Attributes:
        address: "host:port", the ``cluster.scheduler`` of the other parts.

    Raises:
        ConfigurationError: the configuration is wrong.
        Error: it cannot listen there.
    """

    address: str

    def __init__(self, *, conf: PathOrText | None = None, set: Settings | None = None) -> None:
        self.address, self._hosted = _bps.host_scheduler(conf and os.fspath(conf), settings_texts(set))

    def close(self) -> None:
        """End it. A second call does nothing."""
        hosted, self._hosted = self._hosted, None
        if hosted is not None:
            _bps.stop_scheduler(hosted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(*, conf: PathOrText | None = None, set: Settings | None = None) -> None:
    """Be a server of a job, as ``byteps server`` is one; return when the job is over.

    Other Python threads run meanwhile, and Ctrl-C works; the server then goes on until the process ends.

    Args:
        conf, set: as for init(). They contain at least ``cluster.scheduler``.

    Raises:
        ConfigurationError: the configuration is wrong.
        LostError, TimeoutError, Error: the job has failed; the message states why.
    """
    _bps.serve(conf and os.fspath(conf), settings_texts(set))
