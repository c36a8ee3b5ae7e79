# SPDX-License-Identifier: Apache-2.0
"""MuLoCo-1: the outer step without a second site, as one optimizer (arXiv:2505.23725, Algorithm 1 with K = 1)."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterable, Optional, Tuple

import torch

from .._errors import ConfigError
from .._native import layer_of_name

# x -> a x + b x^3 + c x^5 on singular values (K. Jordan, kellerjordan.github.io/posts/muon), five times.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5
_SCALES: "dict[Optional[str], Callable[[int, int], float]]" = {  # of (outputs, inputs)
    None: lambda out, into: 1.0,
    "spectral_norm": lambda out, into: math.sqrt(out / into),
    "rms_norm": lambda out, into: 0.2 * math.sqrt(max(out, into)),
}


class MuLoCo1(torch.optim.Optimizer):  # type: ignore[misc]
    """Muon on hidden matrices and AdamW on all else; after every `sync_interval` of these inner steps one step of
    SGD with Nesterov momentum on what they have changed. One process and one site: nothing is sent.

    opt = isthmus.torch.MuLoCo1(model.named_parameters(), inner_lr=0.02, sync_interval=30)
    for batch in loader:
        loss_of(model, batch).backward()
        opt.step(); opt.zero_grad()

    A round of H = `sync_interval` steps, with outer parameters x, momentum u and parameters p:

        x = p;  H inner steps on p;  d = x - p
        u = outer_momentum * u + outer_lr * d
        p = x - outer_momentum * u - outer_lr * d

    Parameters
    ----------
    params : pairs of `model.named_parameters()`: matrices of numbered layers ("h.3.attn.weight") take Muon, all
        others AdamW. Tensors without names: matrices take Muon; embeddings and heads then need a group of their own.
        Groups: dictionaries with "algorithm", "muon" or "adamw", and options of their own ("lr", "weight_decay").
    inner_lr : the learning rate of both; `param_groups[i]["lr"]` is what schedules change.
    outer_lr, outer_momentum, sync_interval : of the outer step.
    mu, nesterov, adjust_lr : of Muon; `adjust_lr` scales its update by sqrt(outputs / inputs) ("spectral_norm"), by
        0.2 sqrt(max(outputs, inputs)) ("rms_norm"), or not (None). A matrix is (outputs, inputs), as in Linear.
    betas, epsilon : of AdamW. `weight_decay` : decoupled, of both.

    Outer parameters and momentum are float32, or wider, whatever the parameters' type.
    """

    def __init__(self, params: "Iterable[Any]", inner_lr: float = 0.02, outer_lr: float = 0.7,
                 outer_momentum: float = 0.6, sync_interval: int = 30, mu: float = 0.95,
                 betas: "Tuple[float, float]" = (0.9, 0.95), weight_decay: float = 0.01, epsilon: float = 1e-8,
                 nesterov: bool = False, adjust_lr: Optional[str] = "spectral_norm") -> None:
        defaults = dict(lr=inner_lr, mu=mu, betas=tuple(betas), weight_decay=weight_decay, epsilon=epsilon,
                        nesterov=nesterov, adjust_lr=adjust_lr, algorithm="muon", step=0)
        self._outer: "dict[str, Any]" = dict(lr=outer_lr, momentum=outer_momentum, interval=sync_interval)
        _check_outer(**self._outer)
        super().__init__(_groups(list(params)), defaults)

    def add_param_group(self, param_group: "dict[str, Any]") -> None:
        super().add_param_group(param_group)
        _check_group(self.param_groups[-1])

    @torch.no_grad()  # type: ignore[misc]
    def step(self, closure: "Optional[Callable[[], Any]]" = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            first = group["step"] % self._outer["interval"] == 0
            group["step"] += 1
            last = group["step"] % self._outer["interval"] == 0
            for each in group["params"]:
                state = self.state[each]
                if first:
                    _begin_round(each, state)
                if each.grad is not None:
                    (_muon if group["algorithm"] == "muon" else _adamw)(each, state, group)
                if last:
                    _outer_step(each, state, self._outer["lr"], self._outer["momentum"])
        return loss

    def state_dict(self) -> "dict[str, Any]":
        return {**super().state_dict(), "outer": dict(self._outer)}

    def load_state_dict(self, state_dict: "dict[str, Any]") -> None:
        outer = state_dict["outer"]
        _check_outer(**outer)
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "outer"})
        self._outer = dict(outer)
        saved = [state_dict["state"].get(number, {}) for group in state_dict["param_groups"]
                 for number in group["params"]]
        # torch casts state to the parameters' type: what is kept wider stays so.
        for each, values in zip((each for group in self.param_groups for each in group["params"]), saved):
            for name, value in values.items():
                if isinstance(value, torch.Tensor):
                    self.state[each][name] = value.detach().to(device=each.device, copy=True)


def _begin_round(p: torch.Tensor, state: "dict[str, Any]") -> None:
    """The outer parameters are what the last outer step has made of them, unless p has been written since."""
    outer = state.get("outer_params")
    if outer is None or not torch.equal(outer.to(p.dtype), p):
        state["outer_params"] = p.detach().to(_wide(p), copy=True)
    if "outer_momentum" not in state:
        state["outer_momentum"] = torch.zeros_like(state["outer_params"])


def _outer_step(p: torch.Tensor, state: "dict[str, Any]", lr: float, momentum: float) -> None:
    x, u = state["outer_params"], state["outer_momentum"]
    # x as p held it when the round began: rounding is not training. No step, no change.
    d = x.to(p.dtype).to(x.dtype) - p.to(x.dtype)
    u.mul_(momentum).add_(d, alpha=lr)
    x.sub_(u, alpha=momentum).sub_(d, alpha=lr)
    p.copy_(x)


def _muon(p: torch.Tensor, state: "dict[str, Any]", group: "dict[str, Any]") -> None:
    if "momentum" not in state:
        state["momentum"] = torch.zeros_like(p, dtype=_wide(p))
    g, m = p.grad.to(_wide(p)), state["momentum"]
    m.mul_(group["mu"]).add_(g)
    update = orthogonal(g + group["mu"] * m if group["nesterov"] else m)
    p.mul_(1 - group["lr"] * group["weight_decay"])
    p.sub_(update.to(p.dtype), alpha=group["lr"] * _SCALES[group["adjust_lr"]](*p.shape))


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """U f(S) V^T of U S V^T, with f(s) near 1 where s is above 2e-3 of the norm. Zero stays zero.

    Products are of bfloat16 on CUDA devices, and of the matrix's own type elsewhere.
    """
    a, b, c = _NEWTON_SCHULZ
    x = matrix / matrix.norm().clamp(min=1e-7)
    x = x.to(torch.bfloat16) if x.is_cuda else x
    tall = x.shape[0] > x.shape[1]
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x.T @ x if tall else x @ x.T
        polynomial = b * gram + c * (gram @ gram)
        x = a * x + (x @ polynomial if tall else polynomial @ x)
    return x.to(matrix.dtype)


def _adamw(p: torch.Tensor, state: "dict[str, Any]", group: "dict[str, Any]") -> None:
    if "exp_avg" not in state:
        state["exp_avg"] = torch.zeros_like(p, dtype=_wide(p))
        state["exp_avg_sq"] = torch.zeros_like(p, dtype=_wide(p))
        state["updates"] = 0  # of this parameter: it may have no gradient at some steps
    g, (beta1, beta2) = p.grad.to(_wide(p)), group["betas"]
    state["updates"] += 1
    state["exp_avg"].lerp_(g, 1 - beta1)
    state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
    mean = state["exp_avg"] / (1 - beta1 ** state["updates"])
    root = (state["exp_avg_sq"] / (1 - beta2 ** state["updates"])).sqrt()
    p.mul_(1 - group["lr"] * group["weight_decay"])
    p.sub_((mean / (root + group["epsilon"])).to(p.dtype), alpha=group["lr"])


def _wide(p: torch.Tensor) -> torch.dtype:
    return torch.float64 if p.dtype == torch.float64 else torch.float32


def _groups(params: "list[Any]") -> "list[dict[str, Any]]":
    """Groups as the caller gave them, or the parameters shared out by what they are."""
    if all(isinstance(each, dict) for each in params):
        return [{**each, "params": _tensors(each["params"])} for each in params]
    found: "dict[str, list[torch.Tensor]]" = {"muon": [], "adamw": []}
    for each in params:
        name, tensor = each if isinstance(each, tuple) else (None, each)
        hidden = tensor.dim() == 2 and (name is None or layer_of_name(name) >= 0)
        if tensor.requires_grad:
            found["muon" if hidden else "adamw"].append(tensor)
    return [{"params": tensors, "algorithm": name} for name, tensors in found.items() if tensors]


def _tensors(params: Any) -> "list[torch.Tensor]":
    given = [params] if isinstance(params, torch.Tensor) else list(params)
    return [each[1] if isinstance(each, tuple) else each for each in given]


def _check_outer(lr: float, momentum: float, interval: int) -> None:
    if not lr >= 0:
        raise ConfigError(f"MuLoCo1: outer_lr = {lr}: must be >= 0")
    if not 0 <= momentum < 1:
        raise ConfigError(f"MuLoCo1: outer_momentum = {momentum}: must be >= 0 and < 1")
    if not isinstance(interval, int) or interval < 1:
        raise ConfigError(f"MuLoCo1: sync_interval = {interval}: must be a number of steps, >= 1")


def _check_group(group: "dict[str, Any]") -> None:
    if group["algorithm"] not in ("muon", "adamw"):
        raise ConfigError(f"MuLoCo1: algorithm = {group['algorithm']!r}: must be \"muon\" or \"adamw\"")
    if group["adjust_lr"] not in _SCALES:
        raise ConfigError(f"MuLoCo1: adjust_lr = {group['adjust_lr']!r}: must be \"spectral_norm\", \"rms_norm\" or "
                          "None")
    if not group["lr"] >= 0 or not group["weight_decay"] >= 0:
        raise ConfigError(f"MuLoCo1: lr = {group['lr']}, weight_decay = {group['weight_decay']}: must be >= 0")
    for each in group["params"]:
        if group["algorithm"] == "muon" and each.dim() != 2:
            raise ConfigError(f"MuLoCo1: a parameter of shape {tuple(each.shape)} is in a group of Muon, which takes "
                              "matrices: put it into a group with algorithm=\"adamw\"")
        if not each.dtype.is_floating_point:
            raise ConfigError(f"MuLoCo1: a parameter of {each.dtype}: must be of a floating-point type")
