# SPDX-License-Identifier: Apache-2.0
"""Runs around a loop of the caller's own: `join`, `run`, `simulate`.

The run's native threads ask for steps; the caller's thread answers inside `Site.steps` and
`Site.step`. No Python code runs on another thread than the caller's."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Union

import numpy as np

from . import _abi, _log
from ._errors import ConfigError, RunError, check
from ._launched import in_cell, told, told_cell
from ._native import NativeSession, Outcome, check_parts, process
from ._program import call_json
from ._progress import Progress
from ._trained import Arrays, Trained, count_of, number_of
from ._turns import Turns
from ._tables import Section

if TYPE_CHECKING:
    from ._trained import Evaluate, Floats

    Body = Callable[["Site"], Any]

_BODY_ENDS_S = 5.0  # that a body which is in a step is given to end, once the run has failed
_LOOK_NS = 100_000_000  # signals are looked for so often while a site waits
_INTERRUPT, _REQUEUE, _CHECKPOINT, _LEAVE = 1, 2, 3, 4
_TRAIN = _abi.TRAIN
_LOSS = _abi.place(_abi.Step, "loss")
_KIND, _WROTE = (_abi.place(_abi.Request, name) for name in ("kind", "wrote"))
_STEP, _UNTIL, _LOG_LINES = (_abi.place(_abi.Request, name) for name in ("step", "until", "log_lines"))


def _no_batch(t: int) -> None:
    return None


class _Entries(Dict[str, bytes]):
    """Entries that go to the library as they come, so that one at a time is in memory here."""

    def __init__(self, session: Any, worker: int) -> None:
        super().__init__()
        self._session, self._worker = session, worker  # not the site, which would stay in memory with them

    def __setitem__(self, name: str, data: bytes) -> None:
        check(_abi.lib.isthmus_state_put(self._session, self._worker, name.encode(), ctypes.c_char_p(data), len(data)))
        super().__setitem__(name, b"")

    def update(self, entries: "Mapping[str, bytes]") -> None:  # type: ignore[override]
        for name, data in entries.items():
            self[name] = data


class Site:
    """One worker of a run, driven by the thread that made it.

    `t` is the step that is trained, `total_steps` the run's last, `index` the worker's number of
    `sites`, `config` the configuration in effect, `outcome` how the run ended.
    """

    def __init__(self, session: NativeSession, worker: int) -> None:
        self._session = session
        self._worker = worker
        self._thread = threading.get_ident()
        self._trained: "Optional[Trained]" = None
        self._turns: "Optional[Turns]" = None  # of bodies that share the process
        self._open = False  # step t has been given out and not answered
        self._told = False  # `_said` is the answer to the open request, and has not been sent
        self._stage = _abi.TRAIN  # what the run waits for; under ddp GRADIENTS, then APPLY; or REPLAY
        self._void = False  # step t does not count, as average_gradients() has said
        self._averaged = 0.0  # the loss that it was told
        self._shown = False  # anchors() is open
        self._iterated = False  # by steps(), and not by a loop of the caller's
        self._ended = False
        self._sizes: "Optional[tuple[int, int, int]]" = None  # of the file's own samples
        self._said = _abi.Step(ctypes.sizeof(_abi.Step))  # made once: a step allocates nothing for the library
        self._request = _abi.Request(ctypes.sizeof(_abi.Request))
        self._rest: "Optional[tuple[int, float, float, bool]]" = None  # what `_said` has beside the loss
        self._said_reals = _abi.view(self._said, "loss")
        self._request_ints, self._request_longs = (_abi.view(self._request, name) for name in ("kind", "step"))
        self._next: "Optional[Callable[[], Any]]" = None  # asks for the next request
        self._answer_next: "Optional[Callable[[], Any]]" = None  # answers by `_said` before
        self.t = 0
        self.outcome: "Optional[Outcome]" = None

    @property
    def index(self) -> int:
        return self._session.first + self._worker

    @property
    def sites(self) -> int:
        return self._session.workers

    @property
    def total_steps(self) -> int:
        return self._session.total_steps

    @property
    def config(self) -> Section:
        return self._session.config

    def stop(self) -> None:
        """Asks all sites to stop after one step, with a checkpoint: exit code 130."""
        self._session.wish(_INTERRUPT)

    def requeue(self) -> None:
        """The same with exit code 85."""
        self._session.wish(_REQUEUE)

    def checkpoint(self) -> None:
        """Asks all sites for a checkpoint after a step that they agree on."""
        self._session.wish(_CHECKPOINT)

    def leave(self) -> None:
        """This site leaves, the others train on."""
        self._session.wish(_LEAVE)

    @property
    def closed(self) -> bool:
        """Whether the site has left its run: it ended, failed or was left."""
        return self._session.closed

    def status(self) -> "dict[str, Any]":
        """What `isthmus status` says of this run, as one object: step, loss, sites, links, time left."""
        out = self._session.out or self.config.run.get("out")
        if not out:
            raise ConfigError("status: which folder is the run's? Give out=..., or run.out in the file")
        found: "dict[str, Any]" = call_json("status", os.fsdecode(out))
        return found

    @property
    def validation_parts(self) -> int:
        """Parts of an evaluation of the file's own data: 0 where it has no validation part."""
        return self._samples()[2]

    def batch(self, t: "Optional[int]" = None, *, positions: bool = False) -> "tuple[Any, ...]":
        """This site's samples of step t (default: the current one) of the file's own data ([data],
        train.context, train.global_batch): the very samples that the built-in trainer of this site would take.

        RETURNS: inputs and targets, int32 arrays of shape (samples, context); targets are the inputs one
        position later. With `positions` an array of the same shape follows: each token's position in its
        document, 0 where one begins. A file with data.pack = "documents" needs it: tokens attend to those
        of their own document alone, `positions` goes to the model as `position_ids`, and a target of -100,
        which PyTorch's cross_entropy leaves out, stands for the last token of a document. Raises ConfigError
        where the file has no such keys, or packs documents and `positions` is not asked for.
        """
        samples, context, _ = self._samples()
        arrays = [np.empty((samples, context), np.int32) for _ in range(3 if positions else 2)]
        call = _abi.lib.isthmus_packed_batch if positions else _abi.lib.isthmus_batch
        check(call(self._session.handle, self._worker, self.t if t is None else t,
                   *(array.ctypes.data for array in arrays), arrays[0].size))
        return tuple(arrays)

    def validation(self, part: int, *, positions: bool = False) -> "tuple[Any, ...]":
        """Part `part` (0 to `validation_parts` - 1) of an evaluation of the file's own data, as `batch`:
        (windows, context) with at most 8 windows."""
        context = self._samples()[1]
        arrays = [np.empty((8, context), np.int32) for _ in range(3 if positions else 2)]
        windows = ctypes.c_int64()
        call = _abi.lib.isthmus_packed_validation if positions else _abi.lib.isthmus_validation
        check(call(self._session.handle, self._worker, part, *(array.ctypes.data for array in arrays),
                   arrays[0].size, ctypes.byref(windows)))
        return tuple(array[:windows.value] for array in arrays)

    def _samples(self) -> "tuple[int, int, int]":
        """Samples of a step, their length, parts of an evaluation: the library is asked once."""
        self._check_thread()
        if self._sizes is None:
            samples, context, parts = ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int64()
            check(_abi.lib.isthmus_samples(self._session.handle, self._worker, ctypes.byref(samples),
                                           ctypes.byref(context), ctypes.byref(parts)))
            self._sizes = samples.value, context.value, parts.value
        return self._sizes

    def steps(self, batches: "Union[Iterable[Any], Callable[[int], Any], None]" = None) -> "Iterator[Any]":
        """Yields (t, batch) for every step that the run asks for, until the run ends.

        `batches`: a function of t, an iterable, or None for batches of None. t may jump: forward
        when a site has joined, back where a lost site's steps are taken again. A function of t is
        exact by itself; an iterable is exact where its position is part of `state`.
        """
        self._check_thread()
        trained = self._attached()
        self._iterated = True
        of_step: "Callable[[int], Any]"
        if batches is None:
            of_step = _no_batch
        elif callable(batches) and not hasattr(batches, "__iter__"):
            of_step = batches
        else:
            of_step = trained.batches_of(batches, self.total_steps)
        while not self._ended:
            t = self.t
            batch = of_step(t)
            self._open, self._void = True, False
            yield t, batch
            if self._open and not self._ended:
                raise RunError(
                    f"step {t} has not been told of: call site.step() once in every pass of site.steps()"
                )

    def progress(self, batches: "Union[Iterable[Any], Callable[[int], Any], None]" = None) -> "Iterator[Any]":
        """The same as `steps`, with a progress bar of tqdm's: loss, share of the time that the run waited for
        other sites, bytes sent, time left. Without tqdm a line of the log every 10 s.

        for t, batch in site.progress(loader):
            ...
        """
        out = self._session.out or self.config.run.get("out")
        bar = Progress(self.total_steps, self.t - 1, pathlib.Path(os.fsdecode(out)) if out else None)
        try:
            for t, batch in self.steps(batches):
                yield t, batch
                bar.show(t, self._said.loss)
        finally:
            bar.close()

    def _wants_gradients(self) -> bool:
        """Whether the step takes a mean of gradients. Raises RunError for a call out of turn."""
        if self._ended:
            raise RunError(f"the run has ended: site.outcome is {self.outcome}")
        if self._stage == _abi.TRAIN:
            return False
        if self._stage == _abi.APPLY:
            raise RunError(f"site.average_gradients() was called twice in step {self.t}")
        if self._iterated and not self._open:
            raise RunError("site.average_gradients() was called outside of a pass of site.steps(), or after site.step()")
        return True

    def average_gradients(self, loss: Any = None, *, tokens: Optional[int] = None, gradients: Any = None) -> bool:
        """Under outer.method = "ddp": between the backward pass and the optimizer's step the gradients become their
        mean over all sites. Under every other method nothing happens, so one loop serves all.

        for t, batch in site.steps(loader):
            loss = loss_of(model, batch)
            loss.backward()
            if not site.average_gradients(loss, tokens=batch.numel()):
                continue  # a site was lost meanwhile, and the step is taken again
            opt.step(); opt.zero_grad()
            site.step(loss, tokens=batch.numel())

        `loss`, `tokens`: for the run's lines; `step` does not look at its own under ddp. All sites weigh alike in the
        mean. `gradients`: name -> float32 array of a site with numpy arrays, in which the mean is written; a PyTorch
        model's are found. RETURNS: False where the step does not count: a site was lost, or a gradient of some site
        was not finite. The parameters are then those of the step that comes next, a model's gradients are gone, and
        the rest of the pass is to be left out. Blocks while the run waits for other sites.
        """
        self._check_thread()
        trained = self._attached()
        if not self._wants_gradients():
            return True
        t, self._void = self.t, False
        told = trained.number("loss", loss)
        if self._stage == _abi.REPLAY:  # a step of the others', whose mean is there
            self._stage = _abi.APPLY
        else:
            trained.give_gradients(gradients)
            self.tell(told, 1 if tokens is None else count_of("tokens", tokens), 0.0, 0.0, False)
            self.serve()
        if self._stage == _abi.APPLY and self.t == t and not self._ended:
            self._averaged = told
            if trained.take_gradients(gradients):
                return True
            # The mean is the same at all sites, so all of them leave the step out.
            _log.logger.warning("step %d: a gradient was not finite: no site takes this step", t)
            self.tell(told, 1, 0.0, 0.0, True)
            self.serve()
        trained.drop_gradients()
        self._open, self._void = False, True
        return False

    def step(self, loss: Any = None, *, tokens: Optional[int] = None, grad_norm: Any = None,
             learning_rate: Optional[float] = None, skipped: bool = False) -> None:
        """Tells of inner step t, which has changed the parameters; then the run may read and write
        them, save and load state, evaluate (under ddp in `average_gradients` too). Blocks while the run waits for
        other sites.

        `loss`: its mean over `tokens` targets, a number or an array of one value. `tokens` weigh this
        site's contribution (absent: one a step). `skipped`: the step changed nothing. A `loss` or `grad_norm` that is
        not finite ends the run, which has diverged (RunError), unless the step was skipped.
        """
        # Between two steps of a training loop the processor has forgotten this code, so each call and object counts.
        session, trained = self._session, self._trained
        if session.closed or process.pid != session.pid or get_ident() != self._thread:
            self._check_thread()
        if trained is None:
            trained = self._attached()
        if self._stage != _TRAIN or self._ended or self._void or (self._iterated and not self._open):
            self._check_step()
            loss = self._averaged
        said = trained.before_step(loss, tokens, grad_norm, learning_rate, skipped)
        self._open = False
        self.tell(*said)
        self.serve()

    def _check_step(self) -> None:
        """Raises, unless `step` may tell of a step whose gradients are averaged."""
        if self._ended:
            raise RunError(f"the run has ended: site.outcome is {self.outcome}")
        if self._void:
            raise RunError("the step does not count: leave out the rest of the pass where site.average_gradients() "
                           "returns False")
        if self._stage in (_abi.GRADIENTS, _abi.REPLAY):
            raise RunError('outer.method = "ddp" exchanges gradients: call site.average_gradients(loss) between the '
                           "backward pass and optimizer.step()")
        if self._iterated and not self._open:
            raise RunError("site.step() was called twice in one pass of site.steps(), or outside of it")

    def tell(self, loss: float, tokens: int, grad_norm: float, learning_rate: float, skipped: bool) -> None:
        """The answer to the open request, which `serve` sends."""
        self._said_reals[_LOSS] = loss
        rest = (tokens, grad_norm, learning_rate, skipped)
        if rest != self._rest:
            said, self._rest = self._said, rest
            said.tokens, said.grad_norm, said.learning_rate, said.skipped = rest
        self._told = True

    def serve(self) -> None:
        """Answers all requests up to the next step, or the end."""
        trained = self._trained or self._attached()
        turns, worker = self._turns, self._worker
        ints, longs = self._request_ints, self._request_longs
        anew = False  # the state is another trainer's
        while True:
            call = self._answer_next if self._told else self._next
            assert call is not None
            self._told = False
            if turns is not None:
                turns.leave(worker)
            try:
                error = call()
            finally:
                if turns is not None:
                    turns.enter(worker)
            if error:
                _log.drain()
                check(error)
            if longs[_LOG_LINES]:
                _log.drain()
            kind = ints[_KIND]
            if kind == _TRAIN or kind in (_abi.GRADIENTS, _abi.REPLAY):
                self.t = t = longs[_STEP]
                self._stage = trained.stage = kind
                if anew:
                    trained.count_from(t)
                trained.after_step(bool(ints[_WROTE]), t, longs[_UNTIL])
                return
            if kind == _abi.APPLY:
                self._stage = kind
                return
            if kind == _abi.END:
                self._end(self._session.outcome())
                return
            if kind == _abi.NOTHING:
                trained.waits()
                continue
            if kind == _abi.EVALUATE:
                self._answer_losses([self._request.parts[i] for i in range(self._request.part_count)])
                continue
            if kind == _abi.SAVE:
                trained.save(_Entries(self._session.handle, self._worker))
            elif kind == _abi.LOAD:
                anew = not self._holds(trained.marker)
                if anew:
                    _log.logger.warning("the state that this site begins with is of a site with another trainer: what "
                                        "the optimizer holds begins anew")
                    trained.restart()
                else:
                    trained.load(self._read)
            elif kind == _abi.RESTART:
                _log.logger.warning("step %d: a value was not finite: the run goes on from its outer parameters, "
                                    "and what the optimizer held is forgotten", self.t)
                trained.restart()
            elif kind == _abi.READ:
                trained.read(self._request.first, self._request.end)
            elif kind == _abi.WROTE:
                trained.wrote(self._request.first, self._request.end)
            elif kind == _abi.RANKS:
                trained.share_outer(self._session.share_outer)
            check(_abi.lib.isthmus_answer(self._session.handle, self._worker, None))

    def _end(self, outcome: Outcome) -> None:
        if self.t == 0 and outcome.exit_code == 0:
            _log.logger.warning("the run in '%s' was complete before: the parameters are as they were given, not the "
                                "run's; isthmus.open(folder).weights() reads those", outcome.directory)
        self._attached().after_run(outcome)
        self._ended = True
        self.outcome = outcome

    @contextlib.contextmanager
    def anchors(self) -> "Iterator[None]":
        """While it is open the parameters hold the outer ones, the anchors; then their own again. After the run's
        end they are those of its last checkpoint, which the first call reads.

        with site.anchors():
            validate(model)
        """
        self._check_thread()
        trained = self._attached()
        if self._stage != _abi.TRAIN and not self._ended:
            yield  # under ddp the parameters are the outer ones
            return
        self._shown = True
        try:
            with trained.showing(self._outer_values(trained)):
                yield
        finally:
            self._shown = False

    def _outer_values(self, trained: Trained) -> "Iterator[Floats]":
        for number, array in enumerate(trained.arrays.values()):
            values = np.empty(array.shape, np.float32)
            check(_abi.lib.isthmus_outer_values(self._session.handle, self._worker, number,
                                                values.ctypes.data, values.size))
            yield values

    def _holds(self, name: str) -> bool:
        return bool(_abi.lib.isthmus_state_bytes(self._session.handle, self._worker, name.encode()) >= 0)

    def _read(self, name: str) -> bytes:
        size = _abi.lib.isthmus_state_bytes(self._session.handle, self._worker, name.encode())
        if size < 0:
            raise KeyError(name)
        data = ctypes.create_string_buffer(max(size, 1))
        check(_abi.lib.isthmus_state_get(self._session.handle, self._worker, name.encode(), data, size))
        return data.raw[:size]

    def _answer_losses(self, parts: "list[int]") -> None:
        sums = (ctypes.c_double * len(parts))()
        tokens = (ctypes.c_int64 * len(parts))()
        for i, loss in enumerate(self._attached().losses(parts)):
            if not isinstance(loss, (tuple, list)) or len(loss) != 2:
                raise ConfigError(f"evaluate({parts[i]}) = {loss!r}: must be (sum of losses, targets)")
            sums[i] = number_of(f"evaluate({parts[i]}): the sum of losses", loss[0])
            tokens[i] = count_of(f"evaluate({parts[i]}): the number of targets", loss[1])
        check(_abi.lib.isthmus_answer_losses(self._session.handle, self._worker, sums, tokens, len(parts)))

    def _attached(self) -> Trained:
        if self._trained is None:
            raise ConfigError("this site has no parameters yet: call site.attach(params, ...) first")
        return self._trained

    def attach(self, params: "Mapping[str, Floats]", *, state: Any = None,
               evaluate: "Optional[Evaluate]" = None,
               layer_of: "Optional[Callable[[str], int]]" = None) -> "Site":
        """Gives the run this worker's parameters: name -> contiguous float32 array, the same names,
        shapes and initial values at every worker. Arguments are those of `join`."""
        if hasattr(params, "named_parameters"):
            raise ConfigError("attach: of a PyTorch model, isthmus.torch.attach(site, model, optimizer, ...)")
        self.give(Arrays(params, state, evaluate), layer_of)
        return self

    def give(self, trained: Trained, layer_of: "Optional[Callable[[str], int]]") -> None:
        """What this site trains, once."""
        self._check_thread()
        if self._trained is not None:
            raise ConfigError("attach: this site has parameters already")
        _check_evaluate(trained.evaluates, self._session.evaluation_parts)
        gradients = trained.gradient_arrays() if self.config.outer.method == "ddp" else {}
        self._session.give_parameters(self._worker, [
            (name, array.shape, array.ctypes.data, gradients[name].ctypes.data if gradients else None)
            for name, array in trained.arrays.items()], layer_of)
        if trained.copies:
            check(_abi.lib.isthmus_session_copies(self._session.handle, self._worker))
        self._session.memory.append([*trained.arrays.values(), *gradients.values()])
        self._trained = trained
        session, worker = self._session.handle, ctypes.c_int32(self._worker)
        wait, request = ctypes.c_int64(_LOOK_NS), ctypes.byref(self._request)
        self._next = _abi.bound("isthmus_next", session, worker, wait, request)
        self._answer_next = _abi.bound("isthmus_answer_next", session, worker, ctypes.byref(self._said), wait, request)
        trained.begin(self.index)

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        ended = self._ended
        try:
            if not ended and error is not None:
                self._session.fail(self._worker, error)
        finally:
            self._session.close()
        if not ended and error is None:
            raise RunError(
                f"the run was left at step {self.t} of {self.total_steps}, and the other sites lose this "
                "one: go through site.steps() to its end, after site.stop() or site.leave() to end early"
            )

    def _check_thread(self) -> None:
        self._session.check_open()
        if threading.get_ident() != self._thread:
            raise ConfigError("this site belongs to the thread that made it")


