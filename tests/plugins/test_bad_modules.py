# SPDX-License-Identifier: Apache-2.0
"""Plugins with one thing wrong: each is refused, word by word, and no code of it runs if its note told."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import modules

PROGRAM = os.environ.get("BYTEPS_PROGRAM")
CRAFTED = os.path.join(modules.HERE, "crafted.c")
with open(os.path.join(modules.TOP, "core", "include", "byteps", "plugin.h"), encoding="utf-8") as header:
    MINOR = int(re.search(r"#define BPS_ABI_MINOR (\d+)u", header.read()).group(1))

# Offsets in a 64-bit ELF header.
EI_CLASS, EI_DATA, E_TYPE, E_MACHINE, E_PHENTSIZE, E_PHNUM = 4, 5, 16, 18, 54, 56


def setUpModule():
    if not PROGRAM:
        raise unittest.SkipTest("BYTEPS_PROGRAM is not set: run the tests by 'make check' or ./byteps-env")
    if struct.calcsize("P") != 8 or sys.byteorder != "little":
        raise unittest.SkipTest("the sizes in the texts are those of 64-bit little-endian machines")


class Case(unittest.TestCase):
    """A plugin directory of its own for each test."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="byteps-plugins-")
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.good = modules.build(CRAFTED, os.path.join(cls.shared, "good.so"))

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="byteps-plugins-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.marker = os.path.join(self.dir, "marker")

    def plugin(self, *args, path=None):
        """Runs `byteps plugin ARGS`."""
        environment = dict(
            os.environ, BYTEPS_PLUGIN_PATH=path or self.dir, CRAFTED_MARKER=self.marker, LC_ALL="C"
        )
        return subprocess.run(
            [PROGRAM, "plugin", *args], env=environment, capture_output=True, text=True, timeout=120
        )

    def file(self, name="stage_crafted.so"):
        return os.path.join(self.dir, name)

    def build(self, name="stage_crafted.so", flags=(), **defines):
        return modules.build(CRAFTED, self.file(name), defines, flags)

    def copy(self, name="stage_crafted.so"):
        return shutil.copy(self.good, self.file(name))

    def patch(self, offset, data):
        """The right module with some bytes of its ELF header replaced."""
        with open(self.copy(), "r+b") as file:
            file.seek(offset)
            file.write(data)

    def write(self, data):
        with open(self.file(), "wb") as file:
            file.write(data)

    def ran(self):
        """Whether the module's constructor has run, since the last call."""
        if os.path.exists(self.marker):
            os.unlink(self.marker)
            return True
        return False

    def refused(self, reason, name="crafted", kind="stage", code_runs=False):
        """`info` fails with exactly this reason. Unless code_runs, `list` gives the same and no code runs."""
        file = self.file(f"{kind}_{name}.so")
        result = self.plugin("info", name, "--kind", kind)
        self.assertEqual(result.stderr, f"byteps plugin: {file}: {reason}\n")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(self.ran(), code_runs)
        rows = {row["file"]: row for row in self.rows()}
        self.assertEqual(rows[file]["refusal"], None if code_runs else reason)
        self.assertFalse(self.ran())

    def rows(self, path=None):
        result = self.plugin("list", "--json", path=path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)


