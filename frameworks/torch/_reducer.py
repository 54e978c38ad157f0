# SPDX-License-Identifier: Apache-2.0
"""Reduces the gradients of a model's parameters while the backward pass still computes others.

Each gradient is sent from, and its result received into, the gradient's own memory, as soon as autograd has
finished it; small ones travel together (_bucket.py). The most urgent is the one that the next forward pass needs first,
which is the one that the first backward pass finished last. A round ends when all gradients that a worker has sent have
been reduced. A small tensor of flags goes with each round (_flags.py). From it all workers learn which gradients those
are, and send zeros for the ones that they do not have. What nobody has sent stays as it is, so None where nobody has
used a parameter. And they learn whether they agree: in their lists of parameters, in those that require gradients, and
in the number of steps that they have made.

From the end of backward() on, programs clip, unscale and look at gradients. So a round ends within backward(). With
several passes in a step only the program knows whether another one will bring what is missing: then the round ends
within backward() only if nothing is, and otherwise in step(), synchronize() or a GradScaler. A gradient that was
changed before is found by its version. Another worker may have all its gradients by then, and wait; so whatever else
this worker waits for, it sends what it has before, and zeros for all others (launch_open()).

In a process group operations meet in their order, which is not that in which autograd finishes gradients: another
worker may use other parameters. So there a round begins with its flags, and when these have told which gradients the
workers have, all send those in the order of the parameters; nothing is sent during backward(). As all wait for the
flags, a round of several passes begins only where all workers get to, in step(), synchronize() or a GradScaler. Rounds
of several reducers of a group follow one another, in the order in which they were made.
"""

import contextlib
import itertools
import time
import weakref

import torch

from byteps._basics import Average, after_reform, before_operations
from byteps._coding import model_coding_text
from byteps._errors import Error
from byteps._groups import number_of, party
from byteps._native import bps as _bps

from . import _memory, _owners, _rows, _shared
from ._bucket import Flight, plan
from ._flags import FROZEN, ROWS, SENT, UNSENT, ZEROS, Flags, digest_of
from ._gradient_names import GradientNames, NoNames
from .compression import Compression, choose

_TOO_MANY = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)

# Not in the first versions of PyTorch 2.
_use_count = getattr(torch.Tensor, "_use_count", None)
_current_backward = torch._C._current_graph_task_id
_current_node = getattr(torch._C, "_current_autograd_node", lambda: None)

_CHANGED = (
    "the gradient of parameter {!r} was changed {}, so that the result is not that of all workers; call "
    "optimizer.synchronize() after the last backward() and before gradients are read or changed, as by "
    "clip_grad_norm_()"
)

_made = itertools.count()
_alive: "weakref.WeakSet[Reducer]" = weakref.WeakSet()  # the reducers of this process


