# SPDX-License-Identifier: Apache-2.0
"""PyTorch loops: the bare loop bit for bit where nothing is sent, seven methods written out, kill and
resume, narrow parameters, and what callers do wrong."""
import functools
import json
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
import warnings

import numpy
import pytest

torch = pytest.importorskip("torch")
import forked  # noqa: E402
import torch_bodies as bodies  # noqa: E402

import isthmus  # noqa: E402
import isthmus.torch  # noqa: E402

pytestmark = pytest.mark.torch
TWO = int(torch.__version__.split(".")[0]) >= 2
torch2 = [pytest.mark.torch2, pytest.mark.skipif(not TWO, reason="PyTorch 2")]

TOML = """
[run]
name = "torch"
seed = 2
{workers}
[train]
steps = {steps}
[outer]
method = "{method}"
{more}
[ckpt]
every = "{ckpt}"
[sim]
step_time = "10ms"
{sites}
"""


def written(folder, steps=23, method="diloco", more="H = 5", workers=2, sites=False, ckpt="5 steps"):
    """A run's file in `folder`."""
    text = ""
    if sites:
        held = [socket.socket() for _ in range(workers)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        for name, each in zip(("east", "west"), held):
            text += f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{each.getsockname()[1]}"\n'
            each.close()
        text += '[net]\nplaintext = true\ngather = "60s"\nmin_sites = 2\n'
    path = folder / f"run{len(list(folder.glob('*.toml')))}.toml"
    path.write_text(TOML.format(steps=steps, method=method, more=more, ckpt=ckpt, sites=text,
                                workers="" if sites else f"workers = {workers}"))
    return path


@pytest.fixture
def toml(tmp_path):
    return functools.partial(written, tmp_path)


def values(model):
    return [each.detach().clone() for each in model.parameters()]


def equal(left, right):
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right))


def of_all(toml, out, play=isthmus.run, dtype=torch.float32, kind="adamw", **how):
    found = {}

    def body(site):
        model, opt, sched = bodies.made(kind, dtype)
        isthmus.torch.attach(site, model, opt, state={"sched": sched})
        losses = []
        for t, batch in site.steps(lambda t: bodies.batch_of(site.index, t)):
            loss = bodies.train(model, opt, sched, batch)
            losses.append(loss.item())
            site.step(loss, tokens=24)
        found[site.index] = (model, opt, losses)

    outcome = play(toml, body, out=out, **how)
    return found, outcome


@pytest.mark.parametrize("hook", [False, pytest.param(True, marks=torch2)])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_where_nothing_is_sent_the_loop_is_the_bare_loop(toml, tmp_path, hook, kind):
    model, opt, sched = bodies.made(kind)
    bare = [bodies.train(model, opt, sched, bodies.batch_of(0, t)).item() for t in range(1, 21)]
    losses, kept = [], []

    def body(site):
        mine, own, schedule = bodies.made(kind)
        isthmus.torch.attach(site, mine, own, state=None if hook else [schedule], hook=hook)
        if hook:
            while site.outcome is None:
                losses.append(bodies.train(mine, own, schedule, bodies.batch_of(0, site.t)).item())
        else:
            for t, batch in site.steps(lambda t: bodies.batch_of(0, t)):
                losses.append(bodies.train(mine, own, schedule, batch).item())
                site.step(losses[-1], tokens=24)
        kept.append((mine, own))

    isthmus.run(toml(steps=20, more='H = 1000\nfinal_sync = "none"', workers=1), body, out=tmp_path / "x")
    assert losses == bare and equal(values(kept[0][0]), values(model))
    assert bodies.digest(kept[0][1].state_dict()["state"]) == bodies.digest(opt.state_dict()["state"])


