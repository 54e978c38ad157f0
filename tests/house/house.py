# SPDX-License-Identifier: Apache-2.0
"""How the files of each room lean on each other, read from the objects of a build.

house.py [--all]    prints a line for each room, and with --all every arrow that goes back up

A room is a folder of core/, all of core/ together, a plugin, or tools/. An arrow goes from a file to another one of the
room that defines what it names. Files that reach each other are a circle. The files of a room are laid in an order in
which as few arrows as possible go back up; those that do are counted.
"""

import argparse
import collections
import functools
import os
import pathlib
import re
import subprocess

import words

BUILD = pathlib.Path(os.environ.get("top_builddir", "."))
SOURCE = pathlib.Path(os.environ.get("top_srcdir", "."))
NM = os.environ.get("NM") or "nm"
STATE = re.compile(r"\bstate = BPS_TASK_\w+")
PLUGINS = ("transports", "reducers", "compressors", "launchers")
FUNCTION = re.compile(r"^[a-z_][^\n;{}()=]*?\b(\w+)\((?:[^;{}()]|\([^;{}()]*\))*\)\n\{$", re.MULTILINE)


def sources(folder, *patterns):
    """The files of a folder and those below it that are like this, but for what configure makes of a template."""
    found = sorted(path for pattern in patterns for path in (SOURCE / folder).rglob(pattern))
    return [path for path in found if not path.with_name(f"{path.name}.in").exists()]


@functools.lru_cache(maxsize=None)
def symbols(paths):
    """For each of these objects what it defines for others, and what it needs of them."""
    command = [*NM.split(), "-A", "-P", "-g", *map(str, paths)]
    listing = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {str(path): (set(), set()) for path in paths}
    for line in listing.splitlines():
        path, rest = line.split(".o: ", 1)
        name, kind = rest.split()[:2]
        found[f"{path}.o"][kind in "Uwv"].add(name)
    return found


def objects(folder):
    """The objects of each C file of a folder, position-independent if there are any: {name of the file: paths}"""
    found = collections.defaultdict(list)
    place = BUILD / folder
    for path in sorted((place / ".libs").glob("*.o")) or sorted(place.glob("*.o")):
        name = path.stem.rpartition("-")[2] + ".c"  # in front of it stands what it is linked into
        if (SOURCE / folder / name).exists():
            found[name].append(path)
    return dict(found)


def files(room):
    """The files of a room with their objects: those of its folder, or all of core/ by their paths."""
    if room != "core":
        return objects(room)
    return {f"{folder}/{name}": paths for folder in folders() for name, paths in objects(folder).items()}


def arrows(room):
    """{file: the files of the room of which it needs something}"""
    found = files(room)
    read = symbols(tuple(path for paths in found.values() for path in paths)) if found else {}
    defined, needed = {}, {}
    for name, paths in found.items():
        defined[name], needed[name] = (set().union(*sets) for sets in zip(*(read[str(path)] for path in paths)))
    owner = {symbol: name for name in found for symbol in defined[name]}
    return {
        name: sorted({owner[symbol] for symbol in needed[name] if owner.get(symbol, name) != name}) for name in found
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


def measure(room):
    """(largest circle, arrows, those that go back up: (from, to))"""
    graph = arrows(room)
    sets = circles(graph)
    place = {name: i for i, name in enumerate(name for circle in sets for name in order(graph, circle))}
    back = [(name, other) for name, others in graph.items() for other in others if place[other] < place[name]]
    return max(map(len, sets), default=0), sum(map(len, graph.values())), back


def folders():
    """The folders of core/ that have C files."""
    return sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / "core").iterdir() if list(path.glob("*.c")))


def rooms():
    """All that is measured, as far as it was built."""
    plugins = sorted(path for kind in PLUGINS for path in (SOURCE / kind).glob("*/") if list(path.glob("*.c")))
    found = [*folders(), "core", *(str(path.relative_to(SOURCE)) for path in plugins), "tools"]
    return [room for room in found if files(room)]


def count_lines(paths):
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def lines(folder):
    """The lines of all C files and headers of a folder, but for what configure makes of a template."""
    return count_lines(sources(folder, "*.[ch]"))


def room_lines():
    """The lines of each folder of core/, and of libbyteps, which is all but the scheduler: {name: number}"""
    found = {f"{folder}: lines": lines(folder) for folder in [*folders(), "core/include"]}
    return {**found, "core: lines": lines("core") - found["core/scheduler: lines"]}


def largest_folder():
    """(lines, name) of the largest folder of core/."""
    return max((lines(folder), folder) for folder in folders())


def repeated_names():
    """The names of functions that stand in several files of core/: {name: files}"""
    found = collections.defaultdict(set)
    for path in sources("core", "*.c"):
        for name in FUNCTION.findall(path.read_text(encoding="utf-8")):
            found[name].add(str(path.relative_to(SOURCE)))
    return {name: places for name, places in found.items() if len(places) > 1}


def longest_header():
    """(lines, name) of the longest public header."""
    return max((count_lines([path]), path.name) for path in sources("core/include", "*.h"))


def setters():
    """The files of core/ that set the state of a task."""
    paths = sources("core", "*.c")
    return [str(path.relative_to(SOURCE)) for path in paths if STATE.search(path.read_text(encoding="utf-8"))]


def figures():
    """What may only shrink: {name: number}"""
    found = {}
    for room in rooms():
        circle, _, back = measure(room)
        found[f"{room}: largest circle"] = circle
        found[f"{room}: arrows back up"] = len(back)
    found["core: files that set a task's state"] = len(setters())
    found["core: names of functions in several files"] = len(repeated_names())
    return found


def main():
    parser = argparse.ArgumentParser(description="How the files of each room lean on each other.")
    parser.add_argument("--all", action="store_true", help="every arrow that goes back up")
    options = parser.parse_args()
    print(f"{'room':<24}{'files':>7}{'arrows':>8}{'back up':>9}{'largest circle':>16}")
    for room in rooms():
        circle, count, back = measure(room)
        print(f"{room:<24}{len(files(room)):>7}{count:>8}{len(back):>9}{circle:>16}")
        for one in back if options.all else ():
            print("    {} -> {}".format(*one))
        for names in circles(arrows(room)) if options.all else ():
            if len(names) > 1:
                print(f"    circle: {', '.join(names)}")
    for name, count in room_lines().items():
        print(f"{name}: {count}")
    print(f"a task's state is set in {len(setters())} files")
    print("the largest folder has {} lines: {}".format(*largest_folder()))
    print("the longest public header has {} lines: {}".format(*longest_header()))
    print(f"{len(repeated_names())} names of functions stand in several files of core/")
    print(f"the documents have {words.count()} words over which readers stumble: words.py")
    for path in setters() if options.all else ():
        print(f"    {path}")
    for name, places in sorted(repeated_names().items()) if options.all else ():
        print(f"    {name}: {', '.join(sorted(places))}")


if __name__ == "__main__":
    main()
