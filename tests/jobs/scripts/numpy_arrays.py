# SPDX-License-Identifier: Apache-2.0
"""byteps.numpy with the arrays of PyTorch, JAX, array_api_strict and Arrow, as far as they are installed."""

import importlib
import importlib.util

import checks
import numpy as np

import byteps.numpy as bps


def check_arrays_of_other_frameworks_come_back():
    """push_pull of an array of a framework is one of it, wherever it can be made of NumPy's."""
    want = np.arange(6, dtype="float32").reshape(2, 3) * bps.size()
    for name, make in frameworks():
        given = make(np.arange(6, dtype="float32").reshape(2, 3))
        for result in (
            bps.push_pull(given, op=bps.Sum),
            bps.push_pull_async(given, op=bps.Sum).wait(),
            bps.broadcast(bps.push_pull(given, op=bps.Sum)),
        ):
            assert type(result) is type(given), (name, type(result))
            np.testing.assert_array_equal(np.asarray(result), want)
        np.testing.assert_array_equal(np.asarray(given), np.arange(6, dtype="float32").reshape(2, 3))  # not changed
    torch = optional("torch")
    if torch:
        tensor = torch.ones(4)
        assert bps.push_pull_inplace(tensor, op=bps.Sum) is tensor and tensor.tolist() == [bps.size()] * 4
        assert bps.push_pull(torch.ones(3, 2).T, op=bps.Sum).tolist() == [[bps.size()] * 3] * 2
        checks.raised(TypeError, lambda: bps.push_pull(torch.ones(1, dtype=torch.bfloat16)), "torch.Tensor", "dtype")
    arrow = optional("pyarrow")
    if arrow:
        array = arrow.array([1.0, 2.0])
        np.testing.assert_array_equal(bps.push_pull(array, op=bps.Sum), np.array([1.0, 2.0]) * bps.size())
        assert arrow.array(bps.push_pull(array, op=bps.Max)) == array
        checks.raised(TypeError, lambda: bps.push_pull_inplace(array), "cannot change")
        checks.raised(TypeError, lambda: bps.push_pull(arrow.array([1.0, None])), "no nulls")


def optional(module):
    return importlib.import_module(module) if importlib.util.find_spec(module) else None


def frameworks():
    """Yield names of what is installed, and functions that make an array of it of an ndarray."""
    for name in ("torch", "jax.numpy", "array_api_strict"):
        if importlib.util.find_spec(name.partition(".")[0]):
            yield name, importlib.import_module(name).from_dlpack


if __name__ == "__main__":
    checks.main(globals(), bps)
