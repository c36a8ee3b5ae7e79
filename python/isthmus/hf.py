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
from ._errors import ConfigError
from ._native import Outcome
from ._session import Site
from ._turns import random_states, set_random_states
from .torch import join
from .torch._schedules import ScheduleKept


class Callback(TrainerCallback):  # type: ignore[misc]
    """Joins a run when training begins, and tells it of every optimizer step.

    The run's `train.steps` end the training; give the Trainer `max_steps` of at least as many. The run's
    checkpoints are those that all sites agree on: use save_strategy="no". A site that resumes or joins at step t
    goes on with the batches of step t. Under outer.method = "ddp" gradients are averaged before they are clipped: the
    callback clips them itself, by the arguments' max_grad_norm. `join_options` are those of `isthmus.torch.join` (out,
    resume, overrides, state, alike).
    """

    def __init__(self, config: _abi.Path, *, site: Optional[str] = None, **join_options: Any) -> None:
        self.site: Optional[Site] = None
        self.outcome: Optional[Outcome] = None
        self._config, self._name, self._options = config, site, join_options
        self._losses: "list[Any]" = []  # of micro-batches since the last step
        self._tokens: Any = None  # of all of them, where the Trainer tells of it
        self._hook: Any = None
        self._place: Optional[_Place] = None
        self._clip: Optional[float] = None  # of a run under ddp
        self._norm: Any = None  # before clipping
        self._void: "Optional[ScheduleKept]" = None  # the step does not count

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None,
                       lr_scheduler: Any = None, train_dataloader: Any = None, **_: Any) -> None:
        if str(getattr(args.save_strategy, "value", args.save_strategy)) != "no":
            warnings.warn('isthmus: the Trainer saves checkpoints of its own, which other sites know nothing of: give '
                          'save_strategy="no"', RuntimeWarning, stacklevel=2)
        options = dict(self._options)
        given = options.pop("state", None)
        more = given if isinstance(given, dict) else {} if given is None else {"given": given}
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        site = join(self._config, model, inner, site=self._name,
                    state={"lr_scheduler": lr_scheduler, **more}, **options)
        self.site = site.__enter__()
        if state.max_steps < site.total_steps:
            error = ConfigError(f"the Trainer ends after {state.max_steps} steps, and the run has {site.total_steps}: "
                                "give TrainingArguments max_steps of at least train.steps")
            site.__exit__(ConfigError, error, None)
            raise error
        if site.config.outer.method == "ddp":
            if args.fp16:
                error = ConfigError('fp16=True together with outer.method = "ddp": gradients are averaged while they '
                                    "are scaled, and each site scales by a number of its own: give bf16=True")
                site.__exit__(ConfigError, error, None)
                raise error
            self._clip, args.max_grad_norm = args.max_grad_norm, 0.0
        state.global_step = site.t - 1
        self._place = _Place(train_dataloader, site.t - 1, args.gradient_accumulation_steps)
        self._hook = model.register_forward_hook(self._saw, with_kwargs=True)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._place is not None:
            self._place.epoch()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._place is not None:
            self._place.step()

    def _saw(self, module: Any, inputs: Any, named: "dict[str, Any]", outputs: Any) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", None)
        if loss is not None and module.training and _torch.is_grad_enabled():
            self._losses.append(loss.detach().mean())
            self._tokens = named.get("num_items_in_batch")

    def _told(self) -> "dict[str, Any]":
        """Loss and targets of the step."""
        loss: Any = None
        if self._losses:  # sums over the micro-batch by all items of the step, or means over the micro-batch
            loss = sum(self._losses) if self._tokens is not None else sum(self._losses) / len(self._losses)
        return {"loss": loss, "tokens": None if self._tokens is None else max(int(self._tokens), 1)}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if self._clip is None or self.site is None or self.site.outcome is not None:
            return
        self._void = None
        if not self.site.average_gradients(**self._told()):
            self._void = ScheduleKept()
        elif self._clip > 0:
            self._norm = _torch.nn.utils.clip_grad_norm_(model.parameters(), self._clip)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, lr_scheduler: Any = None,
                          **_: Any) -> None:
        if self._void is not None:  # the optimizer had no gradients; the schedule comes next
            self._void.keep([lr_scheduler])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        assert self.site is not None
        if self._void is not None:
            self._void.put_back()
            self._void = None
            if self.site.outcome is None:
                state.global_step = self.site.t - 1
        elif self.site.outcome is None:
            self.site.step(**self._told(), grad_norm=self._norm)
            if self.site.outcome is None:
                state.global_step = self.site.t - 1  # t jumps where the site has been cut off
        self._losses, self._tokens = [], None
        if self.site.outcome is not None:
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self.site is not None
        self._hook.remove()
        if self._clip is not None:
            args.max_grad_norm = self._clip
        self.outcome = self.site.outcome
        self.site.__exit__(None, None, None)


class _Place:
    """Puts the Trainer's loader where it is after `steps` optimizer steps. The Trainer itself begins with its first
    epoch: the epoch is laid over that of the sampler, and batches that are trained already are left out."""

    def __init__(self, loader: Any, steps: int, accumulation: int) -> None:
        self._loader = loader
        self._whole: Any = None
        self._random: "Optional[dict[str, Any]]" = None
        self._epochs = 0
        if steps == 0 or loader is None:
            return
        try:
            batches: Optional[int] = len(loader)
        except TypeError:  # an iterable data set: one epoch, as the Trainer has it
            batches = None
        updates = steps + 1 if batches is None else max(1, -(-batches // accumulation))
        epoch, taken = divmod(steps, updates)
        sampler: Any = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
        if hasattr(sampler, "set_epoch"):
            of_sampler = sampler.set_epoch
            sampler.set_epoch = lambda number: of_sampler(epoch + number)
        why = ""
        if not hasattr(loader, "base_dataloader"):
            why = f"a {type(loader).__name__} is not accelerate's: its samples begin anew"
        elif sampler is not None and not hasattr(sampler, "set_epoch") and not isinstance(
                sampler, _torch.utils.data.SequentialSampler):
            why = (f"a {type(sampler).__name__} draws another order than before: give the Trainer "
                   "accelerator_config={'use_seedable_sampler': True}")
        elif taken and batches is not None and batches % accumulation:
            why = (f"the {batches} batches of an epoch are no multiple of gradient_accumulation_steps = "
                   f"{accumulation}: the last, smaller update of this epoch is left out")
        if why:
            warnings.warn(f"isthmus: the run goes on after step {steps}, and {why}", RuntimeWarning, stacklevel=4)
        if taken and hasattr(loader, "base_dataloader"):
            from accelerate import skip_first_batches

            self._whole = loader.base_dataloader
            loader.base_dataloader = skip_first_batches(self._whole, taken * accumulation)
            self._random = random_states()  # those of the checkpoint; the loader's iterator draws from them

    def epoch(self) -> None:
        if self._whole is not None:
            self._epochs += 1
            if self._epochs == 2:
                self._loader.base_dataloader, self._whole = self._whole, None

    def step(self) -> None:
        if self._random is not None:
            set_random_states(self._random)
            self._random = None
