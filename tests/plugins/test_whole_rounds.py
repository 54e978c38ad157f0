# SPDX-License-Identifier: Apache-2.0
"""Stages that take whole rounds in jobs: the example clip_global."""

import os
import shutil
import sys
import tempfile

import modules

sys.path.insert(0, os.path.join(modules.TOP, "tests", "jobs"))

import harness  # noqa: E402  (these lie in the folder that was just added)
import scripted  # noqa: E402

scripted.require("numpy", "torch")

CLIP = '{ stage = "clip_global"; max_norm = 1.0; when = "dtype == float32"; }'
GROUP = '{ stage = "local_reduce"; }, { stage = "push_pull"; }, { stage = "local_broadcast"; }'
GRAPH = 'worker = { partition = "16 KiB"; graph = ( %s ); };\n'


class WholeRounds(scripted.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="byteps-plugins-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        source = os.path.join(modules.TOP, "examples", "stage_clip_global", "stage_clip_global.c")
        modules.build(source, os.path.join(cls.dir, "stage_clip_global.so"), flags=["-lm"])
        path = os.pathsep.join(filter(None, [cls.dir, os.environ.get("BYTEPS_PLUGIN_PATH")]))
        cls.env = {"BYTEPS_PLUGIN_PATH": path}

    def conf(self, graph):
        path = os.path.join(self.dir, "byteps.conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write(GRAPH % graph)
        return ["--conf", path]

    def test_behind_push_pull(self):
        behind = {"a group": f"{GROUP}, {CLIP}", "no group": f'{{ stage = "push_pull"; }}, {CLIP}'}
        for name, workers, servers in (("a group", 2, 1), ("no group", 2, 1), ("a group", 3, 0), ("a group", 1, 0)):
            with self.subTest(graph=name, workers=workers, servers=servers):
                options = self.conf(behind[name])
                self.run_script("whole_rounds.py", workers=workers, servers=servers, options=options, env=self.env)

    def test_a_worker_is_killed_meanwhile(self):
        """What the stage keeps is given back when the job fails."""
        program = (
            "import os, signal, sys, time, numpy as np, byteps.numpy as bps; bps.init();"
            "h = bps.push_pull_async(np.ones(9, np.float32), name='x'); time.sleep(0.5);"
            "bps.rank() == 1 and os.kill(os.getpid(), signal.SIGKILL); time.sleep(1);"
            "bps.synchronize(h)"
        )
        command = [harness.python(), "-c", program]
        result = harness.run(command, workers=2, servers=1, options=self.conf(f"{GROUP}, {CLIP}"), env=self.env)
        self.assertNotEqual(result.status, 0, result)
        self.assertRegex("\n".join(result.lines("worker 0", "err")), "LostError.*worker 1")

    def test_wrong_place(self):
        graph = f'{{ stage = "local_reduce"; }}, {CLIP}, {{ stage = "push_pull"; }}, {{ stage = "local_broadcast"; }}'
        result = harness.run([harness.python(), "-c", "import byteps.numpy as b; b.init()"], workers=1, servers=0,
                             options=self.conf(graph), env=self.env)
        self.assertNotEqual(result.status, 0, result)
        self.assertIn("stage clip_global takes whole rounds, and so cannot stand between local_reduce and "
                      "local_broadcast", str(result))

    def test_callbacks(self):
        """Nobody waits for operations that JAX starts."""
        self.python = harness.framework_python("jax")
        program = (
            "import byteps.jax as b, jax; b.init();"
            "print(jax.jit(lambda x: b.push_pull(x, name='x'))(jax.numpy.ones(3)))"
        )
        result = harness.run([self.python, "-c", program], workers=1, servers=0,
                             options=self.conf(f"{GROUP}, {CLIP}"), env=self.env)
        self.assertNotEqual(result.status, 0, result)
        self.assertIn("stage clip_global: it takes whole rounds, which end when the application waits", str(result))


if __name__ == "__main__":
    scripted.unittest.main()
