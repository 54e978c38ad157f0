# SPDX-License-Identifier: Apache-2.0
"""What an error of TensorFlow is to BytePS: the kernels note the core's number of a failure in its payload."""

import contextlib
import functools

import tensorflow as tf

from byteps._errors import Error, LostError, from_status

_last = None  # the last error of a function that noted() has made


def _status_of(error):
    """Return the core's number of a failure, None if it is none of ours. A session's error has the kernel's within."""
    while isinstance(error, tf.errors.OpError):
        number = error.experimental_payloads.get(b"byteps")
        if number is not None:
            return int(number)
        error = error.__context__
    return None


def noted(function):
    """Return a function for a graph, of whose errors TensorFlow keeps the text alone."""

    @functools.wraps(function)
    def call(*arguments):
        try:
            return function(*arguments)
        except Error as error:
            global _last
            _last = error
            raise

    return call


def _failure_of(error):
    """Return the error of byteps that an error of TensorFlow is made of, or None."""
    status = _status_of(error)
    if status is not None:
        return from_status(status, error.message)
    return _last if _last is not None and str(_last) in error.message else None


@contextlib.contextmanager
def as_in_byteps():
    """Return a context in which the loss of a member is a LostError, as with other frameworks."""
    try:
        yield
    except tf.errors.OpError as error:
        failure = _failure_of(error)
        if isinstance(failure, LostError):
            raise failure from error
        raise
