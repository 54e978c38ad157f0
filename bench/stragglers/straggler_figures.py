# SPDX-License-Identifier: Apache-2.0
"""What trainings come to: the time to the accuracy of the synchronous one, tables in Markdown, and a plot."""

import statistics

from straggler_methods import BASE, METHODS, SITUATIONS, TASKS

SHORT = 0.005
"""Of the accuracy of the synchronous training: who is that near has reached it."""
LAST = 0.1
"""An accuracy is the mean of the looks in the last tenth of the steps, as a single one goes up and down by more."""


def accuracy(looks, steps):
    """The accuracy after so many steps."""
    until = [(step, each) for step, _, each in looks if step <= steps]
    return statistics.mean([each for step, each in until if step > (1 - LAST) * steps] or [until[-1][1]])


def seconds_until(looks, target):
    """When the accuracy is reached, on the line between two looks; None: never."""
    before = (0.0, 0.0)
    for _, seconds, now in looks:
        if now >= target:
            return before[0] + (seconds - before[0]) * (target - before[1]) / (now - before[1])
        before = seconds, now
    return None


def target_of(training):
    """What others have to reach, from the synchronous training of the same seed."""
    return accuracy(training["looks"][0], training["steps"]) - SHORT


def first(training, target):
    """The seconds until the first worker has reached it; None: none has."""
    found = [seconds_until(looks, target) for looks in training["looks"]]
    return min((seconds for seconds in found if seconds is not None), default=None)


def select(trainings, situation, task, method):
    """By seed."""
    key = (situation, task, method)
    return {each["seed"]: each for each in trainings if (each["situation"], each["task"], each["method"]) == key}


def compare(own, base):
    """What a method comes to beside the synchronous training, over the seeds that both have. A training that has not
    reached the accuracy has no time, and then neither has the method."""
    seeds = sorted(own.keys() & base.keys())
    times, base_times = [], []
    for seed in seeds:
        target = target_of(base[seed])
        times.append(first(own[seed], target))
        base_times.append(first(base[seed], target))
    reached = [seconds for seconds in times if seconds is not None]
    accuracies = {name: [accuracy(each[seed]["looks"][0], each[seed]["steps"]) for seed in seeds]
                  for name, each in (("own", own), ("base", base))}
    every = len(reached) == len(seeds)
    return {
        "seeds": len(seeds), "reached": len(reached), "seconds": reached,
        "mean": statistics.mean(reached) if every else None,
        "faster": statistics.mean(base_times) / statistics.mean(reached) if every else None,
        "step": statistics.mean(each["looks"][0][-1][1] / each["looks"][0][-1][0] for each in own.values()),
        "accuracy": statistics.mean(accuracies["own"]),
        "more": statistics.mean(accuracies["own"]) - statistics.mean(accuracies["base"]),
    }


def row(method, found):
    if found["mean"] is None:
        time, faster = f'by {found["reached"]} of {found["seeds"]}', "-"
    else:
        spread = f' ({min(found["seconds"]):.1f} to {max(found["seconds"]):.1f})' if found["seeds"] > 1 else ""
        time, faster = f'{found["mean"]:.1f} s{spread}', f'{found["faster"]:.1f}'
    return [method, time, faster, f'{1e3 * found["step"]:.0f} ms', f'{100 * found["accuracy"]:.1f} %',
            f'{100 * found["more"]:+.1f}']


HEAD = ["method", "to the accuracy", "times as fast", "a step", "accuracy after all steps", "to synchronous"]


def tables(trainings):
    """Markdown, a table for each situation and task."""
    texts = []
    for situation in SITUATIONS:
        for task in TASKS:
            base = select(trainings, situation, task, BASE)
            found = {method: select(trainings, situation, task, method) for method in METHODS}
            rows = [row(method, compare(own, base)) for method, own in found.items() if own.keys() & base.keys()]
            if rows:
                steps, seeds = next(iter(base.values()))["steps"], len(base)
                lines = [HEAD, ["---"] * len(HEAD), *rows]
                text = "\n".join(f'| {" | ".join(line)} |' for line in lines)
                texts.append(f"{situation}: {SITUATIONS[situation]}; {task}, {steps} steps, seeds: {seeds}\n\n{text}\n")
    return "\n".join(texts)


def curve(own):
    """(seconds, accuracy) of worker 0, means over the seeds, as far as all have got."""
    together = list(zip(*(each["looks"][0] for each in own.values())))
    return ([statistics.mean(look[1] for look in looks) for looks in together],
            [statistics.mean(look[2] for look in looks) for looks in together])


def draw(trainings, path):
    """Accuracy over time, a picture for each situation and task."""
    import matplotlib

    matplotlib.use("Agg")  # draws without a display
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(TASKS), len(SITUATIONS), figsize=(15, 4.2 * len(TASKS)), squeeze=False)
    for line, task in zip(axes, TASKS):
        for place, situation in zip(line, SITUATIONS):
            for number, method in enumerate(METHODS):
                own = select(trainings, situation, task, method)
                if own:
                    place.plot(*curve(own), label=method, color=pyplot.get_cmap("tab20")(number), lw=1.3,
                               ls="--" if number in (1, len(METHODS) - 1) else "-")
            place.set(title=f"{situation}, {task}", xlabel="s", ylabel="accuracy", xscale="log")
            place.grid(alpha=0.3)
    axes[0][0].legend(fontsize="x-small", loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=75)
