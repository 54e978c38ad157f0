# SPDX-License-Identifier: Apache-2.0
"""A worker of byteps.run(): calls the function, and leaves in a file what it has returned, or how it has failed."""

import io
import os
import pickle
import sys
import traceback
import types
from multiprocessing import spawn

ENTRY = (
    "import pickle, sys; file = open(sys.argv[1], 'rb'); about = pickle.load(file); sys.path[:] = about['sys_path']; "
    "from byteps._worker import work; work(file, about)"
)
"""What a worker's interpreter runs, with the path of the file from write_call()."""
_REMEDY = (
    "pickle takes only what a module or a script defines at its top level. cloudpickle takes lambdas, closures and "
    "what a notebook defines, too, and is used once it is there: pip install cloudpickle"
)


def _write(path, data):
    """Write a private file that is whole as soon as it is there."""
    part = f"{path}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    os.replace(part, path)


def result_path(folder, rank):
    """Where the worker leaves what the function has returned, pickled."""
    return os.path.join(folder, f"result-{rank}")


def failure_path(folder, rank):
    """Where the worker leaves the text of the exception that it has ended by."""
    return os.path.join(folder, f"failure-{rank}")


class _Pickler(pickle.Pickler):
    """pickle as it is; `of_main` is then a name of __main__ by which something has passed, if there is one."""

    of_main = None

    def reducer_override(self, thing):
        if isinstance(thing, (type, types.FunctionType)) and thing.__module__ == "__main__":
            self.of_main = thing.__qualname__
        return NotImplemented


def _pickled(thing, what):
    """Return it as bytes, by cloudpickle where that is installed, and the name of __main__ that is needed for it.

    Raises TypeError with `what`.
    """
    try:
        import cloudpickle
    except ImportError:
        cloudpickle = None
    try:
        if cloudpickle is not None:
            return cloudpickle.dumps(thing), None
        buffer = io.BytesIO()
        pickler = _Pickler(buffer)
        pickler.dump(thing)
        return buffer.getvalue(), pickler.of_main
    except Exception as error:
        remedy = "" if cloudpickle else f"; {_REMEDY}"
        raise TypeError(f"{what} cannot be pickled: {error}{remedy}") from error


def write_call(path, function, args, kwargs):
    """Write what the workers are to call, and what their interpreters need for that.

    With pickle alone they import the caller's program as processes of multiprocessing do, and as __mp_main__.
    """
    call, of_main = _pickled((function, tuple(args), dict(kwargs or {})), "fn with its arguments")
    about = {"sys_path": list(map(str, sys.path)), "sys_argv": list(sys.argv)}
    if of_main is not None:
        data = spawn.get_preparation_data("byteps")
        program = {key: value for key, value in data.items() if key.startswith("init_main_from_")}
        if not program:
            raise TypeError(f"{of_main} is defined in a notebook or prompt, where workers cannot import it; {_REMEDY}")
        about.update(program)
    _write(path, pickle.dumps(about) + call)


def work(file, about):
    """Be the worker. It ends as fn does: with its exception if it raises one."""
    folder, rank = os.path.dirname(file.name), int(os.environ["BYTEPS_LOCAL_RANK"])
    try:
        spawn.prepare(about)
        with file:
            function, args, kwargs = pickle.load(file)
        result = function(*args, **kwargs)
        data, _ = _pickled(result, f"what fn has returned, of type {type(result).__name__},")
        _write(result_path(folder, rank), data)
    except BaseException as error:
        lines = traceback.format_exception(type(error), error, error.__traceback__.tb_next)
        _write(failure_path(folder, rank), "".join(lines).encode(errors="backslashreplace"))
        raise
