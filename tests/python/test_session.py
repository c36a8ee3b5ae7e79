# SPDX-License-Identifier: Apache-2.0
"""Runs around a loop of the caller's own: the outer loop written out, the same bits in every world,
kill and resume, and what callers do wrong."""
import collections
import ctypes
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import bodies
import forked
import numpy
import pytest

import isthmus

TOML = """
[run]
name = "bodies"
seed = 2
[train]
steps = {steps}
[outer]
method = "{method}"
H = 5
{more}
[ckpt]
every = "5 steps"
[sim]
step_time = "10ms"
[[site]]
name = "east"
address = "127.0.0.1:{ports[0]}"
[[site]]
name = "west"
address = "127.0.0.1:{ports[1]}"
[net]
plaintext = true
gather = "60s"
"""
WITHOUT_H = ("ddp", "1bit-adam", "spsa")


@pytest.fixture
def toml(tmp_path):
    def write(steps=23, method="diloco", more="", name="run"):
        held = [socket.socket() for _ in range(2)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in held]
        for each in held:
            each.close()
        path = tmp_path / f"{name}.toml"
        text = TOML.format(steps=steps, method=method, more=more, ports=ports)
        path.write_text(text.replace("H = 5\n", "") if method in WITHOUT_H else text)
        return path
    return write


@pytest.fixture
def start():
    """Starts bodies.py as a process of its own; what is left is killed at the end."""
    begun = []

    def started(file, name, out, *overrides, fault=""):
        begun.append(forked.start(bodies.__file__, file, name, out, *overrides,
                                  env={**os.environ, "ISTHMUS_FAULT": fault}))
        return begun[-1]

    yield started
    for each in begun:
        each.kill()
        each.wait()


def bodies_of(found):
    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, state=trainer.state)
        trainer.go_through(site)
        found[site.index] = trainer
    return body


def together(toml, out, **how):
    found = {}
    outcome = how.pop("play", isthmus.run)(toml, bodies_of(found), out=out, **how)
    return found, outcome


def test_a_run_that_is_complete_says_that_the_parameters_are_not_its_own(toml, tmp_path, caplog):
    file = toml(steps=5)

    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, state=trainer.state)
        trainer.go_through(site)

    isthmus.run(file, body, out=tmp_path / "x")
    assert "was complete before" not in caplog.text
    with caplog.at_level(logging.WARNING, logger="isthmus"):
        again = isthmus.run(file, body, out=tmp_path / "x", resume="auto")
    assert again.exit_code == 0 and "was complete before" in caplog.text


def test_diloco_is_the_algorithm_written_out(toml, tmp_path):
    found, outcome = together(toml(), tmp_path / "x")
    assert outcome.exit_code == 0 and outcome.steps == 23
    anchor, losses = bodies.diloco(2, 23, 5)
    for name, wanted in anchor.items():
        numpy.testing.assert_allclose(found[0].params[name], wanted, rtol=1e-5, atol=1e-6)
        assert found[0].params[name].tobytes() == found[1].params[name].tobytes()
    table = isthmus.open(tmp_path / "x").table("train")
    numpy.testing.assert_allclose(table["loss"], numpy.mean(losses, axis=1), rtol=1e-5)
    assert list(isthmus.open(tmp_path / "x").table("round")["step_send"]) == [5, 10, 15, 20, 23]
    weights = isthmus.open(tmp_path / "x").weights()
    assert weights.keys() == bodies.SHAPES.keys() and weights["scale"].shape == ()


@pytest.mark.parametrize("method, more", [
    ("localsgd", ""), ("streaming-diloco", "fragments = 2\noverlap = 2\nalpha = 0.5"), ("delayed", ""),
    ("co2", "momentum = 0.5")])
def test_methods_are_the_loops_written_out(toml, tmp_path, method, more):
    together(toml(steps=40, method=method, more=f'{more}\nfinal_sync = "none"\ncodec = "fp32"'), tmp_path / "x")
    table = isthmus.open(tmp_path / "x").table("train")
    wanted = numpy.mean(bodies.written_out(method, 2, 40, 5), axis=1)
    numpy.testing.assert_allclose(table["loss"], wanted, rtol=1e-6)


@pytest.mark.parametrize("method, more", [
    ("diloco", 'codec = "int8"'), ("localsgd", ""), ("streaming-diloco", "fragments = 2\noverlap = 2\nalpha = 0.5"),
    ("delayed", 'codec = "int4:ef"'), ("co2", ""),
])
def test_every_world_gives_the_same_bits(toml, tmp_path, start, method, more):
    file = toml(method=method, more=more)
    here, _ = together(file, tmp_path / "run")
    virtual, outcome = together(file, tmp_path / "simulate", play=isthmus.simulate, link="1Mbit/s,200ms")
    assert outcome.clock_s > 0.23
    sites = [start(file, name, tmp_path / name) for name in ("east", "west")]
    assert [each.wait(120) for each in sites] == [0, 0]
    for worker, name in enumerate(("east", "west")):
        there = numpy.load(tmp_path / f"{name}.npz")
        wanted = bodies.bits(here[worker].params)
        assert bodies.bits(virtual[worker].params) == wanted
        assert bodies.bits({each: there[each] for each in bodies.SHAPES}) == wanted


