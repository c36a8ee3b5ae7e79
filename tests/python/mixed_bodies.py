# SPDX-License-Identifier: Apache-2.0
"""GPT-2 and Llama in PyTorch under the names and shapes of Hugging Face, as a site beside sites of the built-in
trainer. Run as a script it is one site: mixed_bodies.py RUN.toml, with the rest from `isthmus launch`."""
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


def unseen_by(positions):
    """(B, 1, T, T): which keys a query does not see. A document begins where a position is 0."""
    document = (positions == 0).cumsum(1)
    later = torch.ones(positions.shape[1], positions.shape[1], dtype=torch.bool).triu(1)
    return (later | (document[:, :, None] != document[:, None, :]))[:, None]


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

    def forward(self, x, unseen):
        B, T, d = x.shape
        q, k, v = (each.view(B, T, self.heads, -1).transpose(1, 2)
                   for each in self.attn.c_attn(self.ln_1(x)).split(d, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(d // self.heads)
        scores = scores.masked_fill(unseen, float("-inf"))
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

    def forward(self, ids, positions=None):
        t = self.transformer
        positions = torch.arange(ids.shape[1]).expand(ids.shape) if positions is None else positions
        x = t.wte(ids) + t.wpe(positions)
        for block in t.h:
            x = block(x, unseen_by(positions))
        return t.ln_f(x) @ t.wte.weight.T


class RmsNorm(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


class LlamaLayer(torch.nn.Module):
    """Registered in the order of Hugging Face: the norms come last."""

    def __init__(self, d, heads, kv, ff):
        super().__init__()
        self.heads, self.kv, self.width = heads, kv, d // heads
        self.self_attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        for name, outputs in (("q_proj", d), ("k_proj", kv * self.width), ("v_proj", kv * self.width), ("o_proj", d)):
            setattr(self.self_attn, name, torch.nn.Linear(d, outputs, bias=False))
        self.mlp.gate_proj, self.mlp.up_proj = (torch.nn.Linear(d, ff, bias=False) for _ in range(2))
        self.mlp.down_proj = torch.nn.Linear(ff, d, bias=False)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(d), RmsNorm(d)

    def forward(self, x, turn, unseen):
        B, T, d = x.shape
        at, y = self.self_attn, self.input_layernorm(x)
        q = turn(at.q_proj(y).view(B, T, self.heads, -1).transpose(1, 2))
        k = turn(at.k_proj(y).view(B, T, self.kv, -1).transpose(1, 2)).repeat_interleave(self.heads // self.kv, 1)
        v = at.v_proj(y).view(B, T, self.kv, -1).transpose(1, 2).repeat_interleave(self.heads // self.kv, 1)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.width)
        scores = scores.masked_fill(unseen, float("-inf"))
        x = x + at.o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, d))
        y = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.silu(self.mlp.gate_proj(y)) * self.mlp.up_proj(y))


class Llama(torch.nn.Module):
    def __init__(self, vocab, d, layers, heads, kv, ff):
        super().__init__()
        self.width = d // heads
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(vocab, d)
        self.model.layers = torch.nn.ModuleList(LlamaLayer(d, heads, kv, ff) for _ in range(layers))
        self.model.norm = RmsNorm(d)
        self.lm_head = torch.nn.Linear(d, vocab, bias=False)
        for each in self.parameters():
            if each.dim() == 2:
                torch.nn.init.normal_(each, std=0.02)

    def forward(self, ids, positions=None):
        half = self.width // 2
        positions = torch.arange(ids.shape[1]).expand(ids.shape) if positions is None else positions
        angles = positions[:, None, :, None] * 10000.0 ** (-torch.arange(half) / half)
        cos, sin = angles.cos().repeat(1, 1, 1, 2), angles.sin().repeat(1, 1, 1, 2)

        def turn(x):
            return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, turn, unseen_by(positions))
        return self.lm_head(self.model.norm(x))


LLAMA = {"vocab": 256, "d": 32, "layers": 2, "heads": 4, "kv": 2, "ff": 48}


def made(kind):
    return Gpt2(**SHAPE) if kind == "gpt2" else Llama(**LLAMA)


def save(model, folder):
    """As a model folder of Hugging Face."""
    folder.mkdir()
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, **SHAPE}
    if isinstance(model, Llama):
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
                  "vocab_size": LLAMA["vocab"], "hidden_size": LLAMA["d"], "intermediate_size": LLAMA["ff"],
                  "num_hidden_layers": LLAMA["layers"], "num_attention_heads": LLAMA["heads"],
                  "num_key_value_heads": LLAMA["kv"], "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
                  "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False}
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, value in model.state_dict().items():
        raw = value.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def loss_of(model, batch, reduction="mean"):
    inputs, targets, positions = (torch.from_numpy(each).long() for each in batch)
    loss = F.cross_entropy(model(inputs, positions).flatten(0, 1), targets.flatten(), reduction=reduction)
    return loss, int((targets >= 0).sum())


def main():
    file = sys.argv[1]
    torch.set_num_threads(1)
    config = isthmus.load_config(file)
    init = pathlib.Path(file).parent / config.model.init
    model = made(json.loads((init / "config.json").read_text())["model_type"])
    weights = read_weights(init / "model.safetensors")
    model.load_state_dict({name: torch.from_numpy(each.copy()) for name, each in weights.items()})
    optimizer, schedule = isthmus.torch.adamw(model, config)

    def evaluate(part):
        with torch.no_grad():
            total, count = loss_of(model, site.validation(part, positions=True), "sum")
        return float(total), count

    with isthmus.torch.join(file, model, optimizer, state={"schedule": schedule}, evaluate=evaluate,
                            evaluation_parts="file") as site:
        for _, _ in site.steps():
            loss, tokens = loss_of(model, site.batch(positions=True))
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.inner.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            site.step(loss, tokens=tokens, grad_norm=norm)
    sys.exit(site.outcome.exit_code)


if __name__ == "__main__":
    main()
