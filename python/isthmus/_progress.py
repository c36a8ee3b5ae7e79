# SPDX-License-Identifier: Apache-2.0
"""A progress bar of tqdm's, or lines of the log where tqdm is not installed: step, loss, waiting, bytes, time left."""

from __future__ import annotations

import importlib
import json
import pathlib
import time
from typing import Any, Optional

from . import _log

_LINE_EVERY_S = 10.0


class Progress:
    """Of one site, whose thread calls it between steps. `folder`: the run's, None where it is not known."""

    def __init__(self, total_steps: int, done: int, folder: "Optional[pathlib.Path]") -> None:
        self._total = total_steps
        self._began = self._told = time.monotonic()
        self._rounds = None if folder is None else _Rounds(folder / "metrics.jsonl")
        self._bar: Any = None
        try:
            self._bar = importlib.import_module("tqdm.auto").tqdm(
                total=total_steps, initial=done, unit="step", desc="isthmus", dynamic_ncols=True)
        except ImportError:
            pass

    def show(self, done: int, loss: float) -> None:
        """`done` steps are taken; `loss` of the last one."""
        now = time.monotonic()
        if self._bar is not None:
            self._bar.n = done  # t may jump
            if now - self._told >= getattr(self._bar, "mininterval", 0.1) or done == self._total:
                self._told = now
                self._bar.set_postfix(self._words(loss))
            return
        if now - self._told >= _LINE_EVERY_S or done == self._total:
            self._told = now
            text = ", ".join(f"{name} {value}" for name, value in self._words(loss).items())
            _log.logger.info("step %d of %d: %s", done, self._total, text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()

    def _words(self, loss: float) -> "dict[str, str]":
        words = {"loss": f"{loss:.4g}"}
        if self._rounds is not None:
            self._rounds.look()
            elapsed = max(time.monotonic() - self._began, 1e-9)
            words["waits"] = f"{min(1.0, self._rounds.wait_s / elapsed):.0%}"
            words["sent"] = size_text(self._rounds.bytes)
        return words


class _Rounds:
    """What the rows of rounds add up to, which the run appends to its metrics.jsonl, from now on."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.wait_s, self.bytes = 0.0, 0
        self._at = path.stat().st_size if path.exists() else 0

    def look(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read()
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]  # a last line without its end is being written
        self._at += len(whole)
        for line in whole.splitlines():
            if b'"k":"round"' in line:
                row = json.loads(line)
                self.wait_s += float(row["wait_s"])
                self.bytes += row["bytes_wire"]


def size_text(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"
