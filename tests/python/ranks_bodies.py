# SPDX-License-Identifier: Apache-2.0
"""One rank of a site, as torchrun starts it: `ranks_bodies.py FILE SITE OUT [key=value ...]`. Keys without a dot:
shard=0 (replicas), "fsdp" or "hsdp"; train=sgd or "f" (values are a function of step and element); and what goes wrong."""
import datetime
import json
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist

import isthmus
import isthmus.torch

torch.set_num_threads(1)


class Net(torch.nn.Module):
    """Sizes that two and four ranks cannot share out evenly."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 6)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 6) for _ in range(2)])
        self.one = torch.nn.Linear(6, 1)
        self.head = torch.nn.Linear(6, 11, bias=False)

    def forward(self, x):
        x = self.embed(x)
        for each in self.layers:
            x = x + torch.tanh(each(x))
        return self.head(x * (1 + self.one(x)))


class Loader:
    """Batches of a rank, whose place is its state."""

    def __init__(self, site, rank):
        self.site, self.rank, self.at = site, rank, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        return batch_of(self.site, self.rank, self.at)

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def batch_of(site, rank, t):
    generator = torch.Generator().manual_seed(100_000 * site + 10_000 * rank + t)
    x = torch.randint(0, 11, (4, 6), generator=generator)
    return x, (x * 3 + site) % 11


def sharded(model, kind):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    size = dist.get_world_size()
    mesh = (init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("copy", "shard")) if kind == "hsdp"
            else init_device_mesh("cpu", (size,)))
    for each in model.layers:
        fully_shard(each, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def made(kind, dtype=torch.float32):
    torch.manual_seed(3)
    model = Net().to(dtype)
    if kind in ("fsdp", "hsdp"):
        model = sharded(model, kind)
    elif kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model


def whole(tensor):
    tensor = tensor.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone()


def f(site, t, number, shape):
    """Values of parameter `number` at step t, by element, without arithmetic that a rank could do otherwise."""
    generator = torch.Generator().manual_seed(1_000_000 * site + 1000 * t + number)
    return torch.randn(shape, generator=generator)


def fill(model, site, t):
    for number, each in enumerate(model.parameters()):
        new = f(site, t, number, tuple(each.shape)).to(each.dtype)
        if hasattr(each, "placements"):
            from torch.distributed.tensor import distribute_tensor
            new = distribute_tensor(new, each.device_mesh, each.placements)
        with torch.no_grad():
            each.copy_(new)


def main():
    file, name, out, *words = sys.argv[1:]
    how = {"shard": "0", "train": "adamw"}
    how.update(each.split("=", 1) for each in words if "." not in each.split("=", 1)[0])
    overrides = [each for each in words if "." in each.split("=", 1)[0]]
    index = {"east": 0, "west": 1}[name]
    rank = int(os.environ.get("RANK", 0))
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    kind, dtype = how["shard"], getattr(torch, how.get("dtype", "float32"))
    model = made(kind, dtype)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + 0.05 * step))
    loader = Loader(index, rank)
    seen, shown = [], []

    def evaluate(part):
        x, y = batch_of(7, 0, part)
        loss = torch.nn.functional.cross_entropy(model(x).float().reshape(-1, 11), y.reshape(-1), reduction="sum")
        seen.append(loss.item().hex())
        return loss.item(), y.numel()

    path = pathlib.Path(f"{out}.{rank}")
    losses = pathlib.Path(f"{path}.losses").open("a", buffering=1)
    with isthmus.torch.join(file, model, opt, site=None if how.get("unnamed") else name, out=out,
                            state={"sched": sched, "loader": loader}, overrides=overrides,
                            **({"evaluate": evaluate} if how.get("evaluate") else {})) as site:
        assert (site.index, site.total_steps) == (index, site.config.train.steps)
        for t, (x, y) in site.steps(loader):
            if how["train"] == "f":
                fill(model, index, t)
                loss = torch.tensor(float(t))
            else:
                loss = torch.nn.functional.cross_entropy(model(x).float().reshape(-1, 11), y.reshape(-1))
                loss.backward()
                opt.step()
                sched.step()
                opt.zero_grad()
            losses.write(json.dumps([t, loss.item().hex()]) + "\n")
            if how.get("anchors") == str(t):
                before = [whole(each) for each in model.parameters()]
                with site.anchors():
                    shown = [whole(each) for each in model.parameters()]
                    model(x)  # without a backward pass
                assert all(torch.equal(whole(a), b) for a, b in zip(model.parameters(), before))
            if how.get(f"at{rank}") == str(t):
                act(how[f"do{rank}"], site)
            if how.get("at") == str(t):
                act(how["do"], site)
            site.step(loss, tokens=24)
    assert site.closed
    moments = {key: [whole(value) for state in opt.state.values() for value in [state[key]]]
               for key in ("exp_avg", "exp_avg_sq", "step")} if opt.state else {}
    torch.save({"weights": [whole(each) for each in model.parameters()], "moments": moments, "at": loader.at,
                "last": sched.last_epoch, "rng": torch.get_rng_state(), "seen": seen, "shown": shown,
                "t": site.t, "outcome": vars(site.outcome)}, f"{path}.pt")
    if "WORLD_SIZE" in os.environ:
        dist.destroy_process_group()
    sys.exit(site.outcome.exit_code)


def act(what, site):
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "raise":
        raise ValueError("the rank's own error")
    elif what == "int":
        os.kill(os.getpid(), signal.SIGINT)
    elif what == "status":
        status = site.status()
        assert isinstance(status, dict) and status, status
    else:
        getattr(site, what)()


if __name__ == "__main__":
    main()
