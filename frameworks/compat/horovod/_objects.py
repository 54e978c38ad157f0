# SPDX-License-Identifier: Apache-2.0
"""Objects of all workers, for all frameworks: they travel as arrays of bytes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np

from byteps import numpy as arrays
from byteps._groups import party

if TYPE_CHECKING:
    from typing import Any

    from byteps._groups import Group


def allgather_object(obj: Any, group: Group | None = None) -> list[Any]:
    """Return the objects of all workers, by rank. Each executes what unpickling their bytes means."""
    party(group)
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    sizes = arrays.all_gather(np.array([data.size]), 1, group=group).tolist()
    parts = np.split(arrays.all_gather(data, sizes, group=group), np.cumsum(sizes)[:-1])
    return [pickle.loads(part.tobytes()) for part in parts]


def broadcast_object(obj: Any, root: int, group: Group) -> Any:
    """Return the object of a member on every member. The others execute what unpickling its bytes means."""
    is_root = party(group).rank() == root
    data = np.frombuffer(pickle.dumps(obj) if is_root else b"", np.uint8)
    size = arrays.broadcast(np.array([data.size]), root, group=group)
    data = arrays.broadcast(data if is_root else np.empty(int(size[0]), np.uint8), root, group=group)
    return obj if is_root else pickle.loads(data.tobytes())
