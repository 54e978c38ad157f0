# SPDX-License-Identifier: Apache-2.0
"""Applications and plugins that were built with the headers of older minors, 1.0 and 1.1, and of a newer one, whose
structs all have one more field; and plugins of the major before. Each works with this version. docs/abi.md has the
rules.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(TOP / "tests" / "jobs"), str(TOP / "tests" / "plugins")]

import harness  # noqa: E402  (these lie in the folders that were just added)
import modules  # noqa: E402

HERE = TOP / "tests" / "abi"
HEADERS = TOP / "core" / "include"
RECORDED = HERE / "libbyteps.abi"
LAYOUT = TOP / "core" / "base" / "layout.def"
FROZEN = {
    "bps_channel_key", "bps_device", "bps_framework_note", "bps_group_step", "bps_launcher_note", "bps_list",
    "bps_note", "bps_report",
}  # fmt: skip
"""What never grows: it lies within other structs or in arrays, or is read from files."""
STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
MINOR = int(re.search(r"#define BPS_ABI_MINOR (\d+)u", (HEADERS / "byteps" / "plugin.h").read_text()).group(1))
CONF = """
transports = { net = { plugin = "old"; host = "127.0.0.1"; }; };
reducers = { old = { plugin = "old"; }; };
compressors = { old = { plugin = "old"; }; };
server = { use = [ "old", "sum" ]; local = false; };
worker = {
    use = [ "old", "sum" ];
    hierarchy = "off";
    graph = ( { stage = "old"; factor = 0.5; when = "dtype == float32"; },
              { stage = "local_reduce"; },
              { stage = "compress"; use = "old"; when = "name == coded"; },
              { stage = "push_pull"; },
              { stage = "local_broadcast"; } );
};
log = { level = "info"; };
"""


def grow(folder):
    """Headers of the next minor: every struct that may grow has a field more."""

    def grown(match):
        more = "" if match[1] in FROZEN else "    uint64_t of_a_newer_minor;\n"
        return match[0][: -len("};")] + more + "};"

    (folder / "byteps").mkdir(parents=True)
    for header in (HEADERS / "byteps").glob("*.h"):
        text = re.sub(r"(#define BPS_ABI_MINOR) \d+u", rf"\1 {MINOR + 1}u", header.read_text())
        (folder / "byteps" / header.name).write_text(STRUCT.sub(grown, text))
    return folder


class Versions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="byteps-abi-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.newer = grow(cls.dir / "newer")

    def compile(self, headers, source, output, *flags):
        command = [*modules.compiler(), "-std=gnu11", "-O1", "-D_GNU_SOURCE=", "-I", str(headers), "-o", str(output)]
        command += [str(source), *flags]
        result = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"{shlex.join(command)}\n{result.stderr}")

    def plugin(self, headers, source, output):
        self.compile(headers, source, output, "-shared", "-fPIC", "-fvisibility=hidden", "-lm")

    def source(self, headers, kind, folder):
        """A template, as a third party would have begun with it: that of then if it is kept, or today's."""
        kept = headers / f"{kind}_old.c"
        text = (TOP / "tools" / "templates" / kind / f"{kind}_NAME.c").read_text()
        source = folder / f"{kind}_old.c"
        source.write_text(kept.read_text() if kept.exists() else text.replace("NAME", "old"))
        return source

    def build(self, headers, folder, app_headers, *flags):
        folder.mkdir()
        for kind in ("transport", "reducer", "compressor", "stage"):
            self.plugin(headers, self.source(headers, kind, folder), folder / f"{kind}_old.so")
        self.plugin(headers, TOP / "tests" / "plugins" / "launcher_folder.c", folder / "launcher_folder.so")
        library = pathlib.Path(os.environ.get("top_builddir", ".")).resolve() / ".libs"
        links = ("-L", str(library), "-lbyteps", f"-Wl,-rpath,{library}")
        self.compile(app_headers, HERE / "app.c", folder / "app", *links, *flags)
        (folder / "byteps.conf").write_text(CONF)

    def environment(self, folder):
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("BYTEPS_PLUGIN_PATH")]))
        return {"BYTEPS_PLUGIN_PATH": path}

    def check(self, headers, abi, *flags, app_headers=None, told=False):
        folder = self.dir / f"built-{abi}"
        self.build(headers, folder, app_headers or headers, *flags)
        options = ["--conf", str(folder / "byteps.conf")]
        env = self.environment(folder)
        result = harness.run([str(folder / "app")], workers=2, servers=1, options=options, env=env)
        self.assertEqual(result.status, 0, result)
        for rank in range(2):
            self.assertEqual(result.lines(f"worker {rank}"), ["ok"], result)
        self.assertEqual(f"built for ABI {abi}," in str(result), told, result)
        self.assertNotIn(" ERROR ", str(result))
        command = [harness.program(), "plugin", "info", "folder", "--kind", "launcher"]
        info = subprocess.run(command, capture_output=True, text=True, env=os.environ | env)
        self.assertIn(f"ABI      {abi}\n", info.stdout, info.stderr)

    def test_oldest(self):
        self.check(HERE / "1.0", "1.0")

    def test_between(self):
        self.check(HERE / "1.1", "1.1")

    def test_newer(self):
        self.check(self.newer, f"1.{MINOR + 1}", "-DNEWER", told=True)

    def test_the_major_before(self):
        self.check(HERE / "0.20", "0.20", app_headers=HEADERS, told=True)

    def test_a_service_that_is_not_there(self):
        folder = self.dir / "beyond"
        folder.mkdir()
        self.plugin(self.newer, HERE / "stage_beyond.c", folder / "stage_beyond.so")
        graph = 'worker = { graph = ( { stage = "beyond"; }, { stage = "push_pull"; } ); };'
        (folder / "byteps.conf").write_text(graph)
        command = [harness.program(), "graph", "--conf", str(folder / "byteps.conf")]
        result = subprocess.run(command, capture_output=True, text=True, env=os.environ | self.environment(folder))
        self.assertEqual(result.returncode, 0, result)
        self.assertIn(f"a plugin calls a service that this BytePS, with ABI 1.{MINOR}, does not have", result.stderr)