def written_out(method, workers, steps, H, dtype=torch.float64):
    """The outer loops of the papers over the same inner steps; outer arithmetic in `dtype`."""
    trainers = [bodies.made() for _ in range(workers)]
    states = [None] * workers
    torch.manual_seed(3)
    bodies.Net()
    start = torch.get_rng_state()
    for w in range(workers):
        torch.set_rng_state(start)
        trainers[w] = bodies.made()
        states[w] = torch.get_rng_state()
    names = [name for name, _ in trainers[0][0].named_parameters()]
    groups = [list(range(len(names)))]
    lr, mu = {"localsgd": (1.0, 0.0), "diloco": (0.7, 0.9), "co2": (1.0, 0.5), "sparseloco": (1.0, 0.0)}.get(
        method, (0.4, 0.9))
    overlap, alpha, offsets = 0, 0.0, [0]
    if method == "streaming-diloco":
        layer = [name.split(".")[1] if name.startswith("layers") else "-" for name in names]
        groups = [[i for i, each in enumerate(layer) if each == which] for which in ("0", "1", "-")]
        offsets, overlap, alpha = [p * H // 3 for p in range(3)], 2, 0.5
    at = [each[0] for each in trainers]
    params = [list(each.parameters()) for each in at]
    anchor = [each.detach().to(dtype).clone() for each in params[0]]
    velocity = [torch.zeros_like(each) for each in anchor]
    pending, losses = [], []

    def outer(i, delta):
        velocity[i] = mu * velocity[i] + delta
        anchor[i] = anchor[i] - lr * (delta + mu * velocity[i])

    def mine(w, i):
        return anchor[i] - params[w][i].detach().to(dtype)

    def send(group):
        return {i: sum(mine(w, i) for w in range(workers)) / workers for i in group}

    def apply(deltas, mix):
        with torch.no_grad():
            for i, delta in deltas.items():
                outer(i, delta)
                for each in params:
                    local = each[i].detach().to(dtype)
                    each[i].copy_(mix * local + (1 - mix) * anchor[i])

    everything = range(len(names))
    stale = []  # what the round before has sent
    own = [[each.clone() for each in anchor] for _ in range(workers)]  # anchors of eager
    own_velocity = [[torch.zeros_like(each) for each in anchor] for _ in range(workers)]

    def one_round_behind():
        """Methods whose mean comes one round late, and sparseloco: at the end of a round."""
        fresh = [[own[w][i] - params[w][i].detach().to(dtype) for i in everything] for w in range(workers)]
        for w in range(workers):
            norms = [sum(each.square().sum() for each in one).sqrt() for one in fresh]
            for i in everything:
                mean = sum(one[i] for one in stale) / workers if stale else torch.zeros_like(anchor[i])
                v, x = own_velocity[w], own[w]
                if method == "sparseloco":
                    middle = float(sorted(norms)[(workers - 1) // 2])  # of two the smaller
                    x[i] = x[i] - lr * sum(one[i] * min(1, middle / float(n)) for one, n in zip(fresh, norms)) / workers
                elif method == "co2":
                    v[i] = mu * v[i] + mean
                    x[i] = x[i] - lr * v[i]
                elif method == "eager" or stale:
                    if method == "eager":
                        mean = mean - (stale[w][i] / workers if stale else 0) + fresh[w][i] / workers
                    v[i] = mu * v[i] + mean
                    x[i] = x[i] - lr * (mean + mu * v[i])
        with torch.no_grad():
            for w in range(workers):
                for i in everything:
                    params[w][i].copy_(own[w][i])
        stale[:] = fresh

    for t in range(1, steps + 1):
        row = []
        for w, (model, opt, sched) in enumerate(trainers):
            torch.set_rng_state(states[w])
            row.append(bodies.train(model, opt, sched, bodies.batch_of(w, t)).item())
            states[w] = torch.get_rng_state()
        losses.append(row)
        if method in ("delayed", "co2", "eager", "sparseloco"):
            if t % H == 0:
                one_round_behind()
            continue
        for group, offset in zip(groups, offsets):
            if t % H == offset % H:
                pending.append((t + overlap, send(group)))
        for due, deltas in list(pending):
            if due == t:
                pending.pop(0)
                apply(deltas, alpha)
    return losses, anchor


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("method, more", [
    ("diloco", ""), ("localsgd", ""), ("streaming-diloco", "fragments = 2\noverlap = 2\nalpha = 0.5"),
    ("delayed", ""), ("co2", "momentum = 0.5"), ("eager", ""), ("sparseloco", ""),
])
def test_methods_are_those_written_out(toml, tmp_path, method, more, workers):
    H, steps = 6, 60
    file = toml(steps=steps, method=method, more=f'H = {H}\nfinal_sync = "none"\ncodec = "fp32"\n{more}',
                workers=workers, ckpt="60 steps")
    found, _ = of_all(file, tmp_path / "x")
    losses, anchor = written_out(method, workers, steps, H)
    single, _ = written_out(method, workers, steps, H, torch.float32)
    ours = numpy.array([found[w][2] for w in range(workers)]).T
    apart = numpy.abs(numpy.array(single) / losses - 1).max()
    numpy.testing.assert_allclose(ours, losses, rtol=max(1e-6, 4 * apart))


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_ddp_is_data_parallelism_written_out(toml, tmp_path, kind, workers):
    steps, found = 40, {}

    def body(site):
        model, opt, sched = bodies.made(kind)
        isthmus.torch.attach(site, model, opt, state={"sched": sched})
        losses = []

        def average(loss):
            assert site.average_gradients(loss, tokens=24)

        for t, batch in site.steps(lambda t: bodies.batch_of(site.index, t)):
            loss = bodies.train(model, opt, sched, batch, average)
            losses.append(loss.item())
            site.step(loss, tokens=24)
        found[site.index] = (model, losses)

    isthmus.run(toml(steps=steps, method="ddp", more="", workers=workers), body, out=tmp_path / "x")

    trainers, states, rows = [], [], []
    torch.manual_seed(3)
    bodies.Net()
    start = torch.get_rng_state()
    for w in range(workers):
        torch.set_rng_state(start)
        trainers.append(bodies.made(kind))
        states.append(torch.get_rng_state())
    for t in range(1, steps + 1):
        kept, row = [], []
        for w, (model, opt, sched) in enumerate(trainers):
            torch.set_rng_state(states[w])
            x, y = bodies.batch_of(w, t)
            loss = torch.nn.functional.cross_entropy(model(x).reshape(-1, 11), y.reshape(-1))
            loss.backward()
            states[w] = torch.get_rng_state()
            kept.append([each.grad.clone() for each in model.parameters()])
            row.append(loss.item())
        rows.append(row)
        for model, opt, sched in trainers:
            for each, *gradients in zip(model.parameters(), *kept):
                each.grad.copy_(sum(each.double() for each in gradients) / workers)
            opt.step()
            sched.step()
            opt.zero_grad()
    for w in range(workers):
        numpy.testing.assert_allclose(found[w][1], [row[w] for row in rows], rtol=1e-6)
        assert equal(values(found[w][0]), values(found[0][0]))


def test_ddp_where_a_parameter_is_not_used_everywhere(toml, tmp_path):
    """A parameter without a gradient counts as zero where another site has one, and stays without where none has."""
    seen = {}

    def body(site):
        torch.manual_seed(0)
        model = torch.nn.ModuleDict({name: torch.nn.Linear(2, 1, bias=False) for name in "abc"})
        opt = torch.optim.SGD(model.parameters(), lr=1.0)
        isthmus.torch.attach(site, model, opt)
        for t, _ in site.steps():
            opt.zero_grad(set_to_none=True)
            x = torch.tensor([1.0, 2.0])
            loss = (model["a"](x) + (model["b"](x) if site.index == 0 else 0)).sum()
            loss.backward()
            assert site.average_gradients(loss)
            seen[site.index] = [None if each.grad is None else each.grad.flatten().tolist()
                                for each in model.parameters()]
            opt.step()
            site.step()

    isthmus.run(toml(steps=2, method="ddp", more="", workers=2), body, out=tmp_path / "x")
    assert seen[0] == seen[1] == [[1.0, 2.0], [0.5, 1.0], None]


def test_ddp_drops_the_gradients_of_a_step_that_does_not_count(toml, tmp_path):
    """Or the next backward pass would add to them, at all sites alike."""
    seen = []

    def body(site):
        model, opt, sched = bodies.made()
        isthmus.torch.attach(site, model, opt, state={"sched": sched})
        for t, (x, y) in site.steps(lambda t: bodies.batch_of(site.index, t)):
            loss = torch.nn.functional.cross_entropy(model(x).reshape(-1, 11), y.reshape(-1))
            (loss * (float("inf") if t == 2 else 1)).backward()
            if site.average_gradients(loss):
                opt.step()
                opt.zero_grad()
                site.step()
            else:
                seen.append((t, [each.grad for each in model.parameters() if each.grad is not None]))

    isthmus.run(toml(steps=4, method="ddp", more="", workers=2), body, out=tmp_path / "x")
    assert seen == [(2, []), (2, [])]


@torch2[1]
@pytest.mark.filterwarnings("error")
def test_ddp_by_hook_is_ddp_by_hand(toml, tmp_path):
    """Bit for bit, with a step that does not count."""
    ends = {}

    def body(site, hook):
        model, opt, _ = bodies.made()
        isthmus.torch.attach(site, model, opt, hook=hook)
        while site.outcome is None:
            t = site.t
            x, y = bodies.batch_of(site.index, t)
            loss = torch.nn.functional.cross_entropy(model(x).reshape(-1, 11), y.reshape(-1))
            (loss * (float("inf") if t == 3 and site.index == 1 else 1)).backward()
            if hook:
                opt.step()
            elif site.average_gradients():
                opt.step()
                site.step()
            opt.zero_grad()
            assert site.outcome is not None or site.t == t + 1
        ends[site.index, hook] = model, opt

    for hook in (False, True):
        isthmus.run(toml(steps=6, method="ddp", more="", workers=2), lambda site, hook=hook: body(site, hook),
                    out=tmp_path / str(hook))
    for worker in range(2):
        (by_hand, first), (by_hook, second) = ends[worker, False], ends[worker, True]
        assert equal(values(by_hand), values(by_hook)) and equal(values(by_hook), values(ends[0, True][0]))
        assert all(each["step"] == 5 for opt in (first, second) for each in opt.state.values())


def test_sites_with_unlike_optimizers_are_told_when_they_meet():
    """Classes and settings are values that all sites of a run under ddp have in common."""
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    words = [isthmus.torch._join.optimizers_in_words(each) for each in (
        torch.optim.AdamW(parameters, lr=0.1), torch.optim.AdamW(parameters, lr=0.2),
        torch.optim.AdamW([{"params": parameters[:1]}, {"params": parameters[1:], "weight_decay": 0.5}], lr=0.1),
        torch.optim.SGD(parameters, lr=0.1), torch.optim.AdamW(parameters, lr=0.1, foreach=False))]
    assert len(set(words)) == 4 and words[0] == words[4] and "AdamW(2 tensors, " in words[0] and "lr=0.1," in words[0]


def test_sites_under_ddp_with_unlike_optimizers_do_not_begin(toml, tmp_path):
    script = ("import sys, torch, isthmus.torch\n"
              "model = torch.nn.Linear(2, 2)\n"
              "opt = torch.optim.SGD(model.parameters(), lr=float(sys.argv[3]))\n"
              "isthmus.torch.join(sys.argv[1], model, opt, site=sys.argv[2], out=sys.argv[4])\n")
    file = toml(steps=4, method="ddp", more="", sites=True)
    file.write_text(file.read_text().replace('"60s"', '"20s"'))  # that the site which was not told first waits
    sites = [subprocess.Popen([sys.executable, "-c", script, file, name, rate, tmp_path / name],
                              stderr=subprocess.PIPE, text=True) for name, rate in (("east", "0.1"), ("west", "0.2"))]
    try:
        said = [each.communicate(timeout=300)[1] for each in sites]
    finally:
        for each in sites:
            each.kill()
    assert all(each.returncode for each in sites)
    assert any("trainer.optimizer" in each and "lr=0.1" in each and "lr=0.2" in each for each in said), said


def test_ddp_without_a_backward_pass_is_told(toml, tmp_path):
    def body(site):
        model, opt, _ = bodies.made()
        isthmus.torch.attach(site, model, opt)
        site.average_gradients(1.0)

    with pytest.raises(isthmus.RunError, match="after loss.backward"):
        isthmus.run(toml(steps=2, method="ddp", more="", workers=1), body, out=tmp_path / "x")


def test_real_and_simulated_give_the_same_bits(toml, tmp_path):
    here, _ = of_all(toml(), tmp_path / "x")
    there, _ = of_all(toml(), tmp_path / "y", isthmus.simulate, link="10Mbit/s,50ms")
    for worker in here:
        assert here[worker][2] == there[worker][2]
        assert equal(values(here[worker][0]), values(there[worker][0]))
    assert equal(values(here[0][0]), values(here[1][0]))


@pytest.fixture
def start():
    begun = []

    def started(file, name, out):
        begun.append(forked.start(bodies.__file__, file, name, out))
        return begun[-1]

    yield started
    for each in begun:
        each.kill()
        each.wait()


def test_killed_sites_resume_with_every_bit(toml, tmp_path, start):
    file = toml(steps=400, sites=True, more='H = 5\ncodec = "int8:ef"', ckpt="20 steps")
    names = ("east", "west")
    whole = [start(file, name, tmp_path / f"whole-{name}") for name in names]
    assert [each.wait(240) for each in whole] == [0, 0]
    draw = random.Random(5)
    for _ in range(2):
        sites = [start(file, name, tmp_path / name) for name in names]
        path, end = tmp_path / "east.losses", time.monotonic() + 120
        begun = path.read_text().count("\n") if path.exists() else 0
        wanted = begun + draw.randrange(30, 120)
        while not path.exists() or path.read_text().count("\n") < wanted:
            assert time.monotonic() < end and sites[0].poll() is None
            time.sleep(0.005)
        for each in sites:
            each.send_signal(signal.SIGKILL)
            each.wait()
    assert [each.wait(240) for each in [start(file, name, tmp_path / name) for name in names]] == [0, 0]
    for name in names:
        assert (tmp_path / f"{name}.end").read_text() == (tmp_path / f"whole-{name}.end").read_text()
        lines = [dict(map(json.loads, (tmp_path / f"{each}.losses").read_text().splitlines()))
                 for each in (name, f"whole-{name}")]
        assert lines[0] == lines[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_narrow_parameters_that_do_not_train_do_not_move(toml, tmp_path, dtype):
    kept = []

    def body(site):
        model, _, _ = bodies.made(dtype=torch.float32)
        model.to(dtype)
        before = values(model)
        opt = torch.optim.SGD(model.parameters(), lr=0.0)
        isthmus.torch.attach(site, model, opt)
        for t, batch in site.steps(lambda t: bodies.batch_of(site.index, t)):
            for each in model.parameters():
                each.grad = torch.ones_like(each)
            opt.step()
            site.step(0.0)
        kept.append(equal(values(model), before))

    isthmus.run(toml(steps=20), body, out=tmp_path / "x")
    assert kept == [True, True]
    assert set(isthmus.open(tmp_path / "x").table("round")["delta_norm"]) == {0}


def test_narrow_parameters_resume_with_every_bit(toml, tmp_path):
    def play(steps_to_stop, out, **how):
        found = {}

        def body(site):
            torch.manual_seed(3)
            model = torch.nn.Linear(8, 8).to(torch.bfloat16)
            opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            isthmus.torch.attach(site, model, opt)
            for t, _ in site.steps():
                x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * site.index + t))
                (model(x.to(torch.bfloat16)).float() - 1).square().mean().backward()
                opt.step()
                opt.zero_grad()
                if t == steps_to_stop:
                    site.stop()
                site.step(0.5)
            found[site.index] = (values(model), opt.state_dict())

        isthmus.run(file, body, out=out, **how)
        return found

    file = toml(steps=40, more="H = 7")
    whole = play(None, tmp_path / "whole")
    play(17, tmp_path / "x")
    again = play(None, tmp_path / "x", resume="auto")
    for worker in whole:
        assert equal(again[worker][0], whole[worker][0])
        assert bodies.digest(again[worker][1]) == bodies.digest(whole[worker][1])


def odd():
    torch.manual_seed(1)
    base = torch.randn(6, 8)
    shared = torch.nn.Parameter(torch.randn(3))
    return {"scalar": torch.nn.Parameter(torch.tensor(2.0)), "empty": torch.nn.Parameter(torch.empty(0, 3)),
            "strided": torch.nn.Parameter(base.t()), "a": shared, "b": torch.nn.Parameter(shared.detach()),
            "narrow": torch.nn.Parameter(torch.randn(5, 2).to(torch.bfloat16)),
            "plain": torch.nn.Parameter(torch.randn(2, 3))}


class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, each in odd().items():
            setattr(self, name, each)
        self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)


def test_odd_tensors_are_seen_as_they_are(toml, tmp_path):
    kept = {}

    def body(site):
        model = Odd()
        isthmus.torch.attach(site, model)
        for t, _ in site.steps():
            with torch.no_grad():
                for i, each in enumerate(model.parameters()):
                    if each.requires_grad and each is not model.b:
                        each += (i + 1) * (site.index + t)
            site.step(0.0)
        kept[site.index] = model

    isthmus.run(toml(steps=1, method="localsgd", more="H = 1"), body, out=tmp_path / "x")
    weights = isthmus.open(tmp_path / "x").weights()
    start = odd()
    assert set(weights) == set(start) - {"b", "empty"}
    for worker in (0, 1):
        for i, (name, each) in enumerate(kept[worker].named_parameters()):
            if name in ("frozen", "b", "empty"):
                continue
            assert tuple(weights[name].shape) == tuple(each.shape)
            number = [n for n, _ in kept[worker].named_parameters()].index(name)
            wanted = start[name].detach().float() + 1.5 * (number + 1)
            assert torch.allclose(each.detach().float(), wanted, rtol=1e-2 if name == "narrow" else 1e-6)
            assert torch.allclose(torch.from_numpy(weights[name]).float(), each.detach().float(), rtol=1e-2)
        assert torch.equal(kept[worker].b, kept[worker].a)


def test_a_parameter_that_moves_or_is_replaced_is_found(toml, tmp_path):
    kept = {}

    def body(site):
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight.fill_(1)
            model.bias.fill_(0)
        isthmus.torch.attach(site, model)
        for t, _ in site.steps():
            if t == 2:
                model.weight.data = model.weight.data.clone()
                model.bias = torch.nn.Parameter(model.bias.detach().clone())
            with torch.no_grad():
                model.weight += site.index
                model.bias += 1
            site.step(0.0)
        kept[site.index] = values(model)

    with pytest.warns(RuntimeWarning, match="after join"):
        isthmus.run(toml(steps=4, method="localsgd", more="H = 2"), body, out=tmp_path / "x")
    for worker in (0, 1):
        assert torch.equal(kept[worker][0], torch.full((2, 3), 3.0))
        assert torch.equal(kept[worker][1], torch.full((2,), 4.0))


def test_a_layer_that_is_frozen_in_a_run_still_takes_part(toml, tmp_path):
    def body(site):
        model = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.ones_(model.weight)
        isthmus.torch.attach(site, model)
        for t, _ in site.steps():
            if t <= 2:
                with torch.no_grad():
                    model.weight += site.index
            model.weight.requires_grad_(t < 2)
            site.step(0.0)
        assert torch.equal(model.weight.detach(), torch.full((2, 2), 2.0))

    isthmus.run(toml(steps=4, method="localsgd", more="H = 2"), body, out=tmp_path / "x")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_after_a_value_that_is_not_finite_training_goes_on_from_the_anchors(toml, tmp_path, dtype):
    """The optimizer forgets; data, schedule and rate go on, and no parameter goes back to its first value."""
    def body(site):
        torch.manual_seed(3)
        model = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(2))).to(dtype)
        first = values(model)
        opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9)
        loader = bodies.Loader(0)
        isthmus.torch.attach(site, model, opt, state={"sched": sched, "loader": loader},
                             layer_of=lambda name: int(name.split(".")[0]))
        unfit = 0
        for t, _ in site.steps(loader):
            (model(torch.ones(3, 4, dtype=dtype)).float() - 1).square().mean().backward()
            opt.step()
            opt.zero_grad()
            sched.step()
            if t == 9 and site.index == 0:
                with torch.no_grad():
                    next(model.parameters()).fill_(float("nan"))
            held = len(opt.state)
            site.step(0.0)
            if held and not opt.state:
                unfit = t
                assert loader.at == t and sched.last_epoch == t
                with site.anchors():
                    outer = values(model)
                now = values(model)
                assert torch.equal(now[0], outer[0])  # the second tensor has mixed with a round that came now
                assert all((one - there).norm() < 0.5 * (one - then).norm()
                           for one, there, then in zip(now, outer, first))
            assert all(torch.isfinite(each).all() for each in values(model)) or t in (9, 10) and site.index == 0
        assert loader.at == 20 and opt.param_groups[0]["lr"] == pytest.approx(0.5 * 0.9**20)
        assert (unfit > 9) == (site.index == 0)

    more = 'H = 4\nfragments = 2\npattern = "sequential"\ncodec = "fp32"'
    isthmus.run(toml(steps=20, method="streaming-diloco", more=more), body, out=tmp_path / "x")


