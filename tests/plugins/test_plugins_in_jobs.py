# SPDX-License-Identifier: Apache-2.0
"""Plugins that were built outside of BytePS, at work in whole jobs: a second reducer and two stages."""

import os
import shutil
import sys
import tempfile
import unittest

import modules

sys.path.insert(0, os.path.join(modules.TOP, "tests", "jobs"))

import harness  # noqa: E402  (it lies in the folder that was just added)

SUM_JOB = os.path.join(os.environ.get("top_builddir", "."), "tests", "plugins", "sum_job")


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.program()
        cls.dir = tempfile.mkdtemp(prefix="byteps-plugins-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.path = os.pathsep.join(filter(None, [cls.dir, os.environ.get("BYTEPS_PLUGIN_PATH")]))

    def run_job(self, values, conf="", servers=1, options=(), **env):
        """One worker for each of `values`, with `conf` as its configuration file."""
        file = os.path.join(self.dir, "byteps.conf")
        with open(file, "w", encoding="utf-8") as out:
            out.write(conf)
        return harness.run([SUM_JOB, *values], workers=len(values), servers=servers,
                           options=["--conf", file, *options], env=dict(env, BYTEPS_PLUGIN_PATH=self.path))

    def check_sum(self, result, want, workers=2):
        self.assertEqual(result.status, 0, result)
        for rank in range(workers):
            self.assertEqual(result.lines(f"worker {rank}"), [f"sum: {want}"], result)

    def check_error(self, result, *parts, workers=2):
        """Every worker fails and says all of this."""
        self.assertNotEqual(result.status, 0, result)
        for rank in range(workers):
            text = "\n".join(result.lines(f"worker {rank}"))
            self.assertTrue(text.startswith("error: "), result)
            for part in parts:
                self.assertIn(part, text)


class SecondReducer(Case):
    """Replacing the reducer is one line of byteps.conf."""

    LINE = 'reducers = { sum = { plugin = "slow"; }; };\n'
    LOG = 'log = { level = "info"; };\n'
    MARK = "the slow reducer is at work"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules.build_slow_reducer(cls.dir)

    def test_without_the_line(self):
        result = self.run_job(["1 2", "10 20"], self.LOG)
        self.check_sum(result, "11 22")
        self.assertNotIn(self.MARK, result.err)

    def test_with_the_line(self):
        result = self.run_job(["1 2", "10 20"], self.LOG + self.LINE)
        self.check_sum(result, "11 22")
        self.assertTrue(any(self.MARK in line for line in result.lines("server 0", "err")), result)

    def test_server_in_the_first_worker(self):
        result = self.run_job(["1 2", "10 20"], self.LOG + self.LINE, servers=0)
        self.check_sum(result, "11 22")
        self.assertTrue(any(self.MARK in line for line in result.lines("worker 0", "err")), result)

    def test_preference(self):
        """What the first of a list cannot sum, the next one does."""
        conf = self.LOG + 'reducers = { fast = { plugin = "slow"; }; };\nserver = { use = [ "fast", "sum" ]; };\n'
        program = (
            "import numpy as np, byteps.numpy as bps; bps.init(); "
            "[print(bps.push_pull(np.full(2, 1.5, t), False).tolist()) for t in ('float32', 'float16', 'bool')]"
        )
        file = os.path.join(self.dir, "byteps.conf")
        with open(file, "w", encoding="utf-8") as out:
            out.write(conf)
        for workers, servers in ((2, 1), (1, 0)):
            result = harness.run([harness.python(), "-c", program], workers=workers, servers=servers,
                                 options=["--conf", file], env={"BYTEPS_PLUGIN_PATH": self.path})
            self.assertEqual(result.status, 0, result)
            each = [str(2 * [1.5 * workers])] * 2 + ["[True, True]"]
            self.assertEqual(result.lines("worker 0"), each, result)

    def test_misspelt(self):
        result = self.run_job(["1", "2"], "\n" + self.LINE.replace("slow", "slwo"))
        self.assertNotEqual(result.status, 0, result)
        reason = "byteps.conf:2: reducers.sum: there is no reducer 'slwo'; did you mean 'slow'? no file reducer_slwo.so"
        self.assertIn(reason, result.out + result.err)


class OnlyWhatIsNamed(Case):
    """A plugin that lies in the directory, but that no configuration names, is not opened."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.marker = os.path.join(cls.dir, "marker")
        modules.build(os.path.join(modules.HERE, "crafted.c"), os.path.join(cls.dir, "stage_crafted.so"))

    def test_not_opened(self):
        self.check_sum(self.run_job(["1", "2"], CRAFTED_MARKER=self.marker), "3")
        self.assertFalse(os.path.exists(self.marker))

    def test_opened_when_named(self):
        graph = 'worker = { graph = ( { stage = "crafted"; }, { stage = "push_pull"; use = "net"; } ); };\n'
        result = self.run_job(["1", "2"], graph, CRAFTED_MARKER=self.marker)
        fault = "stage crafted (worker.graph[0]), open: *instance_out was not set; expected a pointer, or NULL"
        self.assertIn(fault, result.out + result.err)
        self.assertTrue(os.path.exists(self.marker), "no marker, so the other test proves nothing")
        os.unlink(self.marker)


class Versions(Case):
    """Worker 1 has another version of a plugin than all others: the job is refused, with both values and both files."""

    WORKER_1 = 'test "$BYTEPS_LOCAL_RANK" != 1 || eval "export $0"; exec "$@"'
    PUSH = '{ stage = "push_pull"; use = "net"; }'
    STAGE = 'worker = { graph = ( { stage = "returns"; }, ' + PUSH + " ); };\n"
    CODED = (
        'compressors = { c = { plugin = "returns"; }; };\n'
        'worker = { hierarchy = "off"; graph = ( { stage = "compress"; use = "c"; }, ' + PUSH + " ); };\n"
    )
    REDUCER = 'reducers = { sum = { plugin = "slow"; }; };\n'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules.build_slow_reducer(cls.dir)
        for folder, defines in (("", {}), ("version", {"VERSION": '"0.2.0"'}), ("format", {"FORMAT": 1})):
            os.makedirs(os.path.join(cls.dir, folder), exist_ok=True)
            file = os.path.join(cls.dir, folder, "stage_returns.so")
            modules.build(os.path.join(modules.HERE, "returns.c"), file, defines)
            os.symlink(file, os.path.join(cls.dir, folder, "compressor_returns.so"))

    def run_with(self, conf, setting, **env):
        file = os.path.join(self.dir, "byteps.conf")
        with open(file, "w", encoding="utf-8") as out:
            out.write(conf)
        command = ["sh", "-c", self.WORKER_1, setting, SUM_JOB, "1", "2"]
        return harness.run(command, workers=2, servers=1, options=["--conf", file],
                           env=dict(env, BYTEPS_PLUGIN_PATH=self.path))

    def test_refused(self):
        for conf, plugin, folder, value in (
            (self.STAGE, "stage", "version", "0.2.0 format 0"),
            (self.CODED, "compressor", "format", "0.1.0 format 1"),
        ):
            with self.subTest(plugin):
                other = os.path.join(self.dir, folder)
                result = self.run_with(conf, f"BYTEPS_PLUGIN_PATH={other}:{self.path}")
                self.assertNotEqual(result.status, 0, result)
                self.assertNotIn("sum:", result.out)
                for text in (
                    f"the versions differ: {plugin} returns is ",
                    "0.1.0 format 0 on host ",
                    f" ({self.dir}/{plugin}_returns.so)",
                    f"{value} on host ",
                    f" ({other}/{plugin}_returns.so)",
                ):
                    self.assertIn(text, result.out + result.err)

    def test_a_compressor_that_only_a_tensor_names(self):
        """It is loaded when the tensor is declared, long after the members have compared what they run."""
        other = os.path.join(self.dir, "format")
        setting = f"BYTEPS_PLUGIN_PATH={other}:{self.path}"
        coding = {"CODING": "plugin=returns", "BYTEPS_SET": "worker.hierarchy=off"}
        self.check_sum(self.run_with("", "NONE=1", **coding), "3")
        self.check_error(self.run_with("", setting, **coding), "0.1.0 format 0", "0.1.0 format 1")
        everybody = ["sh", "-c", f"export {setting}; exec \"$@\"", "sh", SUM_JOB, "1", "2"]
        result = harness.run(everybody, workers=2, servers=1, env=dict(coding, BYTEPS_PLUGIN_PATH=self.path))
        self.check_error(result, "the versions differ: compressor returns was requested in version 0.1.0 format 1, but "
                                 f"is version 0.1.0 format 0 here ({self.dir}/compressor_returns.so)")

    def test_another_reducer_may_sum_elsewhere(self):
        self.check_sum(self.run_with(self.REDUCER, 'BYTEPS_SET="$BYTEPS_SET\nreducers.sum.plugin=cpu"'), "3")


class Clip(Case):
    """The example stage that changes the data."""

    GRAPH = 'worker = { graph = ( { stage = "clip"; %s }, { stage = "push_pull"; use = "net"; } ); };\n'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules.build_example("clip", cls.dir)

    def test_limits_what_is_pushed(self):
        result = self.run_job(["3 -7 0.25 nan", "0.5 -inf 0.25 1"], self.GRAPH % "limit = 0.5;")
        self.check_sum(result, "1 -1 0.5 nan")

    def test_default_limit(self):
        self.check_sum(self.run_job(["3 -7 0.25", "0 0 0"], self.GRAPH % ""), "1 -1 0.25")

    def test_condition_leaves_it_out(self):
        result = self.run_job(["3 -7", "0 0"], self.GRAPH % 'when = "dtype == float64";')
        self.check_sum(result, "3 -7")

    def test_condition_with_parentheses(self):
        when = """when = "(dtype == float64 or name ~ '*') and not op == max";"""
        self.check_sum(self.run_job(["3 -7", "0 0"], self.GRAPH % when), "1 -1")

    def test_limit_out_of_range(self):
        result = self.run_job(["3", "4"], self.GRAPH % "limit = 0.0;")
        self.assertNotEqual(result.status, 0, result)
        self.assertIn("limit", result.out + result.err)
        self.assertIn("expected 1e-30..1e30", result.out + result.err)

    def test_unknown_option(self):
        result = self.run_job(["3", "4"], self.GRAPH % "limt = 1.0;")
        self.assertNotEqual(result.status, 0, result)
        self.assertIn("limt", result.out + result.err)
        self.assertIn("did you mean", result.out + result.err)


class NanGuard(Case):
    """The example stage that only looks, and fails."""

    GRAPH = 'worker = { graph = ( { stage = "nanguard"; }, { stage = "push_pull"; use = "net"; } ); };\n'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules.build_example("nanguard", cls.dir)

    def test_lets_numbers_pass(self):
        self.check_sum(self.run_job(["1 inf", "2 -1"], self.GRAPH), "3 inf")

    def test_fails_everywhere(self):
        result = self.run_job(["1 2 3", "1 2 nan"], self.GRAPH)
        self.check_error(result, "nanguard", "element 2 of values is NaN")

    def test_behind_push_pull(self):
        graph = 'worker = { graph = ( { stage = "push_pull"; use = "net"; }, { stage = "nanguard"; } ); };\n'
        result = self.run_job(["1 inf", "2 -inf"], graph)
        self.check_error(result, "element 1 of values is NaN")


class Later(Case):
    """A stage that answers later, from a timer, while others go on."""

    GRAPH = 'worker = { partition = "64"; slice = "64"; %s; graph = ( %s{ stage = "later"; %s }, %s ); };\n'
    PUSH = '{ stage = "push_pull"; use = "net"; }'
    GROUP = f'{{ stage = "local_reduce"; }}, {PUSH}, {{ stage = "local_broadcast"; }}'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules.build(os.path.join(modules.HERE, "stage_later.c"), os.path.join(cls.dir, "stage_later.so"))

    def graph(self, options="", before="", behind=PUSH, hierarchy="auto"):
        return self.GRAPH % (f'hierarchy = "{hierarchy}"', before, options, behind)

    def test_goes_on_when_it_answers(self):
        """Four partitions, in every place of the graph."""
        values = [" ".join(str(i) for i in range(60)), "1 " * 60]
        want = " ".join(str(-i - 1) for i in range(60))
        reduce = '{ stage = "local_reduce"; }, '
        for servers in (0, 1):
            for conf in (
                self.graph(),
                self.graph(behind=self.GROUP),
                self.graph(before=reduce, behind=f'{self.PUSH}, {{ stage = "local_broadcast"; }}'),
                self.graph(before=self.PUSH + ", ", behind='{ stage = "later"; delay = "0 s"; }, { stage = "later"; }'),
            ):
                with self.subTest(servers=servers, conf=conf):
                    self.check_sum(self.run_job(values, conf, servers=servers), want)

    def test_one_worker_alone(self):
        self.check_sum(self.run_job(["1 2 3 4 5"], self.graph(), servers=0), "-1 -2 -3 -4 -5", workers=1)

    def test_a_late_error(self):
        for servers in (0, 1):
            result = self.run_job(["1 2 3", "1 2 3"], self.graph("limit = 2;"), servers=servers)
            self.check_error(result, "stage later: there are too many elements")

    def test_the_job_fails_meanwhile(self):
        """It is asked to give the tasks back, and the job ends long before they would have been answered."""
        conf = self.graph('delay = "1 h";') + 'log = { level = "info"; };\n'
        result = self.run_job(["1 " * 20, "kill"], conf)
        self.assertNotEqual(result.status, 0, result)
        self.assertEqual("\n".join(result.lines("worker 0", "err")).count("a task is given back"), 2, result)


class Told(Case):
    """What the log says of single plugins."""

    GRAPH = 'worker = { graph = ( { stage = "clip"; }, { stage = "push_pull"; use = "net"; } ); };\n'
    LOG = 'log = { level = "%s"; %s };\n'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules.build_example("clip", cls.dir)
        modules.build_slow_reducer(cls.dir)

    def worker(self, level, more, reducer="cpu"):
        conf = self.GRAPH + self.LOG % (level, more) + f'reducers = {{ sum = {{ plugin = "{reducer}"; }}; }};\n'
        result = self.run_job(["1 2", "3 4"], conf)
        self.assertEqual(result.status, 0, result)
        return result, "\n".join(result.lines("worker 0", "err"))

    def test_calls(self):
        result, text = self.worker("info", 'calls = [ "clip", "sum" ];')
        times = r": [0-9]+\.[0-9]{3} us"
        for line in (
            rf"calls: plugin clip \(worker\.graph\[0\]\), open{times}, returned 0",
            rf"calls: plugin clip \(worker\.graph\[0\]\), query{times}$",
            rf"calls: plugin clip \(worker\.graph\[0\]\), run, of tensor 'values'{times}, returned 0",
            rf"calls: plugin clip \(worker\.graph\[0\]\), close{times}$",
        ):
            self.assertRegex(text, "(?m)" + line)
        self.assertNotIn("plugin tcp", text)
        self.assertRegex("\n".join(result.lines("server 0", "err")),
                         rf"calls: plugin cpu \(reducers\.sum\), kernels{times}, returned 0")
        self.assertNotIn("calls: ", self.worker("info", "")[1])

    def test_level_of_one(self):
        for name in ("slow", "sum", "reducers.sum"):
            result, text = self.worker("warn", f'levels = [ "{name}=info" ];', "slow")
            self.assertIn("reducers.sum (slow): the slow reducer is at work", result.err)
            self.assertNotIn(" counters: ", text)
        self.assertNotIn("at work", self.worker("info", 'levels = [ "slow=warn" ];', "slow")[0].err)

    def test_wrong_level(self):
        result = self.run_job(["1"], self.LOG % ("warn", 'levels = [ "net=loud" ];'))
        self.assertIn("byteps.conf:1: log.levels: ", result.out + result.err)
        self.assertIn("'net=loud' is not NAME=LEVEL; expected", result.out + result.err)

    def test_counters(self):
        self.assertRegex(self.worker("info", "")[1], r"transports\.net \(tcp\): counters: .*bytes_sent [1-9]")
        self.assertNotIn("counters: ", self.worker("warn", "")[1])


class WrongValues(Case):
    """A callback returns what it may not: that fails the tensor on all workers, and says whose fault it is."""

    PUSH = '{ stage = "push_pull"; use = "net"; }'
    STAGE = 'worker = { graph = ( { stage = "returns"; at = "%s"; value = %d; }, ' + PUSH + " ); };\n"
    REDUCER = 'reducers = { sum = { plugin = "returns"; value = %d; }; };\nworker = { hierarchy = "%s"; };\n'
    CODED = (
        'compressors = { bad = { plugin = "returns"; at = "%s"; value = %d; first = %g; feedback = %s; }; };\n'
        'worker = { hierarchy = "off"; slice = "%s"; threads = 2; graph = ( { stage = "compress"; use = "bad"; }, '
        + PUSH
        + " ); };\n"
    )
    ALLOWED = "allowed are BPS_OK%s and BPS_ERR_*"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        file = modules.build(os.path.join(modules.HERE, "returns.c"), os.path.join(cls.dir, "reducer_returns.so"))
        for kind in ("compressor", "stage"):
            os.symlink(file, os.path.join(cls.dir, f"{kind}_returns.so"))

    def test_reducer(self):
        for value, hierarchy, who in ((1, "off", "the server's"), (2, "auto", "worker "), (-99, "auto", "worker ")):
            with self.subTest(value=value, hierarchy=hierarchy):
                result = self.run_job(["1 2", "3 4"], self.REDUCER % (value, hierarchy))
                fault = f"reducer returns (reducers.sum), kernels: returned {value}; {self.ALLOWED % ''}"
                self.check_error(result, "tensor 'values': ", who, fault)

    def test_reducer_of_one_worker_alone(self):
        result = self.run_job(["1 2"], self.REDUCER % (2, "auto"), servers=0)
        self.check_error(result, "reducer returns (reducers.sum), kernels: returned 2", workers=1)

    def test_kernels_that_are_not_there(self):
        result = self.run_job(["1 2", "3 4"], self.REDUCER % (0, "off"))
        self.check_error(result, "reducer returns (reducers.sum), kernels of sum of float32: reduce is NULL; expected")

    def test_query_of_a_stage(self):
        for at, value, says in (
            ("executor", 5, "executor is 5; allowed are 0 to 1"),
            ("ops", 0, "ops is 0x0; allowed are bits of 0x1f, one at least"),
            ("ops", 65, "ops is 0x41; allowed are bits of 0x1f, one at least"),
        ):
            with self.subTest(at=at, value=value):
                result = self.run_job(["1 2"], self.STAGE % (at, value), servers=0)
                self.assertIn(f"stage returns (worker.graph[0]), query: {says}", result.out + result.err)

    def test_stage(self):
        for at, value, more in (("bind", 7, ", BPS_AGAIN"), ("run", 2, ", BPS_INPROGRESS"), ("done", 1, "")):
            with self.subTest(at=at):
                result = self.run_job(["1 2", "3 4"], self.STAGE % (at, value))
                fault = f"stage returns (worker.graph[0]), {at}: returned {value}; {self.ALLOWED % more}"
                self.check_error(result, "tensor 'values': ", fault)

    def code(self, values, at, value, first, feedback="false", size="256"):
        conf = self.CODED % (at, value, first, feedback, size)
        return self.run_job(values, conf)

    def test_encode(self):
        """Of worker 1, when two of its four slices are out, or of the sum by the server."""
        values = ["1*256", "1*128 7 1*127"]
        by_worker = "tensor 'values': worker 1: compressor returns (compressors.bad), encode: returned "
        by_server = "tensor 'values': the server's compressor returns (coding), encode: returned "
        for value, first, feedback, says in (
            (100, 7, "false", by_worker + "356 bytes, its bound is 256"),
            (-1, 7, "true", by_worker + f"{2**64 - 1} bytes, its bound is 256"),
            (-256, 7, "false", by_worker + "0 bytes, its bound is 256; there must be one at least"),
            (100, 8, "true", by_server + "356 bytes, its bound is 256"),
            (-1, 8, "false", by_server + f"{2**64 - 1} bytes, its bound is 256"),
        ):
            with self.subTest(value=value, first=first):
                self.check_error(self.code(values, "encode", value, first, feedback), says, "the job goes on")

    def test_encode_on_other_threads(self):
        values = ["1*65536", "1*32768 7 1*32767"]
        result = self.code(values, "encode", 100, 7, size="128 KiB")
        self.check_error(result, "worker 1: compressor returns (compressors.bad), encode: ", "its bound is 131072")

    def test_decode_by_the_server(self):
        values = ["1*128 7 1*127", "1*128 6 1*127"]
        by_server = "tensor 'values': the server's compressor returns (coding), %s: returned %d"
        for at, value, first, feedback, says in (
            ("decode", 2, 7, "false", "; " + self.ALLOWED % ""),
            ("decode_add", 1, 6, "false", "; " + self.ALLOWED % ""),
            ("decode_add", 1, 13, "true", " for data that encode produced"),
        ):
            with self.subTest(at=at, first=first):
                self.check_error(self.code(values, at, value, first, feedback), by_server % (at, value) + says)

    def test_decode_by_a_worker(self):
        """That of the sum fails on all workers, that of what was sent on one: the others have the sum."""
        values = ["1*128 7 1*127", "1*256"]
        own = " for data that encode produced"
        for at, value, first, says in (("decode", 1, 8, "; allowed"), ("decode_add", 1, 7, own)):
            with self.subTest(at=at):
                result = self.code(values, at, value, first, "true")
                self.assertNotEqual(result.status, 0, result)
                fault = f"compressor returns (compressors.bad), {at}: returned {value}{says}"
                self.assertIn(fault, "\n".join(result.lines("worker 0")), result)


class Guarded(Case):
    """With --guard one byte beyond a block of the core is the end of the process, which says in what callback."""

    CONF = (
        'compressors = { c = { plugin = "faulty"; }; };\n'
        'worker = { hierarchy = "off"; graph = ( { stage = "compress"; use = "c"; }, { stage = "push_pull"; } ); };\n'
    )

    def run_with(self, fault, *options):
        modules.build(os.path.join(modules.HERE, "compressor_faulty.c"),
                      os.path.join(self.dir, "compressor_faulty.so"), {"FAULT": fault})
        return self.run_job(["1 2", "10 20"], self.CONF, options=options)

    def test_jobs(self):
        for fault, says in (
            ("ENCODE_BEYOND", r"\[worker [01]\] %s \(compressors\.c\), encode, of tensor 'values'$"),
            ("DECODE_BEYOND", r"\[server 0\] %s \(coding\), decode$"),
            ("DECODE_READS_BEYOND", r"\[server 0\] %s \(coding\), decode$"),
        ):
            with self.subTest(fault=fault):
                if fault != "DECODE_READS_BEYOND":  # which adds what it has read
                    self.check_sum(self.run_with(fault), "11 22")
                result = self.run_with(fault, "--guard")
                self.assertNotEqual(result.status, 0, result)
                self.assertRegex(result.err, "(?m)^" + says % "byteps: SIGSEGV in plugin faulty")

    def test_none(self):
        self.check_sum(self.run_with("NONE", "--guard"), "11 22")


if __name__ == "__main__":
    unittest.main()