class Files(Case):
    """Files that are refused before anything of them runs."""

    def test_the_right_one_is_taken(self):
        self.copy()
        result = self.plugin("info", "crafted")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(self.ran(), "the constructor leaves no marker, so the other tests prove nothing")
        self.assertIn("stage crafted: does nothing", result.stdout)
        self.assertIn('limit = "1.0"', result.stdout)

    def test_list_runs_nothing(self):
        self.copy()
        row = {"kind": "stage", "name": "crafted", "version": "1.2", "file": self.file(), "refusal": None}
        self.assertIn(row, self.rows())
        self.assertFalse(self.ran())

    def test_not_elf(self):
        self.write(b"#!/bin/sh\necho no\n")
        self.refused(
            "not an ELF file: it begins with the bytes 23 21 2f 62, expected 7f 45 4c 46; "
            "install or build it again"
        )

    def test_empty(self):
        self.write(b"")
        self.refused("not an ELF file: it has only 0 bytes; install or build it again")

    def test_truncated_everywhere(self):
        with open(self.good, "rb") as file:
            whole = file.read()
        step = max(1, len(whole) // 40)
        for size in [4, 15, 16, 17, 63, 64, 65, *range(100, len(whole), step), len(whole) - 1]:
            with self.subTest(size=size):
                self.write(whole[:size])
                result = self.plugin("info", "crafted")
                self.assertRegex(
                    result.stderr,
                    rf"^byteps plugin: {self.file()}: the file is truncated: it has {size} bytes, its "
                    r"headers refer to [0-9]+ bytes at offset [0-9]+; install or build it again\n$",
                )
                self.assertEqual(result.returncode, 1)
                self.assertFalse(self.ran())

    def test_truncated_header(self):
        with open(self.good, "rb") as file:
            self.write(file.read(40))
        self.refused(
            "the file is truncated: it has 40 bytes, its headers refer to 64 bytes at offset 0; "
            "install or build it again"
        )

    def test_other_class(self):
        self.patch(EI_CLASS, b"\1")
        self.refused("its ELF class is 1, expected 2 (64 bits); build it for this machine")

    def test_other_byte_order(self):
        self.patch(EI_DATA, b"\2")
        self.refused("its ELF byte order is 2, expected 1; build it for this machine")

    @unittest.skipUnless(os.uname().machine == "x86_64", "the text is for x86-64")
    def test_other_machine(self):
        self.patch(E_MACHINE, struct.pack("<H", 183))
        self.refused(
            "it is built for AArch64 (ELF machine 183), expected x86-64 (62); build it for this machine"
        )

    def test_object_file(self):
        self.patch(E_TYPE, struct.pack("<H", 1))
        self.refused("its ELF type is 1, expected 3 (shared object); link it with -shared")

    def test_damaged_header(self):
        self.patch(E_PHNUM, struct.pack("<H", 60000))
        self.refused(
            "its ELF header is damaged: 60000 program headers of 56 bytes, expected 1 to 256 of 56; "
            "install or build it again"
        )
        self.patch(E_PHENTSIZE, struct.pack("<H", 1))
        self.assertIn(
            " program headers of 1 bytes, expected 1 to 256 of 56;", self.plugin("info", "crafted").stderr
        )

    def test_directory(self):
        os.mkdir(self.file())
        self.refused("not a regular file; remove it or install the plugin again")

    def test_pipe(self):
        os.mkfifo(self.file())
        self.refused("not a regular file; remove it or install the plugin again")

    def test_dangling_link(self):
        os.symlink("/nonexistent/file.so", self.file())
        self.refused("cannot be opened: No such file or directory")

    def test_no_note(self):
        self.build(NOTE_OWNER='"Other"')
        self.refused(
            "not a BytePS plugin: it has no BytePS note; a plugin states BPS_PLUGIN_NOTE(kind, name, version)"
        )


class Notes(Case):
    """Notes that do not fit. No code runs here either."""

    def test_wrong_kind(self):
        self.copy("reducer_crafted.so")
        self.refused(
            "kind in its note is stage, its file name says reducer; rename it to stage_crafted.so",
            kind="reducer",
        )

    def test_unknown_kind(self):
        self.build(NOTE_KIND="77u")
        self.refused("kind in its note is 77, expected 5 (stage); rebuild the plugin against this BytePS")

    def test_name_that_does_not_match(self):
        self.copy("stage_other.so")
        self.refused(
            "name in its note is 'crafted', its file name says 'other'; rename it to stage_crafted.so",
            name="other",
        )

    def test_wrong_magic(self):
        self.build(NOTE_MAGIC="0x12345678u")
        self.refused("magic in its note is 0x12345678, expected 0x53504221; state it with BPS_PLUGIN_NOTE")

    def test_newer_major(self):
        self.build(NOTE_MAJOR="2u", NOTE_MINOR="3u")
        self.refused(
            f"ABI in its note is 2.3, this BytePS has 1.{MINOR}; install a BytePS with ABI 2, or rebuild the "
            "plugin against this one"
        )

    def test_older_major(self):
        self.build(NOTE_MAJOR="0u", NOTE_MINOR="19u")
        self.refused(f"ABI in its note is 0.19, this BytePS has 1.{MINOR}; rebuild the plugin against this BytePS")

    def test_size(self):
        self.build(NOTE_BYTES="16")
        self.refused("its BytePS note has 16 bytes, expected 80; rebuild the plugin against this BytePS")

    def test_texts(self):
        reason = (
            "name or version in its note is not a printable text of 1 to 31 characters; "
            "state it with BPS_PLUGIN_NOTE"
        )
        for define in (
            {"NOTE_NAME": '""'},
            {"NOTE_NAME": '"%s"' % ("a" * 32)},
            {"NOTE_VERSION": r'"1.0\033[31m"'},
        ):
            with self.subTest(**define):
                self.build(**define)
                self.refused(reason)

    def test_link_to_the_core(self):
        source = os.path.join(self.shared, "core.c")
        with open(source, "w") as file:
            file.write("int bps_size(void);\nint bps_size(void)\n{\n    return 1;\n}\n")
        core = modules.build(
            source, self.file("libbyteps.so"), flags=["-Wl,-soname,libbyteps.so.0", "-fvisibility=default"]
        )
        self.build(flags=["-Wl,--no-as-needed", core], UNDEFINED="bps_size")
        os.rename(core, self.file("libbyteps.so.0"))
        self.refused(
            "it links to libbyteps (it needs libbyteps.so.0, libc.so.6), and would fail wherever that is "
            "opened privately, as by Python; link it without -lbyteps and use struct bps_host"
        )


class Modules(Case):
    """Modules whose note is right, so that they are opened, and then refused."""

    def refused(self, reason, name="crafted", kind="stage", code_runs=True):
        super().refused(reason, name, kind, code_runs)

    def test_no_entry(self):
        self.build(NO_ENTRY="1")
        self.refused("function bps_plugin_module is missing; define BPS_PLUGIN_ENTRY(void) and export it")

    def test_no_module(self):
        self.build(MODULE="NULL")
        self.refused("bps_plugin_module() returned NULL, expected a struct bps_module; return a static one")

    def test_wrong_magic(self):
        self.build(MODULE_MAGIC="0x42u")
        self.refused("magic of its module is 0x00000042, expected 0x53504221; set it to BPS_PLUGIN_MAGIC")

    def test_module_size(self):
        self.build(MODULE_SIZE="8")
        self.refused("size of its module is 8, expected 56 or more; set it to sizeof(struct bps_module)")

    def test_newer_major(self):
        self.build(MODULE_MAJOR="2u", MODULE_MINOR="0u")
        self.refused(
            f"ABI in its module is 2.0, this BytePS has 1.{MINOR}; install a BytePS with ABI 2, or rebuild the "
            "plugin against this one"
        )

    def test_older_major(self):
        self.build(MODULE_MAJOR="0u", MODULE_MINOR="19u")
        self.refused(f"ABI in its module is 0.19, this BytePS has 1.{MINOR}; rebuild the plugin against this BytePS")

    def test_texts(self):
        self.build(MODULE_LICENSE="NULL")
        self.refused("license of its module is NULL, expected a text; set it")

    def test_version(self):
        for version, byte in (("1;2", "3b"), ("1\\t2", "09")):
            with self.subTest(byte):
                self.build(MODULE_VERSION=f'"{version}"')
                why = f"version of its module has the byte 0x{byte}, expected printable characters but ';'; correct it"
                self.refused(why)

    def test_descriptors(self):
        self.build(MODULE_COUNT="0")
        self.refused("nplugins of its module is 0, expected 1 to 64 descriptors; list them in plugins")
        self.build(PLUGIN="NULL")
        self.refused("plugins[0] of its module is NULL, expected a descriptor; correct nplugins")
        self.build(PLUGIN_SIZE="8")
        self.refused("size of its descriptor is 8, expected 64 or more; set it to sizeof(struct bps_plugin)")

    def test_wrong_kind(self):
        self.build(PLUGIN_KIND="BPS_KIND_REDUCER")
        self.refused(
            "kind in its descriptor is reducer (2), expected stage (5); correct struct bps_plugin or the note"
        )

    def test_wrong_name(self):
        self.build(PLUGIN_NAME='"other"')
        self.refused(
            "name in its descriptor is 'other', expected 'crafted'; correct struct bps_plugin or the note"
        )
        self.build(PLUGIN_NAME='"Other name"')
        self.refused(
            "name in its descriptor is 'Other name', expected a lower-case letter, then letters, digits and "
            "_, at most 31; rename the plugin"
        )

    def test_missing_operation(self):
        self.build(OPS_RUN="NULL")
        self.refused("operation run is missing; set it in struct bps_stage_ops")

    def test_operations(self):
        self.build(OPS="NULL")
        self.refused("ops is NULL, expected a struct bps_stage_ops; set it in struct bps_plugin")
        self.build(OPS_SIZE="16")
        self.refused("ops.size is 16, expected 72 or more; set it to sizeof(struct bps_stage_ops)")


class Options(Case):
    """Option tables that cannot be what their author meant."""

    LIMIT = '{"limit",BPS_OPT_DOUBLE,0,offsetof(struct options,limit),"1.0","0.5..2","A limit."}'

    def refused_rows(self, rows, reason, **defines):
        self.build(OPTION_ROWS=rows, **defines)
        self.refused(reason, code_runs=True)

    def test_duplicate_name(self):
        self.refused_rows(
            f"{self.LIMIT},{self.LIMIT}",
            "option 'limit': rows 0 and 1 of the table have this name; rename one",
        )

    def test_name(self):
        self.refused_rows(
            self.LIMIT.replace('"limit"', '"Limit"'),
            "option 'Limit': its name is not allowed; expected a lower-case letter, then letters, digits "
            "and _, at most 31",
        )
        self.refused_rows(
            self.LIMIT.replace('"limit"', '"use"'),
            "option 'use': this name belongs to the core; rename the option",
        )

    def test_type(self):
        self.refused_rows(
            self.LIMIT.replace("BPS_OPT_DOUBLE", "99u"),
            "option 'limit': its type is 99, expected 1 to 8; use BPS_OPT_*",
        )

    def test_outside_the_struct(self):
        self.refused_rows(
            self.LIMIT.replace("offsetof(struct options,limit)", "20"),
            "option 'limit': its field ends at byte 28 of the option struct, which has 24; correct offset "
            "or options_size",
        )
        self.refused_rows(
            self.LIMIT,
            "option 'limit': its field ends at byte 8 of the option struct, which has 0; "
            "correct offset or options_size",
            OPTIONS_SIZE="0",
        )

    def test_misaligned(self):
        self.refused_rows(
            self.LIMIT.replace("offsetof(struct options,limit)", "4"),
            "option 'limit': its offset is 4, expected a multiple of 8 for a number; use offsetof",
        )

    def test_overlap(self):
        self.refused_rows(
            self.LIMIT + "," + self.LIMIT.replace('"limit"', '"other"'),
            "option 'other': its field overlaps that of 'limit' in the option struct; correct offset",
        )

    def test_default(self):
        self.refused_rows(
            self.LIMIT.replace('"1.0"', '"many"'),
            "option 'limit': its default is 'many': not a number; expected 0.5..2; correct fallback or range",
        )
        self.refused_rows(
            self.LIMIT.replace('"1.0"', '"3"'),
            "option 'limit': its default is '3': out of range; expected 0.5..2; correct fallback or range",
        )
        self.refused_rows(
            self.LIMIT.replace('"1.0"', "NULL"), "option 'limit': it has no default; every row states one"
        )

    def test_help(self):
        self.refused_rows(
            self.LIMIT.replace('"A limit."', '""'), "option 'limit': it has no help; every row states one"
        )

    def test_range(self):
        self.refused_rows(
            self.LIMIT.replace('"0.5..2"', '"0.5-2"'),
            "option 'limit': its range is '0.5-2', expected FROM..TO with values of type number; correct "
            "range",
        )
        self.refused_rows(
            '{"mode",BPS_OPT_CHOICE,0,offsetof(struct options,mode),"a",NULL,"A mode."}',
            "option 'mode': it has no words to choose from; list them in range, as in a|b",
        )


class Symbols(Case):
    """What the dynamic linker does not find."""

    def test_undefined_symbol(self):
        self.build(UNDEFINED="nowhere_to_be_found")
        self.refused_late(
            "symbol 'nowhere_to_be_found' is undefined: none of the libraries it needs (libc.so.6) has it; "
            "link the plugin with the library that has it, or install the version it was built with"
        )

    def test_function_of_the_core(self):
        self.build(UNDEFINED="bps_size")
        self.refused_late(
            "symbol 'bps_size' is undefined: a plugin cannot call libbyteps; use what struct bps_host offers"
        )

    def test_missing_library(self):
        source = os.path.join(self.shared, "dependency.c")
        with open(source, "w") as file:
            file.write("int from_afar(void);\nint from_afar(void)\n{\n    return 0;\n}\n")
        library = modules.build(
            source, self.file("libafar.so"), flags=["-Wl,-soname,libafar.so.3", "-fvisibility=default"]
        )
        self.build(flags=[library], UNDEFINED="from_afar")
        os.unlink(library)
        self.refused_late(
            "library libafar.so.3, which it needs, is not found; install the package that has it, or name "
            "its directory in LD_LIBRARY_PATH"
        )

    def refused_late(self, reason):
        """The note is right, so `list` shows it, but the linker stops before any code runs."""
        result = self.plugin("info", "crafted")
        self.assertEqual(result.stderr, f"byteps plugin: {self.file()}: {reason}\n")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertFalse(self.ran())


@unittest.skipUnless(os.geteuid() == 0, "only a privileged process is this careful")
class Privileged(Case):
    """Files that somebody else could have written."""

    def test_world_writable(self):
        os.chmod(self.copy(), 0o666)
        self.refused(
            f"can be written by everyone (mode 0666), and this process is privileged; chmod o-w {self.file()}"
        )

    def test_foreign_owner(self):
        """Whoever a file or its directory belongs to can write there."""
        why = "belongs to user 12345, neither to root nor to the user of this process, which is privileged; chown root "
        os.chown(self.copy(), 12345, -1)
        self.refused(why + self.file())
        os.chown(self.file(), 0, -1)
        os.chown(self.dir, 12345, -1)
        self.refused(f"its directory {why}{self.dir}")

    def test_world_writable_directory(self):
        self.copy()
        os.chmod(self.dir, 0o777)
        self.refused(
            "its directory can be written by everyone (mode 0777), and this process is privileged; "
            f"chmod o-w {self.dir}"
        )
        os.chmod(self.dir, 0o1777)
        self.assertEqual(self.plugin("info", "crafted").returncode, 0)

    def test_link_into_a_writable_directory(self):
        other = tempfile.mkdtemp(prefix="byteps-plugins-")
        self.addCleanup(shutil.rmtree, other)
        os.symlink(shutil.copy(self.good, other), self.file())
        os.chmod(other, 0o777)
        self.refused(
            "its directory can be written by everyone (mode 0777), and this process is privileged; "
            f"chmod o-w {other}"
        )


class Names(Case):
    """What is said about names that lead nowhere, and how the directories are searched."""

    def error(self, *args, status=1, path=None):
        result = self.plugin(*args, path=path)
        self.assertEqual((result.returncode, result.stdout), (status, ""))
        return result.stderr

    def test_nearest_name(self):
        self.copy()
        self.assertEqual(
            self.error("info", "craftet"),
            "byteps plugin: there is no plugin 'craftet'; did you mean 'crafted'?\n",
        )
        self.assertRegex(
            self.error("info", "craftet", "--kind", "stage"),
            r"^byteps plugin: there is no stage 'craftet'; did you mean 'crafted'\? "
            rf"no file stage_craftet.so in {self.dir}, .*\n$",
        )

    def test_other_kind(self):
        self.copy()
        self.assertRegex(self.error("info", "crafted", "--kind", "transport"), r"; 'crafted' is a stage; ")

    def test_missing_directory_is_named(self):
        self.assertIn(
            " in /nonexistent/a (which does not exist), ",
            self.error("info", "x", "--kind", "stage", path="/nonexistent/a"),
        )

    def test_name_is_no_path(self):
        self.copy()
        self.assertEqual(
            self.error("info", "../stage_crafted", "--kind", "stage"),
            "byteps plugin: stage '../stage_crafted': this name is not allowed, expected a lower-case "
            "letter, then letters, digits and _, at most 31\n",
        )

    def test_first_directory_wins_even_if_refused(self):
        first = os.path.join(self.dir, "first")
        second = os.path.join(self.dir, "second")
        os.mkdir(first)
        os.mkdir(second)
        shutil.copy(self.good, os.path.join(second, "stage_crafted.so"))
        path = f":{first}::{second}/:"
        self.assertEqual(self.plugin("info", "crafted", path=path).returncode, 0)
        bad = os.path.join(first, "stage_crafted.so")
        with open(bad, "w") as file:
            file.write("not this")
        self.assertIn(f"byteps plugin: {bad}: not an ELF file", self.error("info", "crafted", path=path))
        shutil.copy(self.good, bad)
        rows = [row for row in self.rows(path=path) if row["name"] == "crafted"]
        self.assertEqual([row["refusal"] for row in rows], [None, f"hidden by {bad}"])

    def test_same_name_of_two_kinds(self):
        self.copy()
        self.build("reducer_crafted.so", NOTE_KIND="BPS_KIND_REDUCER", PLUGIN_KIND="BPS_KIND_REDUCER")
        self.assertEqual(
            self.error("info", "crafted"),
            "byteps plugin: 'crafted' is the name of a reducer and of a stage; add --kind\n",
        )
        self.assertEqual(self.plugin("info", "crafted", "--kind", "stage").returncode, 0)

    def test_framework_is_shown_but_not_opened(self):
        self.build("framework_crafted.so", NOTE_KIND="BPS_KIND_FRAMEWORK")
        result = self.plugin("info", "crafted")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("framework crafted: a binding that its framework opens", result.stdout)
        self.assertFalse(self.ran())

    def test_file_names_are_foreign_text(self):
        self.copy("stage_\033[31mred.so")
        result = self.plugin("list")
        self.assertEqual(result.returncode, 0)
        self.assertNotIn("\033", result.stdout)
        self.assertIn("not usable: its name is not allowed;", result.stdout)

    def test_other_files_are_not_listed(self):
        for name in ("libstage_x.so", "stage_x.so.1", "stage.so", "_.so", "README", "stage_x.la"):
            self.copy(name)
        self.assertEqual([row for row in self.rows() if row["file"].startswith(self.dir)], [])

    def test_usage(self):
        hint = "Try 'byteps plugin --help'.\n"
        self.assertEqual(
            self.error("lisp", status=2),
            f"byteps plugin: unknown command 'lisp'; expected list, info, new, check or bench\n{hint}",
        )
        self.assertEqual(
            self.error(status=2), f"byteps plugin: no command given; expected list, info, new, check or bench\n{hint}"
        )
        self.assertEqual(
            self.error("info", status=2), f"byteps plugin: info takes the name of one plugin, found 0\n{hint}"
        )
        self.assertEqual(
            self.error("info", "x", "--kind", "car", status=2),
            "byteps plugin: unknown kind 'car'; expected transport, reducer, compressor, stage, launcher or framework\n"
            + hint,
        )
        self.assertEqual(
            self.error("list", "x", status=2), f"byteps plugin: list takes no argument 'x'\n{hint}"
        )
        help_text = self.plugin("--help")
        self.assertEqual((help_text.returncode, help_text.stderr), (0, ""))
        self.assertTrue(help_text.stdout.startswith("Usage: byteps plugin list [--json]\n"))


if __name__ == "__main__":
    unittest.main()
