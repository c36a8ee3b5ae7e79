# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch loop over bytes of a text, in the manner of nanoGPT's train.py, as a site of a run. Lines
that isthmus adds are marked (*). Two terminals, in the repository's root:

  python3 examples/python/torch_plain.py examples/toy_site.toml east runs/east
  python3 examples/python/torch_plain.py examples/toy_site.toml west runs/west

Kill one and start it again: it resumes, or joins while the other trains on."""
import math
import pathlib
import sys

import torch
from torch.nn import functional as F

import isthmus.torch  # *

config, name, out = sys.argv[1:4]
block_size, batch_size, learning_rate = 64, 8, 3e-3
data = torch.frombuffer(bytearray((pathlib.Path(__file__).parents[2] / "ARCHITECTURE.md").read_bytes()), dtype=torch.uint8)


class GPT(torch.nn.Module):
    def __init__(self, width=64, layers=2, heads=4):
        super().__init__()
        self.wte = torch.nn.Embedding(256, width)
        self.wpe = torch.nn.Embedding(block_size, width)
        self.h = torch.nn.ModuleList([torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True) for _ in range(layers)])
        self.lm_head = torch.nn.Linear(width, 256, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, x, y):
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), -math.inf), 1)
        z = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for layer in self.h:
            z = layer(z, mask)
        return F.cross_entropy(self.lm_head(z).view(-1, 256), y.view(-1))


def get_batch(t):
    """A function of the step and the site, so a resumed run takes the very samples."""
    generator = torch.Generator().manual_seed(sum(name.encode()) * 100003 + t)
    ix = torch.randint(len(data) - block_size - 1, (batch_size,), generator=generator)
    x = torch.stack([data[i : i + block_size] for i in ix]).long()
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix]).long()
    return x, y


torch.manual_seed(1337)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))

with isthmus.torch.join(config, model, optimizer, site=name, out=out, state={"scheduler": scheduler},
                        overrides=sys.argv[4:]) as site:  # *
    for t, (x, y) in site.steps(get_batch):  # *
        loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        site.step(loss, tokens=y.numel())  # *
        if t % 20 == 0:
            print(f"step {t}: loss {loss.item():.4f}")
sys.exit(site.outcome.exit_code)  # *
