# SPDX-License-Identifier: Apache-2.0
"""What a fault has cost, from the times of a run (jobs.py) and of a calm one, and the table of it."""

import statistics

import jobs


def together(run):
    """The time at which all workers have ended each step."""
    return [max(times) for times in zip(*run["ends"].values())]


def step_time(ends, before=None):
    """The median time of a step, without the first one, which meets the others."""
    own = ends[: before or len(ends)]
    return statistics.median(later - earlier for earlier, later in zip(own, own[1:]))


def through_servers(workers):
    """What a step sends, in gradients of a worker: each goes to the servers, and its sum comes back."""
    return 2 * workers


def in_a_ring(workers):
    return 2 * (workers - 1)


def needed(run, workers, sends):
    """What the steps of a run have to send, in gradients; a worker that was lost has no part in what ends later."""
    left = len(run["ends"])
    return sum(sends(left if run["fault"] is not None and end > run["fault"] else workers) for end in together(run))


def cost(run, calm, workers, sends):
    """The figures of one run with a fault beside a calm one of equally many steps, each of which `sends` so much."""
    ends, calm_ends = together(run), together(calm)
    hit = next((i for i, end in enumerate(ends) if end > run["fault"]), None)
    if hit is None:
        raise jobs.BenchError("the fault came after the last step: more steps, or larger ones, are needed")
    median = step_time(ends, hit)
    figures = {
        "again": run["again"],
        "step": median,
        "after": ends[hit] - run["fault"] - median,
        "lost": ends[hit] - ends[hit - 1] - median,
        "more": (ends[-1] - ends[0]) - (calm_ends[-1] - calm_ends[0]),
        "ratio": (ends[-1] - ends[0]) / (calm_ends[-1] - calm_ends[0]),
    }
    if calm["sent"]:
        each = calm["sent"] / needed(calm, workers, sends)
        figures["sent_again"] = run["sent"] - each * needed(run, workers, sends)
        figures["sent_steps"] = figures["sent_again"] / (each * sends(workers))
    return figures


def median_of(costs):
    return {name: statistics.median(each[name] for each in costs) for name in costs[0]}


def spread(costs, name):
    """Median, least and most of a time."""
    values = [each[name] for each in costs]
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def row(title, costs):
    middle = median_of(costs)
    sent = f'{middle["sent_again"] / 1e6:.0f} MB ({middle["sent_steps"]:.2f})' if "sent_again" in middle else "-"
    return [title, f'{middle["again"]:g}', spread(costs, "after"), spread(costs, "lost"),
            f'{middle["more"]:+.2f} s ({middle["ratio"]:.2f})', sent]


HEAD = ["", "steps made again", "after the fault", "time lost", "whole run, to a calm one", "sent again, in steps"]


def table(rows):
    """Markdown."""
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join(f'| {" | ".join(line)} |' for line in lines)
