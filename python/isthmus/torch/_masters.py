# SPDX-License-Identifier: Apache-2.0
"""float32 masters that the caller gave in `params`, and the model's own weights that follow them: what the run
writes into a master is rounded into its weight at once, so that the next forward pass has it."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Iterable, Iterator, Mapping, Optional, Tuple, Union

import torch

from .._errors import ConfigError
from ._memory import Slot, trained_of

# A tensor, or (master, the model's weight).
Given = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]


class Masters:
    """The caller's `params`. A weight belongs to a master by the pair (master, weight), or by name: the model has
    a parameter of that name and shape, in a narrower type and other memory."""

    def __init__(self, model: Any, params: "Optional[Mapping[str, Given]]") -> None:
        self._model = model
        self.given = params is not None
        self.tensors: "dict[str, torch.Tensor]" = {}
        self._pairs: "dict[str, torch.Tensor]" = {}
        for name, each in (params or {}).items():
            master, weight = each if isinstance(each, (tuple, list)) and len(each) == 2 else (each, None)
            self.tensors[name] = master
            if weight is not None:
                _check_pair(name, master, weight)
                self._pairs[name] = weight
        self._warn_of_others()

    def weights(self) -> "dict[str, torch.Tensor]":
        """name -> weight, as the model has them now."""
        if not self.given:
            return {}
        found = dict(self._pairs)
        for name, weight in self._named().items():
            if _narrower(weight, self.tensors[name]):
                found.setdefault(name, weight)
        return found

    def follow(self, slots: "Iterable[Slot]") -> None:
        """The weights of these masters hold what their masters hold, rounded."""
        weights = self.weights()
        with torch.no_grad():
            for slot in slots if weights else ():
                if slot.name in weights:
                    weights[slot.name].detach().copy_(slot.tensor.detach())

    @contextlib.contextmanager
    def following(self, slots: "Iterable[Slot]") -> "Iterator[None]":
        """While it is open the weights hold what the masters hold; then their own values again."""
        kept = [(weight, weight.detach().clone()) for weight in self.weights().values()]
        try:
            self.follow(slots)
            yield
        finally:
            with torch.no_grad():
                for weight, own in kept:
                    weight.detach().copy_(own)

    def _named(self) -> "dict[str, torch.Tensor]":
        """Parameters of the model that have a master's name and shape, in other memory."""
        if not self.given or not hasattr(self._model, "named_parameters"):
            return {}
        return {name: weight for name, weight in trained_of(self._model, frozen_too=True).items()
                if name in self.tensors and isinstance(self.tensors[name], torch.Tensor)
                and weight.shape == self.tensors[name].shape and weight.data_ptr() != self.tensors[name].data_ptr()}

    def _warn_of_others(self) -> None:
        for name, weight in self._named().items():
            if name not in self._pairs and not _narrower(weight, self.tensors[name]):
                warnings.warn(
                    f"isthmus: params['{name}'] is not the model's '{name}', and both are {weight.dtype}: what the run "
                    f"writes does not reach the model. Give params['{name}'] = (tensor, parameter) if the parameter is "
                    "to follow, or another name", RuntimeWarning, stacklevel=5)
                return


def _narrower(weight: torch.Tensor, master: torch.Tensor) -> bool:
    return bool(weight.element_size() < master.element_size())


def _check_pair(name: str, master: Any, weight: Any) -> None:
    if not isinstance(master, torch.Tensor) or not isinstance(weight, torch.Tensor):
        raise ConfigError(f"params['{name}'] is a pair of {type(master).__qualname__} and {type(weight).__qualname__}: "
                          "must be (master, weight), two tensors")
    if master.shape != weight.shape:
        raise ConfigError(f"params['{name}']: the master has shape {tuple(master.shape)}, its weight "
                          f"{tuple(weight.shape)}: must be equal; give views of one shape")
    if master.data_ptr() == weight.data_ptr() and master.numel() > 0:
        raise ConfigError(f"params['{name}']: master and weight are one memory: give the tensor alone")
