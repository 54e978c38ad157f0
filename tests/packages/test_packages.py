# SPDX-License-Identifier: Apache-2.0
"""The tarball has every file of the repository, each file that `make install` leaves belongs to one package of Debian
and of rpm, man pages and changelog name the version, installed documents find each other, systemd has nothing to say
about the units and does not start a wrong configuration again, and an installed copy does not tell where it was made.
"""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("top_builddir", "."))
SOURCE = pathlib.Path(os.environ.get("top_srcdir", "."))
NOT_RELEASED = re.compile(r"\.ci/|\.editorconfig$|\.git")
"""What only the repository needs."""
NOT_PACKAGED = re.compile(r".*\.la$|.*/byteps\.pth$")
"""The first debian/rules removes; the second is for a Python in another prefix."""
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def make(*words):
    """What this make of ours prints. It has nothing to do with the one that runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ("make", "-s", "-C", BUILD, *words)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


def variable(name):
    """One of the Makefile, expanded."""
    text = (BUILD / "Makefile").read_text(encoding="utf-8")
    value = re.search(rf"^{name} = (.*)$", text, re.M).group(1)
    return re.sub(r"\$[({](\w+)[)}]", lambda match: variable(match.group(1)), value)


def of_debian():
    """{package: [name]}, of the lists of dh_install"""
    files = (SOURCE / "packaging" / "debian").glob("*.install")
    texts = {path.stem: path.read_text(encoding="utf-8") for path in files}
    return {package: [row.split()[0] for row in text.split("\n") if row] for package, text in texts.items()}


def of_rpm():
    """The same of the specification for rpm, with the names that Debian's settings give the files."""
    text = (SOURCE / "packaging" / "rpm" / "byteps.spec.in").read_text(encoding="utf-8")
    places = {"_sysconfdir": "etc", "_bindir": "usr/bin", "_libdir": "usr/lib/*", "_unitdir": "usr/lib/systemd/system",
              "_includedir": "usr/include", "_datadir": "usr/share", "_docdir": "usr/share/doc",
              "_mandir": "usr/share/man", "python3_sitelib": "usr/lib/python3/dist-packages"}
    found = {}
    for head, rows in re.findall(r"^%files ?(.*)\n((?:[^\n]+\n)+)", text, re.M):
        names = [row for row in rows.splitlines() if row.startswith("%{") and "_sysusersdir" not in row]
        found[head] = [re.sub(r"%\{(\w+)\}", lambda macro: places[macro[1]], name) for name in names]
    return found


def owners(file, lists=of_debian):
    """The packages that have the file."""
    patterns = {package: "|".join(re.escape(name.rstrip("/")).replace(r"\*", "[^/]*") for name in names)
                for package, names in lists().items()}
    return sorted(package for package, names in patterns.items() if re.match(f"(?:{names})(?:/|$)", file))


