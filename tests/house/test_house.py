# SPDX-License-Identifier: Apache-2.0
"""The house is as good as allowed.json says, which only shrinks; and the figures see what is planted."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import unittest.mock

import house

HERE = pathlib.Path(__file__).resolve().parent


@contextlib.contextmanager
def planted(**sources):
    """A folder with C files of these texts, which is its own build."""
    with tempfile.TemporaryDirectory() as top:
        folder = pathlib.Path(top, "folder")
        objects = folder / ".libs"
        objects.mkdir(parents=True)
        for name, text in sources.items():
            (folder / f"{name}.c").write_text(text, encoding="ascii")
            compiler = os.environ.get("CC") or "cc"
            subprocess.run([*compiler.split(), "-c", "-o", objects / f"{name}.o", folder / f"{name}.c"], check=True)
        with unittest.mock.patch.multiple(house, BUILD=pathlib.Path(top), SOURCE=pathlib.Path(top)):
            yield


class House(unittest.TestCase):
    def test_figures(self):
        """None is larger than allowed; one that has become smaller is to be written down."""
        allowed = json.loads((HERE / "allowed.json").read_text(encoding="utf-8"))
        self.assertLessEqual(house.lines(), allowed.pop("core: lines"))
        self.assertLessEqual(house.longest_header()[0], allowed.pop("core/include: longest public header"))
        advice = "tests/house/allowed.json takes smaller figures, and no larger ones"
        self.assertEqual(house.figures(), allowed, advice)

    def test_a_planted_circle(self):
        a, b = "void b(void); void a(void) { b(); }", "void c(void); void b(void) { c(); }"
        with planted(a=a, b=b, c="void a(void); void c(void) { a(); }", d="void a(void); void d(void) { a(); }"):
            circle, count, back = house.measure("folder")
        self.assertEqual((circle, count, len(back)), (3, 4, 1))

    def test_only_downwards(self):
        with planted(a="void b(void); void a(void) { b(); }", b="void b(void) { }"):
            self.assertEqual(house.measure("folder"), (1, 1, []))

    def test_a_table_of_functions_is_an_arrow_from_whoever_names_it(self):
        ops = "static void f(void) { } void (*const ops[])(void) = {f};"
        with planted(a="extern void (*const ops[])(void); void a(void) { ops[0](); }", b=ops):
            self.assertEqual(house.arrows("folder"), {"a.c": ["b.c"], "b.c": []})


if __name__ == "__main__":
    unittest.main()
