#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torch_losses.h: 30 training losses and gradient norms of Hugging Face models under PyTorch.

  python3 make_torch_losses.py > torch_losses.h      (needs torch and transformers; fp32 on the CPU)

Weights and tokens come from a hash that golden_test.cpp computes too, keyed by tensor name, so the
comparison also checks names, storage order and layout. Dropout is off.
"""
import sys

import numpy as np
import torch
import transformers
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

STEPS, SEQUENCES, LENGTH = 30, 4, 16
VOCAB, POSITIONS = 61, 24


def hashed(seed, index):
    """Uniform in [-1, 1): 24 bits of an integer hash of seed + index (uint32 arithmetic)."""
    h = (np.uint64(seed) + index.astype(np.uint64)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h ^= h >> np.uint64(shift)
        h = (h * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    return (h >> np.uint64(8)).astype(np.float64) / (1 << 23) - 1


def fnv1a(text):
    h = 2166136261
    for byte in text.encode():
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    return h


def fill(model, norm_weight=1.0, file_names=lambda name: name):
    """norm_weight: about what weights of norms are. file_names: a parameter's name in a file."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            u = hashed(fnv1a(file_names(name)), np.arange(p.numel()))
            centre = norm_weight if p.dim() == 1 and name.endswith("weight") else 0.0
            width = 0.1 if p.dim() == 1 else 0.15
            p.copy_(torch.from_numpy((centre + width * u).astype(np.float32)).view_as(p))


def tokens(step):
    index = np.arange(SEQUENCES * (LENGTH + 1)) + 100000 * step
    ids = ((hashed(99, index) + 1) / 2 * VOCAB).astype(np.int64)
    return torch.from_numpy(ids).view(SEQUENCES, LENGTH + 1)


def models():
    common = dict(vocab_size=VOCAB, attn_implementation="eager")
    gpt2 = dict(n_positions=POSITIONS, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0.0,
                embd_pdrop=0.0, attn_pdrop=0.0, **common)
    llama = dict(hidden_size=32, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=POSITIONS, rms_norm_eps=1e-5,
                 **common)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(**gpt2)), "adamw"
    yield "gpt2_sgd", GPT2LMHeadModel(GPT2Config(**gpt2)), "sgd"
    yield "llama", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama)), "adamw"
    yield "llama_muon", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama)), "muon"
    yield "llama_untied", LlamaForCausalLM(
        LlamaConfig(tie_word_embeddings=False, head_dim=12, **llama)), "adamw"
    yield "qwen3", Qwen3ForCausalLM(
        Qwen3Config(tie_word_embeddings=True, head_dim=8, **llama)), "adamw"


class Muon:
    """torch.optim.Muon on the layers' matrices, AdamW on the rest."""

    def __init__(self, model):
        named = list(model.named_parameters())
        hidden = [p for name, p in named if ".layers." in name and p.dim() == 2]
        decayed = [p for name, p in named if ".layers." not in name and p.dim() == 2]
        others = [p for _, p in named if p.dim() < 2]
        groups = [dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)]
        self.parts = [torch.optim.Muon(hidden, lr=3e-3, weight_decay=0.1),
                      torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-8)]

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()

    def step(self):
        for part in self.parts:
            part.step()


def optimizer(kind, model):
    if kind == "muon":
        return Muon(model)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)]
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-8)


def train(model, kind):
    opt = optimizer(kind, model)
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        ids = tokens(step)
        logits = model(input_ids=ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        opt.step()
        losses.append(float(loss))
    return losses, norms


def print_array(name, values):
    print(f"inline constexpr std::array<double, {len(values)}> {name} = {{")
    for i in range(0, len(values), 5):
        print("    " + ", ".join(f"{v:.9g}" for v in values[i:i + 5]) + ",")
    print("};")


def main():
    torch.set_num_threads(1)
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Generated by make_torch_losses.py with torch "
          f"{torch.__version__.split('+')[0]} and transformers {transformers.__version__}.")
    print("// clang-format off\n#pragma once\n\n#include <array>\n\nnamespace isthmus::golden {")
    for name, model, kind in models():
        fill(model)
        losses, norms = train(model, kind)
        camel = "".join(part.capitalize() for part in name.split("_"))
        print_array(f"k{camel}Losses", losses)
        print_array(f"k{camel}Norms", norms)
        print(f"{name}: {losses[0]:.4f} -> {losses[-1]:.4f}", file=sys.stderr)
    print("}  // namespace isthmus::golden\n// clang-format on")


if __name__ == "__main__":
    main()
