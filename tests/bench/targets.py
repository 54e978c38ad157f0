# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks as their users do: `make bench-NAME BENCH_FLAGS=...`."""

import os
import shlex
import subprocess

FOLDER = os.path.abspath(os.environ.get("top_builddir", "."))


def names():
    """The targets of the Makefile that begin with bench-."""
    with open(os.path.join(FOLDER, "Makefile"), encoding="utf-8") as file:
        return {line.split(":")[0] for line in file if line.startswith("bench-") and ":" in line}


def make(test, target, *flags):
    """Makes a target with flags for its benchmark, and returns what it prints; it must succeed."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", "-s", "-C", FOLDER, target, f"BENCH_FLAGS={shlex.join(flags)}"]
    done = subprocess.run(command, env=env, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    test.assertEqual(done.returncode, 0, done.stdout)
    return done.stdout
