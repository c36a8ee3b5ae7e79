# SPDX-License-Identifier: Apache-2.0
"""One rank of a site: `ranks_bodies.py FILE SITE OUT [key=value ...]` with RANK, WORLD_SIZE and STORE (a port) in the
environment. Keys with a dot are the run's; shard: 0, ddp, fsdp or hsdp; train: adamw or f (values are a function of
step and element); rows: of the embedding; change: a key; lanes=raises: so does a collective of
rank 1; at=T do=WHAT ranks=01: what is done before site.step() of step T."""
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
from isthmus.torch import _lanes

torch.set_num_threads(1)


class Net(torch.nn.Module):
    """Sizes that two and four ranks cannot share out evenly."""

    def __init__(self, rows=11):
        super().__init__()
        self.embed = torch.nn.Embedding(rows, 6)
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


def sharded(model, kind, group):
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.fsdp import fully_shard
    size = dist.get_world_size()
    if group is not None:
        mesh = DeviceMesh.from_group(group, "cpu")
    elif kind == "hsdp":
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("copy", "shard"))
    else:
        mesh = init_device_mesh("cpu", (size,))
    for each in model.layers:
        fully_shard(each, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def made(kind, dtype=torch.float32, group=None, rows=11):
    torch.manual_seed(3)
    model = Net(rows).to(dtype)
    if kind in ("fsdp", "hsdp"):
        model = sharded(model, kind, group)
    elif kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
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


def fill_gradients(model, site, t):
    for number, each in enumerate(model.parameters()):
        new = f(site, t, number, tuple(each.shape)).to(each.dtype)
        if hasattr(each, "placements"):
            from torch.distributed.tensor import distribute_tensor
            new = distribute_tensor(new, each.device_mesh, each.placements)
        each.grad = None if number == 3 and t % 2 else new  # a parameter that no site uses in odd steps


def count_collectives(raises):
    """Of lanes, in the list that is returned."""
    calls, real = [], _lanes.Lanes._do

    def counted(self, operation, *given):
        if raises and len(calls) == 3:
            raise KeyboardInterrupt  # as a signal before the first line
        calls.append(operation)
        return real(self, operation, *given)

    _lanes.Lanes._do = counted
    return calls


def moments_of(opt):
    return {key: [whole(state[key]) for state in opt.state.values()] for key in ("exp_avg", "exp_avg_sq", "step")
            if opt.state}


def main():
    file, name, out, *words = sys.argv[1:]
    how = {"shard": "0", "train": "adamw"}
    how.update(each.split("=", 1) for each in words if "." not in each.split("=", 1)[0])
    overrides = [each for each in words if "." in each.split("=", 1)[0]]
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    group = None
    if name == "both":  # two sites in one job: the ranks of each are a group
        name, out = ("east", "west")[rank // (size // 2)], out + ("-east", "-west")[rank // (size // 2)]
    path = pathlib.Path(f"{out}.{rank}")
    if "STORE" in os.environ:
        store = dist.TCPStore("127.0.0.1", int(os.environ["STORE"]), size, False)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size,
                                timeout=datetime.timedelta(seconds=120))
        if sys.argv[2] == "both":
            groups = [dist.new_group(list(range(size // 2))), dist.new_group(list(range(size // 2, size)))]
            group = groups[rank // (size // 2)]
    index = {"east": 0, "west": 1}[name]
    kind, dtype = how["shard"], getattr(torch, how.get("dtype", "float32"))
    wrong = how.get("wrong") if how.get("wrong_at", str(rank)) == str(rank) else None
    if wrong == "lr":
        overrides.append("outer.lr=0.5")
    if wrong == "early":
        early = made("0", dtype)
        opt = torch.optim.AdamW(early.parameters(), lr=1e-2)
    model = made(kind, dtype, group, int(how.get("rows", 11)))
    if wrong == "layout":
        model.one = torch.nn.Linear(6, 2)
    if wrong != "early":
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + 0.05 * step))
    loader = Loader(index, rank)
    torch.manual_seed(100 + rank)
    seen, shown = [], []

    def evaluate(part):
        if how.get("evaluate") == "raises":
            raise RuntimeError("the caller's own")
        x, y = batch_of(7, 0, part)
        loss = torch.nn.functional.cross_entropy(model(x).float().reshape(-1, 11), y.reshape(-1), reduction="sum")
        seen.append([part, loss.item()])
        return loss.item(), y.numel()

    def inner(t, x, y):
        torch.rand(1 + rank)  # so that each rank's generator is somewhere else
        if how["train"] == "f":
            fill(model, index, t)
            return torch.tensor(float(t))
        if how["train"] == "g":  # gradients are a function of step and element
            fill_gradients(model, index, t)
            if t == 5 and index == 1:
                next(iter(model.parameters())).grad.mul_(float("inf"))
            if not site.average_gradients(torch.tensor(float(t)), tokens=24):
                return None
            opt.step()
            return torch.tensor(float(t))
        loss = torch.nn.functional.cross_entropy(model(x).float().reshape(-1, 11), y.reshape(-1))
        loss.backward()
        opt.step()
        sched.step()
        opt.zero_grad()
        return loss

    rest = {"evaluate": evaluate} if how.get("evaluate") else {}
    if how.get("change"):
        rest["change"] = [how["change"]]
    if wrong == "layers":
        rest["layer_of"] = lambda name: 0
    if wrong == "layer_of":
        rest["layer_of"] = {}.__getitem__
    if wrong == "unread":  # what rank 0 alone reads; and a line of the log is kept
        rest.update(links="no/such.links", key_file="no/such.key", evaluation_parts="file")
        isthmus._log.keep()
        isthmus._errors.check(isthmus._abi.lib.isthmus_kill_at(b"kill@joins:999999"))
        assert isthmus._abi.lib.isthmus_log_waiting() > 0
    calls = count_collectives(how.get("lanes") == "raises" and rank == 1)
    losses = pathlib.Path(f"{path}.losses").open("a", buffering=1)
    start, outcome, ended = {}, {}, None
    try:
        if how.get("bare"):
            for t in range(1, int(how["bare"]) + 1):
                losses.write(json.dumps([t, inner(t, *next(loader)).item().hex()]) + "\n")
        else:
            called = "north" if wrong == "site" else None if wrong == "unnamed" else name
            with isthmus.torch.join(file, model, opt, site=called, out=out, overrides=overrides,
                                    state={"sched": sched, "loader": loader}, group=group,
                                    **rest) as site:
                assert wrong != "unread" or isthmus._abi.lib.isthmus_log_waiting() == 0
                assert (site.index, site.total_steps) == (index, site.config.train.steps)
                start = {"weights": [whole(each) for each in model.parameters()], "moments": moments_of(opt),
                         "last": sched.last_epoch, "at": loader.at, "rng": torch.get_rng_state()}
                if how.get("samples"):
                    try:
                        site.batch()
                    except isthmus.ConfigError as error:
                        pathlib.Path(f"{path}.samples").write_text(str(error))
                for t, (x, y) in site.steps(loader):
                    loss = inner(t, x, y)
                    if loss is None:
                        losses.write(json.dumps([t, "void"]) + "\n")
                        continue
                    losses.write(json.dumps([t, loss.item().hex()]) + "\n")
                    if how.get("anchors") == str(t):
                        before = [whole(each) for each in model.parameters()]
                        with site.anchors():
                            shown = [whole(each) for each in model.parameters()]
                            with torch.no_grad():
                                model(x)  # FSDP2's root keeps whole parameters after it
                        after = [whole(each) for each in model.parameters()]
                        assert all(torch.equal(a, b) for a, b in zip(after, before))
                    if t == int(how.get("at", 0)) and str(rank) in how.get("ranks", "01234"):
                        act(how["do"], site)
                    site.step(loss, tokens=24)
                    losses.write(json.dumps([t, "told"]) + "\n")
                if how.get("anchors"):
                    with site.anchors():
                        ended = [whole(each) for each in model.parameters()]
            assert site.closed
            outcome = vars(site.outcome)
    except isthmus.Error as error:
        path.with_name(path.name + ".error").write_text(json.dumps([error.kind, str(error)]))
        raise SystemExit(error.exit_code) from error
    torch.save({"weights": [whole(each) for each in model.parameters()], "moments": moments_of(opt),
                "last": sched.last_epoch, "at": loader.at, "rng": torch.get_rng_state(), "seen": seen,
                "shown": shown, "outcome": outcome, "start": start, "ended": ended, "calls": len(calls)}, f"{path}.pt")
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(outcome.get("exit_code", 0))


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
        for each in what.split(","):
            getattr(site, each)()


if __name__ == "__main__":
    main()
