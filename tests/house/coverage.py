# SPDX-License-Identifier: Apache-2.0
"""What a build with --enable-coverage has run: lines and per cent of each room, and the files of core with the least.

Each object has counts of its own, and a file is in several of them: a line was run if it was in any.
"""

import argparse
import collections
import json
import os
import pathlib
import shlex
import subprocess

ROOMS = ("compressors", "core", "frameworks", "launchers", "reducers", "tools", "transports")
AT_ONCE = 50  # objects that gcov is given
LEAST = 5


def room(path):
    """core/sum of core/sum/round.c, and tools of tools/run.c"""
    return "/".join(path.parts[:-1][:2])


def objects(build):
    """The notes of the compiler for all of the build but its tests."""
    return sorted(note for top in ROOMS for note in (build / top).rglob("*.gcno") if "tests" not in note.parts)


def add(found, report, source, build):
    """Adds what gcov says of an object: to {path: {line: whether it was run}}, of what is written and not generated."""
    where = pathlib.Path(report["current_working_directory"])
    for file in report["files"]:
        path = (where / file["file"]).resolve()
        if not path.is_relative_to(source) or path.is_relative_to(build):
            continue
        path = path.relative_to(source)
        if path.parts[0] in ROOMS:
            for line in file["lines"]:
                number = line["line_number"]
                found[path][number] = found[path].get(number, False) or line["count"] > 0


def lines_run(build, source):
    """{path: {line: whether it was run}} of all files in the rooms."""
    gcov = shlex.split(os.environ.get("GCOV") or "gcov")
    notes, found = objects(build), collections.defaultdict(dict)
    for at in range(0, len(notes), AT_ONCE):
        command = [*gcov, "--json-format", "--stdout", *notes[at : at + AT_ONCE]]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=build).stdout
        for line in text.splitlines():
            add(found, json.loads(line), source, build)
    return found


def row(name, lines, width):
    return f"{name:<{width}}{len(lines):8}{100 * sum(lines) / max(len(lines), 1):9.1f} %"


def table(found):
    """The lines of the table, of what lines_run() has found."""
    rooms = collections.defaultdict(list)
    for path, lines in found.items():
        rooms[room(path)] += lines.values()
    core = {str(path): list(lines.values()) for path, lines in found.items() if path.parts[0] == "core"}
    least = sorted(core, key=lambda name: (sum(core[name]) / len(core[name]), name))[:LEAST]
    width = max(map(len, [*rooms, *least])) + 2
    rows = [row(name, lines, width) for name, lines in sorted(rooms.items())]
    everything = row("all", [run for lines in rooms.values() for run in lines], width)
    head = f"{'room':<{width}}{'lines':>8}{'covered':>11}"
    return [head, *rows, everything, "", "the least of core:", *(row(name, core[name], width) for name in least)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    print("\n".join(table(lines_run(build, pathlib.Path(__file__).resolve().parents[2]))))


if __name__ == "__main__":
    main()
