# SPDX-License-Identifier: Apache-2.0
"""A test bed of two halves with a slow, long link between them: two switches, and relay.c on the way between these."""

import os
import subprocess

from testbed import SWITCH, Testbed, kernel, units

RELAY = os.path.join(os.environ.get("top_builddir", "."), "bench", "compare", "relay")
SECOND = "half1"
"""The bridge of the hosts of the second half; the others stay at br0."""


class Halves(Testbed):
    """`far`: the hosts of the second half; `rate` of the link between the halves in each direction, and `trip`: the
    seconds of a round trip on it. The links of the hosts have `host_rate`."""

    def __init__(self, hosts, far, rate, trip, host_rate="1gbit"):
        self._far, self._between, self.trip, self._relay = list(far), rate, trip, None
        super().__init__(hosts, host_rate)

    def _build(self, limits):
        super()._build(limits)
        lines = [f"link add {SECOND} type bridge mcast_snooping 0", f"link set {SECOND} addrgenmode none up"]
        lines += [f"link set p{host} master {SECOND}" for host in self._far]
        for side, bridge in ((0, "br0"), (1, SECOND)):
            lines += [f"link add way{side} type veth peer name near{side}", f"link set way{side} addrgenmode none up",
                      f"link set near{side} addrgenmode none master {bridge} up"]
        ends = ["br0", SECOND, "near0", "near1", *(f"p{host}" for host in range(self.hosts))]
        lines += [f"link set {end} gso_max_segs 1" for end in ends]
        kernel.batch("ip", self.namespace(SWITCH), lines)
        limit = units.tbf(units.rate(self._between), units.BUFFER)
        kernel.batch("tc", self.namespace(SWITCH), [f"qdisc add dev near{side} root {limit}" for side in (0, 1)])
        for host in range(self.hosts):
            kernel.batch("ip", self.namespace(host), ["link set eth0 gso_max_segs 1"])
        self._start_relay()

    def _start_relay(self):
        words = [os.path.abspath(RELAY), str(round(self.trip / 2 * 1e6)), "0", "1", "way0", "way1"]
        self._relay = self.popen(SWITCH, words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._relay.stdout.readline() == b"":
            raise OSError("the relay between the halves did not start")

    def close(self):
        super().close()
        if self._relay is not None:
            self._relay.stdin.close()
            self._relay.stdout.close()
            self._relay.wait()
            self._relay = None
