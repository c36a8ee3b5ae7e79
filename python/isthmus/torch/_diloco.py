# SPDX-License-Identifier: Apache-2.0
"""torchft's DiLoCo, by its signature, over a run of isthmus."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

import torch

from .. import _abi
from .._errors import ConfigError
from .._session import Site
from ._join import _check_hook, join


class DiLoCo:
    """`with DiLoCo(config, model_fragments, inner_optimizer, outer_optimizer, sync_every):` around a loop.

    The first argument is the run's TOML file, where torchft takes a Manager. Inner optimizer steps are counted
    by a hook, so the loop stays as it is; it ends after `train.steps` steps, when `outcome` is set.

    Taken: `model_fragments` (one fragment each; several make streaming DiLoCo), `outer_optimizer`
    (torch.optim.SGD: lr, momentum, nesterov), `sync_every` (outer.H), `should_quantize` (codec int8),
    `fragment_sync_delay` (outer.overlap), `fragment_update_alpha` (outer.alpha). `pin_memory`,
    `use_bucketization` and `bucket_cap_mb` change nothing here. Refused: other outer optimizers, weight decay,
    dampening, maximize, and a `backup_device` other than the CPU. `join_options` are those of
    `isthmus.torch.join`.
    """

    def __init__(self, config: _abi.Path, model_fragments: "Sequence[torch.nn.Module]", inner_optimizer: Any,
                 outer_optimizer: "Union[Any, List[Any]]", sync_every: int,
                 backup_device: Any = None, pin_memory: bool = True, use_bucketization: bool = False,
                 bucket_cap_mb: Optional[int] = None, should_quantize: bool = False,
                 fragment_sync_delay: int = 0, fragment_update_alpha: float = 0.0, *,
                 site: Optional[str] = None, overrides: "Sequence[str]" = (), **join_options: Any) -> None:
        if not isinstance(config, (str, bytes)) and not hasattr(config, "__fspath__"):
            raise ConfigError(
                f"DiLoCo: manager is a {type(config).__qualname__}: give the run's TOML file in its place")
        if backup_device is not None and torch.device(backup_device).type != "cpu":
            raise ConfigError(f"DiLoCo: backup_device = {backup_device}: outer parameters are kept on the CPU")
        _check_hook(inner_optimizer, join_options.get("state"))
        fragments = list(model_fragments)
        if not fragments:
            raise ConfigError("DiLoCo: model_fragments is empty: give [model], or its parts")
        lr, momentum, nesterov = _settings(outer_optimizer)
        many = len(fragments) > 1
        keys = [f'outer.method="{"streaming-diloco" if many or fragment_sync_delay else "diloco"}"',
                f"outer.H={sync_every}", f"outer.lr={lr}", f"outer.momentum={momentum}",
                f"outer.nesterov={str(nesterov).lower()}", f'outer.codec="{"int8" if should_quantize else "fp32"}"']
        if many or fragment_sync_delay:
            keys += [f"outer.fragments={len(fragments)}", 'outer.pattern="sequential"',
                     f"outer.overlap={fragment_sync_delay}", f"outer.alpha={float(fragment_update_alpha)}"]
        elif fragment_update_alpha:
            raise ConfigError("DiLoCo: fragment_update_alpha needs fragments or a fragment_sync_delay")
        self._whole = torch.nn.ModuleDict({str(i): each for i, each in enumerate(fragments)})
        self._optimizer = inner_optimizer
        self._given: "dict[str, Any]" = {"overrides": keys + list(overrides), "site": site, **join_options}
        self._config = config
        self._site: Optional[Site] = None

    def __enter__(self) -> "DiLoCo":
        self._site = join(self._config, self._whole, self._optimizer, hook=True,
                          layer_of=lambda name: int(name.split(".", 1)[0]), **self._given)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        assert self._site is not None
        self._site.__exit__(kind, error, traceback)

    @property
    def site(self) -> Site:
        if self._site is None:
            raise ConfigError("DiLoCo: the run begins with `with`")
        return self._site

    @property
    def outcome(self) -> Any:
        return self.site.outcome


def _settings(optimizer: Any) -> "tuple[float, float, bool]":
    found = set()
    for each in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
        if type(each) is not torch.optim.SGD:
            raise ConfigError(f"DiLoCo: outer_optimizer is a {type(each).__qualname__}: must be torch.optim.SGD")
        for group in each.param_groups:
            for key in ("weight_decay", "dampening", "maximize"):
                if group.get(key):
                    raise ConfigError(f"DiLoCo: outer_optimizer has {key} = {group[key]}: must be 0 or absent")
            found.add((float(group["lr"]), float(group["momentum"]), bool(group["nesterov"])))
    if len(found) != 1:
        raise ConfigError("DiLoCo: the outer optimizers' settings differ: lr, momentum and nesterov must be equal")
    return found.pop()
