# SPDX-License-Identifier: Apache-2.0
"""Starts an elastic job and kills one of its processes at random every few seconds: a worker, a server, the scheduler.

byteps run starts another one in its place. Spared is the last worker that knows what the job has learned, the last
server that sums, and what byteps run would give up as it was killed too often (docs/running.md).
"""

import collections
import contextlib
import os
import random
import re
import signal
import subprocess
import threading
import time
import uuid

WORKERS, SERVERS = 3, 2
READY = re.compile(r"\[(worker \d+|server \d+)\] .*(trains as \d+ of|: serving )")
"""What a worker says that has the state, see elastic.py, and a server that sums, in its log."""
LOST = re.compile(r"byteps run: (\S+ \d+) \(pid \d+\) .*the job goes on")
ENDS = re.compile(r"\[worker \d+\] ends (.*)")


def processes(job):
    """Returns the living processes of a job: {"worker 0": pid, ..., "scheduler": pid}."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                settings = re.search(r"(?:\A|\0)BYTEPS_SET=([^\0]*)", file.read())
        except OSError:
            continue  # it has ended, or is not ours
        own = dict(line.split("=", 1) for line in settings[1].splitlines() if "=" in line) if settings else {}
        if own.get("cluster.job") == job and "cluster.role" in own:
            role, rank = own["cluster.role"], own["cluster.rank"]
            found[role if role == "scheduler" else f"{role} {rank}"] = int(pid)
    return found


class Job:
    """One that is killed at random."""

    def __init__(self, command, every, most, seed):
        self.name, self.every, self.most, self.random = uuid.uuid4().hex[:16], every, most, random.Random(seed)
        self.ready = {}  # the process that trains or sums, by place
        self.lost = collections.defaultdict(list)  # when, by place
        self.kills = dict.fromkeys(("worker", "server", "scheduler"), 0)
        self.ends = []
        self.trained = threading.Event()
        settings = [f"cluster.job={self.name}", "cluster.colocated=none", "log.level=info"]
        sets = [word for setting in settings for word in ("--set", setting)]
        program = os.environ.get("BYTEPS_PROGRAM", "byteps")
        self.process = subprocess.Popen(
            [program, "run", "-n", str(WORKERS), "-s", str(SERVERS), "--min-workers", "1", *sets, "--", *command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        )

    def may_die(self, place, living):
        """Whether others can go on, and byteps run will start another one."""
        now, role = time.monotonic(), place.split()[0]
        lately = [when for when in self.lost[place] if now - when < 60]
        if role == "scheduler":
            return not lately or now - lately[-1] > 6
        others = [other for other, pid in living.items()
                  if other != place and other.startswith(role) and self.ready.get(other) == pid]
        return bool(others) and len(lately) < 4

    def kill(self):
        """Kills one that may die."""
        living = processes(self.name)
        victims = [place for place in sorted(living) if self.may_die(place, living)]
        if not victims:
            return
        place = self.random.choice(victims)
        print(f"killing {place} (pid {living[place]})", flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(living[place], signal.SIGKILL)
        self.kills[place.split()[0]] += 1
        if place == "scheduler":
            self.lost[place].append(time.monotonic())

    def kill_again_and_again(self):
        """Kills until the first worker is done with its training; not before the job has begun."""
        while not self.trained.wait(self.every * self.random.uniform(0.5, 1.5)):
            if self.ready and sum(self.kills.values()) < self.most:
                self.kill()

    def hear(self, line):
        """Takes note of a line of the job, and passes on what is no log."""
        ready, lost, ends = READY.match(line), LOST.match(line), ENDS.match(line)
        if ready:
            self.ready[ready[1]] = processes(self.name).get(ready[1])
        if lost:
            self.lost[lost[1]].append(time.monotonic())
        if ends:
            self.trained.set()
            self.ends.append(ends[1])
        if " INFO " not in line and "trains as" not in line:
            print(line, end="", flush=True)

    def run(self):
        """Returns the status of byteps run."""
        killer = threading.Thread(target=self.kill_again_and_again, daemon=True)
        if self.every > 0:
            killer.start()
        try:
            for line in self.process.stdout or ():
                self.hear(line)
            return self.process.wait()
        finally:
            self.trained.set()
            self.process.terminate()


def main(command, every, most, seed):
    """Runs a job of this command, kills, and says how it has ended; returns the status of the program."""
    job = Job(command, every, most, seed)
    status = job.run()
    alike = len(set(job.ends)) == 1
    print("killed: " + ", ".join(f"{role} {count} times" for role, count in job.kills.items()))
    print(f"{len(job.ends)} workers ended {job.ends[0] if alike else f'in different ways: {job.ends}'}")
    return status or int(not alike)