def test_anchors_and_evaluations_show_the_outer_parameters(toml, tmp_path):
    seen = []

    def body(site):
        model = torch.nn.Linear(2, 2, bias=False).to(torch.bfloat16 if site.config.run.seed == 3 else torch.float32)
        with torch.no_grad():
            model.weight.fill_(0)

        def evaluate(part):
            seen.append((site.t, float(model.weight[0, 0])))
            return float(model.weight[0, 0]) * 2, 2

        isthmus.torch.attach(site, model, evaluate=evaluate)
        for t, _ in site.steps():
            with torch.no_grad():
                model.weight += 1
            own = values(model)
            with site.anchors():
                assert float(model.weight[0, 0]) == (t - 1) // 5 * 5
            assert equal(values(model), own)
            site.step(0.0)
            assert site.outcome is not None or float(model.weight[0, 0]) == t

    for seed in (2, 3):
        isthmus.run(toml(steps=10, method="localsgd"), body, out=tmp_path / f"x{seed}", evaluation_parts=4,
                    overrides=['eval.every="4 steps"', f"run.seed={seed}"])
    assert (4, 0.0) in seen and (8, 5.0) in seen


class Recorder:
    def __init__(self, thing):
        self.thing = thing

    def state_dict(self):
        return {"thing": self.thing}

    def load_state_dict(self, state):
        self.thing = state["thing"]


