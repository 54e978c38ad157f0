# SPDX-License-Identifier: Apache-2.0
"""The plugins of examples/, copied from where `make install` puts them: each is built and checked by its own Makefile,
and all of them work in one job.
"""

import glob
import os
import shutil
import unittest

import installation
import modules

EXAMPLES = (
    "compressor_natural",
    "reducer_kahan",
    "stage_clip",
    "stage_clip_global",
    "stage_gradnorm",
    "stage_nanguard",
    "transport_unix",
)
CONF = """
transports = { local = { plugin = "unix"; }; };
reducers = { kahan = { plugin = "kahan"; }; };
compressors = { natural = { plugin = "natural"; }; };
server = { use = [ "kahan", "sum" ]; order = "rank"; };
worker = {
    use = [ "kahan", "sum" ];
    partition = "16 KiB";
    hierarchy = "off";              # workers of a host would sum among themselves, without coding
    graph = ( { stage = "gradnorm"; },
              { stage = "nanguard"; },
              { stage = "clip"; limit = 2e8; when = "dtype == float32"; },
              { stage = "local_reduce"; },
              { stage = "compress"; use = "natural"; when = "name == coded"; },
              { stage = "push_pull"; },
              { stage = "local_broadcast"; },
              { stage = "clip_global"; max_norm = 1e12; when = "dtype == float32"; } );
};
log = { level = "info"; };
"""


class Examples(installation.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.examples,) = glob.glob(f"{cls.dir}/**/doc/*/examples", recursive=True)

    def copy(self, name):
        return shutil.copytree(os.path.join(self.examples, name), os.path.join(self.work, name))

    def test_all_are_here(self):
        plugins = sorted(name for name in os.listdir(self.examples) if "_" in name and "." not in name)
        self.assertEqual(tuple(plugins), EXAMPLES)

    def test_each(self):
        """Its check goes as well a second time, and `make clean` leaves what was there at first."""
        for name in EXAMPLES:
            with self.subTest(name):
                folder = self.copy(name)
                self.run_in(folder, "make")
                self.run_in(folder, "make", "check")
                self.run_in(folder, "make", "check")
                self.run_in(folder, "make", "clean")
                self.assertEqual(sorted(os.listdir(folder)), sorted(os.listdir(os.path.join(self.examples, name))))

    def test_by_compilers(self):
        for compiler in filter(shutil.which, ("gcc", "clang")):
            for name in EXAMPLES:
                with self.subTest(name, compiler=compiler):
                    self.run_in(self.copy(name), "make", CC=compiler)

    def build_all(self):
        for name in EXAMPLES:
            self.run_in(self.copy(name), "make")
        shutil.copy(os.path.join(modules.HERE, "every_kind.c"), self.work)
        with open(os.path.join(self.work, "Makefile"), "w", encoding="utf-8") as file:
            file.write("PLUGIN = stage_none\nCHECK_PROGRAM = every_kind\n"
                       "include $(shell $(PKG_CONFIG) --variable=pluginmk byteps)\n")
        self.run_in(self.work, "make", "every_kind")

    def test_all_at_once(self):
        """Three workers and two servers, by every plugin: results are right, and nobody warns."""
        self.build_all()
        with open(os.path.join(self.work, "all.conf"), "w", encoding="utf-8") as file:
            file.write(CONF)
        paths = ":".join(os.path.join(self.work, name) for name in EXAMPLES)
        command = ("byteps", "run", "-n", "3", "-s", "2", "--conf", "all.conf", "--", "./every_kind")
        result = self.run_in(self.work, *command, BYTEPS_PLUGIN_PATH=paths)
        told = result.stdout + result.stderr
        self.assertEqual(told.count("] ok\n"), 3, told)
        for word in (" WARN ", " ERROR "):
            self.assertNotIn(word, told)
        for text in ("transports.local (unix): counters: frames_sent ",
                     "worker.graph[0] (gradnorm): round 0: the norm of coded is 424.264",
                     "worker.graph[0] (gradnorm): counters: gradients 3, kept "):
            self.assertIn(text, told)


if __name__ == "__main__":
    unittest.main()
