# SPDX-License-Identifier: Apache-2.0
"""`byteps conf check`, `show` and `sample`: exit status, every word of the messages, output that is read back."""

import json
import os
import re
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("BYTEPS_PROGRAM")
HERE = os.path.dirname(os.path.abspath(__file__))
BAD = os.path.join(HERE, "bad")
MANUAL = os.path.join(HERE, "..", "..", "man", "byteps.conf.5")


def setUpModule():
    if not PROGRAM:
        raise unittest.SkipTest("BYTEPS_PROGRAM is not set: run the tests by 'make check' or ./byteps-env")


def uncommented(sample):
    """A sample with all its defaults in force."""
    return re.sub(r"^(\s*)#(\S)", r"\1\2", sample, flags=re.MULTILINE)


def without_read(out):
    """What `conf check` prints, without the line of what it has read."""
    return re.sub(r"(?m)^read: .*\n", "", out)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="byteps-conf-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def conf(self, *args, cwd=None, text=None, **variables):
        """Runs `byteps conf ARGS`."""
        environment = dict(os.environ, LC_ALL="C", **variables)
        return subprocess.run(
            [PROGRAM, "conf", *args], env=environment, cwd=cwd or self.folder, input=text, capture_output=True,
            text=True, timeout=120, check=False,
        )

    def write(self, text, name="a.conf"):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def good(self, *args, **more):
        """The standard output of a command that must succeed."""
        result = self.conf(*args, **more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def plugins(self, **variables):
        """The plugins that are found, "KIND NAME" each."""
        environment = dict(os.environ, LC_ALL="C", **variables)
        out = subprocess.run([PROGRAM, "plugin", "list"], env=environment, capture_output=True, text=True,
                             timeout=120, check=True).stdout
        return {" ".join(line.split()[:2]) for line in out.splitlines()}

    def bad(self, message, *args, status=1, **more):
        result = self.conf(*args, **more)
        self.assertEqual((result.returncode, result.stderr), (status, message))
        self.assertRegex(result.stdout, "^read: .*\n$" if "check" in args and status == 1 else "^$")

    def well(self, file, *args, **more):
        """`conf check` finds nothing wrong, and says what it has read."""
        self.assertRegex(self.good("check", *args, **more), rf"^read: .*\n{re.escape(file)}: ok\n$")


class Check(Case):
    def test_nothing(self):
        self.well("configuration")

    def test_file(self):
        self.write("worker = { threads = 2; };\n")
        self.well("a.conf", "a.conf")
        self.well("a.conf", "--conf", "a.conf")
        self.well("a.conf", BYTEPS_CONF="a.conf")

    def test_a_job_whose_scheduler_comes_from_byteps_run(self):
        self.write("cluster = { workers = 4; servers = 2; };\n")
        self.well("a.conf", "a.conf")

    def test_golden_files(self):
        names = sorted(name[:-5] for name in os.listdir(BAD) if name.endswith(".conf"))
        self.assertGreater(len(names), 70)
        for name in names:
            if name.startswith("no_scheduler"):
                continue
            with self.subTest(name), open(os.path.join(BAD, name + ".expected"), encoding="utf-8") as file:
                self.bad(file.read(), "check", name + ".conf", cwd=BAD)

    def test_every_problem_is_told(self):
        self.write("worker = { partiton = 3; };\nlog = { level = 5; };\n")
        self.bad(
            "a.conf:1: worker.partiton: unknown key; did you mean worker.partition?\n"
            "--set: server.shards = \"x\": not a whole number; expected 0..256\n"
            "a.conf:2: log.level = 5: unknown word; expected error, warn, info, debug or trace\n",
            "check", "a.conf", "--set", "server.shards=x",
        )

    def test_every_option_of_a_plugin_is_told(self):
        options = (
            "a.conf:3: transports.net.strems: unknown key; did you mean transports.net.streams?\n"
            "a.conf:4: transports.net.famly: unknown key; did you mean transports.net.family?\n"
            "a.conf:5: transports.net.multipath = 3: not a boolean; expected true or false\n"
        )
        text = "transports = {\n  net = {\n    strems = 2;\n    famly = 4;\n    multipath = 3;\n  };\n};\n"
        self.write(text)
        self.bad(options, "check", "a.conf")
        self.write(text + "wroker = { };\nworker = { partiton = 3; };\n")
        self.bad(
            "a.conf:9: worker.partiton: unknown key; did you mean worker.partition?\n"
            "a.conf:8: wroker: unknown section; did you mean worker?\n" + options,
            "check", "a.conf",
        )
        self.assertEqual(self.conf("show", "a.conf").returncode, 1)

    def test_missing_file(self):
        self.bad("b.conf: cannot be opened: No such file or directory\n", "check", "b.conf")

    def test_standard_input(self):
        self.well("/dev/stdin", "/dev/stdin", text="worker = { threads = 2; };\n")
        self.bad("/dev/stdin:1: worker.thread: unknown key; did you mean worker.threads?\n", "check", "/dev/stdin",
                 text="worker = { thread = 2; };\n")

    def test_plugin_options(self):
        self.write("transports = {\n    net = {\n        streams = 99;\n    };\n};\n")
        self.bad("a.conf:3: transports.net.streams = 99: out of range; expected 1..16\n", "check", "a.conf")
        self.write("transports = {\n    net = {\n        stream = 9;\n    };\n};\n")
        self.bad("a.conf:3: transports.net.stream: unknown key; did you mean transports.net.streams?\n", "check",
                 "a.conf")

    def test_missing_plugin(self):
        result = self.conf("check", "--set", "transports.net.plugin=tcpp")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^--set: transports\.net: .*'tcpp'.*'tcp'")
        result = self.conf("check", "--set", "transports.net.plugin=tpc")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^--set: transports\.net: .*'tpc'; did you mean 'tcp'\?")

    def test_missing_stage(self):
        result = self.conf("check", "--set", 'worker.graph=({stage="nowhere";},{stage="push_pull";})')
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^--set: worker\.graph\[0\]: .*'nowhere'")

    def test_graph(self):
        pairs = "expected none, or local_reduce once before push_pull and local_broadcast once after it"
        for stages, message in (
            ("", "worker.graph has 0 stages push_pull; expected exactly one"),
            ('{stage="push_pull";},{stage="push_pull";}', "worker.graph has 2 stages push_pull; expected exactly one"),
            ('{stage="local_reduce";},{stage="push_pull";}',
             f"worker.graph has 1 stages local_reduce and 0 local_broadcast; {pairs}"),
            ('{stage="local_broadcast";},{stage="push_pull";},{stage="local_reduce";}',
             f"worker.graph has 1 stages local_reduce and 1 local_broadcast, in the wrong order; {pairs}"),
            ('{stage="push_pull"; limit=3;}',
             "worker.graph[0].limit: stage push_pull does not take it; expected stage, use, mode and when"),
            ('{stage="local_reduce"; use="shm";},{stage="push_pull";},{stage="local_broadcast";}',
             'worker.graph[0].use = "shm": transports has no such member; add it there'),
        ):
            with self.subTest(stages):
                result = self.conf("check", "--set", f"worker.graph=({stages})")
                self.assertEqual((result.returncode, without_read(result.stdout)), (1, ""))
                self.assertEqual(result.stderr.rpartition(": " + message)[1:], (": " + message, "\n"))

    def test_hierarchy_without_its_transport(self):
        """It fails where it was asked for; else it is told, and only if anything would use it."""
        absent = ("check", "--set", "transports.local.plugin=nowhere")
        reason = r"--set: transports\.local: there is no transport 'nowhere'.*\n"
        result = self.conf(*absent)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, f"^note: {reason}note: workers of one host would not sum among themselves "
                                        "first: no transport for it is usable\nread: --set\nconfiguration: ok\n$")
        result = self.conf(*absent, "--set", "worker.hierarchy=on")
        self.assertEqual((result.returncode, without_read(result.stdout)), (1, ""))
        self.assertRegex(result.stderr, f"^{reason}$")
        for unused in ("worker.hierarchy=off", 'worker.graph=({stage="push_pull";})'):
            with self.subTest(unused):
                result = self.conf(*absent, "--set", unused)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertRegex(result.stdout, f"^note: {reason}note: workers would reach the servers of their own "
                                                "host through the network: no transport for it is usable\n")
                result = self.conf(*absent, "--set", unused, "--set", "server.local=false")
                self.assertEqual((result.returncode, without_read(result.stdout)), (1, ""))  # somebody wrote it
                self.assertRegex(result.stderr, f"^{reason}$")

    def test_default_transport_that_is_not_installed(self):
        """Nobody has asked for it; it is missed only where the hierarchy has to be on."""
        with tempfile.TemporaryDirectory(prefix="byteps-path-") as path:
            for plugin in ("transport_tcp", "reducer_cpu"):
                found = next((os.path.join(folder, plugin + ".so")
                              for folder in os.environ.get("BYTEPS_PLUGIN_PATH", "").split(":")
                              if os.path.exists(os.path.join(folder, plugin + ".so"))), None)
                if found is None:
                    self.skipTest(f"{plugin} is no file in BYTEPS_PLUGIN_PATH")
                os.symlink(found, os.path.join(path, plugin + ".so"))
            here = {"BYTEPS_PLUGIN_PATH": path}
            if "transport ipc" in self.plugins(**here):
                self.skipTest("the transport ipc is installed or built in")
            self.assertIn("no transport for it is usable", self.good("check", **here))
            for unused in ("worker.hierarchy=off", 'worker.graph=({stage="push_pull";})'):
                here_only = ("--set", unused, "--set", "server.local=false")
                self.well("configuration", *here_only, **here)
            result = self.conf("check", "--set", "worker.hierarchy=on", **here)
            self.assertEqual((result.returncode, without_read(result.stdout)), (1, ""))
            self.assertRegex(result.stderr, r"^default: transports\.local: there is no transport 'ipc'")

    def test_rdma_that_is_not_installed(self):
        """The variable of the original is named as what asks for the plugin."""
        with tempfile.TemporaryDirectory(prefix="byteps-path-") as path:
            here = {"BYTEPS_PLUGIN_PATH": path, "DMLC_ENABLE_RDMA": "1"}
            if "transport verbs" in self.plugins(**here):
                self.skipTest("the transport verbs is installed or built in")
            result = self.conf("check", **here)
            self.assertEqual(result.returncode, 1)
            self.assertIn("DMLC_ENABLE_RDMA: transports.net: there is no transport 'verbs'", result.stderr)

    def test_wrong_option_of_the_local_transport(self):
        for hierarchy in ("auto", "on", "off"):
            self.bad("--set: transports.local.areena: unknown key; did you mean transports.local.arena?\n", "check",
                     "--set", "transports.local.areena=3", "--set", f"worker.hierarchy={hierarchy}")

    def test_alternatives_of_the_local_transport(self):
        self.write('transports = { fast = { plugin = "nowhere"; }; };\n'
                   'worker = { hierarchy = "on"; graph = ( { stage = "local_reduce"; use = [ "fast", "local" ]; },\n'
                   '    { stage = "push_pull"; }, { stage = "local_broadcast"; } ); };\n')
        self.assertRegex(self.good("check", "a.conf"),
                         r"^note: a\.conf:1: transports\.fast: .*'nowhere'.*\nread: a\.conf\na\.conf: ok\n$")
        result = self.conf("check", "a.conf", "--set", "transports.local.plugin=nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "a.conf:2: none of the transports to use is usable\n")

    def test_alternatives(self):
        self.write('transports = { fast = { plugin = "nowhere"; }; };\n'
                   'worker = { graph = ( { stage = "push_pull"; use = [ "fast", "net" ]; } ); };\n')
        out = self.good("check", "a.conf")
        self.assertRegex(out, r"^note: a\.conf:1: transports\.fast: .*'nowhere'.*\nread: a\.conf\na\.conf: ok\n$")
        result = self.conf("check", "a.conf", "--set", "transports.net.plugin=nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "a.conf:2: none of the transports to use is usable\n")

    def test_what_was_read(self):
        """In its order, what is stronger later; what could not be read is not there."""
        self.write("worker = { threads = 2; };\n", "b.conf")
        self.write('@include "b.conf"\n')
        read = "read: a.conf, b.conf, DMLC_NUM_SERVER, BYTEPS_SET, --set\n"
        settings = {"BYTEPS_SET": "worker.threads=3", "DMLC_NUM_SERVER": "1"}
        self.assertEqual(self.good("check", "a.conf", "--set", "worker.threads=4", "--set", "server.shards=1",
                                   **settings), read + "a.conf: ok\n")
        self.assertEqual(self.conf("check", "a.conf", "--set", "worker.threads=x", **settings).stdout, read)
        self.assertEqual(self.conf("check", "c.conf").stdout, "read: no file, so that all values are defaults\n")

    def findings(self, *args, status, **variables):
        """The JSON of `conf check`, with nothing beside it."""
        result = self.conf("check", "--json", *args, **variables)
        self.assertEqual((result.returncode, result.stderr), (status, ""))
        found = json.loads(result.stdout)
        self.assertEqual(sorted(found), ["errors", "files", "ok", "settings", "warnings"])
        return found

    def test_errors_as_json(self):
        self.write("worker = { partiton = 3; };\ntransports = { net = { streams = 99; }; };\n")
        found = self.findings("a.conf", "--set", "server.shards=x", status=1)
        self.assertEqual((found["ok"], found["files"], found["settings"]), (False, ["a.conf"], ["--set"]))
        self.assertEqual([(one["file"], one["line"], one["key"]) for one in found["errors"]], [
            ("a.conf", 1, "worker.partiton"),
            (None, None, "server.shards"),
            ("a.conf", 2, "transports.net.streams"),
        ])
        self.assertEqual(found["errors"][0]["text"],
                         "a.conf:1: worker.partiton: unknown key; did you mean worker.partition?")
        self.write("worker = {\n")
        (error,) = self.findings("a.conf", status=1)["errors"]
        self.assertEqual((error["file"], error["line"], error["key"]), ("a.conf", 1, None))
        (error,) = self.findings(BYTEPS_CONF="b.conf", status=1)["errors"]
        self.assertEqual(error, {"file": "b.conf", "line": None, "key": None,
                                 "text": "b.conf: cannot be opened: No such file or directory"})

    def test_notes_as_json(self):
        found = self.findings(DMLC_NUM_SERVERS="3", status=0)
        self.assertTrue(found["ok"])
        self.assertEqual((found["files"], found["settings"], found["errors"]), ([], [], []))
        self.assertRegex(found["warnings"][-1], "^DMLC_NUM_SERVERS is set, but is not a known variable")

    def test_variables_without_effect(self):
        out = self.good("check", BYTEPS_NCCL_NUM_RINGS="2", DMLC_NUM_SERVERS="3")
        self.assertEqual(out, "note: BYTEPS_NCCL_NUM_RINGS is set, but has no effect\n"
                              "note: DMLC_NUM_SERVERS is set, but is not a known variable; "
                              "did you mean DMLC_NUM_SERVER?\n"
                              "read: no file, so that all values are defaults\nconfiguration: ok\n")


class Show(Case):
    RICH = (
        'cluster = { workers = 2; scheduler = "[fd00::1]:9000"; rank = 1; peer_timeout = "90 s"; job = "a.b"; '
        '};\n'
        'worker = { partition = 4096000; slice = "64 KiB";\n'
        '    graph = ( { stage = "clip"; limit = 1.5; when = "bytes >= 64 KiB"; },\n'
        '              { stage = "push_pull"; use = "net"; } ); };\n'
        'server = { order = "rank"; use = [ "sum", "other" ]; };\n'
        'transports = { net = { streams = 4; interface = [ "a", "b" ]; congestion = "x\\"y\\\\\\x01"; }; };\n'
        'reducers = { other = { plugin = "cpu"; }; };\n'
    )

    def test_defaults_are_read_back(self):
        shown = self.good("show")
        self.assertIn('    partition = "4 MiB";\n', shown)
        self.write(shown)
        self.assertEqual(self.good("show", "a.conf"), shown)

    def test_values_are_read_back(self):
        self.write(self.RICH)
        shown = self.good("show", "a.conf")
        for line in ('    partition = "4000 KiB";', '    peer_timeout = "90 s";', '    use = ( "sum", "other" );',
                     '        { stage = "clip"; limit = "1.5"; when = "bytes >= 64 KiB"; },',
                     '        congestion = "x\\"y\\\\\\x01";', '        interface = ( "a", "b" );'):
            self.assertIn(line + "\n", shown)
        self.write(shown, "b.conf")
        self.assertEqual(self.good("show", "b.conf"), shown)
        self.write(self.good("show", "a.conf", "--origin"), "c.conf")
        self.assertEqual(self.good("show", "c.conf"), shown)
        self.assertEqual(self.good("show", "/dev/stdin", text=shown), shown)

    def test_origins(self):
        self.write("worker = {\n    threads = 2; };\n")
        shown = self.good("show", "a.conf", "--origin", "--set", "server.shards=3", DMLC_NUM_WORKER="1",
                          BYTEPS_SET="log.level=info\n")
        for pattern in (r"threads = 2; +# a\.conf:2", r"shards = 3; +# --set", r"workers = 1; +# DMLC_NUM_WORKER",
                        r'level = "info"; +# BYTEPS_SET', r'slice = "48 KiB"; +# default'):
            self.assertRegex(shown, pattern)

    def test_json(self):
        self.write(self.RICH)
        shown = json.loads(self.good("show", "--json", "a.conf", BYTEPS_ENABLE_IPC="1"))
        self.assertEqual(sorted(shown), ["configuration", "notes", "origins"])
        values = shown["configuration"]
        self.assertEqual(values["worker"]["partition"], 4096000)
        self.assertEqual(values["cluster"]["peer_timeout"], 90)
        self.assertEqual(values["cluster"]["stay"], False)
        self.assertEqual(values["cluster"]["role"], "worker")
        self.assertEqual(values["server"]["use"], ["sum", "other"])
        self.assertEqual(values["worker"]["graph"][0]["stage"], "clip")
        self.assertEqual(values["transports"]["net"]["streams"], 4)
        self.assertEqual(values["transports"]["net"]["congestion"], 'x"y\\\x01')
        self.assertEqual(shown["origins"]["worker.partition"], "a.conf:2")
        self.assertEqual(shown["origins"]["worker.threads"], "default")
        self.assertEqual(shown["origins"]["transports.net.plugin"], "default")
        self.assertEqual(shown["notes"], ["BYTEPS_ENABLE_IPC is set, but has no effect"])

    def test_errors(self):
        self.bad('DMLC_NUM_WORKER = "abc": not a whole number; expected 1..65536\n', "show", DMLC_NUM_WORKER="abc")


class Sample(Case):
    def test_sample_is_valid(self):
        self.write(self.good("sample"))
        self.well("a.conf", "a.conf")
        self.assertEqual(self.good("show", "a.conf"), self.good("show"))

    def test_defaults_of_the_sample_are_valid(self):
        sample = self.good("sample")
        self.assertIn("#streams = ", sample)
        self.write(uncommented(sample))
        self.well("a.conf", "a.conf")
        plain, shown = (json.loads(self.good("show", "--json", *file))["configuration"] for file in ([], ["a.conf"]))
        for section in ("cluster", "worker", "server", "affinity", "log"):
            self.assertEqual(shown[section], plain[section])
        self.assertEqual(shown["transports"]["net"]["streams"], 1)

    def test_lines_are_of_readable_length(self):
        for line in self.good("sample").splitlines():
            self.assertLessEqual(len(line), 110)

    def test_manual_has_every_key(self):
        with open(MANUAL, encoding="utf-8") as file:
            manual = file.read()
        values = json.loads(self.good("show", "--json"))["configuration"]
        for section in ("cluster", "worker", "server", "affinity", "log"):
            for key in values[section]:
                self.assertRegex(manual, rf"(?m)^\.B {section}\.{key}$")


class Graph(Case):
    """`byteps graph`: the built-in stages and what they use."""

    def graph(self, *args, **variables):
        environment = dict(os.environ, LC_ALL="C", **variables)
        result = subprocess.run([PROGRAM, "graph", *args], env=environment, cwd=self.folder, capture_output=True,
                                text=True, timeout=120, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""), args)
        return result.stdout

    def local(self, *args):
        """What --explain says of the transport between the workers of a host."""
        explained = self.graph("--explain", *args)
        stage = re.search(r"(?ms)^  local_reduce\n(.*?)^  \S", explained).group(1)
        return re.search(r"(?m)^    transport  (.*)$", stage).group(1)

    def test_default(self):
        self.assertEqual(self.graph(), "worker: tensor -> local_reduce -> push_pull(net) -> local_broadcast -> result\n"
                                       "server: receive -> sum(sum) -> reply\n")
        stages = [node["stage"] for node in json.loads(self.graph("--json"))["worker"]["graph"]]
        self.assertEqual(stages, ["local_reduce", "push_pull", "local_broadcast"])
        self.assertIn("stage0 -> stage1", self.graph("--dot"))

    def test_ways(self):
        """Each built-in stage says what may take a partition there, in the order in which that is asked."""
        stages = re.findall(r"(?ms)^  (\w+)\n(.*?)(?=^  ?\S)", self.graph("--explain"))
        found = {name: re.findall(r"(?m)^    (?:ways      |          ) ([^:]+): ", text) for name, text in stages}
        self.assertEqual(found["local_reduce"], ["exchange", "lead", "lead for the network", "lend"])
        ways = ["own block", "alone in a group", "add", "add rows", "push rows", "push coded", "push"]
        self.assertEqual(found["push_pull"], ways)
        self.assertEqual(found["local_broadcast"], ["hand out"])

    def test_compress(self):
        """Which compressor, what every member must agree on, and how much of a tensor makes a slice."""
        coded = [
            "--set", 'compressors.small = { plugin = "onebit"; feedback = true; }',
            "--set", """worker.graph = ( { stage = "compress"; use = "small"; when = "name ~ '*.weight'"; },
                                         { stage = "push_pull"; } )""",
        ]
        self.assertIn("-> compress(onebit)[name ~ '*.weight'] -> push_pull(net)", self.graph(*coded))
        explained = self.graph("--explain", *coded)
        self.assertRegex(explained, r"coding     plugin=onebit; feedback=true; momentum=none; mu=0.9; seed=0; "
                                    r"min_bytes=0; start=0; auto=false; scaling=")
        self.assertRegex(explained, r"slices     of 1572608 bytes of float32, which are at most 49148 when coded")
        stage = json.loads(self.graph("--json", *coded))["worker"]["graph"][0]
        self.assertTrue(stage["coding"].startswith("plugin=onebit; feedback=true"), stage)

    def test_compress_where_it_pays(self):
        first = ["--set", 'compressors.a = { plugin = "cast"; }', "--set", 'compressors.b = { plugin = "onebit"; }']
        graph = ["--set", 'worker.graph = ( { stage = "compress"; use = "auto"; }, { stage = "push_pull"; } )']
        self.write('compressors = { a = { plugin = "cast"; }; };\n'
                   'worker = { graph = ( { stage = "compress"; use = "auto"; }, { stage = "push_pull"; } ); };\n')
        self.well("a.conf", "a.conf")
        explained = self.graph("--explain", *first, *graph)
        self.assertRegex(explained, r"coding     plugin=cast; .* auto=true;")
        self.assertIn("rank 0 measures", explained)

    def test_compress_refused(self):
        compress, small = '{ stage = "compress"; use = "small"; }', '{ plugin = "onebit"; }'
        for text, graph, compressor in (
            ("names no compressor; expected use", '{ stage = "compress"; }, { stage = "push_pull"; }', small),
            ("names several compressors", '{ stage = "compress"; use = ["small", "small"]; }, { stage = "push_pull"; }',
             small),
            ("compressors has no", '{ stage = "compress"; use = "smal"; }, { stage = "push_pull"; }', small),
            ("the condition cannot use op",
             '{ stage = "compress"; use = "small"; when = "op == sum"; }, { stage = "push_pull"; }', small),
            ("compress stands before local_broadcast|in the wrong order",
             f'{{ stage = "local_reduce"; }}, {{ stage = "push_pull"; }}, {compress}, {{ stage = "local_broadcast"; }}',
             small),
            ("there is no compressor 'twobit'", f'{compress}, {{ stage = "push_pull"; }}', '{ plugin = "twobit"; }'),
            ("did you mean compressors.small.feedback", f'{compress}, {{ stage = "push_pull"; }}',
             '{ plugin = "onebit"; fedback = true; }'),
            ("expected none or nesterov", f'{compress}, {{ stage = "push_pull"; }}',
             '{ plugin = "onebit"; momentum = "fast"; }'),
            ("mu", f'{compress}, {{ stage = "push_pull"; }}', '{ plugin = "onebit"; mu = 2.0; }'),
            ("auto and momentum = nesterov cannot be combined", f'{compress}, {{ stage = "push_pull"; }}',
             '{ plugin = "onebit"; momentum = "nesterov"; auto = true; }'),
            ("stage, use and when", '{ stage = "compress"; use = "small"; k = 3; }, { stage = "push_pull"; }', small),
        ):
            settings = ["--set", f"compressors.small = {compressor}", "--set", f"worker.graph = ( {graph} )"]
            result = subprocess.run([PROGRAM, "graph", *settings], env=dict(os.environ, LC_ALL="C"), cwd=self.folder,
                                    capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual((result.returncode, without_read(result.stdout)), (1, ""), result.stderr)
            self.assertRegex(result.stderr, text)

    def test_numbers_that_are_words(self):
        """What an option has to choose among can be numbers: they need no quotation marks."""
        if "compressor block" not in self.plugins():
            self.skipTest("built without the compressor block")
        for bits in ("4", '"4"'):
            self.write(f'compressors = {{ c = {{ plugin = "block"; bits = {bits}; }}; }};\n')
            self.well("a.conf", "a.conf")
            graph = self.graph("--explain", "--conf", "a.conf", "--set",
                               'worker.graph=({stage="compress"; use="c";},{stage="push_pull";})')
            self.assertIn("; bits=4;", graph)
        self.write('compressors = { c = { plugin = "block"; bits = 3; }; };\n')
        self.bad("a.conf:1: compressors.c.bits = 3: unknown word; expected 8, 4 or 2; did you mean 8?\n", "check",
                 "a.conf")

    def test_transport_of_the_hierarchy(self):
        self.assertRegex(self.local(), r"^local: plugin ipc, ")
        self.assertEqual(self.local("--set", "worker.hierarchy=off"), "none: worker.hierarchy = off")
        self.assertRegex(self.local("--set", "transports.local.plugin=nowhere"),
                         "^none: --set: transports.local: there is no transport 'nowhere'")
        other = 'worker.graph=({stage="local_reduce"; use="net";},{stage="push_pull";},{stage="local_broadcast";})'
        self.assertRegex(self.local("--set", other), r"^net: plugin tcp, ")

    def test_transport_to_servers_of_the_same_host(self):
        for settings, words in (
            ([], "local: plugin ipc, "),
            (["--set", "worker.hierarchy=off"], "local: plugin ipc, "),
            (["--set", "server.local=false"], "none: server.local = false"),
            (["--set", "transports.local.plugin=nowhere"], "none: --set: transports.local: there is no transport"),
        ):
            with self.subTest(settings):
                explained = self.graph("--explain", *settings)
                found = re.findall(r"(?m)^    same host  (.*)$", explained)
                self.assertEqual([line.startswith(words) for line in found], [True, True], explained)

    def test_without_hierarchy(self):
        self.assertEqual(self.graph("--set", 'worker.graph=({stage="push_pull";})'),
                         "worker: tensor -> push_pull(net) -> result\nserver: receive -> sum(sum) -> reply\n")


class Usage(Case):
    def test_help(self):
        self.assertIn("Usage: byteps conf check", self.good("--help"))
        self.assertIn("Usage: byteps conf check", self.good("check", "--help"))

    def test_errors(self):
        hint = "Try 'byteps conf --help'.\n"
        for message, args in (
            ("no command given; expected check, show or sample", []),
            ("unknown command 'chek'; did you mean 'check'?", ["chek"]),
            ("unknown command 'zzzzzz'; expected check, show or sample", ["zzzzzz"]),
            ("unexpected argument 'b'; expected one file", ["check", "a", "b"]),
            ("unexpected argument 'b'; expected one file", ["check", "--conf", "a", "b"]),
            ("sample takes no argument 'a'", ["sample", "a"]),
            ("check takes no --origin", ["check", "--origin"]),
            ("sample takes no --json", ["sample", "--json"]),
            ("sample takes no --origin", ["sample", "--origin"]),
            ("sample takes no --conf and no --set", ["sample", "--set", "a=b"]),
            ("option '--set' needs a value", ["check", "--set"]),
        ):
            with self.subTest(args):
                self.bad(f"byteps conf: {message}\n{hint}", *args, status=2)

    def test_full_disk(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([PROGRAM, "conf", "show"], stdout=full, stderr=subprocess.PIPE, text=True,
                                    timeout=120, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write standard output", result.stderr)


if __name__ == "__main__":
    unittest.main()
