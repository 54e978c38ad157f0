# SPDX-License-Identifier: Apache-2.0
"""Prints what has no annotation in the interface of each module that it is given: parameters, and what is returned."""

import importlib
import inspect
import sys


def is_ours(thing):
    """Whether it is from this package, and so not from a framework or from Python."""
    return (getattr(thing, "__module__", None) or "").partition(".")[0] == "byteps"


def of_function(function, where, is_method=False):
    signature = inspect.signature(function)
    for parameter in list(signature.parameters.values())[is_method:]:
        if parameter.annotation is parameter.empty:
            yield f"{where}: {parameter.name}"
    if signature.return_annotation is signature.empty:
        yield f"{where}: what it returns"


def of_class(kind, where):
    for name, member in vars(kind).items():
        is_static = isinstance(member, staticmethod)
        if isinstance(member, property):
            functions = [function for function in (member.fget, member.fset) if function is not None]
        else:
            functions = [getattr(member, "__func__", member)]
        for function in functions if name == "__init__" or not name.startswith("_") else []:
            yield from of_thing(function, f"{where}.{name}", not is_static)


def of_thing(thing, where, is_method=False):
    if not is_ours(thing):
        return
    if inspect.isclass(thing):
        for base in thing.__mro__:
            if is_ours(base):
                yield from of_class(base, where)
    elif inspect.isroutine(thing):
        yield from of_function(thing, where, is_method)


def main():
    for name in sys.argv[1:]:
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or [word for word in vars(module) if not word.startswith("_")]
        for word in public:
            for line in of_thing(getattr(module, word), f"{name}.{word}"):
                print(line)


if __name__ == "__main__":
    main()
