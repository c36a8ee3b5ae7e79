# SPDX-License-Identifier: Apache-2.0
"""A site in PyTorch beside sites of the built-in trainer, training one model. Names, shapes and places of the
parameters are those of Hugging Face's GPT-2, which both know. In the repository's root (PyTorch 1.13 or newer):

  python3 examples/python/mixed.py --start runs/mixed-start          the weights that all begin with
  isthmus launch examples/python/mixed.toml --out runs/mixed \\
      --program "east=python3 examples/python/mixed.py examples/python/mixed.toml"

East is this program, west the built-in trainer. Both take their samples, learning rates and evaluations from the
file; their outer parameters are the same bit for bit after every sync."""
import json
import math
import pathlib
import sys

import torch
from torch.nn import functional as F

import isthmus.torch

SHAPE = {"vocab_size": 256, "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 4}


class Conv1D(torch.nn.Module):
    """A linear layer whose weight is (inputs, outputs), as GPT-2 has it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(0.02 * torch.randn(inputs, outputs))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(d, 3 * d), Conv1D(d, d)

    def forward(self, x):
        B, T, d = x.shape
        q, k, v = (each.view(B, T, self.heads, -1).transpose(1, 2) for each in self.c_attn(x).split(d, dim=2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(d // self.heads)).masked_fill(
            torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, d))


class Mlp(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(d, 4 * d), Conv1D(4 * d, d)

    def forward(self, x):
        x = self.c_fc(x)
        return self.c_proj(0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


class Block(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln_1, self.attn = torch.nn.LayerNorm(d), Attention(d, heads)
        self.ln_2, self.mlp = torch.nn.LayerNorm(d), Mlp(d)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(torch.nn.Module):
    """transformers.GPT2LMHeadModel has these names too, and may stand in its place."""

    def __init__(self, vocab_size, n_positions, n_embd, n_layer, n_head):
        super().__init__()
        self.transformer = torch.nn.ModuleDict({
            "wte": torch.nn.Embedding(vocab_size, n_embd), "wpe": torch.nn.Embedding(n_positions, n_embd),
            "h": torch.nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer)),
            "ln_f": torch.nn.LayerNorm(n_embd)})
        for name in ("wte", "wpe"):
            torch.nn.init.normal_(self.transformer[name].weight, std=0.02)

    def forward(self, ids):
        x = self.transformer["wte"](ids) + self.transformer["wpe"].weight[: ids.shape[1]]
        for block in self.transformer["h"]:
            x = block(x)
        return self.transformer["ln_f"](x) @ self.transformer["wte"].weight.T  # the head is tied


def write_start(folder):
    """The model as a folder of Hugging Face: config.json and model.safetensors, which has a header of JSON before
    the values."""
    torch.manual_seed(1337)
    weights = GPT2(**SHAPE).state_dict()
    header, at = {}, 0
    for name, value in weights.items():
        end = at + 4 * value.numel()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(
        len(text).to_bytes(8, "little") + text + b"".join(each.numpy().tobytes() for each in weights.values()))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, **SHAPE}))


def loss_of(model, batch, reduction="mean"):
    inputs, targets = (torch.from_numpy(each).long() for each in batch)
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction=reduction), targets.numel()


def train(file):
    config = isthmus.load_config(file)
    torch.manual_seed(1337)
    model = GPT2(**SHAPE)  # the weights of write_start
    optimizer, schedule = isthmus.torch.adamw(model, config)  # AdamW and learning rates of [inner]

    def evaluate(part):
        total, count = loss_of(model, site.validation(part), "sum")
        return float(total), count

    with isthmus.torch.join(file, model, optimizer, state={"schedule": schedule}, evaluate=evaluate,
                            evaluation_parts="file") as site:
        for t, _ in site.steps():
            loss, tokens = loss_of(model, site.batch())  # what the built-in trainer would take at this site
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.inner.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            site.step(loss, tokens=tokens, grad_norm=norm)
    sys.exit(site.outcome.exit_code)


if sys.argv[1] == "--start":
    write_start(pathlib.Path(sys.argv[2]))
else:
    train(sys.argv[1])
