# SPDX-License-Identifier: Apache-2.0
"""The ways to reduce gradients that are compared in a training, by name; coded_training.py has each kind."""

MOMENTUM = 0.9  # Nesterov's, of all
SMALL = 65536  # bytes: smaller tensors are not coded, as in the original


def optimizer(**compression):
    """DistributedOptimizer of byteps.torch. What coding loses is added to later gradients; momentum comes before it, as
    that of the optimizer would amplify what was lost. Small tensors, to which models are sensitive, lose nothing."""
    return 'optimizer', {**compression, 'ef': 'vanilla', 'momentum': 'nesterov', 'mu': MOMENTUM, 'min_bytes': SMALL}


METHODS = {
    'none': ('optimizer', None),
    'lossless': ('optimizer', {'compressor': 'lossless', 'min_bytes': 0}),
    'cast bfloat16': optimizer(compressor='cast', to='bfloat16'),
    'block 8': optimizer(compressor='block', bits=8),
    'block 4': optimizer(compressor='block', bits=4),
    'dithering': optimizer(compressor='dithering'),
    'onebit': optimizer(compressor='onebit'),
    'topk 1 %': optimizer(compressor='topk', k=0.01),
    'topk 4 %': optimizer(compressor='topk', k=0.04),
    'randomk 1 %': optimizer(compressor='randomk', k=0.01),
    'randomk 10 %': optimizer(compressor='randomk', k=0.1),
    'PowerSGD': ('hook', None),  # that of byteps.torch, for PyTorch's DistributedDataParallel
    'DDP': ('gloo', None),  # PyTorch's DistributedDataParallel over gloo, with its own hooks
    'DDP fp16': ('gloo', 'fp16'),
    'DDP PowerSGD': ('gloo', 'powersgd'),
}
