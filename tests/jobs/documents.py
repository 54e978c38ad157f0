# SPDX-License-Identifier: Apache-2.0
"""Reads the code blocks of a Markdown document, so that a test can run them as a reader would.

A fence names a language and perhaps what the block needs:

    ```python         with the other Python blocks of its section, the script that the section's commands name
    ```diff           Python, too: the whole script with its change, of which the new one is taken
    ```c              with the other C blocks of its section, the program that the section's commands name
    ```sh             commands, which run one after the other, in the folder of the scripts
    ```sh node1       commands on a host of that name; the blocks of a section that name hosts run at the same time
    ```sh gpu         commands that need a GPU
    ```sh slurm, ray  commands that need a cluster of Slurm or Ray, for tests/clusters
    ```sh install     commands that install packages or services; only their syntax is checked
    ```sh root        calls of ./quickstart, which installs packages; only its words are checked
    ```text output    lines that the commands before print; decimal fractions may be others
    ```text           no code: a drawing, the lines of a file
    ```dockerfile     the lines of a Containerfile, for tests/container

A section is what stands below a heading. Whatever is not understood raises Wrong, so that no block is left out.
"""

import re
import subprocess

NEEDS = {
    "sh": ("", "node1", "node2", "gpu", "root", "install", "slurm", "ray"),
    "text": ("", "output"),
    "dockerfile": ("",),
}
SUFFIXES = {"python": "py", "diff": "py", "c": "c"}
NEEDS.update((language, ("",)) for language in SUFFIXES)


class Wrong(Exception):
    """A block that a test cannot take; the text says where it is and what is wrong with it."""


class Block:
    """A piece of code: its language, what it needs, its text, and where it begins."""

    def __init__(self, info, text, place):
        language, _, need = info.partition(" ")
        if need not in NEEDS.get(language, ()):
            known = ", ".join(f"{name} {need}".strip() for name, needs in NEEDS.items() for need in needs)
            raise Wrong(f"{place}: unknown kind of block '{info}'; there are {known}")
        self.language, self.need, self.text, self.place = language, need, text, place
        if language == "diff":
            self.text = "".join(self._changed(line) for line in text.splitlines(keepends=True))
        self.output = []

    def _changed(self, line):
        if line[0] not in " +-\n":
            raise Wrong(f"{self.place}: a line of a diff begins with ' ', '+' or '-', unlike '{line.strip()}'")
        return "" if line[0] == "-" else line[1:] or "\n"

    def missing(self, printed):
        """Returns the lines that the commands should have printed and have not."""
        seen = {_without_fractions(line) for line in printed.splitlines()}
        return [line for line in self.output if _without_fractions(line) not in seen]


def _without_fractions(line):
    return re.sub(r"\d+\.\d+", "0.0", line)


class Section:
    """The blocks below a heading: those of a program as one, and the commands."""

    def __init__(self, title, blocks):
        self.title = title
        self.commands = [block for block in blocks if block.language == "sh"]
        self.needs = {block.need for block in self.commands} - {""}
        self.script, self.code = None, None
        for before, block in zip([None, *blocks], blocks):
            if block.need == "output":
                if before is None or before.language != "sh":
                    raise Wrong(f"{block.place}: no commands before this output")
                before.output = block.text.splitlines()
        program = [block for block in blocks if block.language in SUFFIXES]
        if program:
            suffixes = {SUFFIXES[block.language] for block in program}
            if len(suffixes) > 1:
                raise Wrong(f"{program[0].place}: a section has one program, in one language")
            self.script = self._name(program[0].place, *suffixes)
            self.code = "\n".join(block.text for block in program)
            if suffixes == {"py"}:
                self._compile(program[0].place)
        for block in self.commands:
            checked = subprocess.run(["sh", "-n"], input=block.text, stderr=subprocess.PIPE, text=True, check=False)
            if checked.returncode != 0:
                raise Wrong(f"{block.place}: {checked.stderr.strip()}")

    def _name(self, place, suffix):
        names = sorted({name for block in self.commands for name in re.findall(rf"\S+\.{suffix}\b", block.text)})
        if len(names) != 1:
            found = ", ".join(names) or "none"
            raise Wrong(f"{place}: the commands of a section with code name its one script; here: {found}")
        return names[0]

    def _compile(self, place):
        try:
            compile(self.code, f"{place}: {self.script}", "exec")
        except SyntaxError as error:
            raise Wrong(f"{place}: {error}") from None


def read(text, name):
    """Returns the sections of a document that have code; `name` stands in messages."""
    sections, title, blocks, opened = [], name, [], None
    for number, line in enumerate([*text.splitlines(), "# end"], 1):
        place = f"{name}:{number}"
        if opened and line == "```":
            blocks.append(Block(*opened[:1], "\n".join(opened[2:]) + "\n", opened[1]))
            opened = None
        elif opened:
            opened.append(line)
        elif line.startswith("```"):
            opened = [line[3:], place]
        elif "```" in line or line.startswith(("    ", "\t", "~~~")):
            raise Wrong(f"{place}: a block begins and ends by ``` at the beginning of a line")
        elif re.match("#+ ", line):
            sections += [Section(title, blocks)] if blocks else []
            title, blocks = line.lstrip("# "), []
    if opened:
        raise Wrong(f"{opened[1]}: the block does not end")
    return sections
