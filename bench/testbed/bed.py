# SPDX-License-Identifier: Apache-2.0
"""A bed: hosts around a switch, each in a network namespace, and how it goes away whatever happens.

        h0            h1            h2          hosts, 10.77.0.1, 10.77.0.2, ...
        | eth0        | eth0        | eth0      upload is shaped here
        | p0          | p1          | p2        download is shaped here
      --+-------------+-------------+--
        switch: a bridge, 10.77.0.254           never the bottleneck

With several links, host 0 has eth1 with 10.78.0.1 at a port p0-1 of a second bridge, and so on.

The owner of a bed, the process that made it, holds a lock on a file as long as it lives. A warden waits for
this lock: whatever becomes of the owner, the warden then ends all that is left. If the warden is gone too,
the next bed or `testbed clean` finds beds whose lock is free.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import uuid

from . import kernel, units

STATE = "/run/byteps-testbed"
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "testbed")
HOSTS_LIMIT = 250
LINKS_LIMIT = 8
SWITCH = -1
"""The number of the switch, where one may start processes, too; its links have no limit of their own."""


def port(host, link):
    """The port of the switch where a link of a host ends."""
    return f"p{host}-{link}" if link > 0 else f"p{host}"


class Bed:
    """A bed that somebody else owns."""

    def __init__(self, name):
        self.name = name
        try:
            with open(self._path("bed"), encoding="utf-8") as file:
                state = json.load(file)
        except OSError:
            raise ValueError(f"there is no test bed '{name}'; `testbed list` shows them") from None
        self.hosts, self.links = state["hosts"], state["links"]

    def _path(self, name):
        return os.path.join(STATE, self.name, name)

    def _check(self, host, first=0):
        if not first <= host < self.hosts:
            raise ValueError(f"there is no host {host} in this bed; its hosts are 0 to {self.hosts - 1}")

    def hostname(self, host):
        """h0, h1, ... or "switch"."""
        self._check(host, SWITCH)
        return "switch" if host == SWITCH else f"h{host}"

    def address(self, host, link=0):
        """The address of a host or of the switch."""
        self._check(host, SWITCH)
        return f"10.{77 + link}.0.{254 if host == SWITCH else host + 1}"

    def subnets(self):
        """Those of the links, as `transports.net.interface` has them."""
        return " ".join(f"10.{77 + link}.0.0/24" for link in range(self.links))

    def namespace(self, host):
        """The name of its network namespace, as `ip netns` shows it."""
        return f"{self.name}-{self.hostname(host)}"

    def _shared_memory(self, host):
        return os.path.join("/dev/shm", self.name, self.hostname(host))

    # ---- processes

    def enter(self, host):
        """Makes this process one of the host, for good."""
        binds = [(self._shared_memory(host), "/dev/shm"), (self._path("hosts"), "/etc/hosts")]
        kernel.enter(self.namespace(host), self.hostname(host), binds)

    def popen(self, host, command, **how):
        """subprocess.Popen() on a host, in a session of its own.

        A program of ours enters the host and becomes the command. Python could do that between fork and exec; but in a
        process with threads and the library of a sanitizer, that child may wait forever for a lock of another thread.
        """
        enter = [sys.executable, LAUNCHER, "exec", "--bed", self.name, self.hostname(host), "--"]
        return subprocess.Popen([*enter, *command], start_new_session=True, **how)

    def processes(self):
        """{pid: command} of all processes on the hosts and the switch."""
        return kernel.inhabitants(f"{self.name}-")

    def leftovers(self):
        """What jobs have left on the hosts: processes, listening sockets, files in shared memory."""
        found = list(self.processes().values())
        for host in (SWITCH, *range(self.hosts)):
            found += os.listdir(self._shared_memory(host))
            found += kernel.command("ss", "-N", self.namespace(host), "-Hltx").splitlines()
        return found

    # ---- links

    def _ports(self, host):
        """The ports of the switch where the host's links end."""
        return [port(host, link) for link in range(self.links)]

    def cut(self, host, unplug=False):
        """Cuts a host's link: the switch drops everything silently, or the plug is pulled, which both see."""
        self._check(host)
        if unplug:
            kernel.batch("ip", self.namespace(SWITCH), [f"link set {each} down" for each in self._ports(host)])
        else:
            lines = [f"link set dev {each} state 0" for each in self._ports(host)]
            kernel.batch("bridge", self.namespace(SWITCH), lines)

    def restore(self, host):
        """Makes a link whole again that was cut in either way."""
        self._check(host)
        kernel.batch("ip", self.namespace(SWITCH), [f"link set {each} up" for each in self._ports(host)])
        lines = [f"link set dev {each} state 3" for each in self._ports(host)]
        end = time.monotonic() + 10
        while True:
            try:
                return kernel.batch("bridge", self.namespace(SWITCH), lines)
            except OSError:  # a link that comes up needs a moment
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def shape(self, host, rate, buffer=units.BUFFER):
        """Gives the links of a host another rate, in both directions; "none": no limit."""
        self._check(host)
        limit = units.tbf(units.rate(rate), buffer)
        for namespace, device in self._queues(host):
            if limit:
                kernel.batch("tc", namespace, [f"qdisc replace dev {device} root {limit}"])
            elif "tbf" in kernel.command("tc", "-n", namespace, "qdisc", "show", "dev", device):
                kernel.batch("tc", namespace, [f"qdisc del dev {device} root"])

    def _queues(self, host):
        """[(namespace, device)] where its links are shaped."""
        own = [(self.namespace(host), f"eth{link}") for link in range(self.links)]
        return own + [(self.namespace(SWITCH), each) for each in self._ports(host)]

    def counters(self):
        """[{"sent": bytes, "received": bytes, "dropped": packets}] of the hosts since the bed was made."""
        found = []
        for host, links in enumerate(self.links_counters()):
            dropped = sum(self._dropped(*queue) for queue in self._queues(host))
            sums = {way: sum(link[way] for link in links) for way in ("sent", "received")}
            found.append({**sums, "dropped": dropped})
        return found

    def links_counters(self):
        """[[{"sent": bytes, "received": bytes} of each link] of each host] since the bed was made."""
        links = kernel.command("ip", "-n", self.namespace(SWITCH), "-s", "-j", "link", "show", "type", "veth")
        ports = {link["ifname"]: link["stats64"] for link in json.loads(links)}
        return [
            [{"sent": ports[each]["rx"]["bytes"], "received": ports[each]["tx"]["bytes"]} for each in self._ports(host)]
            for host in range(self.hosts)
        ]

    @staticmethod
    def _dropped(namespace, device):
        text = kernel.command("tc", "-n", namespace, "-s", "-j", "qdisc", "show", "dev", device)
        return sum(queue.get("drops", 0) for queue in json.loads(text))


