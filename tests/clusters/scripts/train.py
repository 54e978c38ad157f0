# SPDX-License-Identifier: Apache-2.0
"""A training of a few steps; says who it was, and a digest of what it has learnt. It is one of NumPy, as what launchers
do is the same for every framework, and each worker of PyTorch begins with seconds of importing that; test_documents and
the commands of docs/clusters.md have PyTorch under the launchers.

With KILL=RANK that worker dies in the first attempt of an elastic job. Each job of JOBS (2) is one init() and
shutdown().
"""

import hashlib
import os
import signal

import byteps.numpy as bps
import numpy as np

attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
for _ in range(int(os.environ.get("JOBS", "2"))):
    bps.init()
    own = np.random.default_rng(bps.rank())
    weights = bps.broadcast(own.standard_normal((300, 10), dtype="float32"), 0, name="weights")
    for step in range(5):
        if attempt == "0" and os.environ.get("KILL") == str(bps.rank()) and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        images = own.standard_normal((8, 300), dtype="float32")
        weights -= 0.1 * bps.push_pull(images.T @ (images @ weights) / 80, name="gradient")
    digest = hashlib.sha256(weights.tobytes()).hexdigest()[:16]
    line = f"worker {bps.rank()} of {bps.size()}, {bps.local_rank()} of {bps.local_size()}: {digest}\n"
    os.write(1, line.encode())  # in one piece, as workers may share a pipe
    bps.shutdown()
