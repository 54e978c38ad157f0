# SPDX-License-Identifier: Apache-2.0
"""What README.md and the documents for users tell the reader to type works: every block of code in them runs.
documents.py says how they are read. The hosts node1 and node2 are those of a test bed.
"""

import contextlib
import functools
import glob
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import documents
import harness
import imported
import scripted
import sources

sys.path += [os.path.join(os.environ["top_srcdir"], folder) for folder in ("bench", "tests/plugins")]

import installation  # noqa: E402  (this and the next one lie in the folders that were just added)
from testbed import Testbed, Unavailable  # noqa: E402

harness.program()
TOP = os.path.abspath(os.environ.get("top_srcdir", "."))
PAGES = (
    "c",
    "clusters",
    "coming-from",
    "compression",
    "configuration",
    "faq",
    "faults",
    "get-started",
    "horovod",
    "install",
    "performance",
    "pytorch",
    "running",
    "scale",
    "security",
    "timeline",
    "troubleshooting",
    "tuning",
    "tutorial",
)
DOCUMENTS = ("README.md", *(f"docs/{page}.md" for page in PAGES))
# Those for another Python, and the modules with the names that they use.
OTHERS = {"tensorflow": "byteps.keras, byteps.tensorflow", "jax": "byteps.jax", "mxnet": "byteps.mxnet"}

# Like ssh: a shell in the home directory, with hardly any environment, on a host of the bed. The sandbox of a host has
# no way to another one but the namespaces of a process there.
SSH = """\
#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=$1
shift
exec nsenter --target "$(cat {folder}/"$host")" --net --uts --mount \\
    env -i HOME=/ PATH=/usr/bin:/bin BYTEPS_SET="$BYTEPS_SET" sh -c "cd; $*"
"""


