# SPDX-License-Identifier: Apache-2.0
"""Looks into the sources for what documents quote: the texts that the programs print, and the variables they read.

A quotation has `...` where names and numbers stand. What is between two of them is found as it is, in this order and
close together; formats such as %s, and what a macro brings, stand for `...`.
"""

import os
import re

FOLDERS = ("compressors", "core", "frameworks", "launchers", "reducers", "tools", "transports")
ANYTHING = "[^\0]{0,160}?"  # between two pieces: a format, an expression with another text, the end of a line


def read(top):
    """Returns the text of all sources, a zero byte between files, with texts of several lines in one piece."""
    texts = []
    for folder in FOLDERS:
        for place, _, names in os.walk(os.path.join(top, folder)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".py", ".in")):
                    with open(os.path.join(place, name), encoding="utf-8") as file:
                        texts.append(file.read())
    return re.sub(r'"(?:\s+[A-Z][A-Z0-9_]*\s+|\s*)f?"', "", "\0".join(texts)).replace('\\"', '"')


def messages(page):
    """Returns the quotations of a page: what stands in `` at the beginning of the rows of its tables of messages."""
    found, inside = [], False
    for line in page.splitlines():
        inside = line.startswith("| Message |") or (inside and line.startswith("|"))
        found += re.findall(r"^\| `([^`]+)`", line) if inside else []
    return found


def has(sources, message):
    """Whether the sources have a text that the quotation may be of."""
    pieces = [piece for piece in message.split("...") if piece.strip()]
    if max(len(piece.strip()) for piece in pieces) < 8:
        return False
    return re.search(ANYTHING.join(re.escape(piece) for piece in pieces), sources) is not None


def variables(sources):
    """Returns the variables of the environment that are read or set; those of the list of idle ones are not."""
    idle = re.search(r"idle\[\] = \{(.*?)\};", sources, re.S)[1]
    names = set(re.findall(r'"((?:BYTEPS|BYTESCHEDULER|DMLC|HOROVOD)_[A-Z0-9_]*[A-Z0-9])["=]', sources))
    return names - set(re.findall(r'"([A-Z0-9_*]+)"', idle))


def rows(page, title):
    """Returns the names in the first column of the tables that have this title there."""
    found, inside = set(), False
    for line in page.splitlines():
        inside = line.startswith(f"| {title} |") or (inside and line.startswith("|"))
        found |= set(re.findall(r"`([^`]+)`", line.split("|")[1])) if inside else set()
    return found