def meta(site):
    isthmus.torch.attach(site, torch.nn.Linear(2, 2, device="meta"))


def inference(site):
    with torch.inference_mode():
        model = torch.nn.Linear(2, 2)
    isthmus.torch.attach(site, model)


def integers(site):
    isthmus.torch.attach(site, torch.nn.Linear(2, 2), params={"w": torch.zeros(3, dtype=torch.int64)})


def overlapping(site):
    whole = torch.zeros(6)
    isthmus.torch.attach(site, torch.nn.Linear(2, 2), params={"w": whole[:4], "v": whole[2:]})


def early_optimizer(site):
    opt = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=1)
    isthmus.torch.attach(site, torch.nn.Linear(2, 2), opt)


def frozen(site):
    isthmus.torch.attach(site, torch.nn.Linear(2, 2).requires_grad_(False))


def unkept(site):
    isthmus.torch.attach(site, torch.nn.Linear(2, 2), state={"mine": Recorder(object())})


def not_optimizer(site):
    isthmus.torch.attach(site, torch.nn.Linear(2, 2), 1e-3)


def fully(site):
    class FullyShardedDataParallel(torch.nn.Linear):
        pass

    isthmus.torch.attach(site, FullyShardedDataParallel(2, 2))


def deep(site):
    isthmus.torch.attach(site, type("DeepSpeedEngine", (torch.nn.Linear,), {})(2, 2))


