# SPDX-License-Identifier: Apache-2.0
"""Callbacks of plugins that do not return, or end the process: whose they are is told, and nothing waits for ever.

The jobs run beside each other, as they mostly wait.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import unittest

import modules

sys.path.insert(0, os.path.join(modules.TOP, "tests", "jobs"))

import harness  # noqa: E402  (it lies in the folder that was just added)

SUM_JOB = os.path.join(os.environ.get("top_builddir", "."), "tests", "plugins", "sum_job")
LIMITS = 'cluster = { stall_warning = "1 s"; stall_timeout = "5 s"; peer_timeout = "4 s"; };\n'
PUSH = '{ stage = "push_pull"; use = "net"; }'


def stage(options):
    return LIMITS + f'worker = {{ graph = ( {{ stage = "stuck"; {options} }}, {PUSH} ); }};\n'


def compressor(options):
    graph = f'( {{ stage = "compress"; use = "c"; }}, {PUSH} )'
    return (
        f'{LIMITS}compressors = {{ c = {{ plugin = "stuck"; {options} }}; }};\n'
        f'worker = {{ hierarchy = "off"; graph = {graph}; }};\n'
    )


def reducer(options):
    return f'{LIMITS}reducers = {{ sum = {{ plugin = "stuck"; {options} }}; }};\nworker = {{ hierarchy = "off"; }};\n'


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.program()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dir = folder.name
        file = modules.build(os.path.join(modules.HERE, "stuck.c"), os.path.join(cls.dir, "stage_stuck.so"))
        for kind in ("compressor", "reducer"):
            os.symlink(file, os.path.join(cls.dir, f"{kind}_stuck.so"))
        cls.path = cls.dir + ":" + os.environ["BYTEPS_PLUGIN_PATH"]

    def write(self, conf):
        number, file = tempfile.mkstemp(suffix=".conf", dir=self.dir)
        with os.fdopen(number, "w", encoding="utf-8") as out:
            out.write(conf)
        return file

    def run_job(self, conf, servers=1):
        return harness.run([SUM_JOB, "1 2", "10 20"], workers=2, servers=servers, options=["--conf", self.write(conf)],
                           env={"BYTEPS_PLUGIN_PATH": self.path})

    def check_all(self, expected):
        """expected: conf -> [(who, pattern)], what each job has to say on standard output or error; of "a worker" where
        the end of the first one may end the others before they come so far."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = dict(zip(expected, pool.map(self.run_job, expected)))
        for conf, wanted in expected.items():
            result = results[conf]
            with self.subTest(conf=conf):
                self.assertNotEqual(result.status, 0, result)
                for who, pattern in wanted:
                    names = ("worker 0", "worker 1") if who == "a worker" else (who,)
                    lines = [line for name in names for line in result.lines(name) + result.lines(name, "err")]
                    self.assertRegex("\n".join(lines), pattern, result)


class Stuck(Case):
    def test_jobs(self):
        run = r"plugin stuck \(worker.graph\[0\]\), run, of tensor 'values', for \d"
        shard = r"server 0 \(.*\) gave up: thread bps-shard \(\d+, sleeping\) has not returned to its event loop from "
        silent = r"tensor 'values' has waited \d.* in stage stuck \(run\), partition 0 of 1"
        open_, close = (rf"has not returned from plugin stuck \(worker.graph\[0\]\), {what}, for \d.*ending the process"
                        for what in ("open", "close"))
        both = ("worker 0", "worker 1")
        self.check_all({
            stage('at = "run";'): [(who, "has not returned to its event loop from " + run) for who in both],
            stage('at = "run"; pool = true;'): [(who, "bps-compute .* has not returned from " + run) for who in both],
            stage('at = "run"; how = "silence";'): [(who, silent) for who in both],
            reducer('at = "fold";'): [(who, shard + r"plugin stuck \(reducers.sum\), fold, for \d") for who in both],
            compressor('at = "decode";'): [(who, shard + r"plugin stuck \(.*\), decode, for \d") for who in both],
            stage('at = "open";'): [(who, open_) for who in both],
            stage('at = "close";'): [(who, close) for who in both],
        })

    def test_check(self):
        """A module that does not come back is told by `byteps conf check`, too."""
        folder = os.path.join(self.dir, "loading")
        os.makedirs(folder)
        file = os.path.join(folder, "stage_stuck.so")
        modules.build(os.path.join(modules.HERE, "stuck.c"), file, {"LOADING": "pause()"})
        result = subprocess.run(
            ["byteps", "conf", "check", self.write(stage('at = "open";'))], capture_output=True, text=True, timeout=60,
            env=dict(os.environ, BYTEPS_PLUGIN_PATH=folder + ":" + os.environ["BYTEPS_PLUGIN_PATH"]))
        self.assertEqual(result.returncode, 1, result)
        self.assertIn(f"has not returned from plugin {file}, loading, for", result.stderr)


class Ends(Case):
    def test_jobs(self):
        self.check_all({
            stage('at = "run"; how = "fault";'):
                [("a worker", r"byteps: SIGSEGV in plugin stuck \(worker.graph\[0\]\), run, of tensor 'values'")],
            stage('at = "run"; how = "fault"; pool = true;'):
                [("a worker", r"byteps: SIGSEGV in plugin stuck \(worker.graph\[0\]\), run, of tensor 'values'")],
            compressor('at = "encode"; how = "abort";'):
                [("a worker", r"byteps: SIGABRT in plugin stuck \(.*\), encode, of tensor 'values'")],
            reducer('at = "fold"; how = "exit";'):
                [("server 0", r"byteps: exit\(\) in plugin stuck \(reducers.sum\), fold")],
            stage('at = "open"; how = "exit";'):
                [("a worker", r"byteps: exit\(\) in plugin stuck \(worker.graph\[0\]\), open")],
        })

    def test_none(self):
        """A job in which nothing is wrong has none of these words."""
        result = self.run_job(stage('at = "decode";'))
        self.assertEqual(result.status, 0, result)
        self.assertIsNone(re.search("byteps: |watchdog", result.out + result.err), result)


if __name__ == "__main__":
    unittest.main()
