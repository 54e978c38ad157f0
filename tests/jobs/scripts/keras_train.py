# SPDX-License-Identifier: Apache-2.0
"""Training with Keras equals that of one process with the batches of all workers; KERAS_BACKEND says on what."""

import functools
import os
import tempfile
import unittest.mock

import checks
import keras
import numpy as np

import byteps
import byteps.keras as bps
from byteps._native import bps as native

BACKEND = keras.backend.backend()
STEPS, BATCH, RATE, MOMENTUM = 20, 12, 0.125, 0.875  # BATCH: of all workers
keras.config.set_floatx("float64")
if BACKEND == "jax":
    import jax

    jax.config.update("jax_enable_x64", True)
# A worker alone differs from NumPy by 1e-7 after these steps on PyTorch and JAX: Keras rounds some of it to float32.
TOLERANCE = 1e-11 if BACKEND == "tensorflow" else 1e-6


def data(step):
    """The batch of a step, of all workers."""
    generator = np.random.default_rng(step)
    inputs = generator.normal(size=(BATCH, 6))
    return inputs, np.sin(inputs.sum(axis=1, keepdims=True))


def share(array):
    """This worker's part of it."""
    return array[bps.rank() :: bps.size()]


def all_shares():
    """What this worker trains on, one batch after the other."""
    batches = [data(step) for step in range(STEPS)]
    return [np.concatenate([share(batch[i]) for batch in batches]) for i in range(2)]


def first_weights(seed=5):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) / 2 for shape in ((6, 9), (9,), (9, 1), (1,))]


def gradients_of(weights, inputs, labels):
    a, b, c, d = weights
    hidden = np.tanh(inputs @ a + b)
    error = 2 * (hidden @ c + d - labels) / len(labels)
    before = (error @ c.T) * (1 - hidden**2)
    return [inputs.T @ before, before.sum(0), hidden.T @ error, error.sum(0)]


@functools.lru_cache(maxsize=None)
def reference(passes=1, average=True, clipnorm=None, rate=lambda step: RATE):
    """The weights after training with all batches, by NumPy alone; several batches add up to a step."""
    weights = first_weights()
    velocity, sums = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    before = None
    for step in range(STEPS):
        sums = [total + gradient for total, gradient in zip(sums, gradients_of(weights, *data(step)))]
        if before is not None and before != rate(step):
            velocity = [v * rate(step) / before for v in velocity]
        before = rate(step)
        if (step + 1) % passes == 0:
            sums = [total / (passes if average else 1) for total in sums]
            norm = np.sqrt(sum(np.sum(total**2) for total in sums))
            factor = 1 if clipnorm is None else min(1, clipnorm / norm)
            velocity = [MOMENTUM * v - rate(step) * factor * total for v, total in zip(velocity, sums)]
            weights = [w + v for w, v in zip(weights, velocity)]
            sums = [np.zeros_like(w) for w in weights]
    return weights


def arrays(variables):
    return [np.asarray(keras.ops.convert_to_numpy(variable)) for variable in variables]


def same(model, expected):
    for mine, wanted in zip(arrays(model.trainable_variables), expected):
        difference = np.max(np.abs(mine - wanted))
        assert difference < TOLERANCE, difference


def new_model(named=True):
    """A model with weights of its own, but for worker 0."""
    layers = [keras.layers.Dense(9, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6,)), *layers] if named else layers)
    if named:
        model.set_weights(first_weights(5 if bps.rank() == 0 else 77))
    return model


def sgd(**options):
    return keras.optimizers.SGD(RATE, momentum=MOMENTUM, **options)


def fit(model, callbacks=(), epochs=1):
    inputs, labels = all_shares()
    return model.fit(
        inputs,
        labels,
        batch_size=BATCH // bps.size(),
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[bps.callbacks.BroadcastGlobalVariablesCallback(0), *callbacks],
    )


def trained(optimizer, callbacks=(), **options):
    model = new_model()
    model.compile(optimizer, "mse", **options)
    fit(model, callbacks)
    return model


