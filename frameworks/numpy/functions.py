# SPDX-License-Identifier: Apache-2.0
"""Bring an object of one worker to all."""

import pickle

import numpy as np

from byteps._basics import check_root, rank

from .ops import broadcast


def broadcast_object(obj, root_rank=0, name=None):
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