def another_shape(site):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    isthmus.torch.attach(site, model)
    for _ in site.steps():
        model.weight = torch.nn.Parameter(torch.zeros(3, 3))
        site.step(0)


def complex_loss(site):
    torch.manual_seed(0)
    isthmus.torch.attach(site, torch.nn.Linear(2, 2))
    for _ in site.steps():
        site.step(torch.tensor(1 + 1j))


def vector_loss(site):
    torch.manual_seed(0)
    isthmus.torch.attach(site, torch.nn.Linear(2, 2))
    for _ in site.steps():
        site.step(torch.ones(2))


def loss_of(value):
    def body(site):
        torch.manual_seed(0)
        isthmus.torch.attach(site, torch.nn.Linear(2, 2))
        for _ in site.steps():
            site.step(value)
    return body


@pytest.mark.parametrize("body, kind, words", [
    (meta, isthmus.ConfigError, "meta device"), (inference, isthmus.ConfigError, "inference_mode"),
    (integers, isthmus.ConfigError, "int64"), (overlapping, isthmus.ConfigError, "share memory"),
    (early_optimizer, isthmus.ConfigError, "none of the model's parameters"),
    (frozen, isthmus.ConfigError, "no parameter requires gradients"),
    (unkept, isthmus.ConfigError, "state mine/thing: a builtins.object|state.*object"),
    (not_optimizer, isthmus.ConfigError, "optimizer is a float"), (fully, isthmus.ConfigError, "FSDP1"),
    (deep, isthmus.ConfigError, "DeepSpeed"), (another_shape, isthmus.RunError, r"shape \(3, 3\)"),
    (vector_loss, isthmus.ConfigError, r"loss is a tensor of shape \(2,\)"),
    (loss_of(torch.ones(2, 3, device="meta")), isthmus.ConfigError, r"loss is a tensor of shape \(2, 3\)"),
    (loss_of(torch.ones((), device="meta")), isthmus.ConfigError, "loss = .*meta.*: must be one number"),
    (complex_loss, isthmus.ConfigError, "loss = .*: must be one number"),
    (lambda site: isthmus.torch.attach(site, [1]), isthmus.ConfigError, "model is a list"),
    (lambda site: isthmus.torch.attach(site, torch.nn.Linear), isthmus.ConfigError, "model is the class Linear"),
    (lambda site: isthmus.torch.attach(site, torch.nn.LazyLinear(3)), isthmus.ConfigError, "'weight' has no shape yet"),
    (lambda site: site.attach(torch.nn.Linear(2, 2)), isthmus.ConfigError, "isthmus.torch.attach"),
    (lambda site: next(site.steps()), isthmus.ConfigError, "no parameters yet"),
])
def test_mistakes_are_told(toml, tmp_path, body, kind, words):
    with pytest.raises(kind, match=words):
        isthmus.run(toml(), body, out=tmp_path / "x")


