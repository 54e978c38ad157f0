# SPDX-License-Identifier: Apache-2.0
"""What the test bed asks of the kernel: namespaces, devices, and which processes are where.

Devices are made by the commands of iproute2. A process enters its host and then becomes the command that shall run
there, so that this is a child of its starter like any other.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import time

NAMESPACES = "/run/netns"
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
PLAIN = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
"""The environment of the commands, which do not bear the library of a sanitizer."""


class Unavailable(Exception):
    """A test bed cannot be had here; the text is the reason."""


# ---- the commands of iproute2


def command(*words, text=None):
    """Runs a command; its output, or OSError with what it complained of."""
    pipe = subprocess.PIPE
    done = subprocess.run(words, input=text, stdout=pipe, stderr=pipe, encoding="utf-8", env=PLAIN)
    if done.returncode != 0:
        where = f"{' '.join(words)}\n{text}" if text else " ".join(words)
        raise OSError(f"{done.stderr.strip() or f'status {done.returncode}'}, from: {where}")
    return done.stdout


def batch(tool, namespace, lines):
    """Runs lines of `ip`, `tc` or `bridge` in a namespace."""
    if lines:
        command(tool, "-n", namespace, "-b", "-", text="".join(f"{line}\n" for line in lines))


def check():
    """Raises Unavailable if this process cannot even try to make a bed."""
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    for tool in ("ip", "tc", "bridge", "ss"):
        if shutil.which(tool) is None:
            raise Unavailable(f"the command {tool} is missing (package iproute2)")


def probe(prefix):
    """Raises Unavailable unless all can be had that a bed is made of; tries it with two namespaces."""
    names = [f"{prefix}probe-{end}" for end in "ab"]
    try:
        for name in names:
            command("ip", "netns", "add", name)
        pair = f"link add p0 type veth peer name e netns {names[1]}"
        batch("ip", names[0], ["link add br0 type bridge", pair])
        batch("tc", names[0], ["qdisc replace dev p0 root tbf rate 1gbit burst 125000 limit 2500000"])
        command("unshare", "--uts", "--mount", "true")
    except OSError as error:
        reason = " ".join(str(error).split())
        raise Unavailable(f"hosts cannot be made of namespaces here: {reason}") from None
    finally:
        for name in names:
            remove_namespace(name)


def namespaces(prefix):
    """The names of network namespaces that begin so."""
    try:
        return sorted(name for name in os.listdir(NAMESPACES) if name.startswith(prefix))
    except FileNotFoundError:
        return []


def remove_namespace(name):
    """Removes a network namespace and its devices; nothing happens if there is none."""
    if namespaces(name):
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, env=PLAIN, check=False)


# ---- entering a host


def _call(name, *args):
    if getattr(LIBC, name)(*args) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def _mount(source, target, kind=None, flags=0):
    _call(
        "mount", *(word and os.fsencode(word) for word in (source, target, kind)), ctypes.c_ulong(flags), None
    )


def enter(namespace, hostname, binds=()):
    """Moves this process into a host: its network, its name, its own /sys, and (source, target) bound over.

    Nothing of it can be taken back.
    """
    net = os.open(f"{NAMESPACES}/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    _call("setns", net, CLONE_NEWNET)
    os.close(net)
    _call("unshare", CLONE_NEWUTS | CLONE_NEWNS)
    _call("sethostname", hostname.encode(), len(hostname))
    _mount(None, "/", None, MS_SLAVE | MS_REC)
    try:
        _mount("sysfs", "/sys", "sysfs")  # /sys/class/net is that of the namespace in which it was mounted
    except OSError:
        pass  # a sandbox may forbid it; the rest does not depend on it
    for source, target in binds:
        _mount(source, target, None, MS_BIND)


def die_with_parent():
    """Between fork and exec: this process shall not outlive its parent."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# ---- who is there


def inhabitants(prefix):
    """{pid: command} of the living processes in the network namespaces that begin with prefix."""
    homes = set()
    for name in namespaces(prefix):
        try:
            homes.add(_identity(f"{NAMESPACES}/{name}"))
        except OSError:
            pass
    found = {}
    for entry in os.listdir("/proc") if homes else ():
        try:
            if entry.isdigit() and _identity(f"/proc/{entry}/ns/net") in homes:
                found[int(entry)] = command_line(entry)
        except OSError:
            pass  # it has ended meanwhile, or is about to
    return found


def _identity(path):
    status = os.stat(path)
    return status.st_dev, status.st_ino


def command_line(pid):
    """The command line of a process, or "" if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def kill_inhabitants(prefix, patience=20.0):
    """Kills them until there are no more, also those that are born meanwhile."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        rest = inhabitants(prefix)
        if not rest:
            return
        for pid in rest:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
