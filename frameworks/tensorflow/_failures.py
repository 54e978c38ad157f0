# SPDX-License-Identifier: Apache-2.0
"""What an error of TensorFlow is to BytePS: the kernels note the core's number of a failure in its payload."""

import contextlib

import tensorflow as tf

from byteps._errors import LostError, from_status


def _status_of(error):
    """Return the core's number of a failure, None if it is none of ours. A session's error has the kernel's within."""
    while isinstance(error, tf.errors.OpError):
        number = error.experimental_payloads.get(b"byteps")
        if number is not None:
            return int(number)
        error = error.__context__
    return None


@contextlib.contextmanager
def as_in_byteps():
    """Return a context in which the loss of a member is a LostError, as with other frameworks."""
    try:
        yield
    except tf.errors.OpError as error:
        status = _status_of(error)
        failure = None if status is None else from_status(status, error.message)
        if isinstance(failure, LostError):
            raise failure from error
        raise