def read(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as file:
        return file.read()


class Reader:
    """Does what the sections of a document tell, in a folder of its own."""

    def __init__(self, folder, python=None, framework=None):
        self.folder, self.bin = folder, os.path.join(folder, "bin")
        os.mkdir(self.bin)
        python = python or harness.python()
        # The machine may have other work: threads of PyTorch that wait for each other by spinning would hold it up.
        path = f"{self.bin}:{os.environ['PATH']}"
        # Open MPI takes no more processes than cores, and not those of root, unless it is told to.
        names = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
        mpi = {f"OMPI_{name}": "1" for name in names}
        self.env = dict(os.environ, PATH=path, OMP_NUM_THREADS="1", BYTEPS_SET="", **mpi)
        words = shlex.join(imported.interpreter(python, framework, self.env))
        self.write("bin/python3", f'#!/bin/sh\nexec {words} "$@"\n')
        self.write("bin/torchrun", f'#!/bin/sh\nexec {shlex.quote(python)} -m torch.distributed.run "$@"\n')
        built = os.path.abspath(os.environ.get("top_builddir", "."))
        flags = f"-I{TOP}/core/include -L{built}/.libs -Wl,-rpath,{built}/.libs -lbyteps"  # nothing is installed here
        self.write("bin/pkg-config", f"#!/bin/sh\necho {shlex.quote(flags)}\n")
        self.write("bin/bpslaunch", '#!/bin/sh\nexec byteps launch "$@"\n')

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, stat.S_IRWXU)

    def use_installed(self, prefix, env):
        """From now on BytePS is a copy that `make install` has made, and its examples are in the folder."""
        self.env = {name: value for name, value in env.items() if name != "PKG_CONFIG"}
        self.env["PATH"] = f"{self.bin}:{env['PATH']}"
        program = shlex.quote(shutil.which(installation.PKG_CONFIG))
        self.write("bin/pkg-config", f'#!/bin/sh\nexec {program} --define-variable=prefix={prefix} "$@"\n')
        (examples,) = glob.glob(f"{prefix}/share/doc/*/examples")
        shutil.copytree(examples, os.path.join(self.folder, "examples"))

    def follow(self, section):
        """Writes the script of a section and runs its commands; raises AssertionError if one fails."""
        if section.script:
            self.write(section.script, section.code)
        on_hosts = [block for block in section.commands if block.need.startswith("node")]
        for block in section.commands:
            if block.need == "root":
                self.check_words(block)
            elif block.need in ("", "gpu"):
                done = harness.execute(["sh", "-ec", block.text], cwd=self.folder, env=self.env)
                self.must_succeed(block, done.returncode, done.stdout, done.stderr)
        if on_hosts:
            self.run_on_hosts(on_hosts)

    def must_succeed(self, block, status, out, err):
        wrong = f"status {status}" if status else ", ".join(f"not printed: {line}" for line in block.missing(out))
        if wrong:
            raise AssertionError(f"{block.place}: {wrong}\n{block.text}--- stdout\n{out}\n--- stderr\n{err}")

    def check_words(self, block):
        """--help after the other words: they are looked at, and nothing is done."""
        for line in block.text.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] != ["./quickstart"]:
                raise AssertionError(f"{block.place}: '{line}' is no call of ./quickstart")
            done = harness.execute(["bash", os.path.join(TOP, "quickstart"), *words[1:], "--help"], cwd=self.folder)
            self.must_succeed(block, done.returncode, done.stdout, done.stderr)

    def run_on_hosts(self, blocks):
        with Testbed(2, "1gbit") as bed, contextlib.ExitStack() as stack:
            for host in range(2):
                name = f"node{host + 1}"
                command = ["sh", "-c", f"echo {bed.address(host)} {name} >>/etc/hosts; echo; read x"]
                inside = stack.enter_context(bed.popen(host, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                stack.callback(inside.stdin.close)
                inside.stdout.readline()  # the host has its name
                self.write(name, f"{inside.pid}\n")
            self.write("bin/ssh", SSH.format(folder=shlex.quote(self.folder)))
            started = []
            for block in blocks:
                how = {"cwd": self.folder, "env": self.env, "encoding": "utf-8", "stdin": subprocess.DEVNULL}
                how.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                process = bed.popen(int(block.need[-1]) - 1, ["sh", "-ec", block.text], **how)
                started.append(stack.enter_context(process))
            for block, process in zip(blocks, started):
                out, err = harness.communicate(process)
                self.must_succeed(block, process.returncode, out, err)


class Document:
    """Tests of one document: a method for each section, in their order and in the same folder."""

    framework = "torch"

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="byteps-documents-")
        cls.addClassCleanup(folder.cleanup)
        cls.reader = Reader(folder.name, cls.python(), cls.framework)

    @staticmethod
    def python():
        """The reader's python3; skips the tests where there is none with what the document needs."""
        scripted.require("torch")
        return harness.python()

    def follow(self, section):
        if "gpu" in section.needs and os.environ.get("TEST_GPU") != "1":
            self.skipTest("without TEST_GPU=1 nothing is expected of this machine's GPUs")
        try:
            self.reader.follow(section)
        except Unavailable as reason:
            self.skipTest(str(reason))


def tests_of(name, **methods):
    """Returns a class with the tests of a document, and further methods."""
    for number, section in enumerate(documents.read(read(name), name), 1):
        slug = re.sub(r"\W+", "_", section.title.lower())
        methods[f"test_{number:02}_{slug}"] = lambda self, section=section: self.follow(section)
    title = os.path.basename(name)[: -len(".md")].replace("-", "_").capitalize()
    return type(title, (Document, unittest.TestCase), methods)


globals().update((page.__name__, page) for page in map(tests_of, DOCUMENTS))
Tensorflow, Jax, Mxnet = (
    tests_of(
        f"docs/{name}.md", python=staticmethod(functools.partial(harness.framework_python, name)), framework=name
    )
    for name in OTHERS
)


class Plugins(tests_of("docs/plugins.md", python=staticmethod(harness.python))):
    """They are built against an installed copy."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if shutil.which(installation.PKG_CONFIG) is None:
            raise unittest.SkipTest("pkg-config is not installed")
        folder = tempfile.TemporaryDirectory(prefix="byteps-installed-")
        cls.addClassCleanup(folder.cleanup)
        cls.reader.use_installed(*installation.install(folder.name))


# Prints the names that none of the modules has.
LOOK_UP = """
import sys
import {modules}
def has(thing, path):
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing is not None
print(*[path for path in sys.argv[1:] if not any(has(module, path) for module in ({modules},))])
"""


def anchors(page):
    """What follows # in links to the headings of a page, as GitHub makes it of their words."""
    titles = re.findall(r"^#+ (.*)", page, re.M)
    return [re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", title)).lower().replace(" ", "-") for title in titles]


class Words(unittest.TestCase):
    """What can be seen without running anything."""

    def test_names_exist(self):
        scripted.require("torch")
        import byteps.compat.horovod.torch
        import byteps.torch

        texts = [(name, r"\bbps((?:\.\w+)+)", byteps.torch) for name in DOCUMENTS]
        texts.append(("docs/horovod.md", r"\bhvd((?:\.\w+)+)", byteps.compat.horovod.torch))
        for name, pattern, module in texts:
            for path in set(re.findall(pattern, read(name))):
                with self.subTest(document=name, name=path):
                    thing = module
                    for part in path[1:].split("."):
                        thing = getattr(thing, part)

    def test_names_for_other_frameworks_exist(self):
        for name, modules in OTHERS.items():
            paths = sorted(set(re.findall(r"\b(?:bps|hvd)\.((?:\w+\.)*\w+)", read(f"docs/{name}.md"))))
            script = LOOK_UP.format(modules=modules)
            done = harness.execute([harness.framework_python(name), "-c", script, *paths])
            self.assertEqual((done.returncode, done.stdout.strip()), (0, ""), done.stderr)

    def test_first_page(self):
        """README.md is short, and its first page has a whole training in PyTorch."""
        lines = read("README.md").splitlines()
        self.assertLessEqual(len(lines), 100)
        self.assertIn("byteps run -n 2 -- python3 train.py", lines[:39])
        self.assertIn("./quickstart check", read("README.md"))

    def test_links(self):
        folders = ("docs", "docs/lab")
        docs = [f"{at}/{name}" for at in folders for name in os.listdir(os.path.join(TOP, at)) if name.endswith(".md")]
        for name in ["README.md", "CONTRIBUTING.md", "SECURITY.md", *docs]:
            for target, title in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", read(name)):
                with self.subTest(document=name, target=target, title=title):
                    place = os.path.normpath(os.path.join(os.path.dirname(name), target)) if target else name
                    self.assertTrue(os.path.exists(os.path.join(TOP, place)))
                    self.assertIn(title, ["", *(anchors(read(place)) if title else [])])


class Quoted(unittest.TestCase):
    """What documents quote is in the sources, and what they are to list is in them."""

    @classmethod
    def setUpClass(cls):
        cls.sources = sources.read(TOP)

    def test_messages(self):
        """docs/troubleshooting.md quotes what is printed."""
        quoted = sources.messages(read("docs/troubleshooting.md"))
        self.assertGreater(len(quoted), 50)
        self.assertEqual([message for message in quoted if not sources.has(self.sources, message)], [])

    def test_variables(self):
        """docs/configuration.md has all variables that are read, and no others."""
        known = {name for name in sources.rows(read("docs/configuration.md"), "Variable") if not name.endswith("*")}
        known = {name for name in known if name.startswith(("BYTEPS_", "BYTESCHEDULER_", "DMLC_", "HOROVOD_"))}
        self.assertEqual(known, sources.variables(self.sources))

    def test_keys(self):
        """Each key in a table of docs/configuration.md is in the sample of a configuration."""
        sample = harness.execute([harness.program(), "conf", "sample"]).stdout
        keys = sources.rows(read("docs/configuration.md"), "Key")
        self.assertGreater(len(keys), 20)
        for key in keys:
            section, *_, name = key.split(".")
            with self.subTest(key=key):
                self.assertRegex(sample, rf"(?ms)^{section} = \{{.*?^ +#?{name} = .*?^\}}")

    def test_a_message_that_is_not_there(self):
        for message in ("waiting for ... (... of ... weeks)", "no such text as this one", "... of ..."):
            self.assertFalse(sources.has(self.sources, message), message)


class Planted(unittest.TestCase):
    """A document that does not work is noticed."""

    def follow(self, text):
        with tempfile.TemporaryDirectory() as folder:
            for section in documents.read(text, "planted.md"):
                Reader(folder).follow(section)

    def assert_unreadable(self, pattern, text):
        with self.assertRaisesRegex(documents.Wrong, pattern):
            documents.read(text, "planted.md")

    def assert_failure(self, pattern, text):
        with self.assertRaisesRegex(AssertionError, pattern):
            self.follow(text)

    def test_what_works(self):
        self.follow("# A\n```python\nx = 1\n```\n```python\nassert x == 1\n```\n```sh\npython3 a.py\n```\n")

    def test_diff(self):
        self.follow("# A\n```diff\n x = 1\n-x = 2\n\n+y = x\n assert y == 1\n```\n```sh\npython3 a.py\n```\n")
        self.assert_unreadable("a line of a diff begins", "```diff\nx = 1\n```\n```sh\npython3 a.py\n```\n")

    def test_c(self):
        commands = "```sh\ncc a.c -o a && ./a\n```\n"
        self.follow(f"# A\n```c\nint main(void)\n```\n```c\n{{ return 0; }}\n```\n{commands}")
        self.assert_failure(r"planted\.md:4: status 3", f"```c\nint main(void) {{ return 3; }}\n```\n{commands}")
        self.assert_unreadable("in one language", f"```c\nint x;\n```\n```python\nx = 1\n```\n{commands}")

    def test_wrong_python(self):
        commands = "```sh\nbyteps run -n 2 -- python3 a.py\n```\n"
        self.assert_failure(r"(?s)planted\.md:5: status 1.*KeyError", f"# A\n```python\n{{}}[1]\n```\n{commands}")

    def test_wrong_command(self):
        self.assert_failure(r"planted\.md:1: status 1", "```sh\nfalse\ntrue\n```\n")
        self.assert_failure(r"planted\.md:1: status 2", "```sh\nbyteps run --no-such-option -- true\n```\n")

    def test_wrong_output(self):
        commands = "```sh\necho 0.5 is 2\n```\n```text output\n0.75 is"
        self.follow(f"{commands} 2\n```\n")
        self.assert_failure(r"planted\.md:1: not printed: 0\.75 is 3", f"{commands} 3\n```\n")

    def test_wrong_words(self):
        self.assert_failure(r"status 2(?s:.*)no option '--wrong'", "```sh root\n./quickstart train --wrong\n```\n")
        self.assert_failure("'true' is no call of ./quickstart", "```sh root\ntrue\n```\n")

    def test_wrong_on_a_host(self):
        try:
            self.assert_failure(r"planted\.md:4: status 3", "```sh node1\ntrue\n```\n```sh node2\nexit 3\n```\n")
        except Unavailable as reason:
            self.skipTest(str(reason))

    def test_what_would_be_left_out(self):
        self.assert_unreadable(r"planted\.md:2: unknown kind of block 'perl'", "#\n```perl\n```\n")
        self.assert_unreadable("unknown kind of block ''", "```\n```\n")
        self.assert_unreadable("unknown kind of block 'sh moon'", "```sh moon\n```\n")
        self.assert_unreadable(r"planted\.md:3: a block begins", "a\n\n    true\n")
        self.assert_unreadable(r"planted\.md:1: the block does not end", "```sh\ntrue\n")
        self.assert_unreadable("no commands before this output", "```text output\n```\n")
        self.assert_unreadable("name its one script; here: none", "```python\n```\n```sh\ntrue\n```\n")
        self.assert_unreadable("here: a.py, b.py", "```python\n```\n```sh\npython3 a.py b.py\n```\n")

    def test_what_cannot_be_parsed(self):
        commands = "```sh gpu\npython3 a.py\n```\n"
        self.assert_unreadable("invalid syntax", f"```python\nx = = 1\n```\n{commands}")
        self.assert_unreadable("(?i)syntax error", "```sh gpu\nif true\n```\n")


if __name__ == "__main__":
    unittest.main()
