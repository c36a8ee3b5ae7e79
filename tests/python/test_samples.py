# SPDX-License-Identifier: Apache-2.0
"""`site.batch` and `site.validation`: the samples of the file's own data, by the formulas of sample_order.h."""
import json
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


PACKED = TOML.replace("val_fraction = 0.25", 'val_fraction = 0.25\npack = "documents"\neos = 10')


def test_packed_samples_come_with_positions(file):
    """Documents are lines: each token's position and target against a loop over the stream."""
    path = file(text=PACKED)
    words = random.Random(4)
    lines = b"".join(bytes(words.choices(b"abcdef", k=words.randrange(30))) + b"\n" for _ in range(150))
    (path.parent / "words.txt").write_bytes(lines)
    text = numpy.frombuffer(lines, numpy.uint8).astype(numpy.int32)
    n = len(text) - len(text) // 4
    checked = []

    def check(begin, inputs, targets, positions):
        at = 0
        for j in range(T):
            assert inputs[j] == text[begin + j] and positions[j] == at, (begin, j)
            assert targets[j] == (-100 if text[begin + j] == 10 else text[begin + j + 1])
            at = 0 if text[begin + j] == 10 else at + 1
        checked.append(begin)

    def body(site):
        site.attach({"w": numpy.zeros(3, numpy.float32)})
        for t, _ in site.steps():
            with pytest.raises(isthmus.ConfigError, match=r'pack = "documents".*positions=True'):
                site.batch()
            for row, arrays in enumerate(zip(*site.batch(positions=True))):
                check((((t - 1) * B + site.index + row * WORKERS) * T) % (n - T - 1), *arrays)
            site.step(0.0)
        with pytest.raises(isthmus.ConfigError, match="positions=True"):
            site.validation(0)
        inputs, targets, positions = site.validation(0, positions=True)
        for window in range(len(inputs)):
            check(n + window * T, inputs[window], targets[window], positions[window])

    isthmus.simulate(path, body, overrides=["sim.step_time=10ms"], out=path.parent / "out")
    assert len(checked) == 40 * B + WORKERS * 8


def test_positions_of_a_stream_are_those_of_its_windows(file):
    path = file()

    def body(site):
        site.attach({"w": numpy.zeros(3, numpy.float32)})
        for t, _ in site.steps():
            inputs, targets, positions = site.batch(positions=True)
            assert (positions == numpy.arange(T)).all() and (targets[:, :-1] == inputs[:, 1:]).all()
            site.step(0.0)

    isthmus.simulate(path, body, overrides=["sim.step_time=10ms"], out=path.parent / "out")


def test_mixed_sources_are_named_in_evaluations(file):
    """Losses of a body that answers with each part's number, by source in metrics.jsonl."""
    path = file(text=TOML.replace('source = "text:words.txt"',
                                  'mix = {{ b = 1, a = 3 }}\nsources = {{ a = "text:words.txt", b = "text:more.txt" }}'))
    (path.parent / "more.txt").write_bytes(b"XYZ" * 400)
    lower = {"a": set(b"0123456789abcdef"), "b": set(b"XYZ")}
    found = {"a": 0, "b": 0}

    def body(site):
        def evaluate(part):
            inputs, _ = site.validation(part)
            source = "b" if inputs[0, 0] in lower["b"] else "a"
            assert set(inputs.ravel()) <= lower[source]
            return (2.0 if source == "b" else 1.0) * inputs.size, inputs.size

        site.attach({"w": numpy.zeros(3, numpy.float32)}, evaluate=evaluate)
        for t, _ in site.steps():
            inputs, _ = site.batch()
            for row in inputs:
                source = "b" if row[0] in lower["b"] else "a"
                assert set(row) <= lower[source]
                found[source] += 1
            site.step(0.0)

    isthmus.simulate(path, body, overrides=["sim.step_time=10ms"], out=path.parent / "out", evaluation_parts="file")
    assert abs(found["b"] - 40 * B / 4) <= 3 and found["a"] + found["b"] == 40 * B
    lines = [json.loads(line) for line in (path.parent / "out/metrics.jsonl").read_text().splitlines()]
    line = [line for line in lines if line["k"] == "eval"][-1]
    assert line["sources"]["a"]["loss"] == 1 and line["sources"]["b"]["loss"] == 2
    tokens = {name: each["n_tokens"] for name, each in line["sources"].items()}
    assert abs(line["loss"] - (tokens["a"] + 2 * tokens["b"]) / sum(tokens.values())) < 1e-12


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