def test_unequal_starts_are_refused_by_name(toml, tmp_path):
    def body(site):
        torch.manual_seed(site.index)
        isthmus.torch.attach(site, torch.nn.Linear(2, 2))
        for _ in site.steps():
            site.step(0)

    with pytest.raises(isthmus.Error, match="weight|unequal|differ"):
        isthmus.run(toml(), body, out=tmp_path / "x", overrides=['net.start="same"'])


@pytest.mark.skipif(not TWO, reason="PyTorch 2")
@pytest.mark.torch2
def test_a_hook_with_a_schedule_in_state_is_refused(toml):
    model = torch.nn.Linear(2, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1)
    with pytest.raises(isthmus.ConfigError, match="hook=True together with a StepLR"):
        isthmus.torch.join(toml(sites=True), model, opt, site="east", hook=True, state={"sched": sched})


def test_torchruns_rank_is_not_taken_for_a_site(toml, monkeypatch):
    monkeypatch.delenv("ISTHMUS_SITE", raising=False)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(isthmus.ConfigError, match="RANK = 1 could be"):
        isthmus.torch.join(toml(sites=True), torch.nn.Linear(2, 2))


@pytest.mark.parametrize("wrong, words", [
    ("twice", "called twice without site.step"), ("loader", "loader is not in `state`"), ("norm", "BatchNorm"),
    ("foreign", "2 of the parameters of SGD are not the model's"),
])
def test_what_may_be_a_mistake_is_warned_of(toml, tmp_path, wrong, words):
    if wrong == "twice" and not TWO:
        pytest.skip("PyTorch 2 tells of an optimizer's steps")

    def body(site):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), *([torch.nn.BatchNorm1d(2)] if wrong == "norm" else []))
        beside = torch.nn.Linear(2, 1).parameters() if wrong == "foreign" else []
        opt = torch.optim.SGD([*model.parameters(), *beside], lr=0.1)
        isthmus.torch.attach(site, model, opt)
        for t, batch in site.steps([torch.ones(3, 2)]):
            for _ in range(2 if wrong == "twice" else 1):
                opt.step()
            if t == 5 and not (tmp_path / "stopped").exists() and wrong == "loader":
                (tmp_path / "stopped").touch()
                site.stop()
            site.step(0)

    file = toml(steps=12)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        isthmus.run(file, body, out=tmp_path / "x")
        if wrong == "loader":
            isthmus.run(file, body, out=tmp_path / "x", resume="auto")
    assert [each for each in caught if words in str(each.message)], [str(each.message) for each in caught]


