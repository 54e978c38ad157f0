# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface, made of BytePS.

A program imports ``byteps.compat.horovod.torch as hvd``, or another of its parts. One that must stay as it is imports
``horovod.torch`` after install(), or is started by ``byteps run --as horovod``. What is not there is refused by its
name.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__version__ = "0.28.1+byteps"  # that of the interface

# The parts of Horovod that lie elsewhere here.
_PLACES = {
    "horovod.common.elastic": "byteps.elastic",
    "horovod.common.exceptions": "byteps.elastic",
    "horovod.common.process_sets": "byteps.compat.horovod.process_sets",
    "horovod.keras.elastic": "byteps.keras.elastic",
    "horovod.mxnet.compression": "byteps.mxnet.compression",
    "horovod.tensorflow.compression": "byteps.tensorflow.compression",
    "horovod.tensorflow.elastic": "byteps.tensorflow.elastic",
    "horovod.tensorflow.keras.callbacks": "byteps.compat.horovod.keras.callbacks",
    "horovod.tensorflow.keras.elastic": "byteps.keras.elastic",
    "horovod.torch.compression": "byteps.torch.compression",
    "horovod.torch.elastic": "byteps.torch.elastic",
    "horovod.torch.elastic.sampler": "byteps.torch.elastic",
    "horovod.torch.elastic.state": "byteps.torch.elastic",
}
_PARTS = ("torch", "tensorflow", "keras", "mxnet")
_INSTEAD = {
    "ray": "use byteps.ray",
    "run": "use byteps.run(function, np=2), or byteps run -n 2 -- python3 train.py",
    "runner": "use byteps.run(function, np=2), or byteps run -n 2 -- python3 train.py",
    "spark": "start workers by byteps run, or by a launcher that docs/clusters.md names",
}


def _text(name):
    word = name.split(".")[1]
    instead = _INSTEAD.get(word, "of Horovod BytePS has " + " and ".join(f"horovod.{part}" for part in _PARTS))
    return f"{name} is not in the Horovod that BytePS stands in for; {instead}"


def __getattr__(name):
    """Refuse what Horovod has in this place."""
    if name in _INSTEAD:
        raise AttributeError(_text(f"horovod.{name}"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Horovod(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of this package, and what stands for others, under Horovod's names."""

    def find_spec(self, fullname, path=None, target=None):
        """Return how to import a module whose name is Horovod's."""
        del path, target
        if fullname.split(".")[0] != "horovod":
            return None
        place = _PLACES.get(fullname, f"byteps.compat.{fullname}")
        if fullname not in _PLACES and importlib.util.find_spec(place) is None:
            raise ModuleNotFoundError(_text(fullname), name=fullname)
        return importlib.util.spec_from_loader(fullname, self, origin=place)

    def create_module(self, spec):
        """Let Python make one, which exec_module() replaces."""
        del spec

    def exec_module(self, module):
        """Put what it stands for in its place; Horovod may have a package there."""
        place = importlib.import_module(module.__spec__.origin)
        if not hasattr(place, "__path__") and any(name.startswith(f"{module.__name__}.") for name in _PLACES):
            place.__path__ = []
        sys.modules[module.__name__] = place


def install() -> ModuleType:
    """Have ``import horovod`` import this package from now on, also where Horovod is installed; return it.

    Raises:
        ImportError: the program has imported Horovod already.
    """
    ours = sys.modules[__name__]
    parts = {f"horovod.{part}" for part in _PARTS}
    if sys.modules.get("horovod", ours) is not ours and parts & set(sys.modules):
        raise ImportError("byteps.compat.horovod.install() must be called before the program imports another horovod")
    if not any(isinstance(finder, _Horovod) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Horovod())
    sys.modules["horovod"] = ours
    return ours
