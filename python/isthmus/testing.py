# SPDX-License-Identifier: Apache-2.0
"""Checks of a body of one's own."""

from __future__ import annotations

import pathlib
import random
import tempfile
from typing import Any, Callable, Optional, Sequence

from . import _abi
from ._session import Site, run

Body = Callable[[Site], Any]


class _Cut(BaseException):
    """The run dies here."""


def check_resume(config: _abi.Path, body: Body, *, cuts: int = 2, seed: int = 0,
                 overrides: "Sequence[str]" = ()) -> "list[int]":
    """Runs `body` whole, then once more with `cuts` sudden ends at random steps, each followed by a resume
    from the newest checkpoint, and compares what the two runs leave: parameters, state and random numbers of
    each worker, bit for bit. What a loop keeps outside of `state` shows here.

    The run is one process with all workers of the file, and needs `ckpt.every`. RETURNS: the steps at which it
    was cut. Raises AssertionError naming the worker and the first entry that differs.
    """
    with tempfile.TemporaryDirectory() as folder:
        whole: "dict[int, dict[str, bytes]]" = {}
        again: "dict[int, dict[str, bytes]]" = {}
        last = [0]
        run(config, _ending(body, whole, None, last), out=pathlib.Path(folder) / "whole", overrides=overrides)
        draw = random.Random(seed)
        at = sorted(draw.sample(range(2, last[0]), min(cuts, last[0] - 2)))
        out = pathlib.Path(folder) / "cut"
        for step in at:
            try:
                run(config, _ending(body, again, step, last), out=out, resume="auto", overrides=overrides)
            except _Cut:
                pass
        run(config, _ending(body, again, None, last), out=out, resume="auto", overrides=overrides)
    for worker, entries in sorted(whole.items()):
        for name, data in entries.items():
            if again[worker].get(name) != data:
                raise AssertionError(
                    f"worker {worker}: '{name}' differs after the run was cut at steps {at} and resumed: is all "
                    "that the loop reads in `state`?")
    return at


def _ending(body: Body, found: "dict[int, dict[str, bytes]]", cut: Optional[int], last: "list[int]") -> Body:
    def to_the_end(site: Site) -> Any:
        step = site.step

        def step_or_end(*args: Any, **said: Any) -> None:
            t = site.t
            if cut is not None and t >= cut:
                raise _Cut(f"at step {t}")
            step(*args, **said)
            last[0] = max(last[0], t)

        site.step = step_or_end  # type: ignore[assignment]
        result = body(site)
        trained = site._trained
        if trained is not None:
            arrays = {f"parameter {name}": each.tobytes() for name, each in trained.arrays.items()}
            found[site.index] = arrays
            trained.save(arrays)
        return result

    return to_the_end