@unittest.skipUnless(shutil.which("abidw"), "there is no abidw; install abigail-tools")
class Library(unittest.TestCase):
    """What libbyteps exports for applications is what RECORDED has of it; `make record-abi` writes that anew."""

    def dump(self, path):
        public = (TOP / "core" / "libbyteps.map").read_text().partition("local:")[0]
        names = path.with_suffix(".list")
        names.write_text("[abi_whitelist]\n" + "\n".join(f"  {name}" for name in re.findall(r"\b(bps_\w+);", public)))
        library = pathlib.Path(os.environ.get("top_builddir", "."), ".libs", "libbyteps.so")
        command = ["abidw", "--kmi-whitelist", names, "--headers-dir", HEADERS / "byteps", "--drop-private-types"]
        command += ["--no-show-locs", "--no-comp-dir-path", "--no-corpus-path", "--out-file", path, library]
        subprocess.run(command, check=True)

    def test_as_recorded(self):
        with tempfile.TemporaryDirectory(prefix="byteps-abi-") as folder:
            path = pathlib.Path(folder, "now.abi")
            self.dump(path)
            if os.environ.get("RECORD"):
                shutil.copy(path, RECORDED)
            result = subprocess.run(["abidiff", RECORDED, path], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"docs/abi.md says what may change.\n{result.stdout}{result.stderr}")


class Layout(unittest.TestCase):
    """core/base/layout.def, which the compiler compares with the headers, has all of them."""

    def rows(self):
        rows = re.findall(r"^(LEAST|FIELD|GREW|NOW)\((.*)\)$", LAYOUT.read_text(), re.MULTILINE)
        return [(kind, *arguments.split(", ")) for kind, arguments in rows]

    def fields(self, body):
        """Names of the members of a struct, without those of structs within it."""
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
        body = re.sub(r"struct \w+ \{.*?\}", "struct", body, flags=re.DOTALL)
        for member in filter(str.strip, body.split(";")):
            functions = [
                found[1]
                for found in re.finditer(r"\(\*(\w+)\)\(", member)
                if member.count("(", 0, found.start()) == member.count(")", 0, found.start())
            ]
            plain = re.sub(r"\[[^]]*\]", "", member)
            yield from functions or [re.search(r"(\w+)\s*$", one).group(1) for one in plain.split(",")]

    def test_all_structs_and_fields(self):
        known = {}
        for kind, struct, *rest in self.rows():
            known.setdefault(struct, []).extend(rest[:1] if kind == "FIELD" else [])
        public = {}
        for header in (HEADERS / "byteps").glob("*.h"):
            for struct, body in STRUCT.findall(header.read_text()):
                public[struct] = list(self.fields(body))
        self.assertEqual(sorted(known), sorted(public))
        for struct, fields in public.items():
            self.assertEqual(known[struct], fields, struct)

    def test_growth(self):
        """New fields begin where the struct ended before, and what is frozen has none."""
        size = None
        for kind, struct, *rest in self.rows():
            if kind == "LEAST":
                size = int(rest[0])
            elif kind == "GREW":
                self.assertNotIn(struct, FROZEN)
                size = int(rest[2])
            elif kind == "FIELD":
                last = int(rest[1])
            elif kind == "NOW":
                self.assertGreaterEqual(int(rest[0]), size)
                self.assertLess(last, int(rest[0]))

    def test_old_headers_are_the_start_of_the_new_ones(self):
        """What a struct of an older minor has, this one has, in its order."""
        for minor in range(MINOR):
            for header in (HERE / f"1.{minor}" / "byteps").glob("*.h"):
                new = dict(STRUCT.findall((HEADERS / "byteps" / header.name).read_text()))
                for struct, body in STRUCT.findall(header.read_text()):
                    old = list(self.fields(body))
                    self.assertEqual(list(self.fields(new[struct]))[: len(old)], old, struct)


if __name__ == "__main__":
    unittest.main()
