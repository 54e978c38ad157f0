#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `byteps bench --json` prints: bandwidth over size. `byteps bench --plot` starts it.

plot.py FILE < JSON     draws; the suffix of FILE says the format
plot.py --check FILE    says what stands in the way, if anything
"""

import importlib.util
import io
import json
import os
import sys


def push_pull(found):
    """{panel: {label: ([bytes], [bytes per second], style)}}; a model is a point, and not on a line."""
    lines = {}
    for row in found["results"]:
        name = row["dtype"] if row["tensors"] == 1 else f"{row['name']} in {row['dtype']}"
        style = "o-" if row["tensors"] == 1 else "*"
        add(lines, f"{name}, algbw", style, row["bytes"], row["algorithm_bytes_per_second"])
        if row["tensors"] == 1:
            add(lines, f"{name}, busbw", "s--", row["bytes"], row["bus_bytes_per_second"])
            if row["dtype"] == found["results"][0]["dtype"]:
                add(lines, "plain copy", "k:", row["bytes"], row["bytes"] / row["copy_seconds"]["median"])
    return {f"push_pull, {found['workers']} workers": lines}


def transport(found):
    lines = {}
    for each in found["transports"]:
        for row in each["goodput"]:
            add(lines, each["transport"], "o-", row["bytes"], row["bytes_per_second"]["median"])
            if row["plain_bytes_per_second"] is not None:
                add(lines, f"{each['plain']}, beside {each['transport']}", ":", row["bytes"],
                    row["plain_bytes_per_second"])
    return {"transport, one direction": lines}


def reducer(found):
    panels = {}
    for row in found["results"]:
        for step, rate in row["bytes_per_second"].items():
            if step != "copy":
                lines = panels.setdefault(f"{step}, bytes read and written", {})
                add(lines, row["dtype"], "o-", row["bytes"], rate)
                if row["dtype"] == "float32":
                    add(lines, "memcpy", "k:", row["bytes"], row["bytes_per_second"]["copy"])
    return panels


def compressor(found):
    lines = {}
    for row in found["results"]:
        for step, rate in row["bytes_per_second"].items():
            name, style = ("memcpy", "k:") if step == "copy" else (f"{row['compressor']}, {step}", "o-")
            if step != "copy" or row["compressor"] == found["results"][0]["compressor"]:
                add(lines, name, style, row["bytes"], rate)
    return {"compressor, bytes of elements": lines}


def add(lines, label, style, size, rate):
    sizes, rates, _ = lines.setdefault(label, ([], [], style))
    sizes.append(size)
    rates.append(rate / 1e9)


def draw(found, suffix):
    """The picture's bytes."""
    import matplotlib

    matplotlib.use("Agg")  # draws without a display
    from matplotlib import pyplot

    kinds = {"push_pull": push_pull, "transport": transport, "reducer": reducer, "compressor": compressor}
    panels = kinds[found["benchmark"]](found)
    figure, axes = pyplot.subplots(1, len(panels), figsize=(7 * len(panels), 5), squeeze=False)
    for place, (title, lines) in zip(axes[0], panels.items()):
        for label, (sizes, rates, style) in lines.items():
            place.plot(sizes, rates, style, label=label, markersize=10 if style == "*" else 4)
        place.set_xscale("log", base=2)
        place.set(title=title, xlabel="bytes", ylabel="GB/s", yscale="log")
        place.grid(alpha=0.3, which="both")
        place.legend(fontsize="small")
    figure.tight_layout()
    picture = io.BytesIO()
    figure.savefig(picture, format=suffix, dpi=120)
    return picture.getvalue()


def write(path, content):
    """All of it or nothing."""
    part = f"{path}.{os.getpid()}"
    try:
        with open(part, "xb") as file:
            file.write(content)
        os.replace(part, path)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise


def obstacle(path):
    """Why FILE cannot be drawn, or None."""
    if importlib.util.find_spec("matplotlib") is None:
        return f"needs matplotlib, which {sys.executable} does not have: pip install matplotlib"
    if os.path.splitext(path)[1] not in (".png", ".svg", ".pdf"):
        return f"{path}: expected a name that ends with .png, .svg or .pdf"
    if os.path.isdir(path) or not os.access(os.path.dirname(path) or ".", os.W_OK):
        return f"{path} cannot be written"
    return None


def main():
    path = sys.argv[-1]
    problem = obstacle(path)
    try:
        if problem is None and len(sys.argv) == 2:
            write(path, draw(json.load(sys.stdin), os.path.splitext(path)[1][1:]))
    except OSError as error:
        problem = f"{path}: {error.strerror}"
    if problem is not None:
        sys.exit(f"byteps bench: --plot {problem}")


if __name__ == "__main__":
    main()
