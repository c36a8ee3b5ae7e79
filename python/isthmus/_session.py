# SPDX-License-Identifier: Apache-2.0
"""Runs around a loop of the caller's own: `join`, `run`, `simulate`.

The run's native threads ask for steps; the caller's thread answers inside `Site.steps` and
`Site.step`. No Python code runs on another thread than the caller's."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

import numpy as np

from . import _abi, _log
from ._errors import ConfigError, Error, RunError, check
from ._program import call_json
from ._state import packed, restore_into, unpacked
from ._tables import Section

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Evaluate = Callable[[int], "tuple[float, int]"]
    Body = Callable[["Site"], Any]

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)(?:\.|$)")
_BODY_ENDS_S = 5.0  # that a body which is in a step is given to end, once the run has failed
_LOOK_NS = 100_000_000  # signals are looked for so often while a site waits
_INTERRUPT, _REQUEUE, _CHECKPOINT, _LEAVE = 1, 2, 3, 4


class Forked(Error):
    """A site was used in a process that was forked from its own."""

    kind = "usage"


class Outcome:
    """How a run ended: `exit_code` (0, 85, 130 as the program's), `status`, `directory`, `steps`."""

    def __init__(self, end: "dict[str, Any]") -> None:
        self.exit_code: int = end["exit_code"]
        self.status: str = end["status"]
        self.directory: str = end["directory"]
        self.steps: int = end["steps"]
        self.clock_s: float = end["clock_s"]

    def __repr__(self) -> str:
        return f"<{self.status} after {self.steps} steps, exit code {self.exit_code}: {self.directory}>"


def layer_of_name(name: str) -> int:
    """The first number after layers, h, blocks or layer in a parameter's name; -1: none."""
    found = _LAYER.search(name)
    return int(found.group(1)) if found else -1


class _Session:
    """A native session and who serves it. Freed once, in the process that made it."""

    def __init__(self, config: _abi.Path, **options: Any) -> None:
        overrides: Sequence[str] = options.pop("overrides")
        if isinstance(overrides, str):
            raise ConfigError(f'overrides = "{overrides}": must be a list of texts, ["outer.H=50"]')
        texts = [each.encode() for each in overrides]
        array = (ctypes.c_char_p * len(texts))(*texts)
        native = _abi.SessionOptions(ctypes.sizeof(_abi.SessionOptions), os.fsencode(config))
        native.overrides = ctypes.cast(array, ctypes.POINTER(ctypes.c_char_p))
        native.override_count = len(texts)
        self.evaluation_parts: int = options["evaluation_parts"]
        self.out: "Optional[_abi.Path]" = options["out"]
        for name, value in options.items():
            if value is not None:
                setattr(native, name, os.fsencode(value) if not isinstance(value, (int, bool)) else value)
        self.handle = ctypes.c_void_p()
        _log.keep()
        check(_abi.lib.isthmus_session_new(ctypes.byref(native), ctypes.byref(self.handle)))
        self.pid = os.getpid()
        self.config = Section(json.loads(_abi.lib.isthmus_session_config(self.handle)))
        self.workers: int = _abi.lib.isthmus_session_workers(self.handle)
        self.local: int = _abi.lib.isthmus_session_local(self.handle)
        self.first: int = _abi.lib.isthmus_session_first(self.handle)
        self.total_steps: int = _abi.lib.isthmus_session_steps(self.handle)
        self.memory: "list[Any]" = []  # the arrays that the run reads and writes
        self._free = weakref.finalize(self, _free, self.handle.value, self.pid, self.memory)
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self._free()
        if os.getpid() == self.pid:
            _log.drain()

    def leak(self) -> None:
        """The session stays until the process ends."""
        self.closed = True
        self._free.detach()
        _still_written.append(self.memory)

    def check_open(self) -> None:
        if os.getpid() != self.pid:
            raise Forked("this site belongs to the process that joined; a forked one must not use it")
        if self.closed:
            raise RunError("the site has ended: its run is over, or was left")

    def wish(self, what: int) -> None:
        self.check_open()
        check(_abi.lib.isthmus_session_wish(self.handle, what))

    def fail(self, worker: int, error: BaseException, prefix: str = "") -> None:
        if self.closed:
            return
        try:
            text = f"{prefix}{type(error).__name__}: {error}"
        except Exception:
            text = f"{prefix}{type(error).__name__}"
        raw = text.replace("\0", " ").encode(errors="backslashreplace")
        _abi.lib.isthmus_error_free(_abi.lib.isthmus_session_fail(self.handle, worker, raw))

    def outcome(self) -> Outcome:
        text = ctypes.c_char_p()
        check(_abi.lib.isthmus_session_end(self.handle, ctypes.byref(text)))
        return Outcome(json.loads(_abi.taken_text(text)))


_still_written: "list[Any]" = []  # memory of runs that could not be ended in time


def _free(handle: "Optional[int]", pid: int, memory: "list[Any]") -> None:
    if os.getpid() == pid and not _abi.lib.isthmus_session_free(handle):
        _still_written.append(memory)


class Site:
    """One worker of a run, driven by the thread that made it.

    `t` is the step that is trained, `total_steps` the run's last, `index` the worker's number of
    `sites`, `config` the configuration in effect, `outcome` how the run ended.
    """

    def __init__(self, session: _Session, worker: int) -> None:
        self._session = session
        self._worker = worker
        self._thread = threading.get_ident()
        self._arrays: "dict[str, Floats]" = {}
        self._params: "Mapping[str, Floats]" = {}
        self._state: Any = None
        self._evaluate: "Optional[Evaluate]" = None
        self._open = False  # step t has been given out and not answered
        self._loads = 0  # how often the run has loaded state
        self._ended = False
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

    def status(self) -> "dict[str, Any]":
        """What `isthmus status` says of this run, as one object: step, loss, sites, links, time left."""
        out = self._session.out or self.config.run.get("out")
        if not out:
            raise ConfigError("status: which folder is the run's? Give out=..., or run.out in the file")
        found: "dict[str, Any]" = call_json("status", os.fsdecode(out))
        return found

    def steps(self, batches: "Union[Iterable[Any], Callable[[int], Any], None]" = None) -> "Iterator[Any]":
        """Yields (t, batch) for every step that the run asks for, until the run ends.

        `batches`: a function of t, an iterable, or None for batches of None. t may jump: forward
        when a site has joined, back where a lost site's steps are taken again. A function of t is
        exact by itself; an iterable is exact where its position is part of `state`.
        """
        self._check_thread()
        source = batches if callable(batches) else None
        iterator = None if source or batches is None else iter(batches)  # type: ignore[arg-type]
        loads = self._loads
        while not self._ended:
            t = self.t
            if source:
                batch = source(t)
            elif iterator is not None:
                if loads != self._loads:
                    iterator = self._again(batches, iterator)
                    loads = self._loads
                try:
                    batch = next(iterator)
                except StopIteration:
                    raise RunError(
                        f"the batches ended before step {t} of {self.total_steps}: give an iterable "
                        "that goes on, or a function of t"
                    ) from None
            else:
                batch = None
            self._open = True
            yield t, batch
            if self._open and not self._ended:
                raise RunError(
                    f"step {t} has not been told of: call site.step() once in every pass of site.steps()"
                )

    def _again(self, batches: Any, iterator: "Iterator[Any]") -> "Iterator[Any]":
        """The iterator to go on with, once state has been loaded after the first step: a site has come
        back to the others, or its steps were taken back. An iterable whose position is in `state` begins
        anew, from there; no other one knows where to go on."""
        if any(each is batches for each in _parts_of(self._state)) and iterator is not batches:
            return iter(batches)
        if iterator is batches and any(each is iterator for each in _parts_of(self._state)):
            return iterator  # an iterator that keeps its own position has just been put there
        raise RunError(
            f"the run has come back to step {self.t} with another state, and the batches do not know where "
            "to go on: give an iterable whose position is in state (with state_dict and "
            "load_state_dict), or a function of t"
        )

    def step(self, loss: Any = None, *, tokens: Optional[int] = None, grad_norm: Any = None,
             learning_rate: Optional[float] = None, skipped: bool = False) -> None:
        """Tells of inner step t, which has changed the parameters; then the run may read and write
        them, save and load state, evaluate. Blocks while the run waits for other sites.

        `loss`: its mean over `tokens` targets, a number or an array of one value. `tokens` weigh this
        site's contribution (absent: one a step). `skipped`: the step changed nothing.
        """
        self._check_thread()
        if not self._open:
            raise RunError("site.step() was called twice in one pass of site.steps(), or outside of it")
        for name, array in self._arrays.items():
            if self._params[name] is not array:
                raise RunError(
                    f"params['{name}'] was replaced by another array, which the run does not see: change "
                    f"it in place, params['{name}'][...] = ..."
                )
        self._open = False
        self.tell(_number("loss", loss), 1 if tokens is None else int(tokens),
                  _number("grad_norm", grad_norm),
                  0.0 if learning_rate is None else learning_rate, skipped)
        self.serve()

    def tell(self, loss: float, tokens: int, grad_norm: float, learning_rate: float, skipped: bool) -> None:
        step = _abi.Step(ctypes.sizeof(_abi.Step), loss, grad_norm, tokens, learning_rate, int(skipped))
        check(_abi.lib.isthmus_answer(self._session.handle, self._worker, ctypes.byref(step)))

    def serve(self) -> None:
        """Answers all requests up to the next step, or the end."""
        request = _abi.Request(ctypes.sizeof(_abi.Request))
        while True:
            error = _abi.lib.isthmus_next(self._session.handle, self._worker, _LOOK_NS, ctypes.byref(request))
            _log.drain()
            check(error)
            kind = request.kind
            if kind == _abi.TRAIN:
                self.t = request.step
                return
            if kind == _abi.END:
                self._ended = True
                self.outcome = self._session.outcome()
                return
            if kind == _abi.NOTHING:
                continue
            if kind == _abi.EVALUATE:
                self._answer_losses([request.parts[i] for i in range(request.part_count)])
                continue
            if kind == _abi.SAVE:
                self._save()
            elif kind == _abi.LOAD:
                self._load()
            elif kind == _abi.RESTART:
                _log.logger.warning("step %d: a value was not finite: `state` is put back to what it was before "
                                    "the first step", self.t)
                self._loads += 1
                self._restart()
            check(_abi.lib.isthmus_answer(self._session.handle, self._worker, None))

    def attach(self, params: "Mapping[str, Floats]", *, state: Any = None,
               evaluate: "Optional[Evaluate]" = None,
               layer_of: "Optional[Callable[[str], int]]" = None) -> "Site":
        """Gives the run this worker's parameters: name -> contiguous float32 array, the same names,
        shapes and initial values at every worker. Arguments are those of `join`."""
        self._check_thread()
        if self._arrays:
            raise ConfigError("attach: this site has parameters already")
        _check_evaluate(evaluate, self._session.evaluation_parts)
        if not params:
            raise ConfigError("params is empty: give name -> float32 array")
        natives = (_abi.Parameter * len(params))()
        keep = []
        owners: "dict[int, str]" = {}
        for i, (name, array) in enumerate(params.items()):
            check_array(name, array)
            owner = owners.setdefault(array.ctypes.data, name)
            if owner != name:
                raise ConfigError(f"params['{name}'] is the same memory as params['{owner}']: give tied arrays once")
            shape = (ctypes.c_int64 * array.ndim)(*array.shape)
            text = name.encode()
            keep += [shape, text]
            natives[i] = _abi.Parameter(
                ctypes.sizeof(_abi.Parameter), text, ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
                array.ndim, array.ctypes.data, (layer_of or layer_of_name)(name))
        check(_abi.lib.isthmus_session_worker(self._session.handle, self._worker, natives, len(natives)))
        self._session.memory.append(list(params.values()))
        self._params = params
        self._arrays = dict(params)
        self._state = state
        self._evaluate = evaluate
        return self

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

    def _save(self) -> None:
        state = {} if self._state is None else _state_of(self._state)
        for name, data in packed(state).items():
            check(_abi.lib.isthmus_state_put(self._session.handle, self._worker, name.encode(),
                                             ctypes.c_char_p(data), len(data)))

    def _load(self) -> None:
        def read(name: str) -> bytes:
            size = _abi.lib.isthmus_state_bytes(self._session.handle, self._worker, name.encode())
            if size < 0:
                raise KeyError(name)
            data = ctypes.create_string_buffer(max(size, 1))
            check(_abi.lib.isthmus_state_get(self._session.handle, self._worker, name.encode(), data, size))
            return data.raw[:size]

        self._loads += 1
        state = unpacked(read)
        if self._state is not None:
            _restore(self._state, state)

    def _restart(self) -> None:
        if self._state is not None and self._fresh is not None:
            read = dict(self._fresh)
            _restore(self._state, unpacked(read.__getitem__))

    _fresh: "Optional[dict[str, bytes]]" = None

    def keep_fresh(self) -> None:
        """Remembers the state as it is before the first step, for a run that begins anew."""
        if self._state is not None:
            self._fresh = packed(_state_of(self._state))
            self._restart()  # what cannot be restored is told of now, and not at a resume

    def _answer_losses(self, parts: "list[int]") -> None:
        assert self._evaluate is not None
        sums = (ctypes.c_double * len(parts))()
        tokens = (ctypes.c_int64 * len(parts))()
        for i, part in enumerate(parts):
            loss_sum, count = self._evaluate(part)
            sums[i], tokens[i] = float(loss_sum), int(count)
        check(_abi.lib.isthmus_answer_losses(self._session.handle, self._worker, sums, tokens, len(parts)))


def check_array(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"params['{name}'] is a {type(array).__qualname__}: must be a numpy array")
    if array.dtype != np.float32:
        raise ConfigError(f"params['{name}'] has dtype {array.dtype}: must be float32")
    if not array.flags.c_contiguous or not array.flags.writeable or not array.flags.aligned:
        raise ConfigError(
            f"params['{name}'] must be contiguous and writable: give numpy.ascontiguousarray(...) and "
            "train on that array"
        )


def _number(name: str, value: Any) -> float:
    if value is None:
        return 0.0
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} = {value!r}: must be one number") from None


