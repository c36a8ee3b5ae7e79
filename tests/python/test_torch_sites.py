# SPDX-License-Identifier: Apache-2.0
"""PyTorch sites that come late, die at any moment and come back: state without pickle, and every bit again."""
import gc
import json
import random
import signal
import subprocess
import sys
import time
import weakref

import pytest

torch = pytest.importorskip("torch")
import torch_bodies as bodies  # noqa: E402
from test_torch import equal, start, toml, values  # noqa: E402, F401 (fixtures)

import isthmus  # noqa: E402
import isthmus.torch  # noqa: E402

pytestmark = pytest.mark.torch


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
