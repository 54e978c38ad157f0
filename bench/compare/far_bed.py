# SPDX-License-Identifier: Apache-2.0
"""A test bed whose hosts are far from each other, and whose switch loses frames: relay.c takes the place of the bridge.

What a host sends passes its shaped link, then the relay, which holds it for half a round trip, then the link of
whom it is for. Only the relay loses frames at random; links that are full drop what they have no room for, as ever.
"""

import os
import subprocess

from contestants import BUILD, BenchError

from testbed import SWITCH, Testbed, kernel

SEED = 1


class FarBed(Testbed):
    """`trip`: seconds of a round trip between two hosts; `loss`: the part of all frames that is lost."""

    def __init__(self, hosts, rate, trip, loss):
        self.trip, self.loss, self._relay = trip, loss, None
        super().__init__(hosts, rate)

    def _build(self, limits):
        super()._build(limits)
        ports = [f'p{host}' for host in range(self.hosts)]
        lines = [f'link set {port} nomaster' for port in ports]
        lines += ['link add far type veth peer name near', 'link set near addrgenmode none master br0 up',
                  'link set far addrgenmode none up']
        lines += [f'link set {port} gso_max_segs 1' for port in (*ports, 'br0', 'near')]
        kernel.batch('ip', self.namespace(SWITCH), lines)
        for host in range(self.hosts):
            kernel.batch('ip', self.namespace(host), ['link set eth0 gso_max_segs 1'])
        self._start_relay([*ports, 'far'])

    def _start_relay(self, ports):
        relay = os.path.abspath(os.path.join(BUILD, 'relay'))
        words = [str(round(value * 1e6)) for value in (self.trip / 2, self.loss)]
        self._relay = self.popen(SWITCH, [relay, *words, str(SEED), *ports], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        if self._relay.stdout.readline() == b'':
            raise BenchError('the relay did not start')

    def close(self):
        super().close()
        if self._relay is not None:
            self._relay.stdin.close()
            self._relay.stdout.close()
            self._relay.wait()
            self._relay = None
