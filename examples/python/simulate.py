# SPDX-License-Identifier: Apache-2.0
"""The sites of a run in one process, over links that are declared and not there: what does each method cost between
these sites? The loop is that of a real site; `isthmus.run` in the place of `isthmus.simulate` runs it on the real
clock, and compare.py compares methods by it. Needs PyTorch. In the repository's root:

  python3 examples/python/simulate.py runs/simulated                over the link of simulate.toml
  python3 examples/python/simulate.py runs/fast 1Gbit/s,10ms        over this one
"""
import pathlib
import sys

import torch
from torch.nn import functional as F

import isthmus.torch

HERE = pathlib.Path(__file__).parent
METHODS = {
    "every step": ['outer.method="ddp"', 'outer.codec="bf16"'],
    "every 20 steps": ['outer.method="diloco"', "outer.H=20", 'outer.codec="bf16"'],
    "every 20, in 8 bits": ['outer.method="diloco"', "outer.H=20", 'outer.codec="int8"'],
}
BATCH, CONTEXT = 8, 32
text = torch.frombuffer(bytearray((HERE.parents[1] / "ARCHITECTURE.md").read_bytes()), dtype=torch.uint8).long()
held_out, text = text[:2049], text[2049:]


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens[..., :-1]).flatten(0, -2), tokens[..., 1:].flatten())


def body(site):
    """One site: a model of the next byte, trained on samples of the site's own."""
    torch.set_num_threads(1)
    seed = site.config.run.seed
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Embedding(256, 64), torch.nn.Linear(64, 256), torch.nn.GELU(),
                                torch.nn.Linear(256, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=site.config.inner.lr)

    def batch_of(t):
        draws = torch.Generator().manual_seed((seed * 1000 + site.index) * 100_000 + t)
        starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=draws)
        return torch.stack([text[i : i + CONTEXT + 1] for i in starts])

    def evaluate(part):  # called with the outer parameters in place
        targets = len(held_out) - 1
        return float(loss_of(model, held_out)) * targets, targets

    isthmus.torch.attach(site, model, optimizer, evaluate=evaluate)
    for t, batch in site.steps(batch_of):
        loss = loss_of(model, batch)
        loss.backward()
        if not site.average_gradients(loss, tokens=BATCH * CONTEXT):  # ddp's exchange; elsewhere it does nothing
            continue
        optimizer.step()
        optimizer.zero_grad()
        site.step(loss, tokens=BATCH * CONTEXT)


def main():
    out = pathlib.Path(sys.argv[1])
    link = sys.argv[2] if len(sys.argv) > 2 else None
    print(f"{'sync':22}{'loss':>8}{'time':>10}{'sent by a site':>18}")
    for number, (name, keys) in enumerate(METHODS.items()):
        folder = out / str(number)
        isthmus.simulate(HERE / "simulate.toml", body, link=link, out=folder, overrides=keys, evaluation_parts=1,
                         kind="pytorch", force=True)
        end = isthmus.open(folder).summary
        sent = max(end["bytes_wire"]) / 1e6
        print(f"{name:22}{end['final_eval_loss']:8.3f}{end['simulated_s']:8.1f} s{sent:15.2f} MB")


if __name__ == "__main__":
    main()
