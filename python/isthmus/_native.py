# SPDX-License-Identifier: Apache-2.0
"""A native session: what it is told, its parameters, its memory, its end. Who answers its requests is `_session`."""

from __future__ import annotations

import ctypes
import json
import os
import re
import weakref
from typing import Any, Callable, Optional, Sequence

import numpy as np

from . import _abi, _log
from ._errors import ConfigError, Error, RunError, check
from ._launched import told_config
from ._tables import Section
from ._trained import name_of_array

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)(?:\.|$)")
_MOST_PARTS = 1_000_000  # of an evaluation; the library has the same limit


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


def _texts(name: str, given: "Sequence[str]", example: str) -> Any:
    """An array of texts for the library."""
    if isinstance(given, str):
        raise ConfigError(f'{name} = "{given}": must be a list of texts, {example}')
    return (ctypes.c_char_p * len(given))(*(_text(name, each, f"a list of texts, {example}") for each in given))


def _text(name: str, value: Any, rule: str = "a text or a path", path: bool = False) -> bytes:
    """For the library, which reads up to the first NUL."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise ConfigError(f"{name} = {value!r}: must be {rule}")
    # Texts are UTF-8 in any locale; paths are what the system takes.
    text = value.encode("utf-8", "surrogateescape") if isinstance(value, str) and not path else os.fsencode(value)
    if b"\0" in text:
        raise ConfigError(f"{name} = {value!r}: has a NUL character, at which the library would end; leave it out")
    return text


class NativeSession:
    """A native session and who serves it. Freed once, in the process that made it."""

    def __init__(self, config: _abi.Path, **options: Any) -> None:
        native = _abi.SessionOptions(ctypes.sizeof(_abi.SessionOptions), os.fsencode(told_config(config)))
        overrides = _texts("overrides", options.pop("overrides"), '["outer.H=50"]')
        native.overrides = ctypes.cast(overrides, ctypes.POINTER(ctypes.c_char_p))
        native.override_count = len(overrides)
        addresses = _texts("addresses", options.pop("addresses", ()), '["west=10.0.0.2:48200"]')
        native.addresses = ctypes.cast(addresses, ctypes.POINTER(ctypes.c_char_p))
        native.address_count = len(addresses)
        changes = _texts("change", options.pop("change", ()), '["train.steps=400"]')
        native.changes = ctypes.cast(changes, ctypes.POINTER(ctypes.c_char_p))
        native.change_count = len(changes)
        check_parts(options["evaluation_parts"])
        if options["evaluation_parts"] == "file":
            options["evaluation_parts"] = -1
        self.evaluation_parts: int = options["evaluation_parts"]
        self.out: "Optional[_abi.Path]" = options["out"]
        kinds = {field[0]: field[1] for field in _abi.SessionOptions._fields_}
        for name, value in options.items():
            if value is None:
                continue
            if kinds[name] is ctypes.c_char_p:
                if name == "resume" and not value:
                    raise ConfigError(f"resume = {value!r}: must be \"never\", \"auto\", or a run's folder or checkpoint")
                setattr(native, name, _text(name, value, path=name in ("out", "resume")))
            elif isinstance(value, int):
                setattr(native, name, value)
            else:
                raise ConfigError(f"{name} = {value!r}: must be a whole number")
        self.handle = ctypes.c_void_p()
        _log.keep()
        check(_abi.lib.isthmus_session_new(ctypes.byref(native), ctypes.byref(self.handle)))
        self.pid = process.pid
        self.config = Section(json.loads(_abi.lib.isthmus_session_config(self.handle)))
        self.placement: str = _abi.lib.isthmus_session_placement(self.handle).decode()
        self.workers: int = _abi.lib.isthmus_session_workers(self.handle)
        self.local: int = _abi.lib.isthmus_session_local(self.handle)
        self.first: int = _abi.lib.isthmus_session_first(self.handle)
        self.total_steps: int = _abi.lib.isthmus_session_steps(self.handle)
        self.memory: "list[Any]" = []  # the arrays that the run reads and writes
        self._free = weakref.finalize(self, _free, self.handle.value, self.pid, self.memory)
        self.closed = False

    def give_parameters(self, worker: int, given: "Sequence[tuple[str, Sequence[int], Any, Any]]",
                        layer_of: "Optional[Callable[[str], int]]") -> None:
        """`given`: name, shape, addresses of values and of gradients."""
        natives = (_abi.Parameter * len(given))()
        keep = []
        for i, (name, sizes, values, gradient) in enumerate(given):
            shape = (ctypes.c_int64 * len(sizes))(*sizes)
            text = name_of_array(name)
            keep += [shape, text]
            natives[i] = _abi.Parameter(
                ctypes.sizeof(_abi.Parameter), text, ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), len(sizes),
                values, layer_number(name, layer_of), gradient)
        check(_abi.lib.isthmus_session_worker(self.handle, worker, natives, len(natives)))

    def close(self) -> None:
        self.closed = True
        self._free()
        if process.pid == self.pid:
            _log.drain()

    def leak(self) -> None:
        """The session stays until the process ends."""
        self.closed = True
        self._free.detach()
        _still_written.append(self.memory)

    def check_open(self) -> None:
        check_open(self.pid, self.closed)

    def wish(self, what: int) -> None:
        self.check_open()
        check(_abi.lib.isthmus_session_wish(self.handle, what))

    def fail(self, worker: int, error: BaseException, prefix: str = "") -> None:
        if self.closed or process.pid != self.pid:  # in a forked child a lock may be held by a thread that is not there
            return
        try:
            text = f"{prefix}{type(error).__name__}: {error}"
        except Exception:
            text = f"{prefix}{type(error).__name__}"
        raw = text.replace("\0", " ").encode(errors="backslashreplace")
        _abi.lib.isthmus_error_free(_abi.lib.isthmus_session_fail(self.handle, worker, raw))

    def share_outer(self) -> None:
        """Takes part in one request to all ranks of this site, which hold its outer state."""
        check(_abi.lib.isthmus_ranks(self.handle, 0))

    def outcome(self) -> Outcome:
        text = ctypes.c_char_p()
        check(_abi.lib.isthmus_session_end(self.handle, ctypes.byref(text)))
        return Outcome(json.loads(_abi.taken_text(text)))


class _Process:
    """This process. Its number is looked up once: the system call would be a tenth of a step's time."""

    def __init__(self) -> None:
        self._look()
        os.register_at_fork(after_in_child=self._look)

    def _look(self) -> None:
        self.pid = os.getpid()


