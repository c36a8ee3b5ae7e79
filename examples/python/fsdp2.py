# SPDX-License-Identifier: Apache-2.0
"""The loop of torch_plain.py on several processes of one site: FSDP2 shards the model over them, rank 0 speaks with the
other sites. Lines that isthmus adds are marked (*). Two terminals, in the repository's root (PyTorch 2.6 or newer):

  torchrun --standalone --nproc-per-node 2 examples/python/fsdp2.py examples/toy_site.toml east runs/east
  torchrun --standalone --nproc-per-node 2 examples/python/fsdp2.py examples/toy_site.toml west runs/west

A site whose rank dies ends; torchrun's --max-restarts 3 starts it again, and it resumes or joins."""
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import isthmus.torch  # *

config, name, out = sys.argv[1:4]
block_size, batch_size, learning_rate = 32, 8, 3e-3
data = torch.frombuffer(bytearray((pathlib.Path(__file__).parents[2] / "ARCHITECTURE.md").read_bytes()), dtype=torch.uint8)


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.mix = torch.nn.Linear(2 * width, width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        z = self.norm(x)
        before = F.pad(z, (0, 0, 1, 0))[:, :-1]  # the position before
        return x + self.out(F.gelu(self.mix(torch.cat([z, before], -1))))


class Model(torch.nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.embed = torch.nn.Embedding(256, width)
        self.layers = torch.nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = torch.nn.Linear(width, 256, bias=False)

    def forward(self, x, y):
        z = self.embed(x)
        for layer in self.layers:
            z = layer(z)
        return F.cross_entropy(self.head(z).view(-1, 256), y.view(-1))


device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
if device == "cuda":
    torch.cuda.set_device(rank % torch.cuda.device_count())
mesh = init_device_mesh(device, (ranks,))


def get_batch(t):
    """A function of the step, the site and the rank, so a resumed run takes the very samples."""
    generator = torch.Generator().manual_seed((sum(name.encode()) * 101 + rank) * 100003 + t)
    ix = torch.randint(len(data) - block_size - 1, (batch_size,), generator=generator)
    x = torch.stack([data[i : i + block_size] for i in ix]).long()
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix]).long()
    return x.to(device), y.to(device)


torch.manual_seed(1337)
model = Model().to(device)
for layer in model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)  # of the shards, so after fully_shard

with isthmus.torch.join(config, model, optimizer, site=name, out=out, overrides=sys.argv[4:]) as site:  # *
    for t, (x, y) in site.steps(get_batch):  # *
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        site.step(shown / ranks, tokens=y.numel() * ranks)  # *  rank 0's are told: the mean and the sum of all ranks
        if rank == 0 and t % 20 == 0:
            print(f"step {t}: loss {shown.item() / ranks:.4f}")
dist.destroy_process_group()
sys.exit(site.outcome.exit_code)  # *
