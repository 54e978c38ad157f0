# SPDX-License-Identifier: Apache-2.0
"""`byteps plugin new` with a copy of BytePS as `make install` leaves it: each kind is built, checked and installed by
the Makefile that it comes with, and nothing else is told where anything lies.
"""

import os
import unittest

import installation

KINDS = ("compressor", "framework", "reducer", "stage", "transport")
EXPECTED = "expected compressor, framework, reducer, stage or transport"


class New(installation.Case):
    def new(self, kind, name):
        self.run_in(self.work, "byteps", "plugin", "new", kind, name)
        return os.path.join(self.work, name)

    def test_each_kind(self):
        for kind in KINDS:
            with self.subTest(kind):
                name = f"own_{kind}"
                folder = self.new(kind, name)
                self.run_in(folder, "make")
                self.run_in(folder, "make", "check")
                if kind != "framework":
                    measured = self.run_in(folder, "make", "bench", "BENCH_FLAGS=--bytes 4KiB --rounds 1").stdout
                    self.assertIn(f"{kind} {name} beside ", measured)
                self.run_in(folder, "byteps", "plugin", "info", name, status=1)
                self.run_in(folder, "make", "install")
                installed = self.run_in(self.work, "byteps", "plugin", "info", name, "--kind", kind).stdout
                self.assertIn(f"lib/byteps/{kind}_{name}.so\n", installed)
                self.run_in(folder, "make", "uninstall", "clean")
                self.assertNotIn(f"{kind}_{name}.so", os.listdir(folder))
                self.run_in(self.work, "byteps", "plugin", "info", name, status=1)

    def test_a_check_that_fails(self):
        """The test is one of the plugin: another result is seen."""
        folder = self.new("stage", "half")
        with open(os.path.join(folder, "stage_half.c"), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(folder, "stage_half.c"), "w", encoding="utf-8") as file:
            file.write(text.replace("x *= stage->factor;", "x *= 2 * stage->factor;"))
        self.assertIn("1:1: element 0 is 2", self.run_in(folder, "make", "check", status=2).stdout)

    def test_what_is_refused(self):
        os.mkdir(os.path.join(self.work, "taken"))
        for words, text in (
            (("stge", "some"), "unknown kind 'stge'; did you mean 'stage'?"),
            (("nonsense", "some"), f"unknown kind 'nonsense'; {EXPECTED}"),
            (("launcher", "some"), f"there is no template for a launcher; {EXPECTED}"),
            (("stage",), "new takes a kind and a name, and no options"),
            (("stage", "some", "--json"), "new takes a kind and a name, and no options"),
            (("stage", "9times"), "'9times' cannot be the name of a plugin; expected a letter a to z, then"),
            (("stage", "../some"), "'../some' cannot be the name of a plugin"),
            (("stage", "x" * 32), "31 characters at most"),
        ):
            with self.subTest(words):
                self.assertIn(text, self.run_in(self.work, "byteps", "plugin", "new", *words, status=2).stderr)
        result = self.run_in(self.work, "byteps", "plugin", "new", "stage", "taken", status=1)
        self.assertIn("'taken' already exists here; choose another name or folder", result.stderr)
        self.assertEqual(os.listdir(self.work), ["taken"])


if __name__ == "__main__":
    unittest.main()
