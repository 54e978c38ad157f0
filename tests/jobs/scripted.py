# SPDX-License-Identifier: Apache-2.0
"""Job tests whose checks are in scripts: each worker checks for itself and prints "passed N" at its end."""

import importlib.util
import os
import unittest

import harness
import imported

WATCHED = bool(os.environ.get("SANITIZER")) and not os.environ.get("WATCH_ALL")
"""Whether a sanitizer watches, and only as many jobs as get everywhere in the C code."""
SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")


def require(*modules):
    """Skip the file of tests unless these modules can be imported."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise unittest.SkipTest(f"{module} is not installed for {harness.python()}")


def unwatched(test):
    """Leave a test out where a sanitizer watches: it runs the C code of another one of its file once more."""
    return None if WATCHED else test


def watched(names):
    """The checks of a script to run: all (no names), or where a sanitizer watches those that these words name."""
    return [f"check_{name}" for name in names.split()] if WATCHED else []


def script(name, *arguments, python=None, framework=None, env=None):
    """The command that runs one of the scripts, with another interpreter if that is given.

    Of a framework, workers are forked from a process that has imported it; `env` is what is added to their environment.
    """
    words = imported.interpreter(python or harness.python(), framework, env)
    return [*words, os.path.join(SCRIPTS, name), *arguments]


# Each worker on the host whose name stands at its place in HOSTS.
ON_HOSTS = """
host=$(echo "$HOSTS" | cut -d, -f$((BYTEPS_LOCAL_RANK + 1)))
export BYTEPS_SET="$BYTEPS_SET
cluster.local_rank=-1
cluster.local_size=-1"
exec unshare --uts sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
"""


class TestCase(unittest.TestCase):
    """Adds run_script() and run_on_hosts()."""

    python = None
    """The interpreter for the scripts; None: that of the tests."""
    framework = None
    """What the scripts use; workers are forked from a process that has imported it. None: they start afresh."""

    def script(self, name, *arguments, env=None):
        """The command that runs a script."""
        return script(name, *arguments, python=self.python, framework=self.framework, env=env)

    def run_script(self, name, *arguments, **how):
        """Run a script as a job; all its workers must come to their end. The rest is as for harness.run()."""
        return self.run_command(self.script(name, *arguments, env=how.get("env")), **how)

    def run_on_hosts(self, hosts, name, *arguments, env=None, **how):
        """The same, with a worker on each of these hosts: "a,a,b" has two on one host, and one on another."""
        if os.geteuid() != 0:
            self.skipTest("needs root for hosts of their own names")
        command = ["sh", "-c", ON_HOSTS, "sh", *self.script(name, *arguments, env=env)]
        return self.run_command(command, workers=len(hosts.split(",")), env={**(env or {}), "HOSTS": hosts}, **how)

    def run_command(self, command, workers=2, servers=1, **how):
        result = harness.run(command, workers=workers, servers=servers, **how)
        self.assertEqual(result.status, 0, str(result))
        for rank in range(workers):
            self.assertRegex("\n".join(result.lines(f"worker {rank}")), r"passed [1-9]", str(result))
        return result