class Reducer:
    """The gradients of a list of parameters.

    Its tensors get their names at once in the job in which it is made, and in a later one when it first
    communicates: workers that join a later job do not have what is no longer in use.

    Attributes:
        paused: while True, hooks do nothing: gradients add up locally.
        dirty: whether a gradient was computed since the last round.
        reduced: whether a round has ended whose gradients have not been used.
        waited: seconds that this worker has spent waiting for gradients to be reduced.
        steps: how many steps the optimizer has made in this job.
        passes: backward passes after which a gradient is sent.
        compression: the type in which gradients are sent, one of Compression.
        on_gradient: called with each finished gradient's index before anything else, or None.
        on_round: called with the reducer before each round, or None.
        rate: tells the learning rate of the parameter with an index, 0 if it is not known.
    """

    def __init__(
        self,
        named,
        compression,
        op,
        passes=1,
        ends_in_backward=False,
        scales=(1.0, 1.0),
        densify=False,
        group=None,
    ):
        """Declare the gradients of [(name, parameter)] and watch them; some may be frozen for now.

        The first in the list is the most urgent until a backward pass has shown a better order. `scales` are
        the factors before and after the reduction; `densify` makes sparse gradients dense; `compression` is one of
        Compression, or says how the gradients are coded on the network. `group` is that of the workers that take part,
        None: all.
        """
        self.paused = False
        self.dirty = False
        self.reduced = False
        self.asked = False  # the program has asked for it since the last gradient came
        self.waited = 0.0
        self.steps = 0
        self.passes = passes
        self.on_gradient = None
        self.on_round = None
        self.rate = _unknown_rate
        self.parameters = []
        self.compression, coding = choose(compression, model_coding_text)
        party(group)
        if group is not None and coding is not None:
            raise ValueError(f"compression={compression!r}: a process group has no codings; use one of Compression")
        self._party, self._group = group, number_of(group)
        self.place = (self._group, next(_made))  # of its rounds among those of other reducers
        self._op = op
        self._scales = scales
        self._densify = densify
        self._ends_in_backward = ends_in_backward
        self._backward = None  # id of the backward pass whose end is watched
        self._expected = frozenset()  # indexes without which no round of several passes ends in backward()
        self._launched = False  # whether there has been a round
        self._titles = []  # the names that the caller gave
        self._names = NoNames() if self._group else GradientNames(coding)
        self._buckets = []  # of each gradient
        self._index = {}  # by id(): to hash a tensor would be a call of Python's
        self._left = []  # backward passes to go
        self._priority = []
        self._finished = []  # indexes, in the order of the first backward pass; None: that is over
        self._flying = {}  # index -> Flight
        self._boarding = {}  # bucket -> Flight that has not departed
        self._results = {}  # index -> a gradient of this step that has been reduced; a weak reference if it is large
        self._added = {}  # index -> what the last backward pass has left of a gradient that is not sent yet
        self._flags = None  # of the round that has been launched
        self._sparse = set()  # indexes of gradients that some worker had as sparse tensors in the last round
        self._abandoned = []  # handles of a failed round
        self._used = None  # for each parameter whether a worker has used it; None: not known yet
        self._hooks = []
        weakref.finalize(self, _release, self._hooks, self._names).atexit = False
        _alive.add(self)
        self.extend(named)

    def extend(self, named):
        """Add parameters; all workers must do that at the same point. ValueError: another reducer has one of them."""
        named = list(named)
        _owners.check(self, named, _alive)
        if self.compression is Compression.none and not self._group:  # else there is nothing to share
            self._hooks += _shared.hook_gradients(parameter for _, parameter in named if parameter.requires_grad)
        # How a gradient is coded depends on its own size; what is coded travels alone.
        buckets = plan([parameter for _, parameter in named], len(self.parameters), together=not self.coding)
        self._buckets += [bucket for bucket in buckets for _ in bucket.members]
        for name, parameter in named:
            index = self._index[id(parameter)] = len(self.parameters)
            self.parameters.append(parameter)
            self._titles.append(name)
            self._left.append(self.passes)
            self._priority.append(-index)
            before, after = _make_hooks(self, index)
            with _unfrozen(parameter):  # PyTorch takes hooks only then, and keeps them
                self._hooks.append(parameter.register_hook(before))
                self._hooks.append(parameter.register_post_accumulate_grad_hook(after))
        self._finished = []
        self._expected = frozenset(range(len(self.parameters)))
        self._take_names()

    def _take_names(self):
        self._names.take(self, list(zip(self._titles, self.parameters)), self._buckets)
        # Gradients are sent in the order of their parameter's memory.
        self._digest = digest_of(
            f"{name or title} {tuple(p.shape)} {p.dtype} {_memory.wide_order(p)}"
            for name, title, p in zip(self._names.gradients, self._titles, self.parameters)
        )

    def _keep_names(self):
        """Take names anew, and count steps anew, if the job is another one than before."""
        if not self._names.are_current():
            self._take_names()
            self.steps = 0

    @property
    def coding(self):
        """How gradients are coded on the network; None: as configured."""
        return self._names.coding

    @property
    def round_name(self):
        """The name by which its rounds are known in the job."""
        return self._names.flags

    @property
    def busy(self):
        """Whether gradients are on their way."""
        return bool(self._flying)

    @property
    def handles(self):
        """The parameters whose gradients are on their way by themselves, each with handle and compression context."""
        alone = [i for i in self._flying if not self._buckets[i].shared]
        flights = {i: self._flying[i] for i in alone}
        return {self.parameters[i]: (flight.handle, flight.context) for i, flight in flights.items()}

    def names_are_current(self):
        """Return whether its tensors have their names in this job."""
        return self._names.are_current()

    def names(self):
        """Return the name of each tensor in the job, if it has one, after what the caller calls its first gradient."""
        if self._group:
            return []
        firsts = [bucket.members[0] for bucket in dict.fromkeys(self._buckets)]
        return [(self._titles[i], self._names.gradients[i]) for i in firsts]

    @property
    def titles(self):
        """The parameters, each with the name that the caller gave."""
        return dict(zip(self.parameters, self._titles))

    def title(self, parameter):
        """Return the name that the caller gave to a parameter, None if it is not one of these."""
        index = self._index.get(id(parameter))
        return None if index is None else self._titles[index]

    def in_flight(self, index):
        """Return whether the gradient with this index is on its way."""
        return index in self._flying

    def restore(self, index):
        """Put a gradient back that was set to None on its way; return whether that was so."""
        place, parameter = self._flying[index].aboard[index], self.parameters[index]
        cleared = place is not None and parameter.grad is None
        if cleared:
            parameter.grad = place
        return cleared

    def index(self, parameter):
        """Return the index of a parameter, None if it is not one of these."""
        return self._index.get(id(parameter))

    def unknown(self, parameters):
        """Return those that are not among its parameters."""
        return [parameter for parameter in parameters if id(parameter) not in self._index]

    def reset(self, passes=None):
        """Start counting backward passes anew, for another step."""
        self.passes = passes or self.passes
        self.end_step()
        self._count_anew()

    def _count_anew(self):
        self.dirty = False
        self._left = [self.passes] * len(self.parameters)
        self._added.clear()
        if self._finished:
            self._finished = []

    def end_step(self):
        """Note that the reduced gradients have been used."""
        self.reduced = self.asked = False
        self._results.clear()

    # ---- a round -------------------------------------------------------------------------------------

    def before_gradient(self):
        """End a round that was launched before this backward pass, which adds to its gradients."""
        if self._ends_in_backward and not self.paused:
            self.collect_all()

    def gradient_ready(self, index, parameter):
        """Send the gradient of a parameter, if this was the last backward pass before a step."""
        if self.paused:
            return
        if not self._flying:
            self._keep_names()
        if self.on_gradient is not None:
            self.on_gradient(index)
        if index in self._flying or (self._op != Average and self._is_result(index)):
            raise AssertionError(_TOO_MANY)  # an average may be averaged again; sums would count twice
        if self._results:
            self._results.pop(index, None)
        self.dirty = True
        self.asked = False
        if self._ends_in_backward and self._backward != _current_backward():
            self._watch_backward()
        self._left[index] -= 1
        if self._left[index] == 0:
            if self._finished is not None:
                self._finished.append(index)
            if self._board(index, parameter) and not self._group:
                with self._forgetting():
                    self._depart(self._buckets[index])
        else:
            self._added[index] = _state(parameter.grad)

    def _board(self, index, parameter):
        """Take a gradient aboard the next flight of its bucket; return whether all are aboard."""
        bucket = self._buckets[index]
        flight = self._boarding.get(bucket)
        if flight is None:
            flight = self._boarding[bucket] = Flight(bucket)
        self._flying[index] = flight
        return flight.board(index, parameter)

    def _dense(self, index, gradient):
        """Return what is sent for a gradient; zeros for None."""
        if gradient is None:
            rows = index in self._sparse and not self._group and not self._buckets[index].shared
            return (_rows.none_of if rows else torch.zeros_like)(self.parameters[index].detach())
        if _rows.is_sparse(gradient):
            if not self._densify and not self._group and not self._buckets[index].shared:
                _rows.check(gradient, f"the gradient of {self._titles[index]!r}")
                return gradient
            gradient = gradient.to_dense()
        if not _memory.is_usual(gradient):
            _memory.check(gradient, f"the gradient of {self._titles[index]!r}")
        return gradient

    def _depart(self, bucket):
        """Send the gradients that have boarded; what is missing is of parameters that are frozen."""
        self._settle_abandoned()
        first = bucket.members[0]
        name, rate = self._names.gradients[first], self.rate(first)
        priority = max(self._priority[bucket.members.start : bucket.members.stop])
        self._boarding.pop(bucket).depart(
            self._dense,
            self.compression,
            lambda memory: self._start(memory, name, priority, rate),
        )

    def _start(self, memory, name, priority, rate):
        if isinstance(memory, torch.Tensor) and _rows.is_sparse(memory):
            return _rows.Journey(memory, name, self._op, priority, self._scales, self.compression)
        return _bps.push_pull(memory, None, name, self._op, priority, *self._scales, rate, self._group)

    def _is_result(self, index):
        """Return whether a gradient has been reduced in this step."""
        result, gradient = self._results.get(index), self.parameters[index].grad
        return gradient is not None and gradient is (result() if isinstance(result, weakref.ref) else result)

    def _watch_backward(self):
        """Queue a look at the end of this backward pass."""
        backward = _current_backward()
        self.watch(backward)
        torch.autograd.Variable._execution_engine.queue_callback(lambda: _end_backward(backward))

    def watch(self, backward):
        """Watch the end of the backward pass with this id; None: of none."""
        self._backward = backward

    def watches(self, backward):
        """Return whether the end of this backward pass is watched."""
        return self._backward == backward

    @property
    def complete(self):
        """Whether the round ends now, at the end of a backward pass."""
        if self.passes == 1 or self._group:
            return self.busy and self.passes == 1
        missing = self._expected - self._flying.keys()
        return self.busy and not any(map(self._takes_part, missing))

    @property
    def open(self):
        """Whether gradients are on their way and nothing says yet which are those of this worker in the round."""
        waits = self._ends_in_backward and self.busy and self._flags is None and self._backward is None
        return waits and not self._group

    def _takes_part(self, index):
        """Return whether a parameter is reduced in this round: it is not frozen, or has a gradient nevertheless."""
        parameter = self.parameters[index]
        return parameter.requires_grad or parameter.grad is not None

    def _learn_priorities(self):
        """The last of a backward pass is the first of a forward pass; what was unused is the least urgent."""
        unused = sorted(set(range(len(self.parameters))).difference(self._finished))
        for place, index in enumerate([*reversed(self._finished), *unused]):
            self._priority[index] = -place
        self._finished = None

    def launch(self, whole=False):
        """Send the flags, and what has not been sent of the gradients that this worker has.

        whole: zeros in place of all others, too. Otherwise collect() sends those that other workers have.
        """
        with self._forgetting():
            self._launch(whole)

    def _launch(self, whole):
        number_of(self._party)  # raises if the group has ended
        self._keep_names()
        if self.on_round is not None:
            self.on_round(self)
        self._settle_abandoned()
        self._check_added()
        # Who is late has not said what it sends; so all send everything, and no round of a gradient lacks others.
        whole = not self._group and (whole or _bps.conf("server.quorum") != "n")
        if not self._launched:  # PyTorch's wrapper may have come later
            _owners.check_torch(list(zip(self._titles, self.parameters)))
            self._launched = True
        flying = self._flying
        states = [self._sent(i) if i in flying else self._state(i, whole) for i in range(len(self.parameters))]
        self._flags = Flags(self._names.flags, self._digest, self.steps, states, self._group)
        self._used = None
        if self._group:
            start = time.perf_counter()
            self._learn()
            self.waited += time.perf_counter() - start
        else:
            self._send(states)
        if self._finished:
            self._learn_priorities()
        self.reduced = False
        self._count_anew()

    def _state(self, index, whole):
        """Return the state of a parameter whose gradient is not on its way yet."""
        if not self._takes_part(index):
            return FROZEN
        if self.parameters[index].grad is None:
            return ZEROS if whole else UNSENT
        return UNSENT if self._is_result(index) else self._sent(index)

    def _sent(self, index):
        """Return the state of a parameter whose gradient is sent, which may be None: zeros are sent."""
        gradient = self.parameters[index].grad
        return ROWS if gradient is not None and _rows.is_sparse(gradient) and not self._densify else SENT

    def _send(self, states):
        """Send the buckets of what these states say is sent, unless they are on their way."""
        flying = self._flying
        missing = [self._buckets[i] for i, state in enumerate(states) if state >= ZEROS and i not in flying]
        for bucket in sorted({*self._boarding, *missing}, key=lambda bucket: bucket.members.start):
            for index in bucket.members:
                self._board_late(index)
            self._depart(bucket)

    def _board_late(self, index):
        """Take what this worker has of a gradient aboard, or zeros, if it takes part and is not there yet."""
        if index not in self._flying and self._takes_part(index):
            self._board(index, self.parameters[index])

    def _check_added(self):
        """Raise if a gradient was changed between the backward pass that added to it and the round of fewer passes."""
        for index, state in self._added.items():
            gradient = self.parameters[index].grad
            if gradient is not None and index not in self._flying and _state(gradient) != state:
                raise RuntimeError(_CHANGED.format(self._titles[index], "before it was reduced"))

    def _learn(self):
        """Wait for the flags, and send what others have sent and this worker has not."""
        if self._used is None:
            states = self._flags.wait(self._titles)
            self._used = [state >= SENT for state in states]
            self._sparse = {index for index, state in enumerate(states) if state == ROWS}
            self._send(states)
            if self._op == Average:
                self._expected = frozenset(i for i, used in enumerate(self._used) if used)

    def collect(self, indexes):
        """Wait for gradients and put them in their places. A parameter that no worker has used keeps None."""
        start = time.perf_counter()
        self._learn()
        flights = {}
        for index in indexes:
            flights.setdefault(self._flying[index], []).append(index)
        for flight, members in flights.items():
            changed = flight.find_changed(members, self.parameters)
            if changed is not None:
                raise RuntimeError(_CHANGED.format(self._titles[changed], "while it was being reduced"))
        for flight, members in flights.items():
            flight.land([index for index in members if self._used[index]], self.compression.decompress)
        self.waited += time.perf_counter() - start
        for flight, members in flights.items():
            self._place(flight, members)

    def _place(self, flight, members):
        """Note these gradients of a flight as results, and give them to parameters that had none or a sparse one."""
        for index in members:
            del self._flying[index]
            if self._used[index]:
                gradient = flight.gradients[index]
                if index in self._sparse and not _rows.is_sparse(gradient):
                    gradient = gradient.to_sparse(1)
                if flight.aboard[index] is not gradient:
                    self.parameters[index].grad = gradient
                self._results[index] = gradient if flight.bucket.shared else weakref.ref(gradient)

    def finish(self):
        """End the round: launch(), if that has not been done, and collect everything."""
        if self._flags is None:
            self.launch()
        self.collect_all()

    def contribute_nothing(self, steps):
        """Take part in a round of workers that have made so many steps, with zeros; the gradients here stay."""
        kept = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        self.steps = steps
        try:
            self.finish()
        finally:
            for parameter, gradient in zip(self.parameters, kept):
                parameter.grad = gradient
        self.end_step()
        self.steps += 1

    def collect_all(self):
        """Wait for all gradients."""
        with self._forgetting():
            start = time.perf_counter()
            self._learn()
            self.waited += time.perf_counter() - start
            self.collect(list(self._flying))
            self._flags = None
            self.reduced = True

    @contextlib.contextmanager
    def _forgetting(self):
        try:
            yield
        except BaseException:
            self.forget()
            raise

    def forget(self):
        """Give a failed round up. What of it is on its way comes to an end before the next one."""
        flights = dict.fromkeys(self._flying.values())
        self._abandoned += [flight.handle for flight in flights if flight.native is not None]
        if self._flags is not None:
            self._abandoned.append(self._flags.handle)
        self._flying.clear()
        self._boarding.clear()
        self._flags = None
        self.reset()

    def go_on(self):
        """Count steps anew with other workers, of whom newcomers have made none; a round that was open is given up."""
        if self._ends_in_backward:
            self.forget()
        self.steps = 0

    def _settle_abandoned(self):
        """Wait for what forget() has given up: until it has ended, its names are in flight."""
        while self._abandoned:
            with contextlib.suppress(Error):  # that round has failed, as its caller knows
                self._abandoned[-1].wait()
            self._abandoned.pop()


