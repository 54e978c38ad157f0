# SPDX-License-Identifier: Apache-2.0
"""The Containerfile agrees with quickstart, what was built and the documents; `make check-container` builds it."""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import unittest

import containerfile
from containerfile import TOP

BUILD = pathlib.Path(os.environ.get("top_builddir", ".")).resolve()
BASE = {"libc6"}
"""Packages that no Debian is without."""
OPENED = {"ibverbs-providers"}
"""Those with libraries that nothing is linked to, but that are opened at run time."""
STAGES = containerfile.stages()
TARGETS = {name: stage for name, stage in STAGES.items() if name != "build"}


def listed(text, pattern):
    """The words that the only match of the pattern has in its group."""
    (words,) = re.findall(pattern, text)
    return set(words.split())


def copied(stage):
    """(stage that it is from or None, path) of all that is copied."""
    for words in map(str.split, STAGES[stage].all("COPY")):
        option = words.pop(0).partition("--from=")[2] if words[0].startswith("--") else None
        yield from ((option, path) for path in words[:-1])


def built(path):
    """The files of the build that are installed at a path of the stage, which may be a pattern."""
    name = pathlib.PurePath(path).name
    return [file for place in (".", "*/*") for file in BUILD.glob(f"{place}/.libs/{name}")]


def needed(file):
    """The packages that own the libraries that a file is linked to, as the loader finds them: of those for another
    machine, which may be installed as well, the folder has another name."""
    headers = subprocess.run(["objdump", "-p", file], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = subprocess.run(["ldd", file], check=True, stdout=subprocess.PIPE, text=True).stdout
    paths = dict(re.findall(r"(?m)^\s*(\S+) => (/\S+)", found))
    libraries = [pathlib.PurePath(paths[name]) for name in re.findall(r"NEEDED +(\S+)", headers) if name in paths]
    libraries = [path for path in libraries if not path.is_relative_to(BUILD)]
    command = ["dpkg-query", "--search", *(f"*/{path.parent.name}/{path.name}" for path in libraries)]
    owners = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return set(re.findall(r"(?m)^([^:\s]+)", owners))


class Containerfile(unittest.TestCase):
    def test_copied_paths_exist(self):
        for stage in STAGES:
            for origin, path in copied(stage):
                with self.subTest(f"{stage}: {path}"):
                    if origin is None:
                        self.assertTrue((TOP / path).exists())
                    else:
                        self.assertIn(origin, STAGES)
                        self.assertTrue(path.startswith("/stage/"))
                        self.assertTrue(path.endswith("/") or built(path))

    def test_build_packages(self):
        """As quickstart has them, without those for unit tests and environments, and what docs/install.md adds."""
        page = containerfile.install_page()
        expected = listed((TOP / "quickstart").read_text(encoding="utf-8"), r"(?s)\npackages=\(([^)]+)\)")
        expected -= {"check", "python3-venv"}
        expected |= listed(page, r"`(lib[^`]+)`[^|]*\| RDMA") | listed(page, r"`(lib[^`]+)`[^|]*\| the compressor")
        self.assertEqual(STAGES["build"].packages(), expected)

    def test_runtime_packages(self):
        """They own the libraries that the copied files are linked to; and each is there for one of them."""
        release = platform.freedesktop_os_release() if hasattr(platform, "freedesktop_os_release") else {}
        if release.get("VERSION_CODENAME") != "bookworm" or not shutil.which("objdump"):
            self.skipTest("needs Debian 12 with objdump: others have packages of other names")
        files = [file for _, path in copied("server") if not path.endswith("/") for file in built(path)]
        program = BUILD / ".libs" / "byteps"
        files.append(program if program.exists() else BUILD / "byteps")
        packages = set().union(*map(needed, files)) - BASE
        found = STAGES["server"].packages() - OPENED
        self.assertLessEqual(packages, found)
        if built("transport_verbs.so") and built("compressor_lossless.so"):
            self.assertEqual(packages, found)

    def test_no_target_runs_as_root(self):
        for name, stage in TARGETS.items():
            self.assertRegex(stage.all("USER")[-1], r"^[1-9][0-9]*:[1-9][0-9]*$", name)

    def test_no_target_has_a_compiler_or_lists(self):
        for name, stage in TARGETS.items():
            self.assertFalse(stage.packages() & (STAGES["build"].packages() - {"python3"}), name)
            for command in stage.all("RUN"):
                self.assertIn("rm -rf /var/lib/apt/lists/*", command, name)

    def test_no_python_in_server(self):
        self.assertFalse([package for package in STAGES["server"].packages() if "python" in package])
        self.assertEqual(STAGES["server"].base, STAGES["build"].base)
        self.assertEqual(STAGES["worker"].base, "server")


class Documents(unittest.TestCase):
    def test_targets(self):
        """Each is built as docs/install.md tells; the last one is the default."""
        builds = containerfile.documented_builds()
        self.assertEqual([words[words.index("--target") + 1] for words in builds], list(TARGETS))
        self.assertEqual([words[words.index("-t") + 1] for words in builds], [f"byteps-{name}" for name in TARGETS])
        self.assertEqual(list(STAGES)[-1], "worker")

    def test_user(self):
        """The training that comes on top runs as the same user, and Kubernetes has the same number."""
        number = STAGES["worker"].all("USER")[-1].partition(":")[0]
        self.assertEqual(re.findall(r"(?m)^USER (\d+)$", containerfile.documented_derivation()), ["0", number])
        for name in ("workers", "servers", "pytorchjob"):
            text = (TOP / "examples" / "kubernetes" / f"{name}.yaml").read_text(encoding="ascii")
            self.assertEqual(re.findall(r"runAsUser: (\d+)", text), [number], name)

    def test_images_of_manifests(self):
        names = set()
        for path in (TOP / "examples" / "kubernetes").glob("*.yaml"):
            names |= set(re.findall(r"image: registry\.example/(\S+)", path.read_text(encoding="ascii")))
        self.assertEqual(names - {"byteps-worker-mpi"}, {f"byteps-{name}" for name in TARGETS})


if __name__ == "__main__":
    unittest.main()
