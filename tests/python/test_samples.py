# SPDX-License-Identifier: Apache-2.0
"""`site.batch` and `site.validation`: the samples of the file's own data, by the formulas of sample_order.h."""
import logging
import random

import isthmus
import numpy
import pytest

TOML = """
[run]
name = "samples"
workers = {workers}
seed = 5
[data]
source = "text:words.txt"
order = "{order}"
val_fraction = 0.25
[train]
trainer = "external"
steps = 40
context = {T}
global_batch = "{tokens} tok"
[eval]
tokens = "all"
[outer]
method = "diloco"
H = 40
"""
T, B, WORKERS = 12, 6, 3


@pytest.fixture
def file(tmp_path):
    def write(order="sequential", text=TOML, size=2000):
        (tmp_path / "words.txt").write_bytes(random.Random(3).randbytes(size).hex()[:size].encode())
        path = tmp_path / "run.toml"
        path.write_text(text.format(workers=WORKERS, order=order, T=T, tokens=B * T))
        return path
    return write


def taken(file, steps):
    """(worker, step) -> inputs and targets, of a run whose bodies only look."""
    found = {}

    def body(site):
        params = {"w": numpy.zeros(3, numpy.float32)}
        site.attach(params)
        for t, _ in site.steps():
            if t <= steps:
                found[site.index, t] = site.batch()
                again = site.batch(t)
                assert all((a == b).all() for a, b in zip(again, found[site.index, t]))
            site.step(0.0)
        if site.index == 0:
            found["parts"] = [site.validation(k) for k in range(site.validation_parts)]

    isthmus.simulate(file, body, overrides=["sim.step_time=10ms"], out=file.parent / "out", force=True)
    return found


def test_samples_are_those_of_the_formula(file):
    path = file()
    text = numpy.frombuffer((path.parent / "words.txt").read_bytes(), numpy.uint8).astype(numpy.int32)
    n = len(text) * 3 // 4
    found = taken(path, 40)
    for (worker, t), (inputs, targets) in ((key, value) for key, value in found.items() if key != "parts"):
        assert inputs.shape == targets.shape == (B // WORKERS, T) and inputs.dtype == numpy.int32
        for row, b in enumerate(range(worker, B, WORKERS)):
            i = (((t - 1) * B + b) * T) % (n - T - 1)
            assert (inputs[row] == text[i:i + T]).all(), (worker, t, row)
            assert (targets[row] == text[i + 1:i + T + 1]).all()
    windows = (len(text) - n - 1) // T
    parts = found["parts"]
    assert [len(inputs) for inputs, _ in parts] == [8] * (windows // 8) + ([windows % 8] if windows % 8 else [])
    inputs, targets = (numpy.concatenate(each) for each in zip(*parts))
    assert (inputs.ravel() == text[n:n + windows * T]).all()
    assert (targets.ravel() == text[n + 1:n + 1 + windows * T]).all()


def test_shuffled_samples_read_each_window_once_a_pass(file):
    path = file("shuffle")
    text = (path.parent / "words.txt").read_bytes()
    windows = (len(text) * 3 // 4 - 1) // T
    steps = windows // B  # of whole batches in the first pass
    found = taken(path, steps)
    del found["parts"]
    seen = [bytes(row.astype(numpy.uint8)) for inputs, _ in found.values() for row in inputs]
    assert len(seen) == steps * B
    assert len(set(seen)) == len(seen)
    assert set(seen) <= {text[i * T:(i + 1) * T] for i in range(windows)}


@pytest.mark.parametrize("left_out, missing", [
    ('source = "text:words.txt"', "data.source"),
    ('global_batch = "{tokens} tok"', "train.global_batch")])
def test_what_the_file_lacks_is_named(file, left_out, missing):
    path = file(text=TOML.replace(left_out, ""))
    with pytest.raises(isthmus.ConfigError, match=f"has no {missing}"):
        taken(path, 1)


def test_steps_and_parts_that_are_not_there_are_refused(file):
    path = file()

    def body(site):
        site.attach({"w": numpy.zeros(3, numpy.float32)})
        with pytest.raises(isthmus.ConfigError, match="step = 0"):
            site.batch(0)
        with pytest.raises(isthmus.ConfigError, match="part = -1: the evaluation has"):
            site.validation(-1)
        with pytest.raises(isthmus.ConfigError, match="the evaluation has"):
            site.validation(site.validation_parts)
        for t, _ in site.steps():
            site.step(0.0)

    isthmus.simulate(path, body, overrides=["sim.step_time=10ms"], out=path.parent / "out")


@pytest.mark.parametrize("size, said", [(300, True), (20000, False)])
def test_many_passes_over_few_data_are_said_once(file, caplog, size, said):
    with caplog.at_level(logging.WARNING, logger="isthmus"):
        taken(file(size=size), 40)
    about = [each.getMessage() for each in caplog.records if "beyond about 4 passes" in each.getMessage()]
    assert len(about) == said
    if said:
        assert about[0].startswith('40 steps read the 225 training tokens of data.source = "text:words.txt" 13 times')


def test_data_that_are_not_trained_on_are_not_warned_of(file, caplog):
    def body(site):
        site.attach({"w": numpy.zeros(3, numpy.float32)}, evaluate=lambda part: (1.0, 1))
        for _ in site.steps():
            site.step(0.0)

    with caplog.at_level(logging.WARNING, logger="isthmus"):
        isthmus.run(file(size=300), body, evaluation_parts="file", out=file(size=300).parent / "out")
    assert "passes" not in caplog.text
