# SPDX-License-Identifier: Apache-2.0
"""Rates, buffers and times as they are written for the test bed, and what tc(8) is told about them."""

import re

BUFFER = "20ms"
FRAME = 1514
"""Bytes of a full Ethernet frame as the shaper counts them; 1448 of them are TCP payload."""
BATCH = 48 * FRAME
"""Bytes of the largest piece that TCP hands down at once, with the headers of its frames."""


def _parse(text, units, what):
    found = re.match(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)$", text)
    if not found or found.group(2).lower() not in units:
        raise ValueError(f"'{text}' is not {what}")
    return float(found.group(1)) * units[found.group(2).lower()]


def rate(text):
    """Bits per second of "100mbit" or "1gbit"; None for "none"."""
    if text == "none":
        return None
    value = _parse(text, {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}, "a rate such as 100mbit or 1gbit, or none")
    if not 64e3 <= value <= 100e9:
        raise ValueError(f"a rate lies between 64kbit and 100gbit; '{text}' does not")
    return value


def links(count, text):
    """ "1gbit", or "2 x 1gbit" of hosts with several links."""
    return text if count == 1 else f"{count} x {text}"


def buffer(text, bits):
    """Bytes of a port's buffer: "20ms" of a rate in bits per second, or "256k", "2m"."""
    units = {"ms": bits / 8e3, "k": 1024, "kib": 1024, "m": 1 << 20, "mib": 1 << 20}
    value = _parse(text, units, "a buffer such as 20ms or 256k")
    return max(int(value), 2 * FRAME)  # else nothing would pass


def tbf(bits, room):
    """The shaper's line for tc, or None for no limit.

    The burst is what passes at once after a pause: a millisecond's worth, for the kernel to keep up with its
    timers, but at least the largest piece that TCP hands down: what is larger than the burst is cut into frames,
    which takes several times the processor's time.
    """
    if bits is None:
        return None
    burst = max(int(bits / 8e3), BATCH)
    return f"tbf rate {int(bits)}bit burst {burst} limit {buffer(room, bits)}"


def seconds(text):
    """Seconds of "90", "1.5s", "2min" or "1h"."""
    if re.match(r"\d+(\.\d+)?$", text):
        return float(text)
    return _parse(text, {"ms": 1e-3, "s": 1, "min": 60, "h": 3600}, "a time such as 90, 500ms or 2min")
