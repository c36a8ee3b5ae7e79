# SPDX-License-Identifier: Apache-2.0
"""The learning rate of `[inner]` as the program has it: a function of the step alone."""

from __future__ import annotations

import bisect
import math
from typing import Any, Callable, Mapping

from ._errors import ConfigError


def rate_of(inner: "Mapping[str, Any]", total_steps: int) -> "Callable[[int], float]":
    """The rate of step t = 1, 2, ... of `total_steps`; `inner`: the `[inner]` of `load_config`."""
    kind, peak, floor = inner["schedule"], float(inner["lr"]), float(inner.get("floor", 0.1))
    if kind not in _SHARES:
        raise ConfigError(f'inner.schedule = "{kind}": must be {", ".join(_SHARES)}')
    share = _SHARES[kind]
    last = inner.get("decay", 0)
    warmup, decay = _steps(inner.get("warmup", 0), total_steps), _steps(last, total_steps)
    if kind in ("wsd", "infinite"):
        if float(str(last).rstrip("%")) <= 0:
            raise ConfigError(f'inner.decay = 0: must be > 0 with inner.schedule = "{kind}" (its last phase)')
        if kind == "infinite" and floor <= 0:
            raise ConfigError(f'inner.floor = {floor}: must be > 0 with inner.schedule = "infinite"')
        decay = max(decay, 1)
    points = [_steps(point, total_steps) for point in inner.get("rewarm", [])]
    begins = sorted({1, *(each for each in points if each > 1)})

    def at(t: int) -> float:
        cycle = bisect.bisect_right(begins, t)
        begin = begins[cycle - 1]
        end = total_steps + 1 if cycle == len(begins) else begins[cycle]
        step = t - begin + 1
        warm = min(1.0, step / warmup) if warmup >= 1 else 1.0
        return peak * warm * share(step, end - begin, max(warmup, 1), decay, floor)

    return at


def _steps(count: Any, total_steps: int) -> int:
    """A number of steps, or a share of the run: 100, "5%"."""
    if isinstance(count, str):
        return math.floor(float(count.rstrip("%")) / 100 * total_steps + 0.5)
    return int(count)


def _progress(t: float, begin: float, end: float) -> float:
    if t <= begin:
        return 0.0
    return 1.0 if t >= end else (t - begin) / (end - begin)


def _cosine(first: float, last: float, u: float) -> float:
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * u))


def _infinite(t: int, cycle: int, warm: int, decay: int, floor: float) -> float:
    level = (1 + floor) / 2
    if t > cycle - decay:
        return float(level * (floor / level) ** _progress(t, cycle - decay, cycle))
    return _cosine(1, level, _progress(t, warm, warm + decay))


# Of the step within a cycle, the cycle's length, the warm-up (at least 1), the last phase, the floor.
_SHARES: "dict[str, Callable[[int, int, int, int, float], float]]" = {
    "constant": lambda t, cycle, warm, decay, floor: 1.0,
    "linear": lambda t, cycle, warm, decay, floor: 1 - (1 - floor) * _progress(t, warm, cycle),
    "cosine": lambda t, cycle, warm, decay, floor: _cosine(1, floor, _progress(t, warm, cycle)),
    "wsd": lambda t, cycle, warm, decay, floor: 1 - (1 - floor) * _progress(t, cycle - decay, cycle),
    "infinite": _infinite,
    "inverse-sqrt": lambda t, cycle, warm, decay, floor: math.sqrt(warm / max(t, warm)),
}
