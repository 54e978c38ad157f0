# SPDX-License-Identifier: Apache-2.0
"""Kills random processes of elastic jobs that train, and starts others: nobody hangs, and all learn the same.

    ./byteps-env python ../tests/fault/random_kills.py --kills 1000 --seed 1
        jobs one after the other, each of another seed and kind, until so many processes were killed

Survivors compare bit by bit what they have learned at each reform (see trainer.c), and at the end all workers. At least
one worker that has trained is left alive, and one server that sums.
"""

import argparse
import itertools
import os
import random
import re
import sys
import time

import cluster

TRAINER = os.path.join(os.path.dirname(cluster.WORKER), "trainer")
SETTINGS = ["cluster.min_workers=1", "cluster.max_workers=4", "worker.hierarchy=auto"]
LIMITS = ["cluster.peer_timeout=10s", "cluster.rendezvous_timeout=20s", "log.level=info"]
WAYS = (
    (2, "cluster.colocated=none"),
    (3, "cluster.colocated=none"),
    (0, "cluster.colocated=all"),
    (1, "cluster.colocated=first"),
)
WORKERS = 4


class Wrong(Exception):
    """With what the processes have said."""


class Job:
    """One that is killed and mended at random."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.servers, colocated = self.random.choice(WAYS)
        order = self.random.choice(["server.order=rank", "server.order=arrival"])
        steps = [self.random.choice(["100", "20000", "400000"]), "end", self.random.choice(["0", "1", "5"])]
        settings = [*SETTINGS, *LIMITS, colocated, order]
        self.told = f"{steps[0]} elements, {self.servers} servers, {colocated}, {order}"
        self.hosted = colocated != "cluster.colocated=none"
        self.job = cluster.ByHand(steps, workers=WORKERS, servers=self.servers, settings=settings, worker=(TRAINER,))
        self.number = itertools.count()
        self.kills = 0
        self.scheduler = "scheduler"
        self.role = {part: part.split()[0] for part in self.job.parts if part != "scheduler"}

    def said(self, part):
        return self.job.parts[part].text("out")

    def alive(self, role):
        return sorted(part for part, own in self.role.items() if own == role)

    def may_die(self, part):
        """Whether enough others are left."""
        others = [other for other in self.alive(self.role[part]) if other != part]
        if self.role[part] == "server":
            return any("serving" in self.job.parts[other].text("err") for other in others)
        return any("trains" in self.said(other) for other in others) and len(others) > self.hosted

    def replace(self, part):
        role = self.role.pop(part)
        name = f"{role} {next(self.number)} more"
        self.job.kill_and_wait(part)
        self.kills += 1
        self.job.start(f"{role} {self.random.randrange(self.servers if role == 'server' else WORKERS)}", name=name)
        self.role[name] = role

    def replace_scheduler(self):
        name = f"scheduler {next(self.number)}"
        self.job.kill_and_wait(self.scheduler)
        self.kills += 1
        self.job.start_scheduler(name, address=self.job.address)
        self.scheduler = name
        time.sleep(self.random.choice([0, 1]))

    def strike(self):
        time.sleep(self.random.random() * self.random.choice([0.02, 0.2, 0.6]))
        if self.random.random() < 0.2:
            self.replace_scheduler()
        for part in self.random.sample(self.alive("worker") + self.alive("server"), self.random.choice([1, 1, 1, 2])):
            if self.may_die(part):
                self.replace(part)
        ended = [part for part in self.role if self.job.parts[part].process.poll() is not None]
        if ended:
            raise Wrong(f"{', '.join(ended)} ended")

    def check(self, ends):
        """All workers have learned the same, and nobody has fallen back."""
        learned, furthest = set(), 0
        for part in self.alive("worker"):
            end = re.search(r"is at (-?\d+) after (\d+) steps", ends[part].out)
            if "joins" not in ends[part].out:
                continue  # it has come too late
            if end is None or ends[part].status != 0:
                raise Wrong(f"{part} did not end well")
            learned.add(end.groups())
            furthest = max([furthest, *map(int, re.findall(r"at step (\d+)", ends[part].out))])
        if len(learned) != 1:
            raise Wrong(f"workers differ: {learned}")
        if int(next(iter(learned))[1]) < furthest:
            raise Wrong(f"back from step {furthest} to {learned}")

    def run(self, kills):
        with self.job as job:
            job.wait_for("trains", "worker 0")
            while self.kills < kills:
                self.strike()
            job.open("end")
            self.check(job.finish())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000, help="of all jobs together")
    parser.add_argument("--each", type=int, default=15, help="of each job")
    parser.add_argument("--seed", type=int, default=1, help="of the first job")
    given = parser.parse_args()
    killed, began = 0, time.monotonic()
    for seed in itertools.count(given.seed):
        if killed >= given.kills:
            break
        job = Job(seed)
        try:
            job.run(given.each)
        except (Wrong, AssertionError) as error:
            print(f"seed {seed} ({job.told}): {error}\n{cluster.show(job.job.now())}")
            sys.exit(1)
        killed += job.kills
        print(f"seed {seed}: {job.kills} killed ({job.told})", flush=True)
    print(f"{killed} processes killed in {time.monotonic() - began:.0f} s: all workers learned the same")


if __name__ == "__main__":
    main()