def test_bodies_of_unlike_seeds_begin_with_the_first_ones_values(toml, tmp_path, start):
    def unlike(found):
        def body(site):
            trainer = bodies.Trainer(site.index, bodies.initial(1 + site.index))
            site.attach(trainer.params, state=trainer.state)
            trainer.go_through(site)
            found[site.index] = trainer
        return body

    file = toml(more='codec = "int8"')
    file.write_text(file.read_text().replace("[ckpt]", "[ckpt]\nkeep = 9"))
    alike, _ = together(file, tmp_path / "alike")
    found, virtual = {}, {}
    isthmus.run(file, unlike(found), out=tmp_path / "run")
    isthmus.simulate(file, unlike(virtual), out=tmp_path / "virtual", link="1Mbit/s,200ms")
    sites = [start(file, name, tmp_path / name, f"seed={1 + m}") for m, name in enumerate(("east", "west"))]
    assert [each.wait(120) for each in sites] == [0, 0]
    wanted = bodies.bits(bodies.initial(1))
    for name in ("run", "virtual", "east", "west"):
        assert bodies.bits(isthmus.open(tmp_path / name).weights(0)) == wanted
    for worker, name in enumerate(("east", "west")):
        there = numpy.load(tmp_path / f"{name}.npz")
        end = bodies.bits(alike[worker].params)
        assert bodies.bits({each: there[each] for each in bodies.SHAPES}) == end
        assert bodies.bits(found[worker].params) == bodies.bits(virtual[worker].params) == end


def test_the_program_tells_of_a_site_that_goes_on(toml, tmp_path, caplog):
    seen = []
    caplog.set_level(logging.INFO, logger="isthmus")

    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, state=trainer.state)
        for t, _ in site.steps():
            if t == 12 and site.index == 0:
                seen.append((site.status(), isthmus.open(tmp_path / "x").status()))
            site.step(trainer.train(t), tokens=bodies.TOKENS)

    isthmus.run(toml(), body, out=tmp_path / "x", overrides=['outer.codec="1bit"'])
    (own, other), = seen
    assert own["state"] == other["state"] == "running" and own["steps"] == 23
    assert isthmus.open(tmp_path / "x").status()["state"] == "ok"
    records = [each for each in caplog.records if each.name == "isthmus"]
    assert records and all(each.getMessage()[:2] != "12" for each in records)
    assert "WARNING" in {each.levelname for each in records}


