# SPDX-License-Identifier: Apache-2.0
"""PyTorch sites that come late, die at any moment and come back: state without pickle, and every bit again."""
import gc
import json
import os
import pathlib
import random
import signal
import time
import weakref

import pytest

torch = pytest.importorskip("torch")
import forked  # noqa: E402
import torch_bodies as bodies  # noqa: E402
import torch_site  # noqa: E402
from test_torch import equal, toml, written  # noqa: E402, F401 (fixtures)

import isthmus  # noqa: E402
import isthmus.torch  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def start():
    """Starts torch_site.py; what is left is killed at the end."""
    begun = []

    def started(file, name, out, *words, fault=""):
        begun.append(forked.start(torch_site.__file__, file, name, out, "net.min_sites=1", *words,
                                  env={**os.environ, "ISTHMUS_FAULT": fault}))
        return begun[-1]

    yield started
    for each in begun:
        each.kill()
        each.wait()


def steps_of(out):
    """t -> the last line of that step."""
    path = pathlib.Path(f"{out}.steps")
    lines = path.read_text().splitlines() if path.exists() else []
    return {line[0]: line[1:] for line in map(json.loads, lines)}


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)


# ---- kills ----

def ends_of(folder):
    """Of each site what each step had, and its end."""
    return {name: (steps_of(folder / name), (folder / f"{name}.end").read_text()) for name in ("east", "west")}


