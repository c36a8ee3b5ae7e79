# SPDX-License-Identifier: Apache-2.0
"""A small PyTorch trainer for the tests. Run as a script it is one site of a run."""
import hashlib
import json
import pathlib
import sys

import torch

import isthmus
import isthmus.torch

torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(2)])
        self.drop = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight  # tied
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        x = self.embed(x)
        for each in self.layers:
            x = x + torch.tanh(each(x))
        return self.head(self.drop(x) * self.scale)


class Loader:
    """Batches of a site, whose place is its state. Iterable anew for each epoch."""

    def __init__(self, site, epoch=7):
        self.site, self.epoch, self.at = site, epoch, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        return batch_of(self.site, self.at)

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def batch_of(site, t):
    generator = torch.Generator().manual_seed(1000 * site + t)
    x = torch.randint(0, 11, (4, 6), generator=generator)
    return x, (x * 3 + site) % 11


def made(kind="adamw", dtype=torch.float32):
    torch.manual_seed(3)
    model = Net().to(dtype)
    if kind == "adamw":
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    else:
        opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + 0.05 * step))
    return model, opt, sched


def train(model, opt, sched, batch, between=lambda loss: None):
    x, y = batch
    loss = torch.nn.functional.cross_entropy(model(x).float().reshape(-1, 11), y.reshape(-1))
    loss.backward()
    between(loss)
    opt.step()
    sched.step()
    opt.zero_grad()
    return loss


def digest(*states):
    whole = hashlib.sha256()

    def take(value):
        if isinstance(value, torch.Tensor):
            value = value.detach().contiguous()
            whole.update(str(value.dtype).encode())
            whole.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.dim() else
                         str(value.item()).encode())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                whole.update(str(key).encode())
                take(value[key])
        elif isinstance(value, (list, tuple)):
            for each in value:
                take(each)
        else:
            whole.update(repr(value).encode())

    for each in states:
        take(each)
    return whole.hexdigest()


def main():
    file, name, out, *overrides = sys.argv[1:]
    index = {"east": 0, "west": 1}[name]
    model, opt, sched = made()
    loader = Loader(index)
    losses = pathlib.Path(out + ".losses").open("a", buffering=1)
    with isthmus.torch.join(file, model, opt, site=name, out=out, state={"sched": sched, "loader": loader},
                            overrides=overrides) as site:
        for t, batch in site.steps(loader):
            loss = train(model, opt, sched, batch)
            losses.write(json.dumps([t, loss.item().hex()]) + "\n")
            site.step(loss, tokens=24)
    end = digest(model.state_dict(), opt.state_dict(), sched.state_dict(), loader.state_dict(), torch.get_rng_state())
    pathlib.Path(out + ".end").write_text(end)
    sys.exit(site.outcome.exit_code)


if __name__ == "__main__":
    main()
