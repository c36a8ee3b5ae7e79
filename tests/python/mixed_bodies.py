# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in PyTorch under the names and shapes of Hugging Face, as a site beside sites of the built-in trainer.
Run as a script it is one site: mixed_bodies.py RUN.toml, with the rest from `isthmus launch`."""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

import isthmus
import isthmus.torch
from isthmus._safetensors import read_weights

SHAPE = {"vocab_size": 256, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}


class Conv1D(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = torch.nn.LayerNorm(d)
        self.attn = torch.nn.Module()
        self.attn.c_attn, self.attn.c_proj = Conv1D(d, 3 * d), Conv1D(d, d)
        self.ln_2 = torch.nn.LayerNorm(d)
        self.mlp = torch.nn.Module()
        self.mlp.c_fc, self.mlp.c_proj = Conv1D(d, 4 * d), Conv1D(4 * d, d)

    def forward(self, x):
        B, T, d = x.shape
        q, k, v = (each.view(B, T, self.heads, -1).transpose(1, 2)
                   for each in self.attn.c_attn(self.ln_1(x)).split(d, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(d // self.heads)
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
        x = x + self.attn.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, d))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self, vocab_size, n_positions, n_embd, n_layer, n_head):
        super().__init__()
        t = self.transformer = torch.nn.Module()
        t.wte, t.wpe = torch.nn.Embedding(vocab_size, n_embd), torch.nn.Embedding(n_positions, n_embd)
        t.h = torch.nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer))
        t.ln_f = torch.nn.LayerNorm(n_embd)
        for each in (t.wte, t.wpe):
            torch.nn.init.normal_(each.weight, std=0.02)

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1]))
        for block in t.h:
            x = block(x)
        return t.ln_f(x) @ t.wte.weight.T


def save(model, folder):
    """As a model folder of Hugging Face."""
    folder.mkdir()
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, **SHAPE}
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, value in model.state_dict().items():
        raw = value.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def loss_of(model, batch, reduction="mean"):
    inputs, targets = (torch.from_numpy(each).long() for each in batch)
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction=reduction), targets.numel()


def main():
    file = sys.argv[1]
    torch.set_num_threads(1)
    config = isthmus.load_config(file)
    model = Gpt2(**SHAPE)
    weights = read_weights(pathlib.Path(file).parent / config.model.init / "model.safetensors")
    model.load_state_dict({name: torch.from_numpy(each.copy()) for name, each in weights.items()})
    optimizer, schedule = isthmus.torch.adamw(model, config)

    def evaluate(part):
        with torch.no_grad():
            total, count = loss_of(model, site.validation(part), "sum")
        return float(total), count

    with isthmus.torch.join(file, model, optimizer, state={"schedule": schedule}, evaluate=evaluate,
                            evaluation_parts="file") as site:
        for _, _ in site.steps():
            loss, tokens = loss_of(model, site.batch())
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.inner.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            site.step(loss, tokens=tokens, grad_norm=norm)
    sys.exit(site.outcome.exit_code)


if __name__ == "__main__":
    main()
