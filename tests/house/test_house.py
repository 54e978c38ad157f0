# SPDX-License-Identifier: Apache-2.0
"""The house is as good as allowed.json says, which only shrinks; and the figures see what is planted."""

import collections
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import unittest.mock

import coverage
import house
import words

HERE = pathlib.Path(__file__).resolve().parent


@contextlib.contextmanager
def planted(sources, prefix="", libs="/.libs"):
    """A tree with C files of these texts, by their paths without ".c", which is its own build."""
    with tempfile.TemporaryDirectory() as top:
        for path, text in sources.items():
            source = pathlib.Path(top, f"{path}.c")
            objects = pathlib.Path(f"{source.parent}{libs}")
            objects.mkdir(parents=True, exist_ok=True)
            source.write_text(text, encoding="ascii")
            compiler = os.environ.get("CC") or "cc"
            subprocess.run([*compiler.split(), "-c", "-o", objects / f"{prefix}{source.stem}.o", source], check=True)
        with unittest.mock.patch.multiple(house, BUILD=pathlib.Path(top), SOURCE=pathlib.Path(top)):
            yield pathlib.Path(top)


def calls(name, *others):
    """A function that calls others."""
    return "".join(f"void {other}(void); " for other in others) + f"void {name}(void) {{ {'(); '.join([*others, ''])}}}"


class House(unittest.TestCase):
    def test_figures(self):
        """None is larger than allowed; one that has become smaller is to be written down."""
        allowed = json.loads((HERE / "allowed.json").read_text(encoding="utf-8"))
        for name, count in house.room_lines().items():
            self.assertLessEqual(count, allowed.pop(name), name)
        self.assertLessEqual(house.longest_header()[0], allowed.pop("core/include: longest public header"))
        self.assertLessEqual(words.count(), allowed.pop("documents: words over which readers stumble"))
        figures = house.figures()
        plugins = tuple(f"{kind}/" for kind in house.PLUGINS)
        built = {name: bound for name, bound in allowed.items() if name in figures or not name.startswith(plugins)}
        self.assertEqual(figures, built, "tests/house/allowed.json takes smaller figures, and no larger ones")

    def test_a_planted_circle(self):
        circle = {"folder/a": calls("a", "b"), "folder/b": calls("b", "c"), "folder/c": calls("c", "a")}
        with planted({**circle, "folder/d": calls("d", "a")}):
            circle, count, back = house.measure("folder")
        self.assertEqual((circle, count, len(back)), (3, 4, 1))

    def test_only_downwards(self):
        with planted({"folder/a": calls("a", "b"), "folder/b": calls("b")}):
            self.assertEqual(house.measure("folder"), (1, 1, []))

    def test_a_table_of_functions_is_an_arrow_from_whoever_names_it(self):
        ops = "static void f(void) { } void (*const ops[])(void) = {f};"
        with planted({"folder/a": "extern void (*const ops[])(void); void a(void) { ops[0](); }", "folder/b": ops}):
            self.assertEqual(house.arrows("folder"), {"a.c": ["b.c"], "b.c": []})

    def test_a_circle_through_two_folders_of_the_core(self):
        with planted({"core/x/a": calls("a", "b"), "core/y/b": calls("b", "a"), "core/y/c": calls("c", "b")}):
            figures = house.figures()
        self.assertEqual((figures["core/x: largest circle"], figures["core/y: largest circle"]), (1, 1))
        self.assertEqual((figures["core: largest circle"], figures["core: arrows back up"]), (2, 1))

    def test_a_circle_in_a_plugin_or_in_the_tools(self):
        for room, libs in (("transports/a", "/.libs"), ("reducers/a", "/.libs"), ("compressors/a", ""), ("tools", "")):
            circle = {f"{room}/a": calls("a", "b"), f"{room}/b": calls("b", "a")}
            with self.subTest(room), planted(circle, "x_la-", libs):
                (house.SOURCE / "core").mkdir()
                figures = house.figures()
                self.assertEqual((figures[f"{room}: largest circle"], figures[f"{room}: arrows back up"]), (2, 1))

    def test_a_file_that_is_compiled_more_than_once_is_one_file(self):
        with planted({"folder/a": calls("a", "b"), "folder/b": calls("b")}, "one_la-") as top:
            for path in (top / "folder/.libs").glob("*.o"):
                shutil.copy(path, path.with_name(path.name.replace("one", "other")))
            self.assertEqual(house.arrows("folder"), {"a.c": ["b.c"], "b.c": []})

    def test_what_configure_makes_is_not_counted(self):
        with planted({"core/x/a": "void a(void)\n{\n}\n"}) as top:
            (top / "core/x/made.h").write_text("#define X\n", encoding="ascii")
            self.assertEqual(house.lines("core"), 4)
            (top / "core/x/made.h.in").write_text("@X@\n", encoding="ascii")
            self.assertEqual((house.lines("core"), house.largest_folder()), (3, (3, "core/x")))

    def test_the_scheduler_is_counted_by_itself(self):
        with planted({"core/x/a": "void a(void)\n{\n}\n", "core/scheduler/b": "void b(void);\n"}):
            found = house.room_lines()
            self.assertEqual((found["core: lines"], found["core/scheduler: lines"], found["core/x: lines"]), (3, 1, 3))

    def test_this_tree_has_the_same_figures_when_it_is_configured_in_place(self):
        made = {path.relative_to(house.BUILD) for path in (house.BUILD / "core").rglob("*.[ch]")}
        counted = {path.relative_to(house.SOURCE) for path in house.sources("core", "*.[ch]")}
        for path in made - counted if not house.BUILD.samefile(house.SOURCE) else ():
            self.assertTrue((house.SOURCE / f"{path}.in").exists(), path)

    def test_a_name_in_two_files(self):
        with planted({"core/x/a": "static int twice(int (*f)(int), int n)\n{\n    return f(n);\n}\n"}) as top:
            self.assertEqual(house.repeated_names(), {})
            (top / "core/b.c").write_text("void *twice(void)\n{\n}\n", encoding="ascii")
            self.assertEqual(house.repeated_names(), {"twice": {"core/b.c", "core/x/a.c"}})

    def test_coverage(self):
        """A line was run if it was in any object; what configure makes, and tests, are not counted."""
        top, found = pathlib.Path("/top"), collections.defaultdict(dict)
        counts = {"/top/core/x/a.c": (1, 0), "../core/x/a.c": (0, 0), "core/made.h": (0,), "../tests/t.c": (1,)}
        for file, runs in counts.items():
            lines = [{"line_number": number, "count": count} for number, count in enumerate(runs)]
            report = {"current_working_directory": "/top/build", "files": [{"file": file, "lines": lines}]}
            coverage.add(found, report, top, top / "build")
        self.assertEqual(found, {pathlib.Path("core/x/a.c"): {0: True, 1: False}})
        table = [line.split() for line in coverage.table(found)]
        self.assertEqual(table[1], ["core/x", "2", "50.0", "%"])
        self.assertEqual(table[-1], ["core/x/a.c", "2", "50.0", "%"])


if __name__ == "__main__":
    unittest.main()
