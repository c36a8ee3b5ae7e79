# SPDX-License-Identifier: Apache-2.0
"""Bodies that share a process take turns, and each finds the random states as it left them.

Python's, numpy's and PyTorch's generators belong to the process; a body that draws from them would
otherwise see the draws of the others."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any, Optional

import numpy as np


def random_states() -> "dict[str, Any]":
    """The random states of the process: Python's, numpy's, and PyTorch's where it is imported."""
    states: "dict[str, Any]" = {"python": random.getstate(), "numpy": np.random.get_state()}
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: "dict[str, Any]") -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in states:
        torch.set_rng_state(states["torch"])
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state(states["cuda"])


class Turns:
    """At most `slots` bodies compute at a time; with one slot each has random states of its own, which
    begin as those of the process at the start of the run."""

    def __init__(self, slots: int) -> None:
        # A lock is much less code than a semaphore, at every step of a body.
        self._free: Any = threading.Lock() if slots == 1 else threading.Semaphore(slots)
        self._swaps = slots == 1
        self._start = random_states() if self._swaps else {}
        self._states: "dict[int, dict[str, Any]]" = {}
        self._last: Optional[int] = None  # whose states the process has

    def enter(self, worker: int) -> None:
        self._free.acquire()
        if not self._swaps or self._last == worker:
            return
        if self._last is not None:
            self._states[self._last] = random_states()
        set_random_states(self._states.get(worker, self._start))
        self._last = worker

    def leave(self, worker: int) -> None:
        self._free.release()