def test_bodies_have_random_states_of_their_own(toml, tmp_path):
    drawn = {}

    def body(site):
        torch.manual_seed(7)
        model = torch.nn.Linear(2, 2)
        isthmus.torch.attach(site, model)
        drawn[site.index] = []
        for _ in site.steps():
            drawn[site.index].append((float(torch.rand(())), random.random(), numpy.random.rand()))
            site.step(0)

    isthmus.run(toml(workers=3), body, out=tmp_path / "x")
    assert drawn[0] == drawn[1] == drawn[2] and len(set(drawn[0])) == 23


def test_an_import_of_isthmus_leaves_torch_alone():
    subprocess.run([sys.executable, "-c", "import sys, isthmus; assert 'torch' not in sys.modules"], check=True)
    assert pathlib.Path(isthmus.__file__).exists()


def test_the_plain_example_trains(toml, tmp_path):
    file = toml(steps=40, sites=True, more="H = 10", ckpt="40 steps")
    example = pathlib.Path(__file__).parents[2] / "examples/python/torch_plain.py"
    sites = [subprocess.Popen([sys.executable, example, file, name, tmp_path / name]) for name in ("east", "west")]
    try:
        assert [each.wait(240) for each in sites] == [0, 0]
    finally:
        for each in sites:
            each.kill()
            each.wait()
    table = isthmus.open(tmp_path / "east").table("train")
    assert table["loss"][-1] < 0.8 * table["loss"][0]
    ends = [isthmus.open(tmp_path / name).weights() for name in ("east", "west")]
    assert all(numpy.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_the_hf_example_trains(toml, tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    file = toml(steps=30, sites=True, more="H = 10", ckpt="30 steps")
    example = pathlib.Path(__file__).parents[2] / "examples/python/hf_trainer.py"
    sites = [subprocess.Popen([sys.executable, example, file, name, tmp_path / name]) for name in ("east", "west")]
    try:
        assert [each.wait(240) for each in sites] == [0, 0]
    finally:
        for each in sites:
            each.kill()
            each.wait()
    table = isthmus.open(tmp_path / "east").table("train")
    assert len(table["loss"]) == 30 and table["loss"][-1] < table["loss"][0]


def test_torchfts_diloco_is_taken_by_its_signature(toml, tmp_path):
    model = torch.nn.Linear(2, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    outer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, nesterov=True)
    if not TWO:
        with pytest.raises(isthmus.ConfigError, match="PyTorch 2"):
            isthmus.torch.DiLoCo("x.toml", [model], opt, outer, 5)
        return
    with pytest.raises(isthmus.ConfigError, match="must be torch.optim.SGD"):
        isthmus.torch.DiLoCo("x.toml", [model], opt, torch.optim.Adam(model.parameters()), 5)
    with pytest.raises(isthmus.ConfigError, match="manager is a object"):
        isthmus.torch.DiLoCo(object(), [model], opt, outer, 5)
    file = tmp_path / "one.toml"
    text = toml(sites=True, workers=2, steps=20).read_text()
    file.write_text(text[: text.rindex("[[site]]")] + "[net]\nplaintext = true\n")
    steps = 0
    with isthmus.torch.DiLoCo(file, [model], opt, outer, 5, should_quantize=True, site="east",
                              out=tmp_path / "x") as run:
        while run.outcome is None:
            model(torch.ones(1, 2)).square().sum().backward()
            opt.step()
            opt.zero_grad()
            steps += 1
    assert steps == 20 and run.outcome.exit_code == 0
    config = isthmus.open(tmp_path / "x").config
    assert (config.outer.H, config.outer.lr, config.outer.codec) == (5, 0.5, "int8")


SCHEDULES = torch.optim.lr_scheduler


def groups(model):
    return [{"params": [each for each in model.parameters() if each.dim() > 1]},
            {"params": [each for each in model.parameters() if each.dim() < 2], "weight_decay": 0.0}]


@pytest.mark.parametrize("optimizer, schedule", [
    (lambda m: torch.optim.AdamW(groups(m), lr=0.01, foreach=True),
     lambda o: SCHEDULES.OneCycleLR(o, 0.02, total_steps=99)),
    (lambda m: torch.optim.Adam(m.parameters(), lr=0.01, amsgrad=True),
     lambda o: SCHEDULES.MultiStepLR(o, [3, 11, 15])),
    (lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9), lambda o: SCHEDULES.CyclicLR(o, 0.01, 0.1, 5)),
    (lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01), lambda o: SCHEDULES.ReduceLROnPlateau(o, patience=2)),
])
def test_a_stopped_run_resumes_with_every_bit(toml, tmp_path, optimizer, schedule):
    file = toml(steps=24, more="H = 4")

    def play(stop, out, resume="never"):
        found = {}

        def body(site):
            torch.manual_seed(5)
            model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2),
                                        torch.nn.Linear(8, 4))
            opt = optimizer(model)
            sched = schedule(opt)
            isthmus.torch.attach(site, model, opt, state={"sched": sched})
            for t, x in site.steps(lambda t: torch.randn(8, 8, generator=torch.Generator().manual_seed(t))):
                loss = model(x + site.index).square().mean()
                loss.backward()
                opt.step()
                opt.zero_grad()
                sched.step(*([loss.item()] if isinstance(sched, SCHEDULES.ReduceLROnPlateau) else []))
                if t == stop:
                    site.stop()
                site.step(loss)
            found[site.index] = bodies.digest(model.state_dict(), opt.state_dict(), torch.get_rng_state())

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            isthmus.run(file, body, out=out, resume=resume)
        return found

    whole = play(None, tmp_path / "whole")
    play(9, tmp_path / "x")
    assert play(None, tmp_path / "x", "auto") == whole