def undisturbed(file, folder, *words):
    sites = [forked.start(torch_site.__file__, file, name, folder / name, *words) for name in ("east", "west")]
    try:
        assert [each.wait(120) for each in sites] == [0, 0]
    finally:
        for each in sites:
            each.kill()
            each.wait()
    return ends_of(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two sites that nobody disturbs: its file, and what it was."""
    folder = tmp_path_factory.mktemp("whole")
    file = written(folder, steps=23, sites=True, more='H = 5\ncodec = "int8:ef"')
    return file, undisturbed(file, folder)


@pytest.mark.parametrize("moment", ["dies=1", "dies=8", "dies=20", "contributes:2", "applies:2", "checkpoints:2"])
def test_killed_at_any_moment_it_comes_back_with_the_same_bits(tmp_path, start, whole, moment):
    """Between being given a step and telling of it, and at named points: batches, losses, weights, moments, schedule,
    random numbers."""
    file, ends = whole
    victim, other = random.Random(moment).sample(["east", "west"], 2)
    both = "net.min_sites=2"  # nobody goes on alone
    dying = start(file, victim, tmp_path / victim, both, *([moment] if moment.startswith("dies") else []),
                  fault="" if moment.startswith("dies") else "kill@" + moment)
    left = start(file, other, tmp_path / other, both)
    assert dying.wait(120) == -signal.SIGKILL
    left.kill()
    left.wait()
    again = [start(file, name, tmp_path / name, both) for name in ("east", "west")]
    assert [each.wait(120) for each in again] == [0, 0]
    assert ends_of(tmp_path) == ends


def test_killed_with_worker_processes_of_a_loader_it_comes_back_with_the_same_bits(toml, tmp_path, start):
    pytest.importorskip("torchdata.stateful_dataloader")
    file = toml(steps=23, sites=True)
    (tmp_path / "whole").mkdir()
    ends = undisturbed(file, tmp_path / "whole", "loader=2")
    dying = start(file, "west", tmp_path / "west", "net.min_sites=2", "loader=2", "dies=8")
    left = start(file, "east", tmp_path / "east", "net.min_sites=2", "loader=2")
    assert dying.wait(120) == -signal.SIGKILL
    left.kill()
    left.wait()
    again = [start(file, name, tmp_path / name, "net.min_sites=2", "loader=2") for name in ("east", "west")]
    assert [each.wait(120) for each in again] == [0, 0]
    assert ends_of(tmp_path) == ends


# ---- joining a run that goes on ----

def test_a_site_joins_a_run_that_goes_on_with_the_donors_bits(toml, tmp_path, start):
    """A site without a folder, whose own start is another one: the moments of its first step are, with the schedule,
    those that the donor began one of its steps with, and the outer parameters are the donor's. Pickle fails in both."""
    file = toml(steps=10**6, sites=True, more='H = 5\ncodec = "int8"', ckpt="100000 steps")
    east = start(file, "east", tmp_path / "east")
    first = start(file, "west", tmp_path / "first", "stops=0")
    wait_for(lambda: len(steps_of(tmp_path / "first")) > 10, first)
    first.kill()
    first.wait()
    alone = max(steps_of(tmp_path / "east"))
    wait_for(lambda: max(steps_of(tmp_path / "east")) > alone + 50, east)  # the run goes on without it
    west = start(file, "west", tmp_path / "west", "seed=5", "stops=40")
    assert [each.wait(180) for each in (west, east)] == [130, 130]
    donor, joiner = steps_of(tmp_path / "east"), steps_of(tmp_path / "west")
    t = min(joiner)
    assert t > alone
    given = [each for each in donor if donor[each][1] == joiner[t][1]]
    assert len(given) == 1 and alone < given[0] <= t
    assert joiner[t][2] == donor[given[0]][2] == given[0] - 1
    assert joiner[t][3] == bodies.digest(bodies.batch_of(1, 1))  # its place in its data is its own
    assert sorted(joiner) == list(range(t, max(joiner) + 1))
    weights = [isthmus.open(tmp_path / name).weights() for name in ("east", "west")]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


# ---- loaders ----

def stateful(workers):
    data = pytest.importorskip("torchdata.stateful_dataloader")
    pairs = [tuple(each[0] for each in bodies.batch_of(0, t)) for t in range(20)]
    return data.StatefulDataLoader(pairs, batch_size=2, shuffle=True, num_workers=workers)


def through(loader, steps=25, stop=None, play=None):
    """A loop over epochs of ten batches, with dropout: what was given out, and how it ended. Without `play` the bare
    loop."""
    found = {}

    def body(site):
        torch.manual_seed(11)
        model, opt, sched = bodies.made()
        loaded = loader()
        seen = []
        if site is None:
            iterator = iter(loaded)
            for _ in range(steps):
                batch = next(iterator, None)
                if batch is None:
                    iterator = iter(loaded)
                    batch = next(iterator)
                seen.append(batch[0])
                bodies.train(model, opt, sched, batch)
        else:
            isthmus.torch.attach(site, model, opt, state={"sched": sched, "loader": loaded})
            for t, batch in site.steps(loaded):
                seen.append(batch[0])
                loss = bodies.train(model, opt, sched, batch)
                if t == stop:
                    site.stop()
                site.step(loss)
        found["seen"], found["end"] = seen, bodies.digest(model.state_dict(), opt.state_dict(), torch.get_rng_state())

    if play is None:
        body(None)
    else:
        play(body)
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_is_the_bare_one_where_nothing_is_sent(toml, tmp_path, workers):
    file = toml(steps=25, more='H = 1000\nfinal_sync = "none"', workers=1)
    bare = through(lambda: stateful(workers))
    ours = through(lambda: stateful(workers), play=lambda body: isthmus.run(file, body, out=tmp_path / "x"))
    assert equal(ours["seen"], bare["seen"])
    assert ours["end"] == bare["end"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [7, 9, 10, 16])
def test_a_stateful_loader_resumes_with_every_bit(toml, tmp_path, workers, at):
    """In an epoch, after its last batch but one and after its last: samples, dropout and weights."""
    file = toml(steps=25, workers=1)

    def play(out, stop=None, **how):
        return through(lambda: stateful(workers), 25, stop, lambda body: isthmus.run(file, body, out=out, **how))

    whole = play(tmp_path / "whole")
    before = play(tmp_path / "x", at)
    after = play(tmp_path / "x", resume="auto")
    assert 0 < len(after["seen"]) < 25
    assert equal(before["seen"] + after["seen"], whole["seen"])
    assert after["end"] == whole["end"]


def test_a_run_that_has_ended_keeps_no_model_in_memory(toml, tmp_path):
    """Without the garbage collector: a model on a device, and a loader's worker processes, go with their last name."""
    held = []

    def body(site):
        model, opt, sched = bodies.made()
        loader = bodies.Loader(0)
        held.extend([weakref.ref(model), weakref.ref(loader)])
        isthmus.torch.attach(site, model, opt, state={"sched": sched, "loader": loader})
        for _, batch in site.steps(loader):
            site.step(bodies.train(model, opt, sched, batch))

    gc.disable()
    try:
        isthmus.run(toml(steps=6), body, out=tmp_path / "x")
        assert [each() for each in held] == [None] * 4
    finally:
        gc.enable()
