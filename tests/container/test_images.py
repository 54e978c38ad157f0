# SPDX-License-Identifier: Apache-2.0
"""The images, built as docs/install.md tells and run: `make check-container`, which takes minutes.

buildah builds and runs them; no daemon and no registry is needed, as mmdebstrap makes what they begin with. Packages
come from where this machine has its own from: the settings of apt and pip are mounted for the time of the build.
"""

import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import unittest

import containerfile
from containerfile import TOP

TIMEOUT = 1800.0
"""Seconds: far more than a build takes."""
DEADLINE = 120.0
"""Seconds for a job of a moment."""
APT_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")
CHROOT = ("--isolation", "chroot")
BASE = containerfile.stages()["build"].base
WORKERS, SERVERS = 2, 2


def existing(paths):
    return [path for path in paths if os.path.exists(path)]


def mounts(*paths):
    return [word for path in existing(paths) for word in ("--volume", f"{path}:{path}:ro")]


def require():
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root, to make file systems and to enter them")
    for program in ("buildah", "mmdebstrap"):
        if not shutil.which(program):
            raise unittest.SkipTest(f"{program} is not installed (on Debian: apt install {program})")
    if not existing(APT_SOURCES):
        raise unittest.SkipTest(f"needs a Debian, with its package sources in {' or '.join(APT_SOURCES)}")


class Store:
    """A folder with images and containers, which leaves nothing elsewhere."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.buildah = ["buildah", "--root", self.folder / "images", "--runroot", self.folder / "run"]

    def call(self, *words, **how):
        """Runs buildah, and returns what it has printed."""
        done = subprocess.run(
            [*self.buildah, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            **how,
        )
        if done.returncode != 0:
            raise AssertionError(f"buildah {' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}")
        return done.stdout

    def make_base(self, name):
        """The image that the Containerfile begins with, of this machine's package sources."""
        root = self.folder / "root.tar"
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", root, *existing(APT_SOURCES)],
            check=True,
            timeout=TIMEOUT,
            env={**os.environ, "TMPDIR": str(self.folder)},
        )
        self.call("from", "--name", "base", "scratch")
        self.call("add", "base", root, "/")
        self.call("commit", "--quiet", "--rm", "base", name)
        root.unlink()

    def build(self, *words, **how):
        self.call("build", *CHROOT, "--network", "host", "--layers", *words, **how)

    def megabytes(self, image):
        """Its size, with that of the images below it."""
        (size,) = re.findall(r"(?m)^([0-9.]+) MB$", self.call("images", "--format", "{{.Size}}", image))
        return float(size)

    def start(self, image, *command, **variables):
        """A process in a container of its own."""
        container = self.call("from", "--pull-never", image).strip()
        given = [f"--env={name}={value}" for name, value in variables.items()]
        return subprocess.Popen(
            [*self.buildah, "run", *CHROOT, *given, container, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, image, *command):
        process = self.start(image, *command)
        text = process.communicate(timeout=DEADLINE)[0]
        if process.returncode != 0:
            raise AssertionError(f"{image}: {' '.join(command)}: status {process.returncode}\n{text}")
        return text

    def empty(self):
        self.call("rm", "--all")


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.store = Store(folder.name)
        cls.addClassCleanup(cls.store.empty)
        cls.store.make_base(BASE)
        for _docker, _build, *words in containerfile.documented_builds():
            cls.store.build(*mounts("/etc/apt"), *words, cwd=TOP)
        cls.build_training(os.path.join(folder.name, "training"))

    @classmethod
    def build_training(cls, folder):
        """As documented, with a framework of few bytes."""
        os.mkdir(folder)
        text = containerfile.documented_derivation().replace("torch", "numpy")
        pathlib.Path(folder, "Containerfile").write_text(text, encoding="ascii")
        shutil.copy(TOP / "examples" / "numpy_regression.py", os.path.join(folder, "train.py"))
        settings = mounts("/etc/pip.conf", "/etc/ssl/certs")
        cls.store.build("--pull-never", *settings, "-t", "training", folder)

    def plugins(self, image):
        """{(kind, name)}"""
        return set(re.findall(r"(?m)^(\w+) +(\w+) +[0-9.]+ ", self.store.run(image, "byteps", "plugin", "list")))

    def test_versions(self):
        for image in ("byteps-server", "byteps-worker"):
            self.assertRegex(self.store.run(image, "byteps", "--version"), r"^byteps [0-9.rc]+\n$")

    def test_sizes(self):
        """A compiler, or lists of packages, would be more than that."""
        for image, most in (("byteps-server", 20), ("byteps-worker", 150)):
            added = self.store.megabytes(image) - self.store.megabytes(BASE)
            self.assertLess(added, most, f"MB that {image} adds to {BASE}")

    def test_plugins(self):
        server = self.plugins("byteps-server")
        names = {"block", "cast", "dithering", "lossless", "onebit", "randomk", "topk"}
        expected = {("compressor", name) for name in names} | {("reducer", "cpu")}
        self.assertEqual(server, expected | {("transport", name) for name in ("ipc", "tcp", "verbs")})
        bindings = {("framework", name) for name in ("python", "tensorflow", "jax", "mxnet")}
        self.assertEqual(self.plugins("byteps-worker"), server | bindings | {("reducer", "cuda")})

    def test_what_is_not_in_them(self):
        programs = "for one in %s; do ! command -v $one || exit 1; done; test -z \"$(ls -A /var/lib/apt/lists)\""
        self.store.run("byteps-server", "sh", "-c", programs % "python3 cc make")
        self.store.run("byteps-worker", "sh", "-c", programs % "cc make")

    def test_user(self):
        for image in ("byteps-server", "byteps-worker", "training"):
            self.assertEqual(self.store.run(image, "sh", "-c", "id -u; pwd").split(), ["65532", "/home/byteps"])

    def test_a_job(self):
        """A scheduler and servers of one image, and workers of another with the training on top."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        keys = {"cluster.scheduler": f"127.0.0.1:{port}", "cluster.workers": WORKERS, "cluster.servers": SERVERS}
        setting = "\n".join(f"{key}={value}" for key, value in {**keys, "worker.hierarchy": "off"}.items())
        given = {"BYTEPS_SET": setting, "BYTEPS_SECRET": secrets.token_hex(32)}
        parts = [self.store.start("byteps-server", "byteps", "scheduler", **given)]
        parts += [self.store.start("byteps-server", "byteps", "server", **given) for _ in range(SERVERS)]
        for rank in range(WORKERS):
            own = {**given, "BYTEPS_SET": f"{setting}\ncluster.rank={rank}"}
            parts.append(self.store.start("training", "python3", "train.py", **own))
        try:
            texts = [part.communicate(timeout=DEADLINE)[0] for part in parts]
        finally:
            for part in parts:
                part.kill()
        self.assertEqual([part.returncode for part in parts], [0] * len(parts), "\n".join(texts))
        self.assertEqual("".join(texts).count("weights [ 2.  -1.   0.5]"), WORKERS, "\n".join(texts))


if __name__ == "__main__":
    unittest.main()
