# SPDX-License-Identifier: Apache-2.0
"""Reads the Containerfile, and what docs/install.md says about it."""

import os
import pathlib
import re
import shlex

TOP = pathlib.Path(os.environ.get("top_srcdir", ".")).resolve()


class Stage:
    """A stage: the one that it begins with, and its instructions as (word, rest of the line)."""

    def __init__(self, base):
        self.base, self.instructions = base, []

    def all(self, word):
        return [rest for found, rest in self.instructions if found == word]

    def packages(self):
        """What it installs by apt-get."""
        found = re.findall(r"apt-get install -y --no-install-recommends ([^&]+)", " && ".join(self.all("RUN")))
        return {package for words in found for package in words.split()}


def stages():
    """{name: stage} in the order of the file; the last one is the default target."""
    found = {}
    text = re.sub(r"(?m)^#.*\n", "", (TOP / "Containerfile").read_text(encoding="ascii"))
    for line in filter(None, text.replace("\\\n", " ").splitlines()):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()
            found[name] = Stage(base)
        else:
            found[name].instructions.append((word, rest))
    return found


def install_page():
    return (TOP / "docs" / "install.md").read_text(encoding="utf-8")


def documented_builds():
    """The words of each `docker build` of docs/install.md."""
    lines = re.findall(r"(?m)^docker build .*", install_page())
    return [shlex.split(line, comments=True) for line in lines]


def documented_derivation():
    """The Containerfile of docs/install.md for a training."""
    (text,) = re.findall(r"(?s)```dockerfile\n(.*?)```", install_page())
    return text
