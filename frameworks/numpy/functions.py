# SPDX-License-Identifier: Apache-2.0
"""Bring an object of one worker to all."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, overload

import numpy as np

from byteps._basics import check_root, rank

from .ops import broadcast

if TYPE_CHECKING:
    from typing import Any

    from byteps._types import T


@overload
def broadcast_object(obj: None, root_rank: int = 0, name: str | None = None) -> Any: ...
@overload
def broadcast_object(obj: T, root_rank: int = 0, name: str | None = None) -> T: ...
def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Return the object of worker root_rank on every worker; on the root the object itself.

    Args:
        obj: anything that can be pickled; it counts on the root only.
        root_rank: the worker that sends. The others execute what unpickling its bytes means.
        name: needed only if several threads broadcast at once.
    """
    root = check_root(root_rank)
    name = "object" if name is None else name
    data = np.frombuffer(pickle.dumps(obj) if rank() == root else b"", np.uint8)
    size = int(broadcast(np.array([data.size]), root, f"Size.{name}")[0])
    data = data if rank() == root else np.empty(size, np.uint8)
    content = broadcast(data, root, f"Object.{name}")
    return obj if rank() == root else pickle.loads(content.tobytes())
