# SPDX-License-Identifier: Apache-2.0
"""The outer loop in Lightning's Trainer: `Trainer(..., callbacks=[isthmus.lightning.Callback("run.toml")])`."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, Optional

from . import _abi
from ._errors import ConfigError
from ._native import Outcome
from ._session import Site
from ._turns import random_states, set_random_states
from .torch import join
from .torch._schedules import ScheduleKept
from .torch._state import is_own


def _base() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("isthmus.lightning needs Lightning: pip install lightning")


class Callback(_base()):  # type: ignore[misc]
    """Joins a run before training begins, and tells it of every optimizer step (`train.steps` of them).

    Give the Trainer max_epochs=-1: the run ends the training. Its schedules are part of the state. A loader whose
    place is to be resumed has state_dict (torchdata's StatefulDataLoader) and is given twice, to `fit` and as
    `state={"loader": loader}`. Under outer.method = "ddp" gradients are averaged before Lightning clips them.
    `join_options` are those of `isthmus.torch.join`.
    """

    def __init__(self, config: _abi.Path, *, site: Optional[str] = None, **join_options: Any) -> None:
        super().__init__()
        self.site: Optional[Site] = None
        self.outcome: Optional[Outcome] = None
        self._config, self._name, self._options = config, site, join_options
        self._before = 0
        self._losses: "list[Any]" = []  # of micro-batches since the last step
        self._random: "Optional[dict[str, Any]]" = None
        self._averages = False  # the run is one under ddp
        self._void: "Optional[ScheduleKept]" = None  # the step does not count

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        options = dict(self._options)
        given = options.pop("state", None)
        more = given if isinstance(given, dict) else {} if given is None else {"given": given}
        schedules = {f"lr{i}": each.scheduler for i, each in enumerate(trainer.lr_scheduler_configs)}
        site = join(self._config, pl_module, list(trainer.optimizers), site=self._name, state={**schedules, **more},
                    **options)
        self.site = site.__enter__()
        self._averages = site.config.outer.method == "ddp"
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        if self._averages and (scaled or len(trainer.optimizers) != 1):
            error = ConfigError('outer.method = "ddp" in Lightning takes one optimizer and no gradient scaler, whose '
                                'sites would leave out unlike steps: give precision="bf16-mixed" in the place of '
                                '"16-mixed", and one optimizer')
            site.__exit__(ConfigError, error, None)
            raise error
        self._random = random_states() if site.t > 1 else None
        if site.t > 1 and not any(is_own(each) and hasattr(each, "state_dict") for each in more.values()):
            warnings.warn(f"isthmus: the run goes on after step {site.t - 1}, and no loader is in `state`: its samples "
                          "begin anew. Give Callback(..., state={'loader': loader}), a loader that has state_dict "
                          "(torchdata's StatefulDataLoader)", RuntimeWarning, stacklevel=2)
        if site.t > 1 and any(each.interval == "epoch" for each in trainer.lr_scheduler_configs):
            warnings.warn("isthmus: a learning rate changes by epochs, and Lightning does not count the rest of an "
                          'epoch that a run resumes in: give the schedule interval="step"', RuntimeWarning,
                          stacklevel=2)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._before = trainer.global_step
        if self._random is not None:  # the loader's iterator, and a trial of validation, have drawn from them
            set_random_states(self._random)
            self._random = None

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        if self._averages:  # Lightning has divided it by the micro-batches of the step
            self._losses.append(loss.detach() * trainer.accumulate_grad_batches)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if not self._averages or self.site is None or self.site.outcome is not None:
            return
        self._void = None
        if not self.site.average_gradients(self._mean()):
            self._void = ScheduleKept()  # the optimizer has no gradients; a schedule may come next
            self._void.keep([each.scheduler for each in trainer.lr_scheduler_configs])

    def _mean(self) -> Any:
        """Loss of the step's micro-batches."""
        return sum(self._losses) / len(self._losses) if self._losses else None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self.site is not None
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None and not self._averages:
            # Lightning has divided it, also where an epoch's last step has fewer micro-batches.
            self._losses.append(loss.detach() * trainer.accumulate_grad_batches)
        if trainer.global_step == self._before or self.site.outcome is not None:
            return  # gradients are accumulated
        self._before = trainer.global_step
        mean = self._mean()
        self._losses = []
        if self._void is not None:
            self._void.put_back()
            self._void = None
        else:
            self.site.step(mean)
        if self.site.outcome is not None:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        assert self.site is not None
        self.outcome = self.site.outcome
        self.site.__exit__(None, None, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.site is not None and not self.site.closed:
            self.site.__exit__(type(exception), exception, exception.__traceback__)
