# SPDX-License-Identifier: Apache-2.0
"""State of PyTorch objects as entries that hold no code: one JSON outline, and the raw bytes of each
tensor under a name made of its path ("adamw/exp_avg/h.0.attn.weight"). Never pickle."""

from __future__ import annotations

import collections
import inspect
import json
import random
import warnings
import weakref
from typing import Any, Callable

import numpy as np
import torch

from .. import _log
from .._errors import ConfigError, RunError
from .._state import restore_into

_AS_BYTES = {torch.bfloat16}  # numpy has no such type
_DTYPES = {str(dtype): dtype for dtype in (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128)}


def raw_of(tensor: torch.Tensor) -> bytes:
    whole = tensor.detach().to("cpu").contiguous().reshape(-1)
    if whole.dtype in _AS_BYTES:
        whole = whole.view(torch.int16)
    return bytes(whole.numpy().tobytes())


def tensor_of(raw: bytes, dtype: torch.dtype, shape: "list[int]") -> torch.Tensor:
    if not raw:
        return torch.empty(shape, dtype=dtype)
    read_as = torch.int16 if dtype in _AS_BYTES else dtype
    flat = torch.frombuffer(bytearray(raw), dtype=read_as)
    return flat.view(dtype).reshape(shape)


def packed(prefix: str, state: Any, entries: "dict[str, bytes]",
           raw_of: "Callable[[torch.Tensor], bytes]" = raw_of) -> None:
    """Adds entries whose names begin with `prefix`. Raises ConfigError naming the path of what cannot be kept.
    `raw_of`: the bytes of a tensor, which is asked for each tensor in order."""

    def entry(path: "list[str]", raw: bytes) -> str:
        name = prefix + "/".join(path)
        while name in entries or name == prefix + "outline":
            name += "'"
        entries[name] = raw
        return name

    def outline(value: Any, path: "list[str]") -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**63 else {"$int": str(value)}
        if isinstance(value, float):
            return {"$float": float(value).hex()}
        if isinstance(value, torch.Tensor):
            if str(value.dtype) not in _DTYPES or value.is_sparse or value.is_quantized:
                raise ConfigError(f"state {'/'.join(path)}: a tensor of {value.dtype} cannot be kept")
            return {"$tensor": entry(path, raw_of(value)), "dtype": str(value.dtype), "shape": list(value.shape)}
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            if array.dtype.hasobject or array.dtype.kind not in "biufcSUmM":
                raise ConfigError(f"state {'/'.join(path)}: an array of dtype {array.dtype} cannot be kept")
            return {"$array": entry(path, array.tobytes()), "dtype": array.dtype.str, "shape": list(array.shape),
                    "scalar": isinstance(value, np.generic)}
        if isinstance(value, dict):
            pairs = []
            for key, each in value.items():
                if not isinstance(key, (str, int, float, bool)):
                    raise ConfigError(f"state {'/'.join(path)}: a key of type {type(key).__name__} cannot be kept")
                pairs.append([outline(key, path), outline(each, path + [str(key)])])
            return {"$dict": pairs}
        if isinstance(value, (list, tuple)):
            items = [outline(each, path + [str(i)]) for i, each in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, (torch.dtype, torch.device)):
            return {"$own": str(value)}
        if inspect.isroutine(value) or isinstance(value, weakref.ref):
            return {"$own": ""}  # a schedule's function stays the one that the caller gave
        raise ConfigError(
            f"state {'/'.join(path)}: a {type(value).__module__}.{type(value).__qualname__} cannot be kept; "
            "state holds tensors, numbers, texts, and lists and dictionaries of them"
        )

    text = json.dumps(outline(state, []))
    entries[prefix + "outline"] = text.encode()


Place = Callable[["list[str]", torch.Tensor, Any], torch.Tensor]


