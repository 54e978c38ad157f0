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
