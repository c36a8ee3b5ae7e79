# SPDX-License-Identifier: Apache-2.0
"""What one site trains: the memory that the run reads and writes, and the state beside it."""

from __future__ import annotations

import collections.abc
import contextlib
import operator
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Optional, Tuple

import numpy as np

from ._errors import ConfigError, RunError
from ._state import packed, restore_into, unpacked

if TYPE_CHECKING:
    from ._native import Outcome

Floats = np.ndarray[Any, np.dtype[np.float32]]
Evaluate = Callable[[int], Tuple[float, int]]


class Trained:
    """One worker's side of a run. All of it is called by the worker's own thread, between steps.

    `arrays`: name -> contiguous float32 array, the memory that the run uses, in canonical order.
    `copies`: the parameters live elsewhere, and `read` and `wrote` carry values over.
    """

    arrays: "dict[str, Floats]"
    copies = False
    evaluates: "Optional[Evaluate]" = None
    marker = "outline"  # an entry that each state of this trainer has
    stage = 0  # what the run asks of the step that `after_step` begins: a step, gradients, or to take a mean over

    def begin(self, index: int) -> None:
        """Worker number `index` begins: what cannot be saved or restored is told of now."""
        raise NotImplementedError

    def before_step(self, loss: Any, tokens: Optional[int], grad_norm: Any,
                    learning_rate: Optional[float], skipped: bool) -> "tuple[float, int, float, float, bool]":
        """A step is told of. RETURNS: what is said of it, in the order of `Site.tell`."""
        raise NotImplementedError

    def gradient_arrays(self) -> "dict[str, Floats]":
        """name -> contiguous float32 array for the gradients of a run under ddp, in the order of `arrays`."""
        raise NotImplementedError

    def give_gradients(self, given: Any) -> None:
        """Lays this step's gradients into the arrays; `given`: as the caller has them, or None."""
        raise NotImplementedError

    def take_gradients(self, given: Any) -> bool:
        """The arrays hold the mean of all sites: the caller's gradients follow. RETURNS: False, and changes nothing,
        where the mean is not finite."""
        raise NotImplementedError

    def drop_gradients(self) -> None:
        """The step does not count: what would be added to in the next backward pass is gone."""

    def number(self, name: str, value: Any) -> float:
        """One number that the caller has given, a tensor perhaps."""
        return number_of(name, value)

    def after_step(self, wrote: bool, t: int, until: int) -> None:
        """Step t may begin. `wrote`: the run has written parameters since the last one. Up to step `until` >= t the
        run asks for steps alone, and writes nothing."""

    def after_run(self, outcome: "Outcome") -> None:
        """The run has ended."""

    def share_outer(self, call: "Callable[[], None]") -> None:
        """Runs `call`, which takes part in a request to all ranks of the site."""
        call()

    def waits(self) -> None:
        """The site waits for other sites; called about every 0.1 s."""

    def read(self, first: int, end: int) -> None:
        """Lays the elements [first, end) of all parameters into `arrays`."""

    def wrote(self, first: int, end: int) -> None:
        """Takes them over from `arrays`."""

    def save(self, entries: "dict[str, bytes]") -> None:
        """Adds the state beside the parameters, entry by entry."""
        raise NotImplementedError

    def load(self, read: "Callable[[str], bytes]") -> None:
        raise NotImplementedError

    def restart(self) -> None:
        """What the optimizer holds is that of the first step again; the parameters follow."""
        raise NotImplementedError

    def count_from(self, t: int) -> None:
        """The next step is t, and nothing of before is known: schedules of steps go to that place."""

    def losses(self, parts: "list[int]") -> "list[tuple[float, int]]":
        assert self.evaluates is not None
        return [self.evaluates(part) for part in parts]

    @contextlib.contextmanager
    def showing(self, values: "Iterator[Floats]") -> "Iterator[None]":
        """While it is open the parameters hold `values`, one array for each; then their own again."""
        raise NotImplementedError
        yield

    def batches_of(self, batches: "Iterable[Any]", total_steps: int) -> "Callable[[int], Any]":
        """The next batch, for each step."""
        raise NotImplementedError


