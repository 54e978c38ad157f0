# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer of TensorFlow 1 with BYTEPS_ENABLE_ASYNC: in sessions, eagerly and in tf.function."""

import byteps
import checks
import tensorflow as tf

import byteps.tensorflow as bps

v1 = tf.compat.v1
RATE, STEPS = 1 / 64, 10
CHANGE = -RATE * STEPS


def meet(what):
    bps.push_pull(tf.zeros(1), name=f"meet {what}")


def all_changes():
    return CHANGE * sum(range(1, bps.size() + 1))


def in_session(use_resource):
    """Each worker has gradients of its rank + 1, after a first step that sets what rank 0 has."""
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.Variable(tf.fill([3 + i], float(bps.rank())), use_resource=use_resource, name=f"v{i}") for i in range(2)
        ]
        scale = v1.placeholder(tf.float32, [])
        loss = scale * tf.add_n([tf.reduce_sum(variable) for variable in variables])
        step = bps.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE)).minimize(loss)
        session.run(v1.global_variables_initializer())
        session.run(step, {scale: 0})
        assert all((value == 0).all() for value in session.run(variables)), "not those of rank 0"
        bps.barrier()
        for _ in range(STEPS):
            session.run(step, {scale: bps.rank() + 1})
        bps.barrier()
        session.run(step, {scale: 0})
        for value in session.run(variables):
            assert (value == all_changes()).all(), (value, all_changes())


def check_session():
    in_session(use_resource=True)


def check_old_variables():
    in_session(use_resource=False)


def eager_or_not(wrap):
    variables = [tf.Variable(tf.fill([4], float(bps.rank()))), tf.Variable([float(bps.rank())])]
    optimizer = bps.DistributedOptimizer(v1.train.MomentumOptimizer(RATE, 0.0))

    @wrap
    def step(scale):
        with tf.GradientTape() as tape:
            loss = scale * tf.add_n([tf.reduce_sum(variable) for variable in variables])
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    step(tf.constant(0.0))
    meet("begun")
    for _ in range(STEPS):
        step(tf.constant(bps.rank() + 1.0))
    meet("ended")
    step(tf.constant(0.0))
    for variable in variables:
        assert (variable.numpy() == all_changes()).all(), (variable, all_changes())


def check_eager():
    eager_or_not(lambda function: function)


def check_function():
    eager_or_not(tf.function)


TABLE = [4000, 16]


def pushed(step):
    """Bytes that a step pushes."""
    before = byteps.metrics()["pushed_bytes"]
    step()
    return byteps.metrics()["pushed_bytes"] - before


def table_and_step(kind, options, wrap):
    table = tf.Variable(tf.fill(TABLE, float(bps.rank())))
    optimizer = bps.DistributedOptimizer(kind(RATE, **options))

    def step(scale, rows):
        with tf.GradientTape() as tape:
            loss = tf.cast(scale, tf.float32) * tf.reduce_sum(tf.nn.embedding_lookup(table, rows))
        optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table]))

    return table, wrap(step), optimizer.pull_rows


def table_and_step_of_session(session):
    """The same, and the table is what reads it."""
    table = v1.Variable(tf.fill(TABLE, float(bps.rank())), use_resource=True)
    scale, rows = v1.placeholder(tf.float32, []), v1.placeholder(tf.int32, [None])
    optimizer = bps.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE))
    step = optimizer.minimize(scale * tf.reduce_sum(tf.nn.embedding_lookup(table, rows)))
    pull = optimizer.pull_rows(table)
    session.run(v1.global_variables_initializer())
    value = table.read_value()

    class Table:
        def numpy(self):
            return session.run(value)

    return (
        Table(),
        lambda factor, these: session.run(step, {scale: factor, rows: these}),
        lambda table: session.run(pull),
    )


def rows_travel(table, step, pull, exact=True, all_travel=False):
    """Of a sparse gradient only its rows travel; the others are as rank 0 had them, until they are asked for."""
    mine, last = bps.rank(), TABLE[0] - 1
    step(0.0, [0])
    assert (table.numpy() == 0).all(), "not those of rank 0"
    bps.barrier()
    for _ in range(STEPS):
        sent = pushed(lambda: step(1.0, [mine, 7, mine, last]))
        assert sent == (TABLE[0] if all_travel else 3) * TABLE[1] * 4, sent
    bps.barrier()
    others = [rank for rank in range(bps.size()) if rank != mine]
    if not all_travel:
        assert (table.numpy()[others] == 0).all(), table.numpy()[others]
    pull(table)
    changed = table.numpy().any(1).nonzero()[0].tolist()
    assert changed == [*range(bps.size()), 7, last], changed
    if exact:
        assert (table.numpy()[[0, 1]] == 2 * CHANGE).all(), table.numpy()[:2]
        assert (table.numpy()[[7, last]] == bps.size() * CHANGE).all(), table.numpy()[7]
    bps.barrier()


def check_rows():
    train = v1.train
    for wrap in (lambda function: function, tf.function(reduce_retracing=True)):
        rows_travel(*table_and_step(train.GradientDescentOptimizer, {}, wrap))
    for kind, options in ((train.AdagradOptimizer, {}), (train.RMSPropOptimizer, {"momentum": 0.5})):
        rows_travel(*table_and_step(kind, options, tf.function), exact=False)
    rows_travel(*table_and_step(train.MomentumOptimizer, {"momentum": 0.5}, tf.function), exact=False)
    rows_travel(*table_and_step(train.AdamOptimizer, {}, tf.function), exact=False, all_travel=True)
    with tf.Graph().as_default(), v1.Session() as session:
        rows_travel(*table_and_step_of_session(session))


def check_pull_rows():
    """Those that are asked for, and no others."""
    table, step, pull = table_and_step(v1.train.GradientDescentOptimizer, {}, tf.function)
    step(0.0, [0])
    meet("pull begins")
    if bps.rank() == 0:
        step(1.0, [5, 6])
    meet("pull ends")
    if bps.rank() != 0:
        assert pushed(lambda: pull(table, [6, 6])) == TABLE[1] * 4
        assert (table.numpy()[6] == -RATE).all() and not table.numpy()[5].any(), table.numpy()[:8]


def check_embedding():
    """A sparse gradient changes some rows, and those of others are taken."""
    table = tf.Variable(tf.zeros([bps.size(), 2]))
    optimizer = bps.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE))
    optimizer.apply_gradients([(tf.IndexedSlices(tf.ones([1, 2]), [bps.rank()], [bps.size(), 2]), table)])
    meet("sparse")
    optimizer.apply_gradients([(tf.zeros([bps.size(), 2]), table)])
    assert (table.numpy() == -RATE).all(), table


def check_refused():
    plain = v1.train.GradientDescentOptimizer(RATE)
    for text, arguments in (
        ("no compression", {"compression": bps.Compression.fp16}),
        ("Average or Sum", {"op": bps.Max}),
        ("no backward_passes_per_step", {"backward_passes_per_step": 2}),
        ("no gradient_predivide_factor", {"gradient_predivide_factor": 2.0}),
    ):
        checks.raised(ValueError, lambda: bps.DistributedOptimizer(plain, **arguments), text)  # noqa: B023
    with tf.GradientTape() as tape:
        checks.raised(ValueError, lambda: bps.DistributedGradientTape(tape), "use tf.GradientTape")
    whole = tf.Variable([1])
    optimizer = bps.DistributedOptimizer(plain)
    checks.raised(TypeError, lambda: optimizer.apply_gradients([(tf.constant([1]), whole)]), "floating point")
    meet("end")


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    checks.main(globals(), bps)