def check_fit():
    same(trained(bps.DistributedOptimizer(sgd())), reference())
    same(trained(bps.DistributedOptimizer(sgd()), run_eagerly=True), reference())
    if BACKEND != "torch":  # where Keras refuses it
        same(trained(bps.DistributedOptimizer(sgd()), steps_per_execution=5), reference())
    same(trained(bps.DistributedOptimizer(sgd(), gradient_predivide_factor=2.0, num_groups=2)), reference())


def check_steps():
    """Each batch is a step of the timeline, but on JAX, where no one knows when it begins."""
    with unittest.mock.patch.object(native, "step") as ended:
        trained(bps.DistributedOptimizer(sgd()))
    # An earlier model may still be there, and what decides until this one has made two steps.
    assert ended.call_count in ([0] if BACKEND == "jax" else [STEPS - 1, STEPS]), ended.call_count


def check_control():
    difference = np.max(np.abs(reference()[0] - reference(rate=lambda step: RATE * 1.001)[0]))
    assert difference > 10 * TOLERANCE, difference


def check_names_that_differ():
    """Layers are named otherwise where a model was loaded, or where others were made before."""
    model = keras.Sequential(new_model().layers, name=f"model_of_{bps.rank()}")
    model.build((None, 6))
    model.compile(bps.DistributedOptimizer(sgd()), "mse")
    fit(model)
    same(model, reference())


def check_two_models():
    models = [new_model(), new_model()]
    for model in models:
        model.compile(bps.DistributedOptimizer(sgd()), "mse")
        bps.broadcast_variables(model.variables, 0)
    for step in range(STEPS):
        for model in models:
            model.train_on_batch(*map(share, data(step)))
    for model in models:
        same(model, reference())


def check_models_that_differ():
    if bps.size() == 1:
        return
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(9 + bps.rank(), use_bias=False)])
    checks.raised(byteps.MismatchError, lambda: bps.broadcast_variables(model.variables, 0), "differ")
    model.compile(bps.DistributedOptimizer(sgd()), "mse")
    batch = np.ones((2, 6), np.float32), np.ones((2, 9 + bps.rank()), np.float32)
    parts = "tensor 'byteps.Gradient.0", "worker 1 pushed [6, 10] float"
    checks.raised(Exception, lambda: model.train_on_batch(*batch), *parts)


def check_train_on_batch():
    model = new_model()
    model.compile(bps.DistributedOptimizer(sgd()), "mse")
    bps.broadcast_variables(model.variables, 0)
    for step in range(STEPS):
        model.train_on_batch(*map(share, data(step)))
    same(model, reference())


def check_compiled():
    """XLA compiles on JAX, torch.compile on PyTorch; TensorFlow's refuses, and is not chosen by itself."""
    if BACKEND == "tensorflow":
        model = new_model()
        checks.raised(
            ValueError,
            lambda: model.compile(bps.DistributedOptimizer(sgd()), "mse", jit_compile=True),
            "jit_compile=True",
        )
        model.jit_compile = None
        model._resolve_auto_jit_compile = lambda: True  # as Keras decides where there is a GPU
        model.compile(bps.DistributedOptimizer(sgd()), "mse")
        assert not model.jit_compile
        model.compile(sgd(), "mse", jit_compile=True)
        assert model.jit_compile
    elif BACKEND == "torch":  # what is compiled, without making machine code of it, which takes half a minute
        import torch

        compiler = functools.partial(torch.compile, backend="aot_eager")
        with unittest.mock.patch.object(torch, "compile", wraps=compiler) as way:
            same(trained(bps.DistributedOptimizer(sgd()), jit_compile=True), reference())
            assert way.called
    else:
        same(trained(bps.DistributedOptimizer(sgd()), jit_compile=True), reference())


def check_clipping():
    same(trained(bps.DistributedOptimizer(sgd(global_clipnorm=0.25))), reference(clipnorm=0.25))


def pushed_by(function):
    """The bytes that a training pushes, without the 32 by which its broadcast compares the models."""
    before = native.pushed_bytes()
    function()
    return native.pushed_bytes() - before - 32