def _end_backward(backward):
    """End the rounds that are complete at the end of a backward pass."""
    watching = [reducer for reducer in _alive if reducer.watches(backward)]
    node = _current_node()
    if node is not None:  # this pass is inside another one, as that of a checkpoint
        _end_with_outer(node, watching)
        return
    for reducer in watching:
        reducer.watch(None)
    complete = sorted((reducer for reducer in watching if reducer.complete), key=lambda reducer: reducer.place)
    for reducer in complete:  # all before one is waited for: another worker may have others, or wait in another order
        reducer.launch(whole=len(complete) > 1)
    for reducer in complete:
        reducer.collect_all()


def _end_with_outer(node, watching):
    """Watch the end of the backward pass that runs this node, instead of that of the pass inside it."""

    def watch(*_):
        registered.remove()
        outer = _current_backward()
        for reducer in watching:
            reducer.watch(outer)
        torch.autograd.Variable._execution_engine.queue_callback(lambda: _end_backward(outer))

    registered = node.register_hook(watch)


def launch_open():
    """Launch rounds that other workers may wait for, before this worker waits for something else."""
    if _current_backward() == -1:
        for reducer in sorted((reducer for reducer in _alive if reducer.open), key=lambda reducer: reducer.place):
            reducer.launch(whole=True)