def _parts_of(state: Any) -> "list[Any]":
    """The state and what a dictionary or list of it holds."""
    if isinstance(state, dict):
        return [state, *state.values()]
    return [state, *state] if isinstance(state, (list, tuple)) else [state]


def _state_of(state: Any) -> Any:
    if hasattr(state, "state_dict"):
        return state.state_dict()
    if isinstance(state, dict):
        return {name: _state_of(each) if hasattr(each, "state_dict") else each for name, each in state.items()}
    if isinstance(state, (list, tuple)):
        return [_state_of(each) if hasattr(each, "state_dict") else each for each in state]
    return state


def _restore(into: Any, state: Any, path: str = "") -> None:
    def has_objects(values: Any) -> bool:
        return any(hasattr(each, "load_state_dict") for each in values)

    if hasattr(into, "load_state_dict"):
        into.load_state_dict(state)
    elif isinstance(into, dict) and has_objects(into.values()):
        if not isinstance(state, dict) or set(into) != set(state):
            raise RunError(f"state{path} has {sorted(map(str, into))}, the checkpoint {sorted(map(str, state))}")
        for name, each in into.items():
            if hasattr(each, "load_state_dict"):
                each.load_state_dict(state[name])
            elif isinstance(each, (np.ndarray, dict, list, tuple)):
                restore_into(each, state[name], f"{path}[{name!r}]")
            else:
                into[name] = state[name]
    elif isinstance(into, (list, tuple)) and has_objects(into):
        if not isinstance(state, (list, tuple)) or len(state) != len(into):
            raise RunError(f"state{path} has {len(into)} entries, the checkpoint another number")
        for i, each in enumerate(into):
            _restore(each, state[i], f"{path}[{i}]")
    else:
        restore_into(into, state, path)


