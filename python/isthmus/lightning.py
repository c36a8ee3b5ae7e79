# SPDX-License-Identifier: Apache-2.0
"""The outer loop in Lightning's Trainer: `Trainer(..., callbacks=[isthmus.lightning.Callback("run.toml")])`.
Not run: Lightning was not at hand."""

from __future__ import annotations

import importlib
from typing import Any, Optional

from . import _abi
from ._session import Outcome, Site
from .torch import join


def _base() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("isthmus.lightning needs Lightning: pip install lightning")


class Callback(_base()):  # type: ignore[misc]
    """Joins a run when training begins, and tells it of every optimizer step (`train.steps` of them)."""

    def __init__(self, config: _abi.Path, *, site: Optional[str] = None, **join_options: Any) -> None:
        super().__init__()
        self.site: Optional[Site] = None
        self.outcome: Optional[Outcome] = None
        self._config, self._name, self._options = config, site, join_options
        self._before = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        schedules = {f"lr{i}": each.scheduler for i, each in enumerate(trainer.lr_scheduler_configs)}
        self.site = join(self._config, pl_module, list(trainer.optimizers), site=self._name,
                         state={**schedules, **self._options.pop("state", {})}, **self._options)
        self.site.__enter__()
        self._before = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self.site is not None
        if trainer.global_step == self._before or self.site.outcome is not None:
            return  # gradients are accumulated
        self._before = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self.site.step(loss)
        if self.site.outcome is not None:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        assert self.site is not None
        self.outcome = self.site.outcome
        self.site.__exit__(None, None, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.site is not None:
            self.site.__exit__(type(exception), exception, exception.__traceback__)
