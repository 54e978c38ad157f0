# SPDX-License-Identifier: Apache-2.0
"""The programs of a wheel, which lie in the package, as commands of the environment that it is installed in."""

import os
import sys


def _become(name):
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_install", "bin", name)
    os.execv(path, [name, *sys.argv[1:]])


def byteps():
    _become("byteps")


def bpslaunch():
    _become("bpslaunch")
