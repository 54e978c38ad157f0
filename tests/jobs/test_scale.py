# SPDX-License-Identifier: Apache-2.0
"""Many workers and servers on one machine: what each process holds open, and that it grows with its peers only."""

import collections
import os
import pathlib
import re
import resource
import tempfile
import unittest

import harness

PROGRAM = pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "scale")
SANITIZED = bool(os.environ.get("SANITIZER"))
NETWORK = ("worker.hierarchy=off", "server.local=false")  # as if each worker were alone on its host
DEADLINE = 300  # seconds; on an idle machine of two cores the largest job takes three


def limits():
    """A shell may allow few descriptors; whoever is tested should not fail for that."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Process:
    """What one process of a job holds."""

    def __init__(self, pid, environment):
        settings = dict(line.split("=", 1) for line in environment["BYTEPS_SET"].splitlines() if "=" in line)
        self.role = settings.get("cluster.role", "")  # none: byteps run itself
        self.targets = []
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                self.targets.append(os.readlink(f"/proc/{pid}/fd/{name}"))
            except FileNotFoundError:
                pass
        self.sockets = {target[8:-1] for target in self.targets if target.startswith("socket:")}
        self.descriptors = len(self.targets)
        self.threads = len(os.listdir(f"/proc/{pid}/task"))
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            sizes = dict(re.findall(r"(?m)^(Pss_\w+): +(\d+) kB", file.read()))
        self.memory = int(sizes.get("Pss_Anon", 0)) + int(
            sizes.get("Pss_Shmem", 0)
        )  # KiB; shared ones divided


def connections():
    """{inode: (local, remote)} of the TCP connections of this machine."""
    found = {}
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as file:
            for line in list(file)[1:]:
                words = line.split()
                if words[3] == "01":  # established
                    found[words[9]] = (words[1], words[2])
    return found


class Snapshot:
    """All processes of a running job."""

    def __init__(self, job):
        every = [Process(pid, env) for pid, env in harness.processes(job.id).items()]
        self.processes = [process for process in every if process.role in ("worker", "server", "scheduler")]
        self.pairs = self._pairs(connections())

    def of(self, role, what):
        """The values of something that all processes of a role have."""
        return sorted(getattr(process, what) for process in self.processes if process.role == role)

    def _pairs(self, table):
        """How many ends of connections there are between each two roles."""
        ends = {}
        for process in self.processes:
            for inode in process.sockets & table.keys():
                ends[table[inode]] = process.role
        return collections.Counter(
            tuple(sorted((role, ends.get((remote, local), "?")))) for (local, remote), role in ends.items()
        )


LATE = "is usually the last"
"""Of so many processes on few cores one may be."""


class Scale(unittest.TestCase):
    def measure(self, workers, servers, tensors=10, rounds=3, settings=()):
        """Runs a job and returns what its processes held in the middle of it."""
        options = [word for setting in settings for word in ("--set", setting)]
        with tempfile.TemporaryDirectory() as folder:
            go = os.path.join(folder, "go")
            command = [str(PROGRAM), str(tensors), str(rounds)]
            how = {"workers": workers, "servers": servers, "options": options, "before": limits}
            with harness.Job(command, env={"SCALE_GO": go}, **how) as job:
                for rank in range(workers):
                    job.wait_for("ready", f"worker {rank}", timeout=DEADLINE)
                found = Snapshot(job)
                with open(go, "w", encoding="utf-8"):
                    pass
                result = job.wait(DEADLINE)
        told = [line for line in result.err.splitlines() if LATE not in line]
        self.assertEqual((result.status, told), (0, []), result)
        for rank in range(workers):
            self.assertEqual(result.lines(f"worker {rank}"), ["ready", "scale: ok"], result)
        return found

    def test_whoever_leaves_a_large_group(self):
        """Those hear of it as well who have no link to that worker, which does not lead.

        Who comes to the barrier when its leader has left for that reason hears of the leader.
        """
        workers = 34
        with tempfile.NamedTemporaryFile() as go:
            env = {"SCALE_GO": go.name, "SCALE_LEAVES": "1"}
            with harness.Job([str(PROGRAM), "1", "1"], env=env, workers=workers, before=limits) as job:
                result = job.wait(DEADLINE)
        self.assertEqual(result.status, 0, result)
        lines = [result.lines(f"worker {rank}") for rank in range(workers)]
        self.assertEqual(lines.pop(1), ["ready", "it leaves", "scale: ok"], result)
        text = r"tensor 'barrier.1 \(call 2 of the barrier\)': worker \d+ has left the job"
        for first, why, last in lines:
            self.assertRegex(why, f"^{text}$", result)
            self.assertEqual((first, last), ("ready", "scale: ok"), result)
        self.assertIn("': worker 1 has left the job", str(lines))

    def largest(self, *settings):
        workers, servers = (8, 2) if SANITIZED else (32, 8)
        found = self.measure(workers, servers, tensors=40, settings=settings)
        for role, count in (("worker", workers), ("server", servers), ("scheduler", 1)):
            self.assertEqual(len(found.of(role, "threads")), count)
        # Each connection has two ends.
        self.assertEqual(found.pairs.pop(("scheduler", "worker")), 2 * workers)
        self.assertEqual(found.pairs.pop(("scheduler", "server")), 2 * servers)
        return found

    def test_thirty_two_workers_and_eight_servers(self):
        """As everybody is on one host, the servers have nothing to do; where that cannot be, they have."""
        found = self.largest()
        self.assertLessEqual(set(found.pairs), {("server", "worker")}, found.pairs)

    def test_the_same_over_the_network(self):
        """Workers do not speak to workers, nor servers to servers."""
        found = self.largest(*NETWORK)
        self.assertEqual(set(found.pairs), {("server", "worker")}, found.pairs)

    def test_servers_of_the_same_host(self):
        """They share memory with the workers, and no connection is left that carries data."""
        found = self.largest("worker.hierarchy=off")
        self.assertEqual(set(found.pairs), set(), found.pairs)

    def test_sixty_four_workers(self):
        workers = 16 if SANITIZED else 64
        for settings in ((), NETWORK):
            found = self.measure(workers, 8, tensors=20, settings=settings)
            self.assertEqual(len(found.of("worker", "threads")), workers)

    def test_ten_thousand_small_tensors(self):
        for settings in ((), NETWORK):
            self.measure(2, 2, tensors=1000 if SANITIZED else 10_000, settings=settings)

    def growth(self, found, counts, role, what):
        """How much a process of a role holds more for each more of what was counted; the same at any size."""
        held = [snapshot.of(role, what) for snapshot in found]
        for values in held:
            self.assertEqual(len(set(values)), 1, f"{what} of each {role}: {held}")
        steps = [(b[0] - a[0]) / (y - x) for a, b, x, y in zip(held, held[1:], counts, counts[1:])]
        self.assertEqual(len(set(steps)), 1, f"{what} of a {role}: {held} for {counts}")
        return steps[0]

    def test_growth_with_the_workers(self):
        """A worker does not notice how many others there are; a server and the scheduler pay for each the same."""
        shards, counts = 2, (2, 4, 8) if SANITIZED else (4, 8, 16)
        found = [self.measure(n, 1, settings=(*NETWORK, f"server.shards={shards}")) for n in counts]
        for role, each in (("worker", 0), ("server", shards), ("scheduler", 1)):
            self.assertEqual(self.growth(found, counts, role, "descriptors"), each)
            self.assertEqual(self.growth(found, counts, role, "threads"), 0)

    def test_growth_with_the_servers(self):
        """A worker has one connection and one descriptor for each shard, and no further thread."""
        counts = (1, 2, 4)
        found = [self.measure(2, n, settings=(*NETWORK, "server.shards=1")) for n in counts]
        self.assertEqual(self.growth(found, counts, "worker", "descriptors"), 1)
        self.assertEqual(self.growth(found, counts, "worker", "threads"), 0)
        self.assertEqual(self.growth(found, counts, "server", "descriptors"), 0)
        for snapshot, servers in zip(found, counts):
            self.assertEqual(snapshot.pairs["server", "worker"], 2 * 2 * servers)

    def test_growth_with_the_workers_of_a_host(self):
        """Each of them leads a share of the sums, and so has a link to each other one."""
        counts = (2, 4, 8) if SANITIZED else (4, 8, 16)
        found = [self.measure(n, 0, settings=("server.shards=1",)) for n in counts]
        hosts = [max(snapshot.of("worker", "threads")) for snapshot in found]  # one worker serves
        self.assertEqual(len(set(hosts)), 1, hosts)
        held = [snapshot.of("worker", "descriptors")[0] for snapshot in found]
        steps = [(b - a) / (y - x) for a, b, x, y in zip(held, held[1:], counts, counts[1:])]
        self.assertEqual(len(set(steps)), 1, held)
        self.assertLessEqual(steps[0], 2)

    @unittest.skipIf(SANITIZED, "so many processes are slow")
    def test_links_of_a_large_group(self):
        """Of more than 32 workers of a host 32 lead, and have a link to each other one; all others to these only."""
        each, least = 2, []
        for workers in (40, 48):
            found = self.measure(workers, 0, tensors=20, settings=("server.shards=1",)).of("worker", "descriptors")
            least.append(found[0])
            self.assertEqual(found[: workers - 32], [found[0]] * (workers - 32), found)
            leading = found[0] + each * (workers - 1 - 32)
            self.assertEqual(found[workers - 32 : workers - 1], [leading] * 31, found)  # the last serves as well
        self.assertEqual(least[0], least[1], least)

    @unittest.skipIf(SANITIZED, "sanitizers have memory of their own")
    def test_memory_of_a_peer(self):
        """What a peer costs, in KiB. There are tensors enough for everybody to lead one."""
        for role, number, settings, most, shape in (
            ("server", 0, NETWORK, 64, lambda n: (n, 1)),
            ("worker", 2, NETWORK, 16, lambda n: (n, 1)),
            ("worker", 0, NETWORK, 64, lambda n: (2, n)),
            ("worker", 2, (), 64, lambda n: (n, 1)),
        ):
            with self.subTest(role=role, settings=settings):
                few, many = (
                    self.measure(*shape(n), tensors=60, settings=(*settings, "server.shards=1"))
                    for n in (4, 20)
                )
                each = (many.of(role, "memory")[number] - few.of(role, "memory")[number]) / 16
                print(f"{role} of {shape('n')} workers and servers, {settings}: {each:.1f} KiB", flush=True)
                self.assertLess(each, most)


if __name__ == "__main__":
    unittest.main()