def check_accumulation():
    model = new_model()
    model.compile(bps.DistributedOptimizer(sgd(gradient_accumulation_steps=2)), "mse")
    total = pushed_by(lambda: fit(model))
    same(model, reference(passes=2))
    if BACKEND != "jax":  # which computes both ways and takes one
        assert total == STEPS // 2 * sum(8 * w.size for w in first_weights()), total
    same(trained(bps.DistributedOptimizer(sgd(), backward_passes_per_step=2)), reference(2, False))
    same(
        trained(
            bps.DistributedOptimizer(
                sgd(global_clipnorm=0.25), backward_passes_per_step=2, average_aggregated_gradients=True
            )
        ),
        reference(2, True, 0.25),
    )


def check_compression():
    for compression in (bps.Compression.fp16, bps.Compression.bf16):
        model = new_model()
        model.compile(bps.DistributedOptimizer(sgd(), compression=compression), "mse")
        total = pushed_by(lambda model=model: fit(model))
        assert total == STEPS * sum(2 * w.size for w in first_weights()), total
        for mine, wanted in zip(arrays(model.trainable_variables), reference()):
            assert np.max(np.abs(mine - wanted)) < 0.1


def check_mixed_precision():
    """An infinity on one worker: all leave out the step, and go on with a smaller scale."""
    model = new_model()
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(0.01))
    for scaled in (keras.optimizers.LossScaleOptimizer(optimizer), None):
        if scaled is None:
            scaled = bps.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)))
        model = new_model()
        bps.broadcast_variables(model.variables, 0)
        model.compile(scaled, "mse")
        for step in range(6):
            inputs, labels = map(share, data(step))
            if step == 3 and bps.rank() == bps.size() - 1:
                inputs = inputs * np.inf
            before = arrays(model.trainable_variables)
            scale = float(keras.ops.convert_to_numpy(scaled.dynamic_scale)) if scaled.built else None
            model.train_on_batch(inputs, labels)
            changed = any(np.any(a != b) for a, b in zip(before, arrays(model.trainable_variables)))
            assert changed == (step != 3), step
            if step == 3:
                assert float(keras.ops.convert_to_numpy(scaled.dynamic_scale)) == scale / 2
        equal_everywhere(model)


def equal_everywhere(model):
    for array in arrays(model.variables):
        assert np.array_equal(bps.broadcast(array, 0), array)
        assert np.all(np.isfinite(array))


