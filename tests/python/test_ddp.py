# SPDX-License-Identifier: Apache-2.0
"""outer.method = "ddp" around a loop of the caller's: gradients are averaged before the optimizer's step."""
import bodies
import numpy
import pytest
from test_session import start, together, toml  # noqa: F401 (fixtures)

import isthmus


def written_out(workers, steps, members=lambda t: None):
    """Data parallelism: one model, whose gradient is the mean over those who take part in step t."""
    trainers = [bodies.Trainer(worker) for worker in range(workers)]
    losses = []
    for t in range(1, steps + 1):
        found = [each.gradients(t) for each in trainers]
        losses.append([loss for loss, _ in found])
        taking = members(t) or range(workers)
        mean = {name: (sum(found[w][1][name].astype(numpy.float64) for w in taking) / len(taking)).astype(numpy.float32)
                for name in bodies.SHAPES}
        for each in trainers:
            each.apply(mean)
    return trainers[0].params, losses


def close(params, expected):
    for name, value in expected.items():
        numpy.testing.assert_allclose(params[name], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("workers", [2, 3])
def test_it_is_data_parallelism_written_out(toml, tmp_path, workers):  # noqa: F811
    file = toml(steps=40, method="ddp")
    text = file.read_text().replace('[[site]]\nname = "east"', "[run2]")
    text = text[:text.index("[run2]")].replace("[run]\n", f"[run]\nworkers = {workers}\n")
    file.write_text(text)
    seen = {}

    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, state=trainer.state)
        rows = seen[site.index] = []
        for t, _ in site.steps():
            loss, gradients = trainer.gradients(t)
            assert site.average_gradients(loss, tokens=bodies.TOKENS, gradients=gradients)
            trainer.apply(gradients)
            with site.anchors():
                shown = bodies.bits(trainer.params)
            rows.append((loss, shown))
            site.step()
        seen[site.index, "params"] = trainer.params

    outcome = isthmus.run(file, body, out=tmp_path / "x")
    assert outcome.exit_code == 0 and outcome.steps == 40
    params, losses = written_out(workers, 40)
    for worker in range(workers):
        numpy.testing.assert_allclose([loss for loss, _ in seen[worker]], [row[worker] for row in losses], rtol=1e-6)
        close(seen[worker, "params"], params)
        assert bodies.bits(seen[worker, "params"]) == bodies.bits(seen[0, "params"])
        assert [shown for _, shown in seen[worker]] == [shown for _, shown in seen[0]]
    table = isthmus.open(tmp_path / "x").table("train")
    numpy.testing.assert_allclose(table["loss"], numpy.mean(losses, axis=1), rtol=1e-6)
    assert list(table["tokens"]) == [workers * bodies.TOKENS * t for t in range(1, 41)]


def test_the_same_bits_in_every_world(toml, tmp_path, start):  # noqa: F811
    file = toml(method="ddp", more='codec = "int8:ef"')
    here, _ = together(file, tmp_path / "here")
    there, _ = together(file, tmp_path / "there", play=isthmus.simulate, link="10Mbit/s,50ms")
    sites = [start(file, name, tmp_path / name) for name in ("east", "west")]
    assert [each.wait(120) for each in sites] == [0, 0]
    for worker, name in enumerate(("east", "west")):
        apart = numpy.load(tmp_path / f"{name}.npz")
        expected = bodies.bits(here[worker].params)
        assert bodies.bits(there[worker].params) == expected
        assert bodies.bits({each: apart[each] for each in bodies.SHAPES}) == expected


def test_a_site_that_is_lost_costs_the_other_its_open_steps(toml, tmp_path, start):  # noqa: F811
    """west dies in a step of a run that commits every eighth: what both have taken since is taken again by east alone,
    in the model's arithmetic as if west had left after the last commit."""
    file = toml(steps=60, method="ddp", more='commit = "every:8"')
    file.write_text(file.read_text().replace('"5 steps"', '"60 steps"')
                    .replace("gather =", "min_sites = 1\ngather ="))
    east, west = start(file, "east", tmp_path / "east"), start(file, "west", tmp_path / "west", "dies=28")
    assert west.wait(120) == -9
    assert east.wait(240) == 0
    there = numpy.load(tmp_path / "east.npz")
    assert there["taken"] == 60
    members = isthmus.open(tmp_path / "east").table("round")["members"]
    alone = [t for t, count in enumerate(members, 1) if count == 1]
    assert alone and alone[0] % 8 == 1 and alone == list(range(alone[0], 61))
    params, _ = written_out(2, 60, lambda t: [0] if t >= alone[0] else [0, 1])
    close(there, params)


@pytest.mark.parametrize("wrong, words", [
    ("none", "call site.average_gradients"), ("twice", "called twice in step 1"), ("names", "differ in 'embed'"),
    ("type", "gradients\\['embed'\\] has dtype float64"), ("shape", "has shape"), ("missing", "name -> float32 array"),
])
def test_mistakes_are_told(toml, tmp_path, wrong, words):  # noqa: F811
    file = toml(method="ddp")

    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, state=trainer.state)
        for t, _ in site.steps():
            loss, gradients = trainer.gradients(t)
            if wrong == "names":
                del gradients["embed"]
            elif wrong == "type":
                gradients["embed"] = gradients["embed"].astype(numpy.float64)
            elif wrong == "shape":
                gradients["embed"] = gradients["embed"].reshape(-1)
            if wrong != "none":
                site.average_gradients(loss, gradients=None if wrong == "missing" else gradients)
            if wrong == "twice":
                site.average_gradients(loss, gradients=gradients)
            trainer.apply(gradients)
            site.step(loss)

    with pytest.raises(isthmus.Error, match=words):
        isthmus.run(file, body, out=tmp_path / "x")


def test_a_gradient_that_is_not_finite_costs_the_step_alone(toml, tmp_path, caplog):  # noqa: F811
    file = toml(steps=20, method="ddp")
    ends, void = {}, []

    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, state=trainer.state)
        for t, _ in site.steps():
            loss, gradients = trainer.gradients(t)
            if t == 7 and site.index == 1:
                gradients["embed"][0, 0] = numpy.nan
            if not site.average_gradients(loss, gradients=gradients):
                void.append((site.index, t))
                continue
            trainer.apply(gradients)
            site.step()
        ends[site.index] = trainer

    isthmus.run(file, body, out=tmp_path / "x")
    assert sorted(void) == [(0, 7), (1, 7)] and "step 7: a gradient was not finite" in caplog.text
    assert bodies.bits(ends[0].params) == bodies.bits(ends[1].params)
    assert all(numpy.isfinite(each).all() for each in ends[0].params.values()) and ends[0].state["taken"] == 19