def _options(**given: Any) -> "dict[str, Any]":
    common = given.pop("alike")
    return {**given, "common": json.dumps({k: str(v) for k, v in common.items()}) if common else None}


@contextlib.contextmanager
def _signals(session: _Session, wanted: bool) -> "Iterator[None]":
    """SIGINT, SIGTERM, SIGUSR1, SIGUSR2 as wishes; a second SIGINT is a KeyboardInterrupt."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = [False]

    def on_signal(number: int, frame: Any) -> None:
        if os.getpid() != session.pid:  # a forked child: as if nobody had asked for signals
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

    def __init__(self, session: _Session, signals: bool) -> None:
        super().__init__(session, 0)
        self._scope = contextlib.ExitStack()
        self._scope.enter_context(_signals(session, signals))

    def begin(self, params: "Mapping[str, Floats]", **how: Any) -> "_Joined":
        try:
            self.attach(params, **how)
            self.keep_fresh()
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
         state: Any = None, evaluate: "Optional[Evaluate]" = None, evaluation_parts: int = 0,
         alike: "Optional[Mapping[str, Any]]" = None, kind: str = "numpy",
         layer_of: "Optional[Callable[[str], int]]" = None, listen: Optional[str] = None,
         key_file: Optional[_abi.Path] = None, force: bool = False, signals: bool = True) -> Site:
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
    `evaluation_parts` parts at the steps of [eval]. `alike`: values that sites of this `kind` must
    have in common (learning rate, batch size). Raises ConfigError, PeerError, SystemFault, RunError.
    """
    site = site or os.environ.get("ISTHMUS_SITE")
    if not site:
        raise ConfigError("join: which site is this? Give site=..., or set ISTHMUS_SITE")
    _check_evaluate(evaluate, evaluation_parts)
    session = _Session(config, **_options(
        overrides=overrides, site=site, listen=listen, key_file=key_file, out=out, resume=resume,
        kind=kind, alike=alike, evaluation_parts=evaluation_parts, force=int(force)))
    return _Joined(session, signals).begin(params, state=state, evaluate=evaluate, layer_of=layer_of)


