# SPDX-License-Identifier: Apache-2.0
"""Draws a curve: as a PNG with matplotlib, and as text for a terminal."""

import math

BRAILLE = 0x2800  # the first of the 256 characters that hold 2 x 4 dots
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column, from the top left


def condense(values, columns):
    """Returns the means of `columns` equal stretches of the values; short curves repeat their values."""
    means = []
    for i in range(columns):
        first = i * len(values) // columns
        stretch = values[first:max(first + 1, (i + 1) * len(values) // columns)]
        means.append(sum(stretch) / len(stretch))
    return means


def as_text(values, title, width=56, height=12):
    """Returns lines of braille characters that show positive values from left to right, on a logarithmic axis."""
    curve = [math.log(max(value, 1e-30)) for value in condense(values, 2 * width)]
    top, bottom = max(curve), min(curve)
    dots = 4 * height - 1
    scale = dots / (top - bottom or 1)
    cells = [[BRAILLE] * width for _ in range(height)]
    previous = None
    for i, value in enumerate(curve):
        y = round((top - value) * scale)
        # A vertical stroke joins neighbours, so that a steep curve does not fall apart into dots.
        first, last = sorted((y, y if previous is None else previous))
        for row in range(first, last + 1):
            cells[row // 4][i // 2] |= DOTS[row % 4][i % 2]
        previous = y
    lines = [" " * 9 + title]
    for row, line in enumerate(cells):
        label = f"{math.exp(top - 4 * row / scale):.2f}" if row % 4 == 0 else ""
        lines.append(f"{label:>7} |" + "".join(map(chr, line)).rstrip(chr(BRAILLE)))
    return [*lines, " " * 8 + "+" + "-" * width]


def save_png(path, values, title, epochs):
    """Writes the picture of a loss curve: every step, and the mean of each 1/100 of them above it."""
    import matplotlib

    matplotlib.use("Agg")  # draws without a display
    from matplotlib import pyplot

    per_epoch = len(values) / epochs
    means = condense(values, 100)
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    axes.plot([(i + 0.5) / per_epoch for i in range(len(values))], values, color="tab:blue", alpha=0.3, linewidth=0.8,
              label="each step")
    axes.plot([(i + 0.5) * epochs / len(means) for i in range(len(means))], means, color="tab:blue", label="mean")
    axes.set(title=title, xlabel="epoch", ylabel="loss", ylim=(0, None), xlim=(0, epochs))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
