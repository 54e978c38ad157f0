# SPDX-License-Identifier: Apache-2.0
"""How the files of each folder of core/ lean on each other, read from the objects of a build.

house.py [--all]    prints a line for each folder, and with --all every arrow that goes back up

An arrow goes from a file to another one that defines what it names. Files that reach each other are a circle. The files
of a folder are laid in an order in which as few arrows as possible go back up; those that do are counted.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess

BUILD = pathlib.Path(os.environ.get("top_builddir", "."))
SOURCE = pathlib.Path(os.environ.get("top_srcdir", "."))
NM = os.environ.get("NM") or "nm"
STATE = re.compile(r"\bstate = BPS_TASK_\w+")


def symbols(path):
    """What an object defines for others, and what it needs of them."""
    listing = subprocess.run([*NM.split(), "-P", "-g", str(path)], check=True, stdout=subprocess.PIPE, text=True).stdout
    defined, needed = set(), set()
    for line in listing.splitlines():
        name, kind = line.split()[:2]
        (needed if kind in "Uwv" else defined).add(name)
    return defined, needed


def objects(folder):
    """The position-independent object of each C file of a folder: {name of the file: path}."""
    found = {path.stem + ".c": path for path in sorted((BUILD / folder / ".libs").glob("*.o"))}
    return {name: path for name, path in found.items() if (SOURCE / folder / name).exists()}


def arrows(folder):
    """{file: the files of the folder of which it needs something}"""
    read = {name: symbols(path) for name, path in objects(folder).items()}
    owner = {symbol: name for name, (defined, _) in read.items() for symbol in defined}
    return {
        name: sorted({owner[symbol] for symbol in needed if owner.get(symbol, name) != name})
        for name, (_, needed) in read.items()
    }


def circles(graph):
    """The sets of files that reach each other, from the top down (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(stack[at:])
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return found[::-1]


def order(graph, circle):
    """The files of a circle from the top down, with few arrows back up (Eades, Lin and Smyth)."""
    left, top, bottom = set(circle), [], []
    while left:
        leaves = collections.Counter({name: sum(other in left for other in graph[name]) for name in left})
        enters = collections.Counter(other for name in left for other in graph[name] if other in left)
        sinks = sorted(name for name in left if leaves[name] == 0)
        sources = sorted(name for name in left if enters[name] == 0)
        if sinks:
            bottom.insert(0, sinks[0])
            left.remove(sinks[0])
        else:
            chosen = sources[0] if sources else max(sorted(left), key=lambda name: leaves[name] - enters[name])
            top.append(chosen)
            left.remove(chosen)
    return top + bottom


def measure(folder):
    """(largest circle, arrows, those that go back up: (from, to))"""
    graph = arrows(folder)
    rooms = circles(graph)
    place = {name: i for i, name in enumerate(name for room in rooms for name in order(graph, room))}
    back = [(name, other) for name, others in graph.items() for other in others if place[other] < place[name]]
    return max(map(len, rooms), default=0), sum(map(len, graph.values())), back


def folders():
    """The folders of core/ that have C files."""
    return sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / "core").iterdir() if list(path.glob("*.c")))


def lines():
    """The lines of all C files and headers of core/, but for what configure makes of a template."""
    files = (path for path in (SOURCE / "core").rglob("*.[ch]") if not path.with_name(f"{path.name}.in").exists())
    return sum(len(path.read_bytes().splitlines()) for path in files)


def longest_header():
    """(lines, name) of the longest public header."""
    headers = (SOURCE / "core/include").rglob("*.h")
    return max((len(path.read_bytes().splitlines()), path.name) for path in headers)


def setters():
    """The files of core/ that set the state of a task."""
    files = (SOURCE / "core").rglob("*.c")
    return sorted(str(path.relative_to(SOURCE)) for path in files if STATE.search(path.read_text(encoding="utf-8")))


def figures():
    """What may only shrink: {name: number}"""
    found = {}
    for folder in folders():
        circle, _, back = measure(folder)
        found[f"{folder}: largest circle"] = circle
        found[f"{folder}: arrows back up"] = len(back)
    found["core: files that set a task's state"] = len(setters())
    return found


def main():
    parser = argparse.ArgumentParser(description="How the files of core/ lean on each other.")
    parser.add_argument("--all", action="store_true", help="every arrow that goes back up")
    options = parser.parse_args()
    print(f"{'folder':<20}{'files':>7}{'arrows':>8}{'back up':>9}{'largest circle':>16}")
    for folder in folders():
        circle, count, back = measure(folder)
        print(f"{folder:<20}{len(objects(folder)):>7}{count:>8}{len(back):>9}{circle:>16}")
        for one in back if options.all else ():
            print("    {} -> {}".format(*one))
        for circle in circles(arrows(folder)) if options.all else ():
            print(f"    circle: {', '.join(circle)}" * (len(circle) > 1))
    print(f"core/ has {lines()} lines of C; a task's state is set in {len(setters())} files")
    print("the longest public header has {} lines: {}".format(*longest_header()))
    for path in setters() if options.all else ():
        print(f"    {path}")


if __name__ == "__main__":
    main()