def _check_evaluate(evaluate: Any, parts: int) -> None:
    if (evaluate is None) != (parts == 0):
        raise ConfigError(
            "evaluate and evaluation_parts belong together: give both, or neither (run and simulate take "
            "evaluation_parts, site.attach takes evaluate)"
        )


class _Together:
    """All workers of a run in this process: a thread of Python for each."""

    def __init__(self, session: _Session, body: "Body") -> None:
        self.session = session
        self.body = body
        self.ready = threading.Barrier(session.local, action=self.start)
        self.errors: "list[BaseException]" = []
        self.outcome: "Optional[Outcome]" = None

    def start(self) -> None:
        check(_abi.lib.isthmus_session_start(self.session.handle))

    def one(self, worker: int) -> None:
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

    def attach(self, params: "Mapping[str, Floats]", *, state: Any = None,
               evaluate: "Optional[Evaluate]" = None,
               layer_of: "Optional[Callable[[str], int]]" = None) -> Site:
        super().attach(params, state=state, evaluate=evaluate, layer_of=layer_of)
        self.keep_fresh()
        self._together.ready.wait()
        self.serve()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        pass  # `run` ends the session once all bodies have returned


def run(config: _abi.Path, body: "Body", *, out: Optional[_abi.Path] = None, resume: str = "never",
        overrides: "Sequence[str]" = (), alike: "Optional[Mapping[str, Any]]" = None, kind: str = "numpy",
        evaluation_parts: int = 0, force: bool = False, signals: bool = True) -> Outcome:
    """All workers in this process, on the real clock: `body(site)` once for each, in a thread of its
    own. A body makes its model and calls `site.attach(params, ...)`, then goes through
    `site.steps()`. Bodies run at the same time: each needs random generators of its own."""
    session = _Session(config, **_options(overrides=overrides, out=out, resume=resume, kind=kind, alike=alike,
                                          evaluation_parts=evaluation_parts, force=int(force)))
    with _signals(session, signals):
        return _Together(session, body).run()


def simulate(config: _abi.Path, body: "Body", *, link: Optional[str] = None,
             out: Optional[_abi.Path] = None, resume: str = "never", overrides: "Sequence[str]" = (),
             alike: "Optional[Mapping[str, Any]]" = None, kind: str = "numpy", evaluation_parts: int = 0,
             force: bool = False, signals: bool = True) -> Outcome:
    """The same in virtual time over the links of the file, or over `link` ("100Mbit/s,80ms") between
    all sites. A step takes sim.step_time of the file."""
    session = _Session(config, **_options(overrides=overrides, out=out, resume=resume, kind=kind, alike=alike,
                                          link=link, evaluation_parts=evaluation_parts, force=int(force),
                                          simulated=1))
    with _signals(session, signals):
        return _Together(session, body).run()
