# SPDX-License-Identifier: Apache-2.0
"""Finds the files of plugins, and loads the extension: framework_python.so."""

import importlib.util
import os
import sys
import sysconfig
from importlib.machinery import ExtensionFileLoader

from . import _config

_EXTENSION = "framework_python"


def _directories():
    """Those of the variable, then that of this installation, which may have been moved as a whole."""
    for directory in os.environ.get("BYTEPS_PLUGIN_PATH", "").split(":"):
        if directory:
            yield directory
    moved = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(_config.__file__)), _config.FROM_HERE))
    yield moved if os.path.isdir(moved) else _config.PLUGIN_DIRECTORY


def find_plugin(name, part):
    """Return the path of a plugin ("framework_python"); raise ImportError if the part was not installed."""
    tried = []
    for directory in _directories():
        path = os.path.join(directory, f"{name}.so")
        if os.path.isfile(path):
            return path
        tried.append(directory)
    raise ImportError(
        f"{name}.so not found in {', '.join(tried)}; install BytePS with its {part} part, "
        "or name the directory of its plugins in BYTEPS_PLUGIN_PATH"
    )


def has_plugin(name):
    """Return whether a plugin ("reducer_cuda") is installed as a file or is part of the library."""
    files = (os.path.join(directory, f"{name}.so") for directory in _directories())
    return f"_{name})" in _config.BUILT_IN or any(map(os.path.isfile, files))


def _check_layout():
    """Raise ImportError where Python's objects are laid out otherwise than the extension was compiled for."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        version = ".".join(map(str, sys.version_info[:2]))
        raise ImportError(
            f"this is a free-threaded Python ({version}t, {sys.executable}), whose objects have another "
            f"layout than those that {_EXTENSION}.so was compiled for; use a Python {version} with the GIL",
            name="_bps",
        )


def _load():
    _check_layout()
    path = find_plugin(_EXTENSION, "Python")
    loader = ExtensionFileLoader("_bps", path)
    spec = importlib.util.spec_from_file_location("_bps", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules["_bps"] = module
    return module


bps = sys.modules.get("_bps") or _load()
