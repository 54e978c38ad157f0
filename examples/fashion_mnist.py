# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST for the examples, as NumPy arrays: the images, and which sample belongs to which worker.

Everything here depends only on its arguments, never on the number of workers, so that a job of any size trains
on the same samples in the same order.
"""

import gzip
import pathlib
import struct

import numpy

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")  # of the Debian package dataset-fashion-mnist
CLASSES = 10
MEAN, DEVIATION = 0.2860, 0.3530  # of all pixels to train on, divided by 255


def read_idx(path):
    """Returns the array in a gzip'ed IDX file of unsigned bytes."""
    with gzip.open(path, "rb") as stream:
        data = stream.read()
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of unsigned bytes")
    dimensions = data[3]
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise ValueError(f"{path}: the header is cut off")
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    array = numpy.frombuffer(data, numpy.uint8, offset=start)
    if array.size != numpy.prod(shape, dtype=numpy.int64):
        raise ValueError(f"{path}: {array.size} bytes for an array of shape {shape}")
    return array.reshape(shape)


def load(part, folder=FOLDER):
    """Returns the images and labels of part "train" or "t10k": uint8 of shape (n, 28, 28) and int64 of shape (n)."""
    images = read_idx(pathlib.Path(folder) / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(pathlib.Path(folder) / f"{part}-labels-idx1-ubyte.gz")
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise ValueError(f"{folder}: images of shape {images.shape} with labels of shape {labels.shape}")
    return images.copy(), labels.astype(numpy.int64)


def batches(count, batch_size, epoch, seed):
    """Returns the sample numbers of each whole batch of an epoch, shuffled by seed and epoch."""
    order = numpy.random.default_rng((1_000_003 * seed + epoch) % 2**63).permutation(count)
    return order[: count - count % batch_size].reshape(-1, batch_size)


def share(batch, rank, size):
    """Returns the part of a batch that one of `size` workers works on. The parts may differ by one sample."""
    return batch[rank::size]
