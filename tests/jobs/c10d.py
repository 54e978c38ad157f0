# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed, which come with it, over BytePS and for comparison over gloo.

    ./byteps-env python3 c10d.py                        # all cases with 2, 3 and 4 workers: make check-c10d
    ./byteps-env python3 c10d.py test_broadcast -n 2    # this case, with 2 workers

A line for each case says how it ended over BytePS, and over gloo if that differs. The status is 1 if a case fails
that is not one of the exceptions: see c10d-exceptions for what they are, and why.
"""

import argparse
import collections
import fnmatch
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

import torch
import torch.overrides

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = "torch.testing._internal.distributed.distributed_test"
GATES = ("gloo", "mpi")
"""Cases name the backends that they are for. We run those for gloo, and of the others those for MPI."""

Outcome = collections.namedtuple("Outcome", "name how text seconds")


class Exceptions:
    """What the file of exceptions says: patterns of names, and texts of errors, with reasons."""

    def __init__(self):
        self._reasons = {}
        with open(os.path.join(HERE, "c10d-exceptions")) as file:
            for line in file:
                if line.strip() and not line.startswith("#"):
                    what, reason = line.strip().split(": ", 1)
                    self._reasons[what] = reason
        self.unused = set(self._reasons)

    def judge(self, outcome):
        """The outcome, which is that the case was skipped if it has failed and is an exception."""
        for what, reason in self._reasons.items():
            named = fnmatch.fnmatch(outcome.name, what) if what.startswith("test_") else what in outcome.text
            if outcome.how == "failed" and named:
                self.unused.discard(what)
                return outcome._replace(how="skipped", text=reason)
        return outcome


# ---- the process that runs cases, with one number of workers and one backend -------------------------------


class Backend(str):
    """The name of a backend, which the cases take for that of another one where they ask which it is."""

    def __new__(cls, name, like):
        backend = super().__new__(cls, name)
        backend._like = like
        return backend

    def __eq__(self, other):
        return self._like == other

    def __ne__(self, other):
        return self._like != other

    def __hash__(self):
        return hash(self._like)


def load(gate, backend):
    """Import PyTorch's module with the cases that there are for one backend, and have them use another."""
    os.environ["BACKEND"] = gate
    name = MODULE if gate == GATES[0] else f"{MODULE}_{gate}"
    spec = importlib.util.spec_from_file_location(name, importlib.util.find_spec(MODULE).origin)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.BACKEND, os.environ["BACKEND"] = Backend(backend, gate), backend
    return module


# ---- no GPU is needed --------------------------------------------------------------------------------------


def on_cpu(device):
    is_gpu = type(device) is int or str(device).split(":")[0] == "cuda"
    return torch.device("cpu") if is_gpu else device


def is_device(value):
    return isinstance(value, (torch.device, str))


class OnCpu(torch.overrides.TorchFunctionMode):
    """Has tensors that are meant for a GPU be on the CPU."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        if "device" in options:
            options["device"] = on_cpu(options["device"])
        if function is torch.Tensor.to and type(arguments[1]) is int:
            arguments = (arguments[0], torch.device("cpu"), *arguments[2:])
        arguments = [on_cpu(value) if is_device(value) else value for value in arguments]
        return function(*arguments, **options)


def do_without_gpus(distributed):
    """Have the cases for GPUs run on the CPU; those that really need one fail over gloo, too."""
    Module, Parallel = torch.nn.Module, torch.nn.parallel.DistributedDataParallel
    module_to, parallel_init = Module.to, Parallel.__init__

    def parallel(self, module, device_ids=None, output_device=None, *arguments, **options):
        parallel_init(self, module, None, None, *arguments, **options)

    distributed.skip_if_no_gpu = lambda case: case
    distributed.skip_if_lt_x_gpu = distributed.nccl_skip_if_lt_x_gpu = lambda *_, **__: lambda case: case
    torch.cuda.device_count = lambda: int(os.environ["WORLD_SIZE"])
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None
    torch.Tensor.cuda = Module.cuda = lambda self, *_, **__: self
    Module.to = lambda self, *arguments, **options: module_to(
        self, *map(on_cpu, arguments), **{name: on_cpu(value) for name, value in options.items()}
    )
    Parallel.__init__ = parallel


# ---- the cases ---------------------------------------------------------------------------------------------


def is_for(case):
    return not getattr(case, "__unittest_skip__", False)


def make_class(backend):
    """A class with all cases, whose workers are forked: an import takes seconds, and there are many."""
    from torch.testing._internal import common_distributed

    import byteps.torch.distributed  # noqa: F401  (registers the backend)

    # Cases that work with fewer workers are for 8 there, as their machines have few GPUs.
    common_distributed.skip_if_small_worldsize = lambda case: case
    common_distributed.TIMEOUT_OVERRIDE.clear()  # the limit of time is ours
    do_without_gpus(common_distributed)
    first, *others = (load(gate, backend) for gate in GATES)

    class Cases(first.TestDistBackend, first.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, *arguments, **options):
            with OnCpu():
                super()._run(*arguments, **options)

        def tearDown(self):
            for process in self.processes:
                process.kill()
                process.join()
            super().tearDown()

    for other in others:
        for name, case in vars(other.DistributedTest._DistTestBase).items():
            if name.startswith("test_") and is_for(case) and not is_for(getattr(Cases, name, None)):
                setattr(Cases, name, case)
    return Cases


class Result(unittest.TestResult):
    """Writes an outcome, as a line of JSON, when it is known."""

    def __init__(self, out):
        super().__init__()
        self._out = out

    def startTest(self, test):
        super().startTest(test)
        self._began, self._how, self._text = time.monotonic(), "passed", ""

    def addSkip(self, test, reason):
        self._how, self._text = "skipped", reason

    def addError(self, test, error):
        self._how, self._text = "failed", str(error[1])

    def addFailure(self, test, error):
        self.addError(test, error)

    def stopTest(self, test):
        super().stopTest(test)
        outcome = Outcome(test.id().split(".")[-1], self._how, self._text, time.monotonic() - self._began)
        print(json.dumps(outcome), file=self._out, flush=True)


def run_here(backend, patterns):
    """Run cases and write their outcomes to what was the standard output; what they print goes to the other one."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for folder in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(os.environ["TEMP_DIR"], folder))
    cases = make_class(backend)
    suite = unittest.TestSuite()
    for name in unittest.defaultTestLoader.getTestCaseNames(cases):
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            suite.addTest(cases(name))
    suite.run(Result(out))