process = _Process()


def check_open(pid: int, closed: bool) -> None:
    """A session of the process `pid` is used. Raises Forked elsewhere, RunError where it is closed."""
    if process.pid != pid:
        raise Forked("this site belongs to the process that joined; a forked one must not use it")
    if closed:
        raise RunError("the site has ended: its run is over, or was left")


_still_written: "list[Any]" = []  # memory of runs that could not be ended in time


def _free(handle: "Optional[int]", pid: int, memory: "list[Any]") -> None:
    if process.pid == pid and not _abi.lib.isthmus_session_free(handle):
        _still_written.append(memory)


def layer_number(name: str, layer_of: "Optional[Callable[[str], int]]") -> int:
    """Of a parameter."""
    layer: Any = (layer_of or layer_of_name)(name)
    if isinstance(layer, bool) or not isinstance(layer, (int, np.integer)) or not -(1 << 31) <= layer < 1 << 31:
        raise ConfigError(f"layer_of({name!r}) = {layer!r}: must be a layer's number, or -1 for a tensor of no layer")
    return int(layer)


def check_parts(parts: Any) -> None:
    whole = isinstance(parts, int) and not isinstance(parts, bool)
    if parts != "file" and not (whole and 0 <= parts <= _MOST_PARTS):
        raise ConfigError(f'evaluation_parts = {parts!r}: must be a whole number from 0 to {_MOST_PARTS}, or "file"')