INNER = ['schedule = "constant"\nwarmup = 4', 'schedule = "linear"\nwarmup = "10%"\nfloor = 0.25',
         'schedule = "cosine"\nwarmup = 3\nrewarm = [9, "75%"]', 'schedule = "wsd"\nwarmup = 2\ndecay = "20%"',
         'schedule = "infinite"\nwarmup = 2\ndecay = 5', 'schedule = "inverse-sqrt"\nwarmup = 5']


@pytest.mark.parametrize("inner", INNER)
def test_adamw_has_the_rates_of_the_built_in_trainer(tmp_path, inner):
    file = tmp_path / "own.toml"
    file.write_text(f"""
[run]
workers = 1
[model]
arch = "llama"
layers = 1
d_model = 16
heads = 2
[data]
source = "synth:markov1"
[train]
steps = 23
global_batch = "32 tok"
context = 16
[inner]
lr = 1e-3
betas = [0.8, 0.99]
eps = 1e-7
weight_decay = 0.3
{inner}
[outer]
method = "diloco"
H = 23
""")
    subprocess.run([isthmus.program_path(), "train", file, "--out", tmp_path / "own", "--progress", "none"],
                   check=True, capture_output=True)
    expected = isthmus.open(tmp_path / "own").table("train")["lr"]
    model = bodies.Net()
    opt, sched = isthmus.torch.adamw(model, isthmus.load_config(file))
    rates = []
    for _ in range(23):
        rates.append(opt.param_groups[0]["lr"])
        assert {group["lr"] for group in opt.param_groups} == {rates[-1]}
        opt.step()
        sched.step()
    assert len(expected) == 23 and rates == pytest.approx(list(expected), rel=1e-7, abs=0)
    decays = {id(each): group["weight_decay"] for group in opt.param_groups for each in group["params"]}
    assert [decays[id(each)] for each in model.parameters()] == [
        0.3 if each.dim() >= 2 else 0 for each in model.parameters()]
    assert opt.defaults["betas"] == (0.8, 0.99) and opt.defaults["eps"] == 1e-7


def test_adamw_refuses_another_optimizer(toml):
    config = isthmus.load_config(toml(), ['train.trainer="external"', 'inner.optimizer="sgd"'])
    with pytest.raises(isthmus.ConfigError, match='"sgd": must be "adamw"'):
        isthmus.torch.adamw(bodies.Net(), config)


@pytest.mark.parametrize("overlap", [0, 2])
def test_alpha_one_leaves_the_local_trajectory_alone(toml, tmp_path, overlap):
    alone, _ = of_all(toml(more='H = 1000\nfinal_sync = "none"'), tmp_path / "alone")
    mixed, _ = of_all(toml(method="streaming-diloco", more=f'H = 4\nfragments = 2\noverlap = {overlap}\nalpha = 1.0\n'
                           'final_sync = "none"'), tmp_path / "mixed")
    assert isthmus.open(tmp_path / "mixed").table("round").rows > 5
    for worker in (0, 1):
        assert mixed[worker][2] == alone[worker][2]
        assert bodies.digest(mixed[worker][1].state_dict()["state"]) == bodies.digest(
            alone[worker][1].state_dict()["state"])


def test_an_optimizers_state_is_not_dropped_by_a_resume_without_it(toml, tmp_path):
    def body_with(given):
        def body(site):
            torch.manual_seed(1)
            model = torch.nn.Linear(4, 4)
            opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            isthmus.torch.attach(site, model, opt if given else None)
            for _ in site.steps():
                opt.zero_grad()
                model(torch.ones(2, 4)).square().mean().backward()
                opt.step()
                site.step(0.5)
        return body

    file, last = toml(steps=10), {}
    for given, other in ((True, False), (False, True)):
        out = tmp_path / f"x{given}"
        isthmus.run(file, body_with(given), out=out, overrides=['ckpt.every="5 steps"'])
        last = {"out": out, "resume": out / "ckpt/step-0000005", "overrides": ['ckpt.every="5 steps"']}
        with pytest.raises(isthmus.Error, match="no optimizer is given here" if given else "no optimizer's state"):
            isthmus.run(file, body_with(other), **last)
        isthmus.run(file, body_with(given), **last)


@pytest.mark.parametrize("method, more", [
    ("diloco", 'H = 5\nfinal_sync = "drain"'), ("streaming-diloco", "H = 5\nalpha = 0.5"), ("eager", "H = 5")])
def test_anchors_after_the_end_are_the_outer_parameters(toml, tmp_path, method, more):
    shown, own = {}, {}

    def body(site):
        torch.manual_seed(site.index)
        model = torch.nn.Linear(4, 4)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        isthmus.torch.attach(site, model, opt)
        for _ in site.steps():
            opt.zero_grad()
            model(torch.ones(2, 4) * (site.index + 1)).square().mean().backward()
            opt.step()
            site.step(0.5)
        own[site.index] = values(model)
        with site.anchors():
            shown[site.index] = {name: each.detach().clone() for name, each in model.state_dict().items()}
        assert equal(values(model), own[site.index])

    isthmus.run(toml(steps=9, method=method, more=more), body, out=tmp_path / "x")
    saved = isthmus.open(tmp_path / "x").weights()
    for index in (0, 1):
        assert all(torch.equal(shown[index][name], torch.tensor(each)) for name, each in saved.items())
    assert not equal(own[0], list(shown[0].values()))