# ---- the process that compares -----------------------------------------------------------------------------


def run_cases(backend, workers, patterns, seconds, log):
    """Run cases in a process of its own; yield their outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name not in ("RANK", "BYTEPS_CONF", "DMLC_ROLE")}
        env.update(
            CUDA_VISIBLE_DEVICES="",
            DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(seconds),
            OMP_NUM_THREADS="1",
            PYTHONWARNINGS="ignore",
            TEMP_DIR=folder,
            INIT_METHOD=f"file://{folder}/init_dir/store",
            TMPDIR=folder,
            WORLD_SIZE=str(workers),
        )
        command = [sys.executable, os.path.abspath(__file__), "--run-here", backend, *patterns]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            for line in process.stdout:
                yield Outcome(*json.loads(line))
        if process.returncode != 0:
            raise RuntimeError(f"the process with the cases ended with {process.returncode}; {log.name} says more")


def last_line(text):
    """What an exception that came from another process says."""
    lines = [line for line in text.splitlines() if "Error" in line or "Exception" in line]
    return (lines or text.splitlines() or [""])[-1]


def compare(workers, arguments, exceptions, log):
    """Run the cases with one number of workers; return how many ended how."""
    how = (workers, arguments.cases or ["test_*"], arguments.seconds, log)
    others = {outcome.name: outcome for outcome in run_cases("gloo", *how)} if arguments.gloo else {}
    counts = collections.Counter()
    for outcome in run_cases("byteps", *how):
        outcome = exceptions.judge(outcome)
        other = others.get(outcome.name, outcome).how
        if outcome.how == other == "failed" and arguments.gloo:
            outcome = outcome._replace(how="skipped", text="fails over gloo, too")
            other = "skipped"
        counts[outcome.how] += 1
        if outcome.how == "failed" or arguments.verbose or other != outcome.how:
            beside = f", by gloo {other}" if other != outcome.how else ""
            why = f": {last_line(outcome.text)}" if outcome.text else ""
            print(f"{workers} {outcome.name}: {outcome.how}{beside}, {outcome.seconds:.1f} s{why}", flush=True)
    print(f"{workers} workers: {', '.join(f'{counts[how]} {how}' for how in ('passed', 'failed', 'skipped'))}")
    return counts


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--workers", type=int, nargs="+", help="numbers of workers (2 3 4)")
    parser.add_argument("--seconds", type=int, default=40, help="after which a case is killed (40)")
    parser.add_argument("--gloo", action=argparse.BooleanOptionalAction, default=True, help="run gloo, too (yes)")
    parser.add_argument("--verbose", action="store_true", help="print all cases, not only those that differ from gloo")
    parser.add_argument("--log", default="c10d.log", help="for what the cases print (c10d.log)")
    parser.add_argument("--run-here", metavar="BACKEND", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*", help="patterns of names (all)")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.run_here:
        return run_here(arguments.run_here, arguments.cases)
    total, exceptions = collections.Counter(), Exceptions()
    with open(arguments.log, "w") as log:
        for workers in arguments.workers or (2, 3, 4):
            total += compare(workers, arguments, exceptions, log)
    if exceptions.unused and not (arguments.workers or arguments.cases):
        print(f"no case needs these exceptions: {'; '.join(sorted(exceptions.unused))}")
        return 1
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