class Tarball(unittest.TestCase):
    def test_all_files(self):
        if not (SOURCE / ".git").exists() or shutil.which("git") is None:
            self.skipTest("this is no checkout")
        command = ("git", "-c", "safe.directory=*", "-C", SOURCE, "ls-files")
        known = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        released = {name.replace(f"{variable('top_srcdir')}/", "", 1) for name in make("dist-list").splitlines()}
        missing = [name for name in known if not NOT_RELEASED.match(name)
                   and released.isdisjoint(map(str, (pathlib.Path(name), *pathlib.Path(name).parents)))]
        self.assertEqual(missing, [], "EXTRA_DIST and the like take files that no program is made of")


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        make("install", f"DESTDIR={place.name}")
        cls.root = pathlib.Path(place.name)

    def in_debian(self):
        """The files with the names that Debian's settings give them."""
        places = {"usr/lib/python3/dist-packages": "pythondir", "usr/lib/triplet": "libdir", "etc": "sysconfdir",
                  "usr": "prefix"}
        for path in sorted(self.root.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            name = f"/{path.relative_to(self.root)}"
            for place, ours in places.items():
                if name.startswith(f"{variable(ours)}/"):
                    name = f"{place}{name[len(variable(ours)):]}"
                    break
            if not NOT_PACKAGED.match(name):
                yield name.replace("usr/lib/triplet/systemd", "usr/lib/systemd", 1)

    def test_one_package_has_it(self):
        files = list(self.in_debian())
        self.assertIn("usr/bin/byteps", files)
        for lists, where in ((of_debian, "debian/*.install"), (of_rpm, "rpm/byteps.spec.in")):
            wrong = {name: owners(name, lists) for name in files if len(owners(name, lists)) != 1}
            if lists is of_rpm:
                wrong = {name: packages for name, packages in wrong.items() if not name.endswith("/reducer_cuda.so")}
            self.assertEqual(wrong, {}, f"a file belongs into one list of packaging/{where}")

    def test_links_of_documents(self):
        documents = self.root / variable("docdir").lstrip("/")
        files = [path for path in documents.rglob("*.md") if "examples" not in path.parts]
        self.assertIn(documents / "docs" / "install.md", files)
        links = [(path, link) for path in files for link in LINK.findall(path.read_text(encoding="utf-8"))]
        dead = [f"{path.relative_to(documents)}: {link}" for path, link in links if not (path.parent / link).exists()]
        self.assertEqual(dead, [], "what a document links to is installed with it")


class Lists(unittest.TestCase):
    def test_planted_files(self):
        self.assertEqual(owners("usr/lib/x86_64-linux-gnu/byteps/transport_new.so"), [])
        self.assertEqual(owners("usr/lib/x86_64-linux-gnu/byteps/transport_verbs.so"), ["byteps-plugin-verbs"])
        self.assertEqual(owners("usr/bin/new"), ["byteps"])
        self.assertEqual(owners("usr/lib/x86_64-linux-gnu/byteps/transport_new.so", of_rpm), [])
        self.assertEqual(owners("usr/lib/x86_64-linux-gnu/byteps/transport_verbs.so", of_rpm), ["plugin-verbs"])
        self.assertEqual(owners("usr/lib/python3/dist-packages/byteps/torch.py", of_rpm), ["-n python3-byteps"])


class Version(unittest.TestCase):
    """What a release changes by hand: configure.ac has the version, and these must follow."""

    def test_man_pages(self):
        pages = [path for path in (SOURCE / "man").glob("*.[1-9]") if path.name != "bpslaunch.1"]
        self.assertGreater(len(pages), 2)
        for path in pages:
            title = re.search(r"^\.TH .*$", path.read_text(encoding="utf-8"), re.M)[0]
            self.assertIn(f'"BytePS {variable("VERSION")}"', title, path.name)

    def test_changes(self):
        text = (SOURCE / "CHANGELOG.md").read_text(encoding="utf-8")
        self.assertEqual(re.search(r"^## (\S+)", text, re.M)[1], variable("VERSION"))


class Units(unittest.TestCase):
    def test_verified(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        program = BUILD.resolve() / "byteps"  # the one to be installed is not there
        with tempfile.TemporaryDirectory() as place:
            make("packaging/systemd/byteps-scheduler@.service", "packaging/systemd/byteps-server@.service")
            for path in (BUILD / "packaging" / "systemd").glob("*.service"):
                text = path.read_text(encoding="utf-8").replace(f"{variable('bindir')}/byteps", str(program))
                pathlib.Path(place, path.name).write_text(text, encoding="utf-8")
            units = sorted(pathlib.Path(place).iterdir())
            self.assertEqual(len(units), 2)
            result = subprocess.run(("systemd-analyze", "verify", "--man=no", *units), check=False, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_wrong_configuration(self):
        wrong = {"unknown key": "cluster = { nonsense = 3; };",
                 "no secret": 'cluster = { workers = 1; servers = 1; scheduler = "192.0.2.1:9000"; };'}
        for role, (name, text) in itertools.product(("scheduler", "server"), wrong.items()):
            unit = (SOURCE / "packaging" / "systemd" / f"byteps-{role}@.service.in").read_text(encoding="utf-8")
            final = re.search(r"^RestartPreventExitStatus=(\d+)$", unit, re.M).group(1)
            with self.subTest(role=role, wrong=name), tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
                file.write(text)
                file.flush()
                result = subprocess.run(("byteps", role, "--conf", file.name), check=False, stderr=subprocess.PIPE,
                                        text=True, timeout=60)
                self.assertEqual((result.returncode, len(result.stderr.splitlines())), (int(final), 1), result.stderr)


class Information(unittest.TestCase):
    def test_no_folder_of_the_build(self):
        """An installed copy is not where it was made."""
        table = subprocess.run(("byteps", "info", "--build"), check=True, stdout=subprocess.PIPE, text=True).stdout
        rows = [row for row in table.splitlines() if row.split()[0] not in ("prefix", "plugins", "config")]
        self.assertGreater(len(rows), 5)
        self.assertEqual([row for row in rows if "/" in row], [])


if __name__ == "__main__":
    unittest.main()
