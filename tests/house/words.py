# SPDX-License-Identifier: Apache-2.0
"""Counts words over which readers of the documents stumble: nobody looks for them, and each has a plainer one.

words.py [--all]    prints how many each document has, and with --all where

Subjects without a name ("who knows the secret", "what is there"), programs that speak and listen ("the log says so"),
"so many" for a number, "of its own" for "its own".
"""

import argparse
import os
import pathlib
import re

SOURCE = pathlib.Path(os.environ.get("top_srcdir", "."))
WORDS = re.compile(
    r"\b(?:who|whoever|what is there|so (?:many|much)|says?|said|tells?|told|hears?|heard|of (?:its|his|their) own"
    r"|belongs? into|counts? more|by turns|lets? in)\b",
    re.IGNORECASE,
)
DOCUMENTS = ("*.md", "docs/**/*.md", "*/README.md", "*/*/README.md", "man/*.[157]", "core/include/byteps/*.h")


def documents():
    return sorted({path for pattern in DOCUMENTS for path in SOURCE.glob(pattern)})


def found(path):
    """[(line number, word)] of a document."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(number, word) for number, line in enumerate(lines, 1) for word in WORDS.findall(line)]


def count():
    return sum(len(found(path)) for path in documents())


def main():
    parser = argparse.ArgumentParser(description="Words over which readers of the documents stumble.")
    parser.add_argument("--all", action="store_true", help="where each stands")
    options = parser.parse_args()
    for path in documents():
        words = found(path)
        for number, word in words if options.all else ():
            print(f"{path}:{number}: {word}")
        if words and not options.all:
            print(f"{len(words):5} {path.relative_to(SOURCE)}")
    print(f"words over which readers stumble: {count()}")


if __name__ == "__main__":
    main()