def unpacked(prefix: str, read: "Callable[[str], bytes]", own: Any = None, place: "Place | None" = None) -> Any:
    """The state again. `own`: the object's present state, for what is not kept. `place(path, tensor, own)`: what
    stands for a tensor here, a rank's part of it."""

    def value_of(outline: Any, own: Any, path: "list[str]") -> Any:
        if isinstance(outline, list):
            return [value_of(each, _at(own, i), path + [str(i)]) for i, each in enumerate(outline)]
        if not isinstance(outline, dict):
            return outline
        if "$int" in outline:
            return int(outline["$int"])
        if "$float" in outline:
            return float.fromhex(outline["$float"])
        if "$own" in outline:
            return own
        if "$tuple" in outline:
            return tuple(value_of(each, _at(own, i), path + [str(i)]) for i, each in enumerate(outline["$tuple"]))
        if "$dict" in outline:
            pairs = {}
            for name, each in outline["$dict"]:
                key = value_of(name, None, path)
                pairs[key] = value_of(each, own.get(key) if isinstance(own, dict) else None, path + [str(key)])
            return collections.Counter(pairs) if isinstance(own, collections.Counter) else pairs
        if "$tensor" in outline:
            tensor = tensor_of(read(outline["$tensor"]), _DTYPES[outline["dtype"]], outline["shape"])
            return tensor if place is None else place(path, tensor, own)
        raw = read(outline["$array"])
        dtype = np.dtype(outline["dtype"])
        if dtype.hasobject:
            raise ValueError("an array of objects")
        array = np.frombuffer(raw, dtype).reshape(outline["shape"]).copy()
        return array[()] if outline["scalar"] else array

    try:
        return value_of(json.loads(read(prefix + "outline")), own, [])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(f"the trainer's state in the checkpoint cannot be read: {error!r}") from None


def _at(own: Any, i: int) -> Any:
    return own[i] if isinstance(own, (list, tuple)) and i < len(own) else None


def state_of(value: Any) -> Any:
    """The state of an object; a dictionary or list of objects gives one of states."""
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, (torch.Generator,)):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, dict):
        return {key: state_of(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [state_of(each) for each in value]
    return value


def restore(into: Any, state: Any, path: str) -> None:
    """Lays a state over the object it came from, in place."""
    restore_into(into, state, path, _restore_object)


def _restore_object(into: Any, state: Any, path: str) -> bool:
    if hasattr(into, "load_state_dict"):
        try:
            into.load_state_dict(state)
        except Exception as error:
            raise RunError(f"{path}: its load_state_dict refused what its state_dict gave: {error!r}") from error
    elif isinstance(into, torch.Generator):
        into.set_state(state)
    elif isinstance(into, np.random.Generator):
        into.bit_generator.state = state
    elif isinstance(into, random.Random):
        into.setstate(state)
    elif isinstance(into, torch.Tensor):
        if not isinstance(state, torch.Tensor) or state.shape != into.shape or state.dtype != into.dtype:
            raise RunError(f"{path}: {into.dtype} of shape {tuple(into.shape)} is to be restored from "
                           f"a {type(state).__name__}")
        with torch.no_grad():
            into.copy_(state)
    else:
        return False
    return True


class OptimizerState:
    """An optimizer's state by the names of its parameters."""

    def __init__(self, optimizer: Any, names: "dict[int, str]") -> None:
        self.optimizer = optimizer
        self._names = names  # id of a parameter -> name
        self.kind = type(optimizer).__name__.lower()

    def _numbers(self) -> "list[str]":
        """Names in the order in which state_dict() numbers the parameters."""
        found: "list[str]" = []
        for group in self.optimizer.param_groups:
            for each in group["params"]:
                found.append(self._names.get(id(each), f"#{len(found)}"))
        return found

    def state_dict(self) -> "dict[str, Any]":
        whole = self.optimizer.state_dict()
        names = self._numbers()
        kinds: "dict[str, dict[str, Any]]" = {}
        for number, state in whole["state"].items():
            for key, value in state.items():
                kinds.setdefault(str(key), {})[names[number]] = value
        groups = [{key: value for key, value in group.items() if key != "params"} for group in whole["param_groups"]]
        of = [[names[number] for number in group["params"]] for group in whole["param_groups"]]
        rest = {key: value for key, value in whole.items() if key not in ("state", "param_groups")}
        return {self.kind: kinds, "groups": groups, "names": of, "rest": rest}

    def load_state_dict(self, state: "dict[str, Any]") -> None:
        names = self._numbers()
        if self.kind not in state:
            raise RunError(f"the checkpoint's optimizer is another one than {self.kind}")
        given = state["names"]
        own = self.optimizer.state_dict()["param_groups"]
        if [[names[number] for number in group["params"]] for group in own] != given:
            raise RunError("the optimizer's parameter groups hold other parameters than the checkpoint's")
        whole: "dict[int, dict[str, Any]]" = {}
        numbers = {name: number for number, name in enumerate(names)}
        for key, values in state[self.kind].items():
            for name, value in values.items():
                whole.setdefault(numbers[name], {})[key] = value
        groups = [{**saved, "params": group["params"]} for saved, group in zip(state["groups"], own)]
        self.optimizer.load_state_dict({**state["rest"], "state": whole, "param_groups": groups})
        self._keep_types(whole)

    def _keep_types(self, whole: "dict[int, dict[str, Any]]") -> None:
        """load_state_dict casts state to the parameter's type; what was saved in another one stays so."""
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        for number, saved in whole.items():
            state = self.optimizer.state.get(parameters[number], {})
            for key, value in saved.items():
                has = state.get(key)
                if isinstance(has, torch.Tensor) and isinstance(value, torch.Tensor) and has.dtype != value.dtype:
                    state[key] = value.to(has.device)


def forget(optimizer: Any, fresh: Any) -> None:
    """An optimizer, or several, hold for each parameter what they held at first; rates and the like stay."""
    if isinstance(optimizer, OptimizerState):
        optimizer.load_state_dict({**fresh, "groups": optimizer.state_dict()["groups"]})
    elif isinstance(optimizer, dict):
        for key, each in optimizer.items():
            forget(each, fresh[key])
    else:
        for i, each in enumerate(optimizer):
            forget(each, fresh[i])


def named(optimizer: Any, names: "dict[int, str]") -> Any:
    """`optimizer`, or several in a list, tuple or dictionary, by the names of parameters."""
    if optimizer is None:
        return None
    if isinstance(optimizer, dict):
        return {key: named(each, names) for key, each in optimizer.items()}
    if isinstance(optimizer, (list, tuple)):
        return [named(each, names) for each in optimizer]
    if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "load_state_dict"):
        raise ConfigError(f"optimizer is a {type(optimizer).__qualname__}: must be a torch.optim.Optimizer, or a "
                          "list of them")
    return OptimizerState(optimizer, names)


def optimizers_of(optimizer: Any) -> "list[Any]":
    if optimizer is None:
        return []
    if isinstance(optimizer, dict):
        return list(optimizer.values())
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]


