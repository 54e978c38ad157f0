# SPDX-License-Identifier: Apache-2.0
"""Builds plugins for tests, with the compiler of the build and the headers of this source tree alone."""

import os
import shlex
import shutil
import subprocess
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
RULES = os.path.join(TOP, "tools", "plugin.mk")


def compiler():
    """The compiler's command as a list; skips the test where there is none."""
    command = shlex.split(os.environ.get("CC") or "cc")
    try:
        subprocess.run(command + ["--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise unittest.SkipTest(f"no C compiler: {error}") from error
    return command


def build(source, output, defines=None, flags=()):
    """Compiles one source file to a shared object. `defines` become -D options; `flags` follow the source.

    Sanitizers are left out on purpose: a plugin that somebody else has built has none either.
    """
    command = compiler() + ["-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-O1"]
    command += ["-D_GNU_SOURCE=", "-I", os.path.join(TOP, "core", "include")]
    command += [f"-D{name}={value}" for name, value in (defines or {}).items()]
    command += ["-o", output, source, *flags]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise AssertionError(f"{shlex.join(command)}\n{result.stderr}")
    return output


def build_slow_reducer(directory):
    """The second reducer: put `directory` into BYTEPS_PLUGIN_PATH and write reducers.sum.plugin = "slow"."""
    return build(os.path.join(HERE, "reducer_slow.c"), os.path.join(directory, "reducer_slow.so"))


def build_wrong_compressor(directory, **defines):
    """A compressor of which `defines` makes one thing wrong."""
    return build(os.path.join(HERE, "compressor_wrong.c"), os.path.join(directory, "compressor_wrong.so"), defines)


def build_example(name, directory):
    """An example stage, `clip` or `nanguard`, made by a copy of its Makefile as somebody else would, with the rules of
    this source tree.
    """
    folder = os.path.join(directory, f"stage_{name}")
    shutil.copytree(os.path.join(TOP, "examples", f"stage_{name}"), folder)
    os.chmod(folder, 0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-C", folder, "CC=" + shlex.join(compiler()), "PKG_CONFIG=echo " + RULES + " #"]
    command += ["CFLAGS=-O2 -Wall -Wextra -Werror", "BYTEPS_CFLAGS=-I" + os.path.join(TOP, "core", "include")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        raise AssertionError(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")
    return shutil.move(os.path.join(folder, f"stage_{name}.so"), directory)