def _go_on():
    for reducer in list(_alive):
        reducer.go_on()


before_operations.append(launch_open)
after_reform.append(_go_on)


def _unshared(gradient, base):
    """Return a copy of a gradient, a view of `base`, whose memory something else uses, as the sum is computed in place.

    The gradient of ``bias.view(1, -1)`` is a view of that of the output, if that has one row. Autograd makes
    it bias.grad, and may have yet to read the other. A base that only the view uses has two references: that
    of the view, and the one here.
    """
    shared = _use_count is None or _use_count(base) > 2
    return gradient.clone() if shared else None


def _state(gradient):
    """Return what is another after a gradient has been changed or replaced."""
    return gradient._version, gradient.data_ptr() if gradient.layout is torch.strided else id(gradient)


@contextlib.contextmanager
def _unfrozen(parameter):
    """Return a context in which a parameter requires gradients."""
    frozen = not parameter.requires_grad
    if frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        if frozen:
            parameter.requires_grad_(False)


def may_train(parameter):
    """Return whether a parameter requires gradients, or may do so later."""
    return parameter.requires_grad or (parameter.is_floating_point() and not parameter.is_inference())


def _make_hooks(reducer, index):
    """Return what runs before and after a gradient is added to that of the parameter with this index.

    They do not keep the reducer alive.
    """
    reference = weakref.ref(reducer)

    @torch.utils.hooks.unserializable_hook  # a copy of the parameter does not need it
    def before(gradient):
        alive = reference()
        if alive is not None and alive._flags is not None:
            alive.before_gradient()
        base = gradient._base
        return None if base is None else _unshared(gradient, base)

    def after(parameter):
        alive = reference()
        if alive is not None:
            alive.gradient_ready(index, parameter)

    return before, after


def _unknown_rate(index):
    return 0.0


def _release(hooks, names):
    """Give back what a reducer that is gone has in the parameters and in the job."""
    for hook in hooks:
        hook.remove()
    names.give_back()