def split_state(state: Any) -> "tuple[Any, Any]":
    """(what a site takes from a donor, what is its own): loaders and generators are the site's own, and
    what has a name that begins with "own/"."""
    if state is None:
        return {}, {}
    if not isinstance(state, (dict, list, tuple)):
        state = [state]
    pairs = state.items() if isinstance(state, dict) else ((str(i), each) for i, each in enumerate(state))
    shared: "dict[Any, Any]" = {}
    own: "dict[Any, Any]" = {}
    for key, each in pairs:
        if each is not None:
            (own if is_own(each) or str(key).startswith("own/") else shared)[key] = each
    return (_Through(state, shared) if isinstance(state, dict) else shared), own


def is_own(each: Any) -> bool:
    if isinstance(each, (torch.Generator, np.random.Generator, random.Random)):
        return True
    stateful = hasattr(each, "state_dict") and hasattr(each, "load_state_dict")
    return stateful and (hasattr(each, "__iter__") or hasattr(each, "__next__")) and not hasattr(each, "parameters")


class _Through(dict):  # type: ignore[type-arg]
    """A part of the caller's dictionary: numbers that are restored go there too."""

    def __init__(self, whole: "dict[Any, Any]", part: "dict[Any, Any]") -> None:
        super().__init__(part)
        self._whole = whole

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._whole[key] = value

    def now(self) -> "dict[Any, Any]":
        return {key: self._whole[key] for key in self}


def shared_now(shared: Any) -> Any:
    return shared.now() if isinstance(shared, _Through) else shared


def count_from(state: Any, t: int) -> None:
    """Schedules of steps among `state` go to the place that they have before step t of a run."""
    each: Any
    for each in state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else [state]:
        if isinstance(each, (dict, list, tuple)):
            count_from(each, t)
        elif isinstance(each, torch.optim.lr_scheduler.LambdaLR):
            each.last_epoch = t - 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # get_lr() warns of calls from outside
                rates = each.get_lr()
            for group, rate in zip(each.optimizer.param_groups, rates):
                group["lr"] = rate
            each._last_lr = [group["lr"] for group in each.optimizer.param_groups]
        elif hasattr(each, "last_epoch"):
            _log.logger.warning("the %s in state counts its own steps, from its start on: step %d of the run is not "
                                "known to it", type(each).__name__, t)
