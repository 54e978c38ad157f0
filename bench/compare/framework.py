# SPDX-License-Identifier: Apache-2.0
"""What an operation of BytePS costs in a framework, beside the cheapest operation of that framework.

Run as the one worker of a job, it prints a JSON list of rows for the framework named on the command line. A worker
alone sums nothing and sends nothing: what is left is the way from the framework into the core and back.
"""

import json
import statistics
import sys
import time

ROUNDS, ELEMENTS = 30, 16


def microseconds(run, count):
    """The median over rounds of the time that run() takes for each of its operations."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(times[ROUNDS // 5 :])


def row(what, cheapest, reference, push_pull):
    return {"what": what, "cheapest": cheapest, "reference": reference, "push_pull": push_pull}


def repeated(function, count=200):
    def run():
        for _ in range(count):
            function()

    return microseconds(run, count)


def numpy():
    import numpy as np

    import byteps.numpy as bps

    bps.init()
    array, other = np.ones(ELEMENTS, np.float32), np.ones(ELEMENTS, np.float32)
    add = repeated(lambda: np.add(array, other, out=other))
    blocking = repeated(lambda: bps.push_pull_inplace(array, name="x"))
    yield row("NumPy, push_pull_inplace()", "np.add(a, b, out=b)", add, blocking)
    handles = repeated(lambda: bps.synchronize(bps.push_pull_async_inplace(array, name="x")))
    yield row("NumPy, push_pull_async_inplace() + synchronize()", "np.add(a, b, out=b)", add, handles)


def torch():
    import torch

    import byteps.torch as bps

    bps.init()
    torch.set_num_threads(1)
    tensor = torch.ones(ELEMENTS)
    add = repeated(lambda: tensor.add_(0))
    yield row(
        "PyTorch, push_pull_inplace()", "a.add_(0)", add, repeated(lambda: bps.push_pull_inplace(tensor, name="x"))
    )
    yield row("PyTorch, a gradient of DistributedOptimizer", "a.add_(0)", add, gradients(torch, bps))


def gradients(torch, bps, count=100):
    """What each gradient adds to backward() and step()."""

    def loop(wrap):
        parameters, ones = [torch.nn.Parameter(torch.ones(ELEMENTS)) for _ in range(count)], torch.ones(ELEMENTS)
        optimizer = torch.optim.SGD(parameters, 0.0)
        if wrap:
            names = [(f"p{i}", parameter) for i, parameter in enumerate(parameters)]
            optimizer = bps.DistributedOptimizer(optimizer, names)

        def run():
            optimizer.zero_grad()
            sum(torch.dot(parameter, ones) for parameter in parameters).backward()
            optimizer.step()

        return microseconds(run, count)

    return loop(True) - loop(False)


def tensorflow():
    import tensorflow as tf

    import byteps.tensorflow as bps

    bps.init()
    value = tf.ones(ELEMENTS)

    def graph(operation, count, chained):
        """The time of each of count operations in a tf.function, with and without the others before it."""

        @tf.function
        def many(tensor):
            results = [tensor]
            for i in range(count):
                results.append(operation(results[-1] if chained else tensor, i))
            return tf.add_n([result[:1] for result in results[1:]]) if count else tensor

        return lambda: many(value).numpy()

    def each(operation, chained, count=200):
        for run in (graph(operation, count, chained), graph(operation, 1, chained)):
            run()
        return microseconds(graph(operation, count, chained), count)

    def negative(tensor, _):
        return tf.negative(tensor)

    def push_pull(tensor, i):
        return bps.push_pull(tensor, name=f"graph.{i}")

    for chained, what in ((False, "side by side"), (True, "one after the other")):
        reference = each(negative, chained)
        yield row(f"TensorFlow, in a graph, {what}", "tf.negative(a)", reference, each(push_pull, chained))
    yield row(
        "TensorFlow, eagerly",
        "tf.identity(a)",
        repeated(lambda: tf.identity(value)),
        repeated(lambda: bps.push_pull(value, name="eager")),
    )


def jax():
    import jax
    import jax.numpy as jnp

    import byteps.jax as bps

    bps.init()
    value = jnp.ones(ELEMENTS)

    def program(operation, count):
        """A compiled program with so many operations."""
        compiled = jax.jit(lambda x: sum(operation([x + i for i in range(count)])))
        compiled(value).block_until_ready()
        return lambda: compiled(value).block_until_ready()

    def each(operation, count=200):
        return (microseconds(program(operation, count), 1) - microseconds(program(operation, 1), 1)) / (count - 1)

    def negative(values):
        return [jax.lax.optimization_barrier(-x) for x in values]

    what = "lax.neg(a)"
    yield row("JAX, in a program, side by side", what, each(negative), each(lambda xs: bps.push_pull(xs, name="x")))
    yield row(
        "JAX, outside of programs",
        "jnp.negative(a)",
        repeated(lambda: jnp.negative(value).block_until_ready()),
        repeated(lambda: bps.push_pull(value)),
    )


def mxnet():
    import mxnet as mx

    import byteps.mxnet as bps

    bps.init()
    arrays = [mx.nd.ones((ELEMENTS,)) for _ in range(100)]

    def all_of(operation):
        def run():
            for i, array in enumerate(arrays):
                operation(array, i)
            mx.nd.waitall()

        return microseconds(run, len(arrays))

    names = [f"x.{i}" for i in range(len(arrays))]
    reference = all_of(lambda array, i: mx.nd.negative(array, out=array))
    push_pull = all_of(lambda array, i: bps.push_pull_inplace(array, name=names[i]))
    yield row("MXNet, push_pull_inplace(), side by side", "nd.negative(a, out=a)", reference, push_pull)


FRAMEWORKS = {"numpy": numpy, "torch": torch, "tensorflow": tensorflow, "jax": jax, "mxnet": mxnet}

if __name__ == "__main__":
    print(json.dumps(list(FRAMEWORKS[sys.argv[1]]())))
