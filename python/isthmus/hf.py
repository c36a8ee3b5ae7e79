# SPDX-License-Identifier: Apache-2.0
"""The outer loop in Hugging Face's Trainer.

>>> trainer = Trainer(model, args, ..., callbacks=[isthmus.hf.Callback("run.toml", site="east")])  # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from typing import Any, Optional

import torch as _torch
from transformers import TrainerCallback

from . import _abi
from ._session import Outcome, Site
from .torch import join


class Callback(TrainerCallback):  # type: ignore[misc]
    """Joins a run when training begins, and tells it of every optimizer step.

    The run's `train.steps` end the training; give the Trainer `max_steps` of at least as many. The run's
    checkpoints are those that all sites agree on: use save_strategy="no". `join_options` are those of
    `isthmus.torch.join` (out, resume, overrides, state, alike).
    """

    def __init__(self, config: _abi.Path, *, site: Optional[str] = None, **join_options: Any) -> None:
        self.site: Optional[Site] = None
        self.outcome: Optional[Outcome] = None
        self._config, self._name, self._options = config, site, join_options
        self._loss: Any = None
        self._losses = 0
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None,
                       lr_scheduler: Any = None, **_: Any) -> None:
        if str(getattr(args.save_strategy, "value", args.save_strategy)) != "no":
            warnings.warn('isthmus: the Trainer saves checkpoints of its own, which other sites know nothing of: give '
                          'save_strategy="no"', RuntimeWarning, stacklevel=2)
        given = self._options.pop("state", None)
        more = given if isinstance(given, dict) else {} if given is None else {"given": given}
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        self.site = join(self._config, model, inner, site=self._name,
                         state={"lr_scheduler": lr_scheduler, **more}, **self._options)
        self.site.__enter__()
        state.global_step = self.site.t - 1
        self._hook = model.register_forward_hook(self._saw)

    def _saw(self, module: Any, inputs: Any, outputs: Any) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", None)
        if loss is not None and module.training and _torch.is_grad_enabled():
            loss = loss.detach().mean()
            self._loss = loss if self._loss is None else self._loss + loss
            self._losses += 1

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        assert self.site is not None
        if self.site.outcome is None:
            loss = None if self._loss is None else self._loss / self._losses
            self.site.step(loss)
        self._loss, self._losses = None, 0
        if self.site.outcome is not None:
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self.site is not None
        self._hook.remove()
        self.outcome = self.site.outcome
        self.site.__exit__(None, None, None)