class Arrays(Trained):
    """numpy arrays, which the run uses in place."""

    def __init__(self, params: "Mapping[str, Floats]", state: Any, evaluate: "Optional[Evaluate]") -> None:
        if not isinstance(params, collections.abc.Mapping):
            raise ConfigError(f"params is a {type(params).__qualname__}: must be name -> float32 array")
        if not params:
            raise ConfigError("params is empty: give name -> float32 array")
        owners: "dict[int, str]" = {}
        for name, array in params.items():
            name_of_array(name)
            check_array(name, array)
            owner = owners.setdefault(array.ctypes.data, name)
            if owner != name:
                raise ConfigError(f"params['{name}'] is the same memory as params['{owner}']: give tied arrays once")
        self.arrays = dict(params)
        self.evaluates = evaluate
        self._params = params
        self._state = state
        self._fresh: "Optional[dict[str, bytes]]" = None
        self._loads = 0  # how often the run has loaded state

    def begin(self, index: int) -> None:
        if self._state is not None:
            self._fresh = packed(_state_of(self._state))
            self._put_back()  # what cannot be restored is told of now, and not at a resume

    def before_step(self, loss: Any, tokens: Optional[int], grad_norm: Any,
                    learning_rate: Optional[float], skipped: bool) -> "tuple[float, int, float, float, bool]":
        own = self._params.values()
        if len(own) != len(self.arrays) or not all(map(operator.is_, own, self.arrays.values())):
            self._check_names()
        return (number_of("loss", loss), 1 if tokens is None else count_of("tokens", tokens),
                0.0 if grad_norm is None else number_of("grad_norm", grad_norm),
                0.0 if learning_rate is None else number_of("learning_rate", learning_rate), bool(skipped))

    def _check_names(self) -> None:
        """`params` has the arrays of the start, under their names, in another order perhaps."""
        if self._params.keys() != self.arrays.keys():
            names = ", ".join(sorted(set(self._params) ^ set(self.arrays)))
            raise RunError(f"params has other names than at the start ({names}), and the run does not see them: give "
                           "all arrays at the start, and leave them there")
        for name, array in self.arrays.items():
            if self._params[name] is not array:
                raise RunError(
                    f"params['{name}'] was replaced by another array, which the run does not see: change "
                    f"it in place, params['{name}'][...] = ..."
                )

    def gradient_arrays(self) -> "dict[str, Floats]":
        self._gradients = {name: np.zeros_like(array) for name, array in self.arrays.items()}
        return self._gradients

    def give_gradients(self, given: Any) -> None:
        if not isinstance(given, collections.abc.Mapping):
            raise ConfigError("average_gradients: gradients = {!r}: must be name -> float32 array, as params is".format(
                type(given).__qualname__))
        names = set(self._gradients) ^ set(given)
        if names:
            raise ConfigError(f"average_gradients: gradients and params differ in '{sorted(names)[0]}'")
        for name, array in self._gradients.items():
            check_array(name, given[name], "gradients")
            if given[name].shape != array.shape:
                raise ConfigError(f"gradients['{name}'] has shape {given[name].shape}, the parameter {array.shape}")
            array[...] = given[name]

    def take_gradients(self, given: Any) -> bool:
        if not all(np.isfinite(array).all() for array in self._gradients.values()):
            return False
        for name, array in self._gradients.items():
            given[name][...] = array
        return True

    def batches_of(self, batches: "Iterable[Any]", total_steps: int) -> "Callable[[int], Any]":
        iterator = iter(batches)
        loads = self._loads

        def of_step(t: int) -> Any:
            nonlocal iterator, loads
            if loads != self._loads:
                iterator = self._again(batches, iterator, t)
                loads = self._loads
            try:
                return next(iterator)
            except StopIteration:
                raise RunError(
                    f"the batches ended before step {t} of {total_steps}: give an iterable "
                    "that goes on, or a function of t"
                ) from None

        return of_step

    def _again(self, batches: "Iterable[Any]", iterator: "Iterator[Any]", t: int) -> "Iterator[Any]":
        """The iterator to go on with, once state has been loaded after the first step: a site has come
        back to the others, or its steps were taken back. An iterable whose position is in `state` begins
        anew, from there; no other one knows where to go on."""
        if any(each is batches for each in _parts_of(self._state)) and iterator is not batches:
            return iter(batches)
        if iterator is batches and any(each is iterator for each in _parts_of(self._state)):
            return iterator  # an iterator that keeps its own position has just been put there
        raise RunError(
            f"the run has come back to step {t} with another state, and the batches do not know where "
            "to go on: give an iterable whose position is in state (with state_dict and "
            "load_state_dict), or a function of t"
        )

    def save(self, entries: "dict[str, bytes]") -> None:
        entries.update(packed({} if self._state is None else _state_of(self._state)))

    def load(self, read: "Callable[[str], bytes]") -> None:
        self._loads += 1
        state = unpacked(read)
        if self._state is not None:
            restore_into(self._state, state, leaf=_load_object)
        elif not (isinstance(state, (dict, list, tuple)) and len(state) == 0):
            held = f" of {sorted(map(str, state))}" if isinstance(state, dict) else ""
            raise ConfigError(f"the run has state{held} beside its parameters, and none is given here: give state=... "
                              "as the run was begun, or start a new run from its weights")

    def restart(self) -> None:
        self._loads += 1
        self._put_back()

    def _put_back(self) -> None:
        if self._state is not None and self._fresh is not None:
            restore_into(self._state, unpacked(self._fresh.__getitem__), leaf=_load_object)

    @contextlib.contextmanager
    def showing(self, values: "Iterator[Floats]") -> "Iterator[None]":
        outer = list(values)
        own = [array.copy() for array in self.arrays.values()]
        try:
            for array, shown in zip(self.arrays.values(), outer):
                array[...] = shown
            yield
        finally:
            for array, kept in zip(self.arrays.values(), own):
                array[...] = kept