class Batches:
    """Goes on where its position is."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        at = self.at
        while True:
            at += 1
            self.at = at
            yield at

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


@pytest.mark.parametrize("kept", [True, False])
def test_batches_go_on_where_the_state_is_or_are_refused(toml, tmp_path, kept):
    """A site that comes back mid-run has loaded another state: here by hand, as the run would."""
    seen = []

    def body(site):
        trainer, batches = bodies.Trainer(site.index), Batches()
        site.attach(trainer.params, state=[batches] if kept else None)
        for t, batch in site.steps(batches):
            seen.append((site.index, t, batch))
            site.step(trainer.train(t))
            if t == 4 and site.index == 0:
                batches.load_state_dict({"at": 40})
                site._trained._loads += 1

    if kept:
        isthmus.run(toml(steps=10), body, out=tmp_path / "x")
        assert [batch for worker, _, batch in seen if worker == 0] == [1, 2, 3, 4, *range(41, 47)]
    else:
        with pytest.raises(isthmus.RunError, match="come back to step 5 .* position is in state"):
            isthmus.run(toml(steps=10), body, out=tmp_path / "x")


@pytest.mark.parametrize("method, more", [("diloco", 'codec = "int8:ef"'), ("ddp", "")])
def test_a_killed_site_resumes_with_the_same_bits(toml, tmp_path, start, method, more):
    file = toml(steps=1500, method=method, more=more)
    file.write_text(file.read_text().replace('"5 steps"', '"50 steps"'))
    whole, _ = together(file, tmp_path / "whole")

    def both():
        return [start(file, name, tmp_path / name, "net.min_sites=2") for name in ("east", "west")]

    sites = both()
    end = time.monotonic() + 120
    while not (tmp_path / "west/ckpt/step-0000100").exists():
        assert time.monotonic() < end and sites[1].poll() is None
        time.sleep(0.01)
    for each in sites:
        each.kill()
        each.wait()
    assert [each.wait(240) for each in both()] == [0, 0]
    for worker, name in enumerate(("east", "west")):
        there = numpy.load(tmp_path / f"{name}.npz")
        assert bodies.bits({each: there[each] for each in bodies.SHAPES}) == bodies.bits(whole[worker].params)
        assert there["taken"] == 1500  # the counter came back with the momentum


def test_a_killed_site_joins_the_run_that_goes_on(toml, tmp_path, start):
    file = toml(steps=1000000, more='codec = "int8"')
    file.write_text(file.read_text().replace('"5 steps"', '"5000 steps"').replace('gather =', 'min_sites = 1\ngather ='))

    def until(what, condition):
        end = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < end and east.poll() is None, what
            time.sleep(0.02)

    def members():
        if not (tmp_path / "east/manifest.json").exists():
            return [0]
        return list(isthmus.open(tmp_path / "east").table("round").get("members", [0]))

    east, west = (start(file, name, tmp_path / name) for name in ("east", "west"))
    until("rounds of two", lambda: len(members()) > 3 and members()[-1] == 2)
    west.kill()
    west.wait()
    until("rounds of one", lambda: members()[-1] == 1)
    west = start(file, "west", tmp_path / "elsewhere", "seed=9")  # nothing of the run is in its folder
    until("rounds of two again", lambda: members()[-1] == 2)
    west.send_signal(signal.SIGINT)
    assert [east.wait(120), west.wait(120)] == [130, 130]
    ends = [numpy.load(tmp_path / f"{name}.npz") for name in ("east", "elsewhere")]
    assert 0 < ends[1]["taken"]
    steps = [isthmus.open(tmp_path / name).manifest["status"] for name in ("east", "elsewhere")]
    assert steps == ["interrupted", "interrupted"]
    last = [isthmus.open(tmp_path / name).weights() for name in ("east", "elsewhere")]
    assert bodies.bits(last[0]) == bodies.bits(last[1])


def test_stop_writes_a_checkpoint_that_a_run_goes_on_from(toml, tmp_path):
    file = toml(steps=60)
    whole, _ = together(file, tmp_path / "whole")

    def stops(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, state=trainer.state)
        for t, _ in site.steps():
            if t == 30:
                site.stop()
            site.step(trainer.train(t), tokens=bodies.TOKENS)

    outcome = isthmus.run(file, stops, out=tmp_path / "x")
    assert outcome.exit_code == 130 and 30 <= outcome.steps < 60
    again, outcome = together(file, tmp_path / "x", resume="auto")
    assert outcome.exit_code == 0 and outcome.steps == 60
    assert bodies.bits(again[1].params) == bodies.bits(whole[1].params)


def test_evaluations_see_the_outer_parameters(toml, tmp_path):
    seen = []

    def body(site):
        trainer = bodies.Trainer(site.index)

        def evaluate(part):
            seen.append((site.index, part, site.t, bodies.bits(trainer.params)))
            return float(trainer.params["scale"]) * 4, 4

        site.attach(trainer.params, state=trainer.state, evaluate=evaluate)
        trainer.go_through(site)

    isthmus.run(toml(steps=10), body, out=tmp_path / "x", evaluation_parts=6, overrides=['eval.every="5 steps"'])
    table = isthmus.open(tmp_path / "x").table("eval")
    assert {part for _, part, *_ in seen} == set(range(6)) and {w for w, *_ in seen} == {0, 1}
    weights = isthmus.open(tmp_path / "x").weights()
    assert abs(table["loss"][-1] - float(weights["scale"])) < 1e-6
    last = [each for *_, each in seen][-1]
    assert last == bodies.bits(weights)


@pytest.mark.parametrize("method, name", [("diloco", "loss"), ("diloco", "grad_norm"), ("ddp", "loss")])
def test_a_loss_that_is_no_number_ends_the_run(toml, tmp_path, method, name):
    """As with the built-in trainer. A step that was left out may tell any."""
    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params)
        for t, _ in site.steps():
            loss, gradients = trainer.gradients(t)
            told = {"loss": loss, **({name: float("nan")} if site.index == 1 and t in (4, 7) else {})}
            if method == "ddp" and t == 4:
                told["loss"] = loss
            if not site.average_gradients(told["loss"], gradients=gradients):
                continue
            if t != 4:
                trainer.apply(gradients)
            site.step(**told, skipped=t == 4)

    what = name.replace("grad_norm", "gradient norm")
    with pytest.raises(isthmus.RunError, match=f"step 7: the {what} is nan: the run has diverged") as told:
        isthmus.run(toml(method=method), body, out=tmp_path / "x")
    assert told.value.exit_code == 1 and isthmus.open(tmp_path / "x").manifest["status"] == "failed"


def test_a_body_that_fails_fails_the_run(toml, tmp_path):
    class Mine(Exception):
        pass

    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params)
        for t, _ in site.steps():
            if t == 7 and site.index == 1:
                raise Mine("out of luck")
            site.step(trainer.train(t))

    with pytest.raises(Mine, match="out of luck"):
        isthmus.run(toml(), body, out=tmp_path / "x")
    assert isthmus.open(tmp_path / "x").manifest["status"] not in ("ok", "running")
    assert not [each for each in threading.enumerate() if each.name.startswith("isthmus")]


def of_one(change):
    def body(site):
        trainer = bodies.Trainer(site.index)
        change(site, trainer)
    return body


def attach_overlapping(site):
    both = numpy.ones(8, numpy.float32)
    site.attach({"a": both[:5], "b": both[4:]})


@pytest.mark.parametrize("change, kind, words", [
    (lambda site, trainer: site.attach({}), isthmus.ConfigError, "params is empty"),
    (lambda site, trainer: site.attach({"w": numpy.zeros(3)}), isthmus.ConfigError, r"params\['w'\] has dtype float64"),
    (lambda site, trainer: site.attach({"w": [1]}), isthmus.ConfigError, "is a list"),
    (lambda site, trainer: site.attach({"w": trainer.params["embed"], "tied": trainer.params["embed"]}),
     isthmus.ConfigError, r"params\['tied'\] is the same memory as params\['w'\]"),
    (lambda site, trainer: (site.attach({"w": numpy.zeros((3, 0), numpy.float32)}), list(site.steps())),
     isthmus.ConfigError, "every extent must be at least 1"),
    (lambda site, trainer: site.attach({"w": numpy.zeros((4, 4), numpy.float32)[:, ::2]}), isthmus.ConfigError,
     "contiguous"),
    (lambda site, trainer: site.attach(trainer.params), isthmus.RunError, "returned at step 1 of 23"),
    (lambda site, trainer: (site.attach(trainer.params), [0 for _ in site.steps()]), isthmus.RunError,
     "step 1 has not been told of"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step(1) for _ in site.steps() for _ in range(2)]),
     isthmus.RunError, "called twice"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step("x") for _ in site.steps()]),
     isthmus.ConfigError, "loss = 'x'"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step(1) for _ in site.steps([1, 2])]),
     isthmus.RunError, "batches ended before step 3 of 23"),
    (lambda site, trainer: (site.attach(trainer.params, state={"x": object()})), isthmus.ConfigError, "builtins.object"),
    (lambda site, trainer: (site.attach(trainer.params, evaluate=lambda part: (0, 1))), isthmus.ConfigError,
     "belong together"),
    (lambda site, trainer: (site.attach(trainer.params),
                            [(trainer.params.update(scale=trainer.params["scale"] + 1), site.step(1))
                             for _ in site.steps()]), isthmus.RunError, r"params\['scale'\] was replaced"),
    (lambda site, trainer: (site.attach(trainer.params),
                            [(trainer.params.update(late=numpy.zeros(2, numpy.float32)), site.step(1))
                             for _ in site.steps()]), isthmus.RunError, r"other names than at the start \(late\)"),
    (lambda site, trainer: (site.attach(trainer.params), [(trainer.params.pop("scale"), site.step(1))
                                                          for _ in site.steps()]), isthmus.RunError, r"\(scale\)"),
    (lambda site, trainer: (site.attach({"a": numpy.ones(8, numpy.float32)[:5], "b": numpy.ones(3, numpy.float32)}),
                            list(site.steps())), isthmus.RunError, "step 1 has not been told of"),
    (lambda site, trainer: (attach_overlapping(site), list(site.steps())), isthmus.ConfigError,
     r'\("b"\): its values share memory with those of parameters\(\)\[0\] \("a"\)'),
    (lambda site, trainer: (site.attach({"a": numpy.full(3, numpy.nan, numpy.float32)}), list(site.steps())),
     isthmus.ConfigError, r'\("a"\): value 0 of 3 is nan before step 1'),
    (lambda site, trainer: site.attach({"a\0b": numpy.ones(3, numpy.float32)}), isthmus.ConfigError, "NUL"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step(1, tokens=2**63) for _ in site.steps()]),
     isthmus.ConfigError, "tokens = 9223372036854775808: must be a whole number"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step(1, tokens=1.5) for _ in site.steps()]),
     isthmus.ConfigError, "tokens = 1.5"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step(1, tokens=float("nan")) for _ in site.steps()]),
     isthmus.ConfigError, "tokens = nan"),
    (lambda site, trainer: (site.attach({f"of {site.index}": numpy.ones(3, numpy.float32)}), list(site.steps())),
     isthmus.ConfigError, r"parameter 0 is 'of \d' of shape \[3\] here and 'of \d' of shape \[3\] there"),
    (lambda site, trainer: site.attach([numpy.ones(3, numpy.float32)]), isthmus.ConfigError, "params is a list: must be"),
    (lambda site, trainer: site.attach({1: numpy.ones(3, numpy.float32)}), isthmus.ConfigError, "the name is a int"),
    (lambda site, trainer: site.attach({"a\udcff": numpy.ones(3, numpy.float32)}), isthmus.ConfigError, "UTF-8 can write"),
    (lambda site, trainer: site.attach({"w": numpy.ma.masked_array(numpy.ones(2, numpy.float32), [1, 0])}),
     isthmus.ConfigError, r"params\['w'\] is a masked array"),
    (lambda site, trainer: site.attach({"w": numpy.ones(2, ">f4")}), isthmus.ConfigError, "dtype >f4: must be float32"),
    (lambda site, trainer: site.attach(trainer.params, layer_of=lambda name: 1 << 32), isthmus.ConfigError,
     r"layer_of\('embed'\) = 4294967296: must be"),
    (lambda site, trainer: site.attach(trainer.params, layer_of=lambda name: "0"), isthmus.ConfigError, "= '0': must be"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step(True) for _ in site.steps()]),
     isthmus.ConfigError, "loss = True: must be one number"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step("1.5") for _ in site.steps()]),
     isthmus.ConfigError, "loss = '1.5': must be one number"),
    (lambda site, trainer: (site.attach(trainer.params), [site.step(10**400) for _ in site.steps()]),
     isthmus.ConfigError, "loss = a huge integer: must be one number"),
    (lambda site, trainer: site.attach(trainer.params, state=(lambda d: (d.update(x=d), d)[1])({})),
     isthmus.ConfigError, "state holds itself"),
    (lambda site, trainer: site.attach(trainer.params, state={"m": numpy.ma.masked_array([1.0, 2.0], [1, 0])}),
     isthmus.ConfigError, r"state\['m'\]: a masked array"),
    (lambda site, trainer: (site.attach(trainer.params), exec('raise ValueError("bad \\udcff name")')), ValueError, "bad"),
])
def test_mistakes_are_told(toml, tmp_path, change, kind, words):
    with pytest.raises(kind, match=words):
        isthmus.run(toml(), of_one(change), out=tmp_path / "x")


@pytest.mark.parametrize("options, words", [
    ({"out": 3}, "out = 3: must be a text or a path"),  # was taken for an address in memory
    ({"resume": True}, "resume = True: must be a text or a path"),
    ({"resume": ""}, "resume = ''"),
    ({"out": "a\0b"}, r"out = 'a\\x00b': has a NUL"),
    ({"overrides": [3]}, "overrides = 3: must be a list of texts"),
    ({"overrides": ["outer.H=3\0"]}, "has a NUL"),
    ({"evaluation_parts": -1}, "evaluation_parts = -1: must be a whole number from 0"),
    ({"evaluation_parts": 1.5}, "evaluation_parts = 1.5: must be"),
    ({"evaluation_parts": True}, "evaluation_parts = True: must be"),
    ({"evaluation_parts": 10**12}, "evaluation_parts = 1000000000000: must be"),  # took all memory
])
def test_options_of_another_kind_are_refused(toml, tmp_path, options, words):
    def body(site):
        evaluate = (lambda part: (1.0, 1)) if "evaluation_parts" in options else None
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, evaluate=evaluate)
        trainer.go_through(site)

    with pytest.raises(isthmus.ConfigError, match=words):
        isthmus.run(toml(), body, **{"out": tmp_path / "x", **options})


@pytest.mark.parametrize("answer, words", [
    (1.0, r"evaluate\(\d\) = 1.0: must be \(sum of losses, targets\)"),
    ((1.0, 2, 3), "must be"),
    ((1.0, -5), "number of targets = -5"),
    ((1.0, 2.5), "number of targets = 2.5"),
    (("x", 3), "the sum of losses = 'x': must be one number"),
])
def test_an_evaluation_that_is_none_is_refused(toml, tmp_path, answer, words):
    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, evaluate=lambda part: answer)
        trainer.go_through(site)

    with pytest.raises(isthmus.ConfigError, match=words):
        isthmus.run(toml(), body, out=tmp_path / "x", evaluation_parts=2, overrides=["eval.every=5"])


def test_a_site_that_has_ended_is_told_so(toml, tmp_path):
    kept = []
    isthmus.run(toml(), lambda site: (kept.append(site), bodies_of({})(site)), out=tmp_path / "x")
    for use in (kept[0].stop, kept[1].checkpoint, lambda: kept[0].step(1)):
        with pytest.raises(isthmus.RunError, match="has ended"):
            use()
    assert kept[0].outcome.steps == 23


def test_unequal_starts_are_refused(toml, tmp_path):
    def body(site):
        trainer = bodies.Trainer(site.index)
        trainer.params["layers.0.w"][0, 0] += site.index
        site.attach(trainer.params)
        trainer.go_through(site)

    with pytest.raises(isthmus.ConfigError, match="'layers.0.w' is the first tensor that differs"):
        isthmus.run(toml(), body, out=tmp_path / "x", overrides=['net.start="same"'])


@pytest.mark.parametrize("method, needs", [("1bit-adam", "gradients"), ("spsa", "forward")])
def test_a_method_that_takes_the_update_over_is_refused(toml, tmp_path, method, needs):
    with pytest.raises(isthmus.ConfigError, match=f"{method}|{needs}"):
        together(toml(method=method), tmp_path / "x")


def test_a_site_needs_a_name_and_its_own_thread(toml, tmp_path, monkeypatch):
    monkeypatch.delenv("ISTHMUS_SITE", raising=False)
    with pytest.raises(isthmus.ConfigError, match="ISTHMUS_SITE"):
        isthmus.join(toml(), bodies.initial())
    with pytest.raises(isthmus.ConfigError, match='site "south"'):
        isthmus.join(toml(), bodies.initial(), site="south")
    with pytest.raises(isthmus.ConfigError, match="belong together"):
        isthmus.join(toml(), bodies.initial(), site="east", evaluation_parts=3)


def test_signals_are_wishes_and_come_back(toml, tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params)
        for t, _ in site.steps():
            if t == 5 and site.index == 0:
                signal.raise_signal(signal.SIGINT) if threading.current_thread() is threading.main_thread() \
                    else signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            site.step(trainer.train(t))

    outcome = isthmus.run(toml(steps=100000), body, out=tmp_path / "x", overrides=['ckpt.every="100000 steps"'])
    assert outcome.exit_code == 130 and outcome.steps < 100000
    assert signal.getsignal(signal.SIGINT) is before


def test_a_resume_with_one_more_parameter_names_it(toml, tmp_path):
    def body(more):
        def train(site):
            params = {"a": numpy.ones(4, numpy.float32), **({"b": numpy.ones(2, numpy.float32)} if more else {})}
            site.attach(params)
            for t, _ in site.steps():
                if t == 6 and not more:
                    site.stop()
                site.step(1.0)
        return train

    file = toml()
    isthmus.run(file, body(False), out=tmp_path / "x")
    with pytest.raises(isthmus.RunError, match="parameter 'b' is not in the state .* begun without it"):
        isthmus.run(file, body(True), out=tmp_path / "x", resume="auto")


def test_outer_state_on_a_device_is_refused_by_name(toml, tmp_path):
    """It was taken, and stayed in host memory."""
    with pytest.raises(isthmus.ConfigError, match=r'outer.placement = "device": .* set it to "host"'):
        together(toml(), tmp_path / "x", overrides=['outer.placement="device"'])


def test_a_step_without_a_sync_is_one_call_of_the_library(toml, tmp_path, monkeypatch):
    """What such a step costs, where no clock is exact (bench/python/overhead.py has the time)."""
    calls = collections.Counter()

    class Counted:
        def __getattr__(self, name):
            calls[name] += 1
            return getattr(library, name)

        def __getitem__(self, name):
            def counted(*arguments):
                calls[name] += 1
                return function(*arguments)

            function = library[name]
            function.restype = ctypes.c_void_p
            return counted

    library = isthmus._abi.lib
    monkeypatch.setattr(isthmus._abi, "lib", Counted())
    together(toml(steps=200, more='final_sync = "none"'), tmp_path / "x",
             overrides=["outer.H=1000", 'ckpt.every="1000 steps"'])
    assert calls["isthmus_answer_next"] == 2 * 200
    assert calls["isthmus_answer"] < 20 and calls["isthmus_log_waiting"] < 20, calls


def alone(toml, tmp_path, loop, steps=6):
    """A process that is the one site of its run, with `loop` inside of `with isthmus.join(...) as site`."""
    text = toml(steps=steps).read_text()
    west = text.index('[[site]]\nname = "west"')
    (tmp_path / "alone.toml").write_text(text[:west] + text[text.index("[net]"):])
    script = ("import os, signal, sys, time\nimport numpy\nimport isthmus\n"
              "params = {'w': numpy.ones(3, numpy.float32)}\n"
              f"with isthmus.join({str(tmp_path / 'alone.toml')!r}, params, site='east', out={str(tmp_path / 'x')!r}) "
              "as site:\n" + textwrap.indent(textwrap.dedent(loop), "    "))
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def test_a_second_ctrl_c_ends_a_step(toml, tmp_path):
    """The first is the agreed stop, for which a step that takes long is waited for."""
    site = alone(toml, tmp_path, """
        for t, _ in site.steps():
            print(t, flush=True)
            time.sleep(600)
    """)
    assert site.stdout.readline() == "1\n"
    site.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        site.wait(1)
    site.send_signal(signal.SIGINT)
    _, said = site.communicate(timeout=30)
    assert site.returncode == -signal.SIGINT and "KeyboardInterrupt" in said, said


def test_a_forked_child_is_told_and_harms_nothing(toml, tmp_path):
    """It ends as a process does, through the with statement, and the run goes on in its parent."""
    site = alone(toml, tmp_path, """
        for t, _ in site.steps():
            if t == 3:
                child = os.fork()
                if child == 0:
                    told = 0
                    for call in (site.step, site.stop, site.batch, lambda: next(site.steps())):
                        try:
                            call()
                        except isthmus.Forked:
                            told += 1
                    sys.exit(10 + told)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            params["w"] -= 0.5
            site.step(1.0)
        print(site.outcome.exit_code, site.outcome.steps)
    """)
    said, errors = site.communicate(timeout=60)
    assert (site.returncode, said.split()) == (0, ["14", "0", "6"]), errors


def test_example_of_the_docs_has_these_names():
    text = (pathlib.Path(__file__).parents[2] / "docs/python.md").read_text()
    for name in isthmus.__all__:
        assert name in text, f"docs/python.md does not tell of isthmus.{name}"


@pytest.mark.parametrize("layer", [2147483647, 2000000000, 1000000, -2])
def test_a_layer_beyond_the_fragment_table_is_refused(toml, tmp_path, layer):
    def body(site):
        site.attach({"w": numpy.ones(8, numpy.float32)}, layer_of=lambda name: layer)
        for _ in site.steps():
            site.step(1.0)

    with pytest.raises(isthmus.ConfigError, match=f"parameter 'w' of the trainer: layer = {layer}: must be 0 or more"):
        isthmus.run(toml(steps=5), body, out=tmp_path / "x")


@pytest.mark.parametrize("state", [{"m": 3}, ["text"], {"m": numpy.ones(2, numpy.float32)}])
def test_state_of_a_run_is_not_dropped_by_a_resume_without_it(toml, tmp_path, state):
    def body_with(own):
        def body(site):
            w = numpy.ones(4, numpy.float32)
            site.attach({"w": w}, state=own)
            for _ in site.steps():
                site.step(1.0)
        return body

    file = toml(steps=10)
    isthmus.run(file, body_with(state), out=tmp_path / "x")
    checkpoint = tmp_path / "x/ckpt/step-0000005"
    with pytest.raises(isthmus.ConfigError, match="has state.* beside its parameters, and none is given here: give st"):
        isthmus.run(file, body_with(None), out=tmp_path / "x", resume=checkpoint)
    isthmus.run(file, body_with(state), out=tmp_path / "x", resume=checkpoint)
    isthmus.run(file, body_with(None), out=tmp_path / "none")
    isthmus.run(file, body_with(None), out=tmp_path / "none", resume=tmp_path / "none/ckpt/step-0000005")


@pytest.mark.parametrize("method, more", [
    ("diloco", ""), ("diloco", 'final_sync = "drain"'), ("diloco", 'final_sync = "none"'),
    ("streaming-diloco", "alpha = 0.5\noverlap = 2"), ("eager", ""), ("eager", 'final_sync = "drain"'),
    ("delayed", 'final_sync = "drain"'), ("co2", ""), ("localsgd", ""), ("sparseloco", ""), ("ddp", "")])
def test_anchors_after_the_end_are_the_outer_parameters(toml, tmp_path, method, more):
    shown, own = {}, {}

    def body(site):
        w = numpy.ones(8, numpy.float32)
        site.attach({"layers.0.w": w}, state={})
        random = numpy.random.default_rng(site.index)
        for _ in site.steps():
            gradient = random.normal(size=8).astype(numpy.float32)
            if method == "ddp":
                gradients = {"layers.0.w": gradient}
                assert site.average_gradients(1.0, gradients=gradients)
            w -= 0.1 * w + 0.05 * gradient
            site.step(1.0)
        own[site.index] = w.copy()
        with site.anchors():
            shown[site.index] = w.copy()
        assert (w == own[site.index]).all()

    isthmus.run(toml(steps=9, method=method, more=more), body, out=tmp_path / "x")
    saved = isthmus.open(tmp_path / "x").weights()["layers.0.w"]
    for index in (0, 1):
        assert (shown[index] == saved).all()
    if more and method != "delayed":  # whose last round leaves the workers at the anchors
        assert not all((each == saved).all() for each in own.values())


def test_anchors_after_a_stop_are_those_of_its_checkpoint(toml, tmp_path):
    shown = {}

    def body(site):
        w = numpy.ones(8, numpy.float32)
        site.attach({"w": w})
        for t, _ in site.steps():
            w -= 0.1
            if t == 7:
                site.stop()
            site.step(1.0)
        with site.anchors():
            shown[site.index] = w.copy()

    assert isthmus.run(toml(), body, out=tmp_path / "x").exit_code == 130
    assert (shown[1] == isthmus.open(tmp_path / "x").weights()["w"]).all()


def warnings_of(toml, out, caplog, steps=40, play=isthmus.run, resume="never", **keys):
    def body(site):
        w = numpy.ones(8, numpy.float32)
        site.attach({"w": w})
        for _ in site.steps():
            site.step(1.0)

    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="isthmus"):
        play(toml(steps=steps), body, out=out, resume=resume,
             overrides=[f"outer.{key}={value}" for key, value in keys.items()])
    return [each.getMessage() for each in caplog.records]


def test_steps_that_no_round_carries_are_said_before_the_run(toml, tmp_path, caplog):
    none = warnings_of(toml, tmp_path / "none", caplog, H=100, final_sync="drain")
    assert len(none) == 1 and "the run has no round at all" in none[0] and 'set outer.final_sync = "full"' in none[0]
    assert warnings_of(toml, tmp_path / "sim", caplog, H=100, final_sync="drain", play=isthmus.simulate) == none
    left = warnings_of(toml, tmp_path / "left", caplog, steps=9, final_sync="drain")
    assert len(left) == 1 and "no round will carry the last 4 of 9 steps" in left[0]
    only = warnings_of(toml, tmp_path / "only", caplog, H=100)
    assert len(only) == 1 and "the closing round is the only one of the run" in only[0]
    assert warnings_of(toml, tmp_path / "fine", caplog, steps=10) == []
    again = warnings_of(toml, tmp_path / "none", caplog, H=100, final_sync="drain", resume="auto")
    assert all("was complete before" in each for each in again)


@pytest.mark.parametrize("play", [isthmus.run, isthmus.simulate])
def test_a_run_goes_on_with_a_change(toml, tmp_path, play):
    file, out = toml(steps=20), tmp_path / "x"
    together(file, out, play=play)
    with pytest.raises(isthmus.ConfigError) as refused:
        together(file, out, play=play, resume="auto", overrides=["train.steps=40"])
    assert 'name what is to change with change=["KEY=VALUE"], or start a new run from its weights' in str(refused.value)
    _, outcome = together(file, out, play=play, resume="auto", change=["train.steps=40", "outer.H=10"])
    assert outcome.steps == 40
    changes = isthmus.open(out).manifest["changes"]
    assert sorted((each["after_step"], each["change"]) for each in changes) == [
        (20, "outer.H = 10 (5 before)"), (20, "train.steps = 40 (20 before)")]


def test_a_change_that_would_mean_something_else_is_refused(toml, tmp_path):
    file, out = toml(steps=23), tmp_path / "x"
    together(file, out)

    def refusal(*changes, **how):
        with pytest.raises(isthmus.ConfigError) as refused:
            together(file, out, **{"resume": "auto", **how}, change=list(changes))
        return str(refused.value)

    window = refusal("train.steps=60", "outer.H=10")
    assert "change outer.H = 10: the run has taken 23 steps with 5: step 23 is inside a window of 5 steps; go on from " \
        "a checkpoint whose step is a multiple of both, with resume=PATH" in window
    assert 'change outer.codec = "int8": the run has taken 23 steps with "fp32"' in refusal("outer.codec=int8")
    assert "change train.steps = 12: the run has taken 23 steps with 23: there would be no step left to end with; 24" \
        in refusal("train.steps=12")
    assert "change of train.steps without resume" in refusal("train.steps=60", resume="never")
    assert "change train.step=60: error: unknown key 'train.step'" in refusal("train.step=60")
    with pytest.raises(isthmus.ConfigError, match='change = "train.steps=60": must be a list of texts'):
        together(file, out, resume="auto", change="train.steps=60")


def test_errors_name_overrides_as_the_caller_gave_them(toml, tmp_path):
    for refuse in (lambda: together(toml(), tmp_path / "x", overrides=["outer.H=many"]),
                   lambda: isthmus.load_config(toml(), ['train.trainer="external"', "outer.H=many"])):
        with pytest.raises(isthmus.ConfigError, match="^overrides outer.H=many: error: ") as refused:
            refuse()
        assert "--set" not in str(refused.value)
