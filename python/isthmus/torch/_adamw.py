# SPDX-License-Identifier: Apache-2.0
"""The optimizer and learning rates of `[inner]` for a PyTorch model."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .._errors import ConfigError
from .._schedule import rate_of
from .._tables import Section
from ._memory import trained_of


def adamw(model: torch.nn.Module, config: Section, *,
          total_steps: Optional[int] = None) -> "tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]":
    """AdamW and the schedule that `[inner]` describes: parameters of two and more dimensions decay by
    inner.weight_decay, all others by nothing.

    config = isthmus.load_config("run.toml", ['train.trainer="external"'])
    opt, sched = isthmus.torch.adamw(model, config)
    with isthmus.torch.join("run.toml", model, opt, state={"sched": sched}) as site:
        ...
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.inner.clip)  # where clip is not 0
            opt.step(); sched.step(); opt.zero_grad()

    `total_steps`: default `train.steps`. The schedule belongs into `state`, so that it resumes and joins with
    the optimizer. Raises ConfigError where inner.optimizer is not "adamw".
    """
    inner = config.inner
    if inner.optimizer != "adamw":
        raise ConfigError(f'adamw: inner.optimizer = "{inner.optimizer}": must be "adamw"')
    steps = config.train.get("steps") if total_steps is None else total_steps
    if not steps:
        raise ConfigError("adamw: how many steps has the run? Give train.steps in the file, or total_steps")
    found = list(trained_of(model).values())
    if not found:
        raise ConfigError("adamw: no parameter requires gradients")
    rate, peak = rate_of(inner, int(steps)), float(inner.lr)
    groups: "list[dict[str, Any]]" = [
        {"params": [each for each in found if each.dim() >= 2], "weight_decay": float(inner.weight_decay)},
        {"params": [each for each in found if each.dim() < 2], "weight_decay": 0.0}]
    beta1, beta2 = inner.betas
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=peak,
                                  betas=(float(beta1), float(beta2)), eps=float(inner.eps))

    def factor(taken: int) -> float:
        return rate(taken + 1) / peak if peak > 0 else 1.0

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