def check_mixed_policy():
    """With this policy Keras itself puts a LossScaleOptimizer around the one that it is given."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = new_model()
        model.compile(bps.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        first = fit(model).history["loss"][0]
        assert fit(model, epochs=3).history["loss"][-1] < first
        equal_everywhere(model)
    finally:
        keras.config.set_dtype_policy(policy)


def check_model_that_is_built_late():
    model = new_model(named=False)
    model.compile(bps.DistributedOptimizer(sgd()), "mse")
    fit(model)
    equal_everywhere(model)


def check_saved_models():
    class Own(keras.optimizers.SGD):
        """An optimizer that is no part of Keras."""

    with tempfile.TemporaryDirectory() as folder:
        for optimizer, names in ((sgd(), None), (Own(RATE, momentum=MOMENTUM), [Own])):
            path = os.path.join(folder, "model.keras")
            model = trained(bps.DistributedOptimizer(optimizer))
            model.save(path)
            plain = keras.saving.load_model(path, custom_objects={"Own": Own})
            assert type(plain.optimizer) is type(optimizer), type(plain.optimizer)
            loaded = bps.load_model(path, custom_optimizers=names)
            checks.raised(ValueError, lambda one=loaded: bps.DistributedOptimizer(one.optimizer), "already")
            for mine, wanted in zip(arrays(loaded.optimizer.variables), arrays(model.optimizer.variables)):
                assert np.array_equal(mine, wanted)
            fit(model)
            fit(loaded)
            for mine, wanted in zip(arrays(loaded.variables), arrays(model.variables)):
                assert np.max(np.abs(mine - wanted)) < TOLERANCE


def check_metric_average():
    seen = []

    class Watcher(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))

    model = new_model()
    model.compile(bps.DistributedOptimizer(sgd()), "mse", metrics=["mae"])
    before = Watcher()
    history = fit(model, [before, bps.callbacks.MetricAverageCallback(), Watcher()], epochs=2).history
    for epoch in range(2):
        mine, averaged = seen[2 * epoch : 2 * epoch + 2]
        for name in ("loss", "mae"):
            assert np.isclose(averaged[name], bps.push_pull(mine[name]), rtol=1e-12)
            assert averaged[name] == history[name][epoch]
            assert bps.push_pull(averaged[name], op=bps.Max) == bps.push_pull(averaged[name], op=bps.Min)


def check_schedule():
    def rate(step):
        return RATE * (1.0 if step < STEPS // 2 else 0.25)

    model = new_model()
    model.compile(bps.DistributedOptimizer(sgd()), "mse")
    inputs, labels = all_shares()
    schedule = [
        bps.callbacks.LearningRateScheduleCallback(1.0, end_epoch=1),
        bps.callbacks.LearningRateScheduleCallback(0.25, start_epoch=1),
    ]
    half = len(inputs) // 2
    callbacks = [bps.callbacks.BroadcastGlobalVariablesCallback(0), *schedule]
    for epoch, part in enumerate((slice(0, half), slice(half, None))):
        for callback in schedule:
            callback.initial_lr = RATE
        history = model.fit(
            inputs[part],
            labels[part],
            batch_size=BATCH // bps.size(),
            initial_epoch=epoch,
            epochs=epoch + 1,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        ).history
        assert history["lr"] == [rate(epoch * STEPS // 2)]
    same(model, reference(rate=rate))


def check_warmup():
    rates = []

    class Watcher(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    model = new_model()
    model.compile(bps.DistributedOptimizer(sgd()), "mse")
    fit(model, [bps.callbacks.LearningRateWarmupCallback(warmup_epochs=2, verbose=1), Watcher()], epochs=3)
    count = bps.size()
    expected = [RATE / count * ((i + 1) / STEPS * (count - 1) / 2 + 1) for i in range(2 * STEPS)] + [RATE] * STEPS
    assert np.allclose(rates, expected, rtol=1e-6), (rates, expected)
    equal_everywhere(model)


def check_warmup_without_a_length():
    model = new_model()
    model.compile(bps.DistributedOptimizer(sgd()), "mse")

    def endless():
        while True:
            yield tuple(map(share, data(0)))

    callback = bps.callbacks.LearningRateWarmupCallback(2)
    callback.set_model(model)
    callback.set_params({})
    checks.raised(ValueError, callback.on_train_begin, "steps_per_epoch")


def check_values():
    everybody = sum(range(bps.size()))
    assert bps.push_pull(float(bps.rank()), average=False) == everybody
    assert bps.allreduce(keras.ops.convert_to_tensor([1.0, float(bps.rank())]), name="v").tolist() == [
        1.0,
        everybody / bps.size(),
    ]
    assert bps.broadcast(np.float32(bps.rank()), bps.size() - 1) == bps.size() - 1
    checks.raised(RuntimeError, lambda: bps.broadcast_global_variables(0), "BroadcastGlobalVariablesCallback")
    checks.raised(NotImplementedError, lambda: bps.allgather(1), "allgather")


def check_average_and_op():
    number = float(bps.rank() + 1)
    checks.average_and_op(bps, functools.partial(bps.push_pull, number), functools.partial(bps.allreduce, number))


def check_seeds():
    """Variables of types that push_pull does not know are broadcast all the same."""
    seed = keras.random.SeedGenerator(bps.rank())
    bps.broadcast_variables([seed.state], 0)
    assert np.array_equal(keras.ops.convert_to_numpy(seed.state), [0, 0])


def check_mistakes():
    checks.raised(TypeError, lambda: bps.DistributedOptimizer("sgd"), "expected an optimizer of Keras")
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(sgd(), op=bps.Adasum), "is not a reduction")
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(sgd(), backward_passes_per_step=0), "at least 1")
    checks.raised(
        ValueError,
        lambda: bps.DistributedOptimizer(sgd(gradient_accumulation_steps=2), backward_passes_per_step=2),
        "one of them",
    )
    assert bps.DistributedOptimizer(sgd(), name="other").name == "other"
    assert type(bps.DistributedOptimizer(sgd())).__name__ == "SGD"


if __name__ == "__main__":
    checks.main(globals(), bps)