def options_of(**given: Any) -> "dict[str, Any]":
    """Of a native session. A site with a process of its own hears of `isthmus launch` too."""
    common = given.pop("alike")
    options = told(given) if given.get("site") else told_cell(given)
    return {**options, "common": json.dumps({k: str(v) for k, v in common.items()}) if common else None}


def options_of_follower(overrides: "Sequence[str]", change: "Sequence[str]", site: str) -> "dict[str, Any]":
    """Of a native session that does not start: the configuration of the run in effect, and nothing of its folder, its
    data and its links."""
    heard = told({"overrides": overrides, "change": change, "site": site})
    return {"overrides": [*heard["overrides"], *heard["change"]], "site": site, "out": None, "evaluation_parts": 0}


@contextlib.contextmanager
def _signals(session: NativeSession, wanted: bool) -> "Iterator[None]":
    """SIGINT, SIGTERM, SIGUSR1, SIGUSR2 as wishes; a second SIGINT is a KeyboardInterrupt."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = [False]

    def on_signal(number: int, frame: Any) -> None:
        if process.pid != session.pid:  # a forked child: as if nobody had asked for signals
            handler = before[signal.Signals(number)]
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if session.closed:
            return
        if number == signal.SIGINT:
            if asked[0]:
                raise KeyboardInterrupt
            asked[0] = True
        session.wish({signal.SIGINT: _INTERRUPT, signal.SIGTERM: _REQUEUE, signal.SIGUSR1: _CHECKPOINT,
                      signal.SIGUSR2: _LEAVE}[signal.Signals(number)])

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Joined(Site):
    """A site with a process of its own."""

    def __init__(self, session: NativeSession, signals: bool) -> None:
        super().__init__(session, 0)
        self._scope = contextlib.ExitStack()
        self._scope.enter_context(_signals(session, signals))

    def begin(self, trained: Trained, layer_of: "Optional[Callable[[str], int]]") -> "_Joined":
        try:
            self.give(trained, layer_of)
            check(_abi.lib.isthmus_session_start(self._session.handle))
            self.serve()
        except BaseException:
            self._scope.close()
            self._session.close()
            raise
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._scope.close()
        super().__exit__(kind, error, traceback)


def join(config: _abi.Path, params: "Mapping[str, Floats]", *, site: Optional[str] = None,
         out: Optional[_abi.Path] = None, resume: str = "auto", overrides: "Sequence[str]" = (),
         state: Any = None, evaluate: "Optional[Evaluate]" = None, evaluation_parts: "Union[int, str]" = 0,
         alike: "Optional[Mapping[str, Any]]" = None, kind: str = "numpy",
         layer_of: "Optional[Callable[[str], int]]" = None, listen: Optional[str] = None,
         key_file: Optional[_abi.Path] = None, addresses: "Sequence[str]" = (),
         links: Optional[_abi.Path] = None, force: bool = False, signals: bool = True, log: bool = False,
         change: "Sequence[str]" = ()) -> Site:
    """Takes part in a run as the site `site` (default: ISTHMUS_SITE) and blocks until the sites have
    met; the parameters then hold the agreed start: the initial values, a checkpoint's, or those of a
    run that goes on.

    with isthmus.join("run.toml", params, site="east", out="runs/east", state=moments) as site:
        for t, batch in site.steps(batch_of_step):
            loss = train(params, batch)
            site.step(loss, tokens=batch.size)

    `params`: name -> contiguous float32 array; the run reads and writes these very arrays in
    `site.step`. `state`: what else a resumed or joining site needs: a dictionary of arrays and
    numbers that is restored in place, or objects with state_dict and load_state_dict.
    `evaluate(part) -> (sum of losses, targets)` is called with the outer parameters in place, for
    `evaluation_parts` parts at the steps of [eval]; "file": for as many as `site.validation_parts`, part k
    being `site.validation(k)`, as sites with the built-in trainer have it. `alike`: values that sites of
    this `kind` must have in common (learning rate, batch size). `addresses` ("west=10.0.0.2:48200") and
    `links` (a file of measured links) stand in place of the file's. `log`: the run's lines go to stderr,
    where the logger `isthmus` has no handler. `change` (["train.steps=400"]): keys of a run that goes on, changed
    from here on; give them at every later resume too, with the overrides that the run was begun with. A program
    that `isthmus launch` has started is told site, folder, resume and addresses in its environment. Raises
    ConfigError, PeerError, SystemFault, RunError.
    """
    if log:
        _log.show()
    site = site_named(site)
    check_parts(evaluation_parts)
    _check_evaluate(evaluate, evaluation_parts)
    session = NativeSession(config, **options_of(
        overrides=overrides, site=site, listen=listen, key_file=key_file, addresses=addresses, links=links, out=out,
        resume=resume, kind=kind, alike=alike, evaluation_parts=evaluation_parts, force=int(force), change=change))
    return joined(session, signals, lambda: Arrays(params, state, evaluate), layer_of)


def joined(session: NativeSession, signals: bool, trained: "Callable[[], Trained]",
           layer_of: "Optional[Callable[[str], int]]") -> Site:
    try:
        what = trained()
    except BaseException:
        session.close()
        raise
    return _Joined(session, signals).begin(what, layer_of)


def site_named(site: Optional[str]) -> str:
    """`site`, else ISTHMUS_SITE."""
    site = site or os.environ.get("ISTHMUS_SITE")
    if in_cell():
        raise ConfigError("join in a cell of isthmus compare, whose sites are all in this process: give the loop to "
                          "isthmus.run or isthmus.simulate as a body, or start the program once for each site by "
                          "isthmus compare --each-site")
    if not site:
        raise ConfigError("join: which site is this? Give site=..., or set ISTHMUS_SITE")
    return site


def _check_evaluate(evaluate: Any, parts: "Union[int, str]") -> None:
    if (evaluate is None) != (parts == 0):
        raise ConfigError(
            "evaluate and evaluation_parts belong together: give both, or neither (run and simulate take "
            "evaluation_parts, site.attach takes evaluate)"
        )


class _Together:
    """All workers of a run in this process: a thread of Python for each."""

    def __init__(self, session: NativeSession, body: "Body", slots: int) -> None:
        if slots < 1:
            raise ConfigError(f"slots = {slots}: must be >= 1 (bodies that compute at the same time)")
        self.session = session
        self.body = body
        self.turns = Turns(slots)
        self.ready = threading.Barrier(session.local, action=self.start)
        self.errors: "list[BaseException]" = []
        self.outcome: "Optional[Outcome]" = None

    def start(self) -> None:
        check(_abi.lib.isthmus_session_start(self.session.handle))

    def one(self, worker: int) -> None:
        self.turns.enter(worker)
        try:
            site = _BodySite(self, worker)
            self.body(site)
            if not site._ended:
                raise RunError(
                    f"the body of worker {worker} returned at step {site.t} of {site.total_steps}: go "
                    "through site.steps() to its end"
                )
            self.outcome = site.outcome
        except BaseException as error:  # the caller of run() gets it
            self.errors.append(error)
            self.fail(error, f"worker {worker}: ")
        finally:
            self.turns.leave(worker)

    def fail(self, error: BaseException, prefix: str = "") -> None:
        self.ready.abort()
        for each in range(self.session.local):
            self.session.fail(each, error, prefix)

    def run(self) -> Outcome:
        threads = [threading.Thread(target=self.one, args=(worker,), name=f"isthmus-{worker}", daemon=True)
                   for worker in range(self.session.local)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # so that signals are handled meanwhile
                    thread.join(0.1)
        except BaseException as error:  # a second Ctrl+C: bodies that are in a step end with it
            self.fail(error)
            for thread in threads:
                thread.join(_BODY_ENDS_S)
            if any(thread.is_alive() for thread in threads):
                self.session.leak()  # a body may be inside the library
            else:
                self.session.close()
            raise
        self.session.close()
        own = [each for each in self.errors if not isinstance(each, threading.BrokenBarrierError)]
        if own:
            raise own[0]
        assert self.outcome is not None
        return self.outcome


class _BodySite(Site):
    def __init__(self, together: _Together, worker: int) -> None:
        super().__init__(together.session, worker)
        self._together = together

    def give(self, trained: Trained, layer_of: "Optional[Callable[[str], int]]") -> None:
        super().give(trained, layer_of)
        turns = self._together.turns
        turns.leave(self._worker)
        try:
            self._together.ready.wait()
        finally:
            turns.enter(self._worker)
        if self._session.local > 1:
            self._turns = turns  # one body has the process to itself
        self.serve()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        pass  # `run` ends the session once all bodies have returned


def run(config: _abi.Path, body: "Body", *, out: Optional[_abi.Path] = None, resume: str = "never",
        overrides: "Sequence[str]" = (), alike: "Optional[Mapping[str, Any]]" = None, kind: str = "numpy",
        evaluation_parts: "Union[int, str]" = 0, force: bool = False, signals: bool = True, slots: int = 1,
        change: "Sequence[str]" = ()) -> Outcome:
    """All workers in this process, on the real clock: `body(site)` once for each, in a thread of its
    own. A body makes its model and calls `site.attach(params, ...)`, then goes through
    `site.steps()`.

    `slots`: so many bodies compute at the same time. With one, each body has the random states of
    the process (Python's, numpy's, PyTorch's) to itself; with more, a body needs generators of its
    own. `change` (["train.steps=400"]): with `resume`, keys of the run, changed from here on. In a program that
    `isthmus compare --program` has started, `run` and `simulate` are the same: file, folder and clock are those of the
    comparison's run."""
    session = NativeSession(config, **options_of(overrides=overrides, out=out, resume=resume, kind=kind, alike=alike,
                                          evaluation_parts=evaluation_parts, force=int(force), change=change))
    with _signals(session, signals):
        return _Together(session, body, slots).run()


def simulate(config: _abi.Path, body: "Body", *, link: Optional[str] = None,
             out: Optional[_abi.Path] = None, resume: str = "never", overrides: "Sequence[str]" = (),
             alike: "Optional[Mapping[str, Any]]" = None, kind: str = "numpy", evaluation_parts: "Union[int, str]" = 0,
             force: bool = False, signals: bool = True, slots: int = 1, change: "Sequence[str]" = ()) -> Outcome:
    """The same in virtual time over the links of the file, or over `link` ("100Mbit/s,80ms") between
    all sites. A step takes sim.step_time of the file."""
    session = NativeSession(config, **options_of(overrides=overrides, out=out, resume=resume, kind=kind, alike=alike,
                                          link=link, evaluation_parts=evaluation_parts, force=int(force),
                                          simulated=1, change=change))
    with _signals(session, signals):
        return _Together(session, body, slots).run()
