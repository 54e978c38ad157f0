# SPDX-License-Identifier: Apache-2.0
"""Where the tensors of the PyTorch scripts are: on the CPU, or with TEST_DEVICE=cuda on this worker's GPU.

Importing it makes that the default of everything that PyTorch makes.
"""

import os

import torch

DEVICE = os.environ.get("TEST_DEVICE", "cpu")
IS_CUDA = DEVICE == "cuda"

if IS_CUDA:
    torch.cuda.set_device(int(os.environ["BYTEPS_LOCAL_RANK"]) % torch.cuda.device_count())
    torch.backends.cudnn.allow_tf32 = False  # results are compared with those of float32
torch.set_default_device(DEVICE)


def generator(seed):
    """Return a source of random numbers for tensors on the device."""
    return torch.Generator(DEVICE).manual_seed(seed)
