# SPDX-License-Identifier: Apache-2.0
"""`make html` makes a site of all documents; readers find in it what they look for, and no link leads nowhere."""

import functools
import os
import pathlib
import re
import subprocess
import unittest

BUILD = pathlib.Path(os.environ.get("top_builddir", "."))
SOURCE = pathlib.Path(os.environ.get("top_srcdir", "."))
SITE = BUILD / "html"
LINK = re.compile(r'href="(?!https?:|mailto:)([^"#?]+)')


@functools.lru_cache(maxsize=None)
def made():
    """The end of make. It has nothing to do with the one that runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ("make", "-s", "-C", BUILD, "html")
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "SPHINX_BUILD = no\n" in (BUILD / "Makefile").read_text(encoding="utf-8"):
            raise unittest.SkipTest("needs sphinx-build")
        done = made()
        assert done.returncode == 0, done.stdout

    def page(self, name):
        return (SITE / name).read_text(encoding="utf-8")

    def test_every_document(self):
        for path in (SOURCE / "docs").rglob("*.md"):
            name = path.relative_to(SOURCE)
            if name.parts[1] != "site":
                self.assertTrue((SITE / name.with_suffix(".html")).exists(), name)

    def test_links(self):
        """Within the site; the front page has one to every other document."""
        for path in [SITE / "index.html", *(SITE / "docs").rglob("*.html")]:
            for target in LINK.findall(path.read_text(encoding="utf-8")):
                self.assertTrue((path.parent / target).exists(), f"{path}: {target}")

    def test_reference(self):
        self.assertIn("bps_push_pull_async", self.page("reference/c.html"))
        self.assertIn("cluster.secret_file", self.page("reference/manuals.html"))
        self.assertIn("struct bps_transport", re.sub("<[^>]*>", "", self.page("reference/plugins.html")))
        torch = self.page("reference/python/byteps/torch/index.html")
        for name in ("DistributedOptimizer", "push_pull", "broadcast_parameters"):
            self.assertIn(f'id="byteps.torch.{name}"', torch)
        self.assertIn('id="byteps._basics.init"', self.page("reference/python/byteps/_basics/index.html"))

    def test_search(self):
        words = self.page("searchindex.js")
        for word in ("authent", "troubleshoot", "rendezv", "torchrun", "straggler"):
            self.assertIn(word, words)


if __name__ == "__main__":
    unittest.main()
