# SPDX-License-Identifier: Apache-2.0
"""`join` and `attach` of PyTorch models."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import torch

from .. import _abi, _log
from .._errors import ConfigError
from .._native import NativeSession
from .._session import Site, _check_evaluate, joined, options_of, options_of_follower, site_named
from .._trained import Evaluate
from .._tables import load_config
from ._masters import Given
from ._ranks import Ranks, initialized, rank_in_words
from ._shared import SharedTrained
from ._site_of_ranks import LeadingSession, join_ranks
from ._state import optimizers_of
from ._trained import TorchTrained


def join(config: _abi.Path, model: torch.nn.Module, optimizer: Any = None, *, site: Optional[str] = None,
         out: Optional[_abi.Path] = None, resume: str = "auto", overrides: "Sequence[str]" = (),
         params: "Optional[Mapping[str, Given]]" = None,
         layer_of: "Optional[Callable[[str], int]]" = None, state: Any = None,
         evaluate: "Optional[Evaluate]" = None, evaluation_parts: "Union[int, str, None]" = None,
         alike: "Optional[Mapping[str, Any]]" = None, listen: Optional[str] = None,
         key_file: Optional[_abi.Path] = None, addresses: "Sequence[str]" = (),
         links: Optional[_abi.Path] = None, force: bool = False, hook: bool = False, group: Any = None,
         signals: bool = True, log: bool = False, change: "Sequence[str]" = ()) -> Site:
    """Takes part in a run as the site `site`, and blocks until the sites have met; the model then holds
    the agreed start.

    Where torch.distributed is initialised, every rank of `group` calls this and is a part of the one site.

    with isthmus.torch.join("run.toml", model, opt, site="east", state={"sched": sched, "loader": loader}) as site:
        for t, batch in site.steps(loader):
            loss = loss_of(model, batch)
            loss.backward()
            opt.step(); sched.step(); opt.zero_grad()
            site.step(loss, tokens=batch.numel())

    Parameters
    ----------
    config : path of the run's TOML file.
    model : torch.nn.Module, on its device, with its initial weights. The parameters that require gradients
        take part, each once where several names share it.
    optimizer : torch.optim.Optimizer, or a list of them, made after the model is where it will be.
    site : name of the [[site]]; default: the environment's ISTHMUS_SITE.
    out : folder of the run; `resume`: "auto" (its newest checkpoint, if any), "never", or a checkpoint's path.
    overrides : keys laid over the file, ["outer.H=50"].
    change : keys of a run that goes on, changed from here on, ["train.steps=400"]; give them at every later resume
        too, with the overrides that the run was begun with.
    params : name -> tensor, in the place of the model's parameters: float32 masters, LoRA's factors. What the run
        writes into a master is copied to the model's weight too: that of its name where the model has one in a
        narrower type, or the second of a pair (master, weight).
    layer_of : name -> number of the layer, -1 for none; default: the number after layers, h, blocks or layer.
    state : what else a resume needs: objects with state_dict and load_state_dict (schedules, a gradient scaler),
        generators, tensors, numbers, in a dictionary or list. Loaders (which have __iter__ too) and generators
        are the site's own and not taken from a donor, as all under a name that begins with "own/".
    evaluate : evaluate(part) -> (sum of losses, targets), called with the outer parameters in place for the parts
        0 to `evaluation_parts` - 1 at the steps of [eval]; "file": part k is `site.validation(k)`, as for sites with
        the built-in trainer.
    alike : values that all PyTorch sites must have in common. Under ddp the optimizers' classes and settings are
        among them, since each site applies the mean by its own.
    hook : call `site.step()` after every optimizer.step(), and under ddp `site.average_gradients()` before it, for
        loops that isthmus must not change; such a loop runs until `site.outcome` is set. Needs PyTorch 2.
    group : torch.distributed group whose ranks are this site; default: all ranks of the job. Each of them calls
        `join`, `site.steps`, `site.average_gradients`, `site.step`, `site.anchors` and goes through them alike.
        Parameters are replicas (DDP) or DTensors (FSDP2's fully_shard, sharded before the optimizer
        is made). Rank 0 has the session: `config`, `out`, `resume`, `overrides`, `alike`, `listen`, `key_file`,
        `addresses`, `links`, `change` and `force` are read there, as are `loss` and `tokens` of `site.step` and the
        result of `evaluate`, which is called at every rank. With outer.placement = "ranks" every rank reads `config`,
        `overrides`, `change` and `layer_of`, which are to be alike. `site.stop`, `requeue`,
        `checkpoint`, `leave` and signals count at any rank; `site.status` is not collective, and reads the run's
        folder at each rank. A rank that ends ends its site.
    log : the run's lines go to stderr, where the logger `isthmus` has no handler.

    Raises
    ------
    ConfigError, PeerError, SystemFault, RunError
    """
    if log:
        _log.show()
    name = _site_of(site)
    parts = (1 if evaluate is not None else 0) if evaluation_parts is None else evaluation_parts
    _check_evaluate(evaluate, parts)
    if hook:
        _check_hook(optimizer, state)

    def options(leads: bool = True) -> "dict[str, Any]":
        if not leads:  # a rank that has no run; its outer state is of the run as it is changed
            return options_of_follower(overrides=overrides, change=change, site=name)
        same = dict(alike or {})
        if load_config(config, ['train.trainer="external"', *overrides]).outer.method == "ddp":
            same.setdefault("optimizer", optimizers_in_words(optimizer))
        return options_of(
            overrides=overrides, site=name, listen=listen, key_file=key_file, addresses=addresses, links=links,
            out=out, resume=resume, kind="pytorch", alike=same, evaluation_parts=parts, force=int(force), change=change)

    if initialized():
        made = join_ranks(Ranks(group), name, lambda leads: LeadingSession(config, **options(leads)),
                          lambda ranks, wishes: SharedTrained(ranks, wishes, model, optimizer, params=params,
                                                              state=state, evaluate=evaluate), signals, layer_of)
    elif group is not None:
        raise ConfigError("join: `group` needs torch.distributed.init_process_group before")
    else:
        made = joined(NativeSession(config, **options()), signals,
                      lambda: TorchTrained(model, optimizer, params=params, state=state, evaluate=evaluate), layer_of)
    if hook:
        _hook(made, optimizer)
    return made


def attach(site: Site, model: torch.nn.Module, optimizer: Any = None, *,
           params: "Optional[Mapping[str, Given]]" = None,
           layer_of: "Optional[Callable[[str], int]]" = None, state: Any = None,
           evaluate: "Optional[Evaluate]" = None, hook: bool = False) -> Site:
    """Gives the site of a body of `isthmus.run` or `isthmus.simulate` its model; the arguments are those of
    `join`. RETURNS: the site.

    def body(site):
        torch.manual_seed(7)  # the same initial weights at every worker
        model = build()
        opt = torch.optim.AdamW(model.parameters())
        isthmus.torch.attach(site, model, opt)
        for t, batch in site.steps(batch_of(site.index)):
            ...
    """
    if hook:
        _check_hook(optimizer, state)
    site.give(TorchTrained(model, optimizer, params=params, state=state, evaluate=evaluate), layer_of)
    if hook:
        _hook(site, optimizer)
    return site


def _site_of(site: Optional[str]) -> str:
    if not site and not os.environ.get("ISTHMUS_SITE") and ("RANK" in os.environ or initialized()):
        raise ConfigError(rank_in_words())
    ranks = os.environ.get("WORLD_SIZE", "1")
    if os.environ.get("ISTHMUS_LAUNCHED") == "1" and ranks != "1" and not initialized():
        raise ConfigError(f"join: WORLD_SIZE = {ranks}, and torch.distributed is not initialized: the ranks that "
                          "torchrun has started for one site are to call torch.distributed.init_process_group before "
                          "they join")
    return site_named(site)


# Of a group of parameters: what changes no value, and what the group was before a schedule.
_NO_SETTINGS = ("params", "param_names", "initial_lr", "foreach", "fused", "capturable", "differentiable")


def optimizers_in_words(optimizer: Any) -> str:
    """Class and settings of each group of parameters. Under ddp each site applies the mean by its own optimizer, so
    sites whose words differ would come apart."""
    words = []
    for each in optimizers_of(optimizer):
        for group in getattr(each, "param_groups", []):
            settings = [f"{key}={_setting(group[key])}" for key in sorted(group)
                        if key not in _NO_SETTINGS and _setting(group[key])]
            words.append(f"{type(each).__name__}({len(group['params'])} tensors, {', '.join(settings)})")
    return " ".join(words)


def _setting(value: Any) -> str:
    """A number or text, or several; others, which are no settings of the arithmetic, have no words."""
    if isinstance(value, torch.Tensor):
        return f"{float(value):.9g}" if value.numel() == 1 else ""
    if isinstance(value, (tuple, list)):
        return " ".join(_setting(each) for each in value)
    if isinstance(value, float):
        return f"{value:.9g}"
    return str(value) if isinstance(value, (bool, int, str)) else ""


def _check_hook(optimizer: Any, state: Any) -> None:
    if not hasattr(optimizer, "register_step_post_hook"):
        raise ConfigError("hook=True needs one optimizer with register_step_post_hook (PyTorch 2): call site.step() "
                          "after optimizer.step() instead")
    given = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else [state]
    for each in given:
        if hasattr(each, "load_state_dict") and (hasattr(each, "last_epoch") or hasattr(each, "get_scale")):
            raise ConfigError(
                f"hook=True together with a {type(each).__name__} in state: the hook saves inside optimizer.step(), "
                "and a resumed run would leave out the step that the schedule or scaler takes after it. Call "
                "site.step() after it instead, without hook"
            )


def _hook(site: Site, optimizer: Any) -> None:
    def begins(*_: Any) -> None:
        if site.outcome is None and not site.closed:
            site.average_gradients()

    def stepped(*_: Any) -> None:
        if site.outcome is None and not site.closed and not site._void:
            site.step()

    if site.config.outer.method == "ddp":
        optimizer.register_step_pre_hook(begins)  # where the step does not count the gradients are gone after it
    optimizer.register_step_post_hook(stepped)
