# SPDX-License-Identifier: Apache-2.0
"""The order of parameters that the built-in trainer has for the models it knows, so that a site with a trainer of its
own has the same layout."""

from __future__ import annotations

import re
from typing import Iterable

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
# Of Llama and Qwen3; transformers registers the norms after the projections. GPT-2's order is the same in both.
_IN_LAYER = [
    "input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
    "self_attn.o_proj.weight", "self_attn.q_norm.weight", "self_attn.k_norm.weight", "post_attention_layernorm.weight",
    "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
]
_AROUND = {"model.embed_tokens.weight": 0, "model.norm.weight": 2, "lm_head.weight": 3}


def in_order(names: "Iterable[str]") -> "list[str]":
    """`names` in the order of the built-in trainer, where all are names of a Llama or Qwen3; else as they are.

    >>> in_order(["model.norm.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"])
    ['model.layers.0.input_layernorm.weight', 'model.layers.0.mlp.up_proj.weight', 'model.norm.weight']
    >>> in_order(["b", "a"])
    ['b', 'a']
    """
    given = list(names)
    places: "dict[str, tuple[int, int, int]]" = {}
    for name in given:
        layer = _LAYER.fullmatch(name)
        if name in _AROUND:
            places[name] = (_AROUND[name], 0, 0)
        elif layer and layer[2] in _IN_LAYER:
            places[name] = (1, int(layer[1]), _IN_LAYER.index(layer[2]))
        else:
            return given
    return sorted(given, key=places.__getitem__)