def name_of_array(name: Any) -> bytes:
    """As the library takes it. Raises ConfigError."""
    if not isinstance(name, str):
        raise ConfigError(f"params[{name!r}]: the name is a {type(name).__qualname__}: must be a text")
    if "\0" in name:
        raise ConfigError(f"params[{name!r}]: a name ends at its first NUL character; leave it out")
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"params[{name!r}]: the name is no text that UTF-8 can write; give another") from None


def check_array(name: str, array: Any, of: str = "params") -> None:
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{of}['{name}'] is a {type(array).__qualname__}: must be a numpy array")
    if isinstance(array, np.ma.MaskedArray):
        raise ConfigError(f"{of}['{name}'] is a masked array, whose mask the run would not see: give its data")
    if array.dtype != np.float32:
        raise ConfigError(f"{of}['{name}'] has dtype {array.dtype}: must be float32")
    if not array.flags.c_contiguous or not array.flags.writeable or not array.flags.aligned:
        raise ConfigError(
            f"{of}['{name}'] must be contiguous and writable: give numpy.ascontiguousarray(...) and "
            "train on that array"
        )


def number_of(name: str, value: Any) -> float:
    if type(value) is float:
        return value
    if value is None:
        return 0.0
    try:
        if not isinstance(value, (bool, np.bool_, str, bytes)):  # float() takes them too
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigError(f"{name} = {_shown(value)}: must be one number")


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 128 else "a huge integer"
    return text if len(text) <= 80 else text[:77] + "..."


def count_of(name: str, value: Any) -> int:
    if type(value) is int and 0 <= value < 1 << 63:
        return value
    try:
        count = int(value)
        if count == value and 0 <= count < 1 << 63:
            return count
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigError(f"{name} = {value!r}: must be a whole number from 0 to 2^63 - 1")


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


def _load_object(into: Any, state: Any, path: str) -> bool:
    if not hasattr(into, "load_state_dict"):
        return False
    into.load_state_dict(state)
    return True
