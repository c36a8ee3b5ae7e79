# SPDX-License-Identifier: Apache-2.0
"""State beside the parameters, as entries that hold no code: nested dictionaries, lists and tuples of
arrays, numbers, texts, booleans and None become one JSON text and raw arrays. Never pickle: what a
peer or a checkpoint holds is data."""

from __future__ import annotations

import json
from typing import Any, Callable

import numpy as np

from ._errors import ConfigError, RunError

_OUTLINE = "outline"
ToArray = Callable[[Any], "np.ndarray[Any, Any] | None"]
Leaf = Callable[[Any, Any, str], bool]


def packed(state: Any, to_array: "ToArray | None" = None) -> "dict[str, bytes]":
    """Entries by name. Raises ConfigError naming the path of what cannot be kept.

    `to_array`: an array of what is no numpy array but holds one (a tensor), else None.
    """
    entries: "dict[str, bytes]" = {}

    def outline(value: Any, path: str) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**63 else {"$int": str(value)}
        if isinstance(value, float):
            return {"$float": value.hex()}
        array = value if isinstance(value, (np.ndarray, np.generic)) else None
        if array is None and to_array is not None:
            array = to_array(value)
        if isinstance(array, np.ma.MaskedArray):
            raise ConfigError(f"state{path}: a masked array, whose mask would be lost: keep its data and its mask")
        if array is not None:
            array = np.asarray(array)
            if array.dtype.hasobject or array.dtype.kind not in "biufcSUmM":
                raise ConfigError(f"state{path}: an array of dtype {array.dtype} cannot be kept")
            number = str(len(entries))
            entries[number] = array.tobytes()
            outlined = {"$array": number, "dtype": array.dtype.str, "shape": list(array.shape)}
            return {**outlined, "scalar": True} if isinstance(value, np.generic) else outlined
        if isinstance(value, dict):
            pairs = []
            for key, each in value.items():
                if not isinstance(key, (str, int, float, bool)):
                    raise ConfigError(f"state{path}: a key of type {type(key).__name__} cannot be kept")
                pairs.append([outline(key, path), outline(each, f"{path}[{key!r}]")])
            return {"$dict": pairs}
        if isinstance(value, (list, tuple)):
            items = [outline(each, f"{path}[{i}]") for i, each in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        raise ConfigError(
            f"state{path}: a {type(value).__module__}.{type(value).__qualname__} cannot be kept; "
            "state holds arrays, numbers, texts, and lists and dictionaries of them"
        )

    try:
        text = json.dumps(outline(state, ""))
    except RecursionError:
        raise ConfigError("state holds itself, or is nested too deeply to be kept: give a tree of dictionaries and "
                          "lists") from None
    return {_OUTLINE: text.encode(), **entries}


def unpacked(read: "Callable[[str], bytes]") -> Any:
    """The state again. `read` gives an entry by name."""

    def value_of(outline: Any) -> Any:
        if isinstance(outline, list):
            return [value_of(each) for each in outline]
        if not isinstance(outline, dict):
            return outline
        if "$int" in outline:
            return int(outline["$int"])
        if "$float" in outline:
            return float.fromhex(outline["$float"])
        if "$tuple" in outline:
            return tuple(value_of(each) for each in outline["$tuple"])
        if "$dict" in outline:
            return {value_of(key): value_of(each) for key, each in outline["$dict"]}
        raw = read(outline["$array"])
        array = np.frombuffer(raw, np.dtype(outline["dtype"])).reshape(outline["shape"]).copy()
        return array[()] if outline.get("scalar") else array

    try:
        return value_of(json.loads(read(_OUTLINE)))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"the trainer's state in the checkpoint cannot be read: {error!r}") from None


def restore_into(into: Any, state: Any, path: str = "state", leaf: "Leaf | None" = None) -> None:
    """Lays `state` over `into` in place: arrays are filled; dictionaries, lists and tuples gone through.

    `leaf(into, state, path)` restores what is none of these, an object with a state of its own, and tells
    whether it has. Raises RunError where `state` has another shape, dtype, length or other keys, and
    ConfigError where `into` holds what cannot be filled in place (a number in a tuple).
    """
    if leaf is not None and leaf(into, state, path):
        return
    if isinstance(into, np.ndarray):
        if not isinstance(state, np.ndarray) or state.shape != into.shape or state.dtype != into.dtype:
            raise RunError(
                f"{path}: {into.dtype} of shape {into.shape} is to be restored from {_kind_of(state)}"
            )
        into[...] = state
    elif isinstance(into, dict):
        if not isinstance(state, dict) or set(state) != set(into):
            has = sorted(map(str, state)) if isinstance(state, dict) else _kind_of(state)
            raise RunError(f"{path} has {sorted(map(str, into))}, the checkpoint {has}")
        for key, each in into.items():
            if _is_value(each):
                into[key] = state[key]
            else:
                restore_into(each, state[key], f"{path}[{key!r}]", leaf)
    elif isinstance(into, (list, tuple)):
        if not isinstance(state, (list, tuple)) or len(state) != len(into):
            raise RunError(f"{path} has {len(into)} entries, the checkpoint {_kind_of(state)}")
        for i, each in enumerate(into):
            if not _is_value(each):
                restore_into(each, state[i], f"{path}[{i}]", leaf)
            elif isinstance(into, list):
                into[i] = state[i]
            elif state[i] != each:
                raise ConfigError(f"{path}[{i}]: a tuple's {_kind_of(each)} cannot be restored in place")
    else:
        raise ConfigError(
            f"{path}: a {type(into).__qualname__} cannot be restored in place; give a dictionary, an "
            "array or tensor, or an object with state_dict() and load_state_dict()"
        )


def _is_value(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, np.generic))


def _kind_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"{len(value)} entries" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
