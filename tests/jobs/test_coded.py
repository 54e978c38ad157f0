# SPDX-License-Identifier: Apache-2.0
"""Compression of tensors in whole jobs: each worker compares with the formulas. See scripts/coded_ops.py."""

import json
import os
import sys
import tempfile
import unittest

import scripted

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plugins"))

import modules  # noqa: E402  (it lies in the folder that was just added)

scripted.require("numpy")

SMALL = 'compressors.small = { plugin = "onebit"; feedback = true; }'
COMPRESS = """{ stage = "compress"; use = "small"; when = "bytes >= 256 and not name ~ '*plain*'"; }"""
ALONE = ["--set", SMALL, "--set", f'worker.graph = ( {COMPRESS}, {{ stage = "push_pull"; }} )']
GROUPED = [
    *("--set", SMALL),
    *("--set", f'worker.graph = ( {{ stage = "local_reduce"; }}, {COMPRESS}, {{ stage = "push_pull"; }},'
               ' { stage = "local_broadcast"; } )'),
]


METHODS = [
    {"compressor": "onebit"},
    {"compressor": "cast", "to": "bfloat16"},
    {"compressor": "cast", "to": "float8_e4m3", "block": 64},
    {"compressor": "block", "bits": 4},
    {"compressor": "block", "bits": 4, "block": 64, "stochastic": True},
    {"compressor": "topk", "k": 0.05},
    {"compressor": "topk", "k": 200},
    {"compressor": "randomk", "k": 0.05},
    {"compressor": "randomk", "k": 0.05, "independent": True},
    {"compressor": "dithering", "levels": 16},
    {"compressor": "dithering", "levels": 8, "partition": "natural"},
]


class Scripts(scripted.TestCase):
    @scripted.unwatched
    def test_two_workers(self):
        self.run_script("coded_ops.py", workers=2, servers=1, options=ALONE, env={"GROUPS": "1,1"})

    def test_three_workers_and_two_servers(self):
        self.run_script("coded_ops.py", workers=3, servers=2, options=ALONE, env={"GROUPS": "1,1,1"})

    def test_small_partitions_over_the_network(self):
        sizes = ["--set", "worker.partition=64 KiB", "--set", "worker.slice=1 KiB", "--set", "server.local=false"]
        self.run_script("coded_ops.py", workers=2, servers=1, options=[*ALONE, *sizes], env={"GROUPS": "1,1"})

    def test_large_slices_on_threads(self):
        for threads in ("1", "3"):
            options = [*ALONE, "--set", f"worker.threads={threads}"]
            self.run_script("coded_ops.py", "large", workers=2, servers=1, options=options, env={"GROUPS": "1,1"})

    @scripted.unwatched
    def test_nothing_is_coded_within_a_host(self):
        self.run_script("coded_ops.py", "exact", workers=2, servers=1, options=GROUPED, env={"GROUPS": "2"})

    @scripted.unwatched
    def test_a_job_of_one(self):
        self.run_script("coded_ops.py", "exact", workers=1, servers=0, options=ALONE, env={"GROUPS": "1"})

    def test_every_method(self):
        off = ["--set", "worker.hierarchy=off"]
        for workers, servers in ((2, 1), (3, 2)):
            self.run_script("coded_methods.py", workers=workers, servers=servers, options=off,
                            env={"METHODS": json.dumps(METHODS)})

    @scripted.unwatched
    def test_two_hosts(self):
        self.run_on_hosts("a,a,b,b", "coded_ops.py", servers=2, options=GROUPED, env={"GROUPS": "2,2"})

    @scripted.unwatched
    def test_partitions_of_others(self):
        options = [*GROUPED, "--set", "worker.partition=4 KiB"]
        self.run_on_hosts("a,a,a,b,b", "coded_ops.py", "partitions_of_others", servers=2, options=options,
                          env={"GROUPS": "3,2"})

    def test_a_part_fails(self):
        graph = f'worker.graph = ( {{ stage = "nanguard"; }}, {GROUPED[-1].partition("(")[2]}'
        options = ["--set", SMALL, "--set", graph, "--set", "worker.partition=4 KiB"]
        with tempfile.TemporaryDirectory(prefix="byteps-stage-") as folder:
            modules.build_example("nanguard", folder)
            path = os.pathsep.join(filter(None, [folder, os.environ.get("BYTEPS_PLUGIN_PATH")]))
            for hosts, groups, servers in (("a,b", "1,1", 1), ("a,a,b", "2,1", 2)):
                self.run_on_hosts(hosts, "coded_ops.py", "a_part_fails", servers=servers, options=options,
                                  env={"GROUPS": groups, "BYTEPS_PLUGIN_PATH": path})

    def test_hosts_of_different_sizes(self):
        self.run_on_hosts("a,a,b", "coded_ops.py", servers=0, options=GROUPED, env={"GROUPS": "2,1"})


if __name__ == "__main__":
    unittest.main()
