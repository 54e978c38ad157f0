# SPDX-License-Identifier: Apache-2.0
"""A rank that reduces the same tensors by torch.distributed with gloo, all of them in flight at once.

usage: gloo.py DIRECTORY NAME TENSORS RANK SIZE
"""

import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    directory, name, file, rank, size = sys.argv[1:]
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(directory, f'{name}.store'), int(size))
    dist.init_process_group('gloo', store=store, rank=int(rank), world_size=int(size))
    with open(file, encoding='ascii') as lines:
        counts = [int(line) for line in lines if not line.startswith('#')]
    tensors = [torch.zeros(count) for count in reversed(counts)]

    def reduce_all():
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    reduce_all()
    with open(f'{directory}/{name}.{rank}.done', 'w', encoding='ascii') as done:
        print(os.getpid(), file=done, flush=True)
        with open(f'{directory}/{name}.{rank}.go', encoding='ascii') as go:
            for line in go:
                reduce_all()
                start = time.monotonic_ns()
                for _ in range(int(line)):
                    reduce_all()
                print(start, time.monotonic_ns(), file=done, flush=True)


main()
