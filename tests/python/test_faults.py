# SPDX-License-Identifier: Apache-2.0
"""A site is killed at any moment, and the run comes back with the same bits."""
import random
import signal
import time

import bodies
import numpy
import pytest
from test_session import start, together, toml  # noqa: F401 (fixtures)

import isthmus

POINTS = ["contributes:1", "contributed:1", "says-done:1", "said-done:1", "commits:1", "committed:1", "checkpoints:1",
          "checkpointed:1", "contributes:3", "applies:2", "committed:4", "checkpoints:3", "checkpointed:4", "applied:9"]


@pytest.mark.parametrize("moment", [*POINTS, "dies=1", "dies=8", "dies=10", "dies=23", "seeded 1", "seeded 2"])
def test_killed_at_any_moment_it_comes_back_with_the_same_bits(toml, tmp_path, start, moment):
    """By named fault points, the start's rounds among them; between being given a step and telling of it; at random."""
    seeded = moment.startswith("seeded")
    steps = 3000 if seeded else 23  # far more than are taken by then
    file = toml(steps=steps, method="streaming-diloco", more='fragments = 2\noverlap = 2\ncodec = "int8:ef"')
    whole, _ = together(file, tmp_path / "whole")
    if moment.startswith("commits"):
        victim, other = "east", "west"  # the first site decides, and tells the other
    elif moment.startswith(("commit", "sa")):
        victim, other = "west", "east"
    else:
        victim, other = random.Random(moment).sample(["east", "west"], 2)
    seeds = {"east": "seed=1", "west": "seed=6"}
    words = [moment] if moment.startswith("dies") else []
    both = "net.min_sites=2"  # nobody goes on alone
    dying = start(file, victim, tmp_path / victim, seeds[victim], both, *words,
                  fault="kill@" + moment if moment in POINTS else "")
    left = start(file, other, tmp_path / other, seeds[other], both)
    if seeded:
        time.sleep(random.Random(moment).uniform(0.8, 1.6))
        dying.kill()
    assert dying.wait(60) in (-signal.SIGKILL, 0)
    assert dying.returncode == -signal.SIGKILL or seeded, "the point was not reached"
    left.kill()
    left.wait()
    again = [start(file, name, tmp_path / name, seeds[name], both) for name in ("east", "west")]
    assert [each.wait(120) for each in again] == [0, 0]
    table = isthmus.open(tmp_path / "whole").table("train")
    for worker, name in enumerate(("east", "west")):
        there = numpy.load(tmp_path / f"{name}.npz")
        assert bodies.bits({each: there[each] for each in bodies.SHAPES}) == bodies.bits(whole[worker].params)
        assert there["taken"] == steps
        losses = isthmus.open(tmp_path / name).table("train")["loss"]
        assert losses.tobytes() == table["loss"].tobytes()