class Testbed(Bed):
    """A bed of one's own, to be used by `with`. `rate` is that of each link; a list has one for each host."""

    _possible = False

    def __init__(self, hosts=2, rate="1gbit", buffer=units.BUFFER, links=1):
        if not 1 <= hosts <= HOSTS_LIMIT:
            raise ValueError(f"a test bed has 1 to {HOSTS_LIMIT} hosts, not {hosts}")
        if not 1 <= links <= LINKS_LIMIT:
            raise ValueError(f"a host of a test bed has 1 to {LINKS_LIMIT} links, not {links}")
        rates = [rate] * hosts if isinstance(rate, str) else list(rate)
        if len(rates) != hosts:
            raise ValueError(f"{len(rates)} rates for {hosts} hosts: give one for all, or one for each")
        limits = [units.tbf(units.rate(each), buffer) for each in rates]
        kernel.check()
        sweep()
        self.hosts, self.links = hosts, links
        self.name = f"tb{uuid.uuid4().hex[:6]}"
        self._warden = None
        self._lock = _claim(self.name)
        try:
            self._write_state()
            self._warden = subprocess.Popen(
                [sys.executable, LAUNCHER, "warden", self.name],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
            if not Testbed._possible:
                kernel.probe(f"{self.name}-")
                Testbed._possible = True
            self._build(limits)
        except BaseException:
            self.close()
            raise

    def _write_state(self):
        for host in (SWITCH, *range(self.hosts)):
            os.makedirs(self._shared_memory(host))
        with open(self._path("hosts"), "w", encoding="ascii") as file:
            print("127.0.0.1 localhost", file=file)
            for host in (SWITCH, *range(self.hosts)):
                print(self.address(host), self.hostname(host), file=file)
        with open(self._path("new"), "w", encoding="utf-8") as file:
            json.dump({"hosts": self.hosts, "links": self.links, "owner": os.getpid()}, file)
        os.rename(self._path("new"), self._path("bed"))  # others see all of it or nothing

    def name_host(self, host, name):
        """Gives a host another name, from now on."""
        with open(self._path("hosts"), "a", encoding="ascii") as file:
            print(self.address(host), name, file=file)

    def _build(self, limits):
        """No addresses but ours: hosts that announce themselves by IPv6 would only disturb measurements."""
        for host in (SWITCH, *range(self.hosts)):
            kernel.command("ip", "netns", "add", self.namespace(host))
            kernel.batch("ip", self.namespace(host), ["link set lo up"])
        for link in range(self.links):
            self._build_switch(link, limits)
            for host, limit in enumerate(limits):
                lines = [f"address add {self.address(host, link)}/24 dev eth{link}"]
                lines += [f"link set eth{link} addrgenmode none up"]
                kernel.batch("ip", self.namespace(host), lines)
                shaped = [f"qdisc add dev eth{link} root {limit}"] if limit else []
                kernel.batch("tc", self.namespace(host), shaped)

    def _build_switch(self, link, limits):
        bridge = f"br{link}"
        lines = [f"link add {bridge} type bridge mcast_snooping 0", f"link set {bridge} addrgenmode none up"]
        lines += [f"address add {self.address(SWITCH, link)}/24 dev {bridge}"]
        for host in range(self.hosts):
            end = f"eth{link} netns {self.namespace(host)}"
            lines += [f"link add {port(host, link)} type veth peer name {end}"]
            lines += [f"link set {port(host, link)} addrgenmode none master {bridge} up"]
        kernel.batch("ip", self.namespace(SWITCH), lines)
        lines = [f"qdisc add dev {port(host, link)} root {limit}" for host, limit in enumerate(limits) if limit]
        kernel.batch("tc", self.namespace(SWITCH), lines)

    def job(self, command, workers=(1, 1), servers=0, **how):
        """Starts a job on the hosts; see Shape and Job for the arguments."""
        from . import job  # which needs this module

        names = ("beside", "server_hosts")
        shape = job.Shape(workers, servers, **{name: how.pop(name) for name in names if name in how})
        return job.Job(self, shape, command, **how)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def close(self):
        """Ends what still runs on the hosts, and the hosts."""
        if self._lock is None:
            return
        demolish(self.name)
        self._lock.close()
        self._lock = None
        if self._warden is not None:
            self._warden.wait()


# ---- how beds are found and go away


@contextlib.contextmanager
def _registry():
    """Nobody else makes or looks for a bed meanwhile."""
    os.makedirs(STATE, mode=0o755, exist_ok=True)
    folder = os.open(STATE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _claim(name):
    """A new bed's lock, held; it is let go when this process closes it or ends."""
    with _registry():
        os.mkdir(os.path.join(STATE, name))
        lock = open(os.path.join(STATE, name, "lock"), "w", encoding="ascii")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock


def _orphan(name):
    """Whether nobody holds the lock of a bed."""
    try:
        with open(os.path.join(STATE, name, "lock"), encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # not even that is left
    return True


def beds():
    """{name: whether it has an owner} of all beds."""
    with _registry():
        return {name: not _orphan(name) for name in sorted(os.listdir(STATE))}


def sweep():
    """Clears away the beds that nobody owns any more; their names."""
    gone = [name for name, owned in beds().items() if not owned]
    for name in gone:
        demolish(name)
    return gone


def demolish(name):
    """Ends all that belongs to a bed; can be repeated, and done by several at once."""
    kernel.kill_inhabitants(f"{name}-")
    for namespace in kernel.namespaces(f"{name}-"):
        kernel.remove_namespace(namespace)
    shutil.rmtree(os.path.join("/dev/shm", name), ignore_errors=True)
    shutil.rmtree(os.path.join(STATE, name), ignore_errors=True)


def guard(name):
    """The warden: waits for the end of the owner and clears away what it has left."""
    try:
        lock = open(os.path.join(STATE, name, "lock"), encoding="ascii")
    except OSError:
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        demolish(name)
