# SPDX-License-Identifier: Apache-2.0
"""What coding has left of a partition, handed over to its leader by another worker of the host, said wrong: cut, too
long, of something else, in between. The real worker ends with an error; see test_device_frames.py for who that is.
"""

import struct
import unittest

import test_device_frames as frames
import wire

TENSOR, ELEMENTS, SLICES = frames.TENSOR, 100, 2
HAS_ERROR, HAS_MOMENTUM = 1, 2


def state(partition=0, magic=0x46535042, dtype=frames.FLOAT32, elements=ELEMENTS, has=HAS_ERROR | HAS_MOMENTUM):
    """As bps_save_feedback() writes it, of one partition."""
    head = struct.pack("<II", magic, 1) + wire.string("plugin=onebit") + struct.pack("<IQQ", dtype, ELEMENTS, ELEMENTS)
    part = struct.pack("<IQII", partition, elements, SLICES, has)
    return head + part + bytes(8 * SLICES + 2 * 4 * ELEMENTS)


def hand(peer, payload, **fields):
    peer.say(wire.FEEDBACK, payload, **{"bytes": len(payload), **fields})


def in_two(peer, one, other):
    """The first half is well said."""
    whole = state()
    half = len(whole) // 2
    hand(peer, whole[:half], **{"bytes": len(whole), **one})
    hand(peer, whole[half:], **{"bytes": len(whole), **other})


WRONG = {
    "nothing": lambda p: hand(p, b""),
    "less than nothing": lambda p: hand(p, b"", bytes=100),
    "too many bytes": lambda p: hand(p, state(), bytes=1 << 60),
    "more than it says": lambda p: hand(p, state(), bytes=100),
    "another epoch": lambda p: hand(p, state(), epoch=frames.EPOCH + 1),
    "no state": lambda p: hand(p, bytes(100)),
    "another kind of state": lambda p: hand(p, state(magic=1)),
    "another type": lambda p: hand(p, state(dtype=77)),
    "too many elements": lambda p: hand(p, state(elements=1 << 62)),
    "fewer elements": lambda p: hand(p, state(elements=ELEMENTS - 1)),
    "without an array": lambda p: hand(p, state(has=HAS_ERROR)),
    "unknown arrays": lambda p: hand(p, state(has=64)),
    "two states": lambda p: hand(p, state() + state()),
    "cut": lambda p: hand(p, state()[:-1]),
    "another partition": lambda p: hand(p, state(partition=1)),
    "no tensor": lambda p: hand(p, state(), tensor=0),
    "a tensor without a name": lambda p: hand(p, state(), tensor=0x80000001),
    "another tensor in between": lambda p: in_two(p, {}, {"tensor": TENSOR + 1}),
    "another partition in between": lambda p: in_two(p, {}, {"partition": 1}),
    "another round in between": lambda p: in_two(p, {}, {"round": 1}),
    "another length in between": lambda p: in_two(p, {}, {"bytes": 1000}),
}


class Leader(frames.Case):
    def test_what_is_wrong(self):
        attacks = {name: lambda p, a=attack: a(p) for name, attack in WRONG.items()}
        self.check_ends(frames.Follower, attacks, frames.BREACH, workers=3)

    def test_where_nothing_is_coded(self):
        self.check_ends(frames.Follower, {"the host is the job": lambda p: hand(p, state())}, frames.BREACH)

    def test_what_is_dropped(self):
        """States of what there is not, or not in this form: the job goes on, until another reason ends it."""

        def attack(peer):
            for fields in ({}, {"tensor": TENSOR + 7}, {"round": 5}):
                hand(peer, state(), **fields)
                hand(peer, state(), **fields)
            hand(peer, state(partition=9), partition=9)
            in_two(peer, {}, {})
            peer.sock.close()

        self.check_ends(frames.Follower, {"dropped": attack}, "was lost: (?!it sent)", workers=3)


if __name__ == "__main__":
    unittest.main()
