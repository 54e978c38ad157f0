# SPDX-License-Identifier: Apache-2.0
"""Bring an object of one worker to all."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, overload

import numpy as np

from byteps._groups import check_root, party

from .ops import broadcast

if TYPE_CHECKING:
    from typing import Any

    from byteps._groups import Group
    from byteps._types import T


@overload
def broadcast_object(obj: None, root_rank: int = 0, name: str | None = None, group: Group | None = None) -> Any: ...
@overload
def broadcast_object(obj: T, root_rank: int = 0, name: str | None = None, group: Group | None = None) -> T: ...
def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None, group: Group | None = None) -> Any:
    """Return the object of worker root_rank on every worker; on the root the object itself.

    Args:
        obj: anything that can be pickled; it counts on the root only.
        root_rank: the worker that sends. The others execute what unpickling its bytes means.
        name: needed only if several threads broadcast at once; a group has none.
        group: the process group that takes part; root_rank is a rank in it. None: all workers.
    """
    members = party(group)
    root = check_root(root_rank, members)
    is_root = members.rank() == root
    if group is None and name is None:
        name = "object"
    data = np.frombuffer(pickle.dumps(obj) if is_root else b"", np.uint8)
    size = int(broadcast(np.array([data.size]), root, None if name is None else f"Size.{name}", group=group)[0])
    data = data if is_root else np.empty(size, np.uint8)
    content = broadcast(data, root, None if name is None else f"Object.{name}", group=group)
    return obj if is_root else pickle.loads(content.tobytes())
