# SPDX-License-Identifier: Apache-2.0
"""Reading what runs have left; the oracle is the files themselves and the program's own output."""
import json

import numpy
import pytest

import isthmus


def test_a_run_is_what_its_files_say(run):
    assert run.manifest["name"] == "of-pytest"
    assert run.config.outer.H == 5 and run.config["outer"]["method"] == "diloco"
    assert run.config.train.steps == 20
    assert run.status()["state"] == "ok"
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["k"] == "train"]
    train = run.table("train")
    assert train.rows == 20 and list(train["step"]) == list(range(1, 21))
    assert list(train["loss"]) == losses
    assert train["step"].dtype == numpy.int64 and train["loss"].dtype == numpy.float64
    rounds = run.table("round")
    assert list(rounds["step_send"]) == [5, 10, 15, 20]
    assert set(rounds["codec"]) == {"int8"} and rounds["codec"].dtype == object
    assert run.table("rank").rows == 0 and list(run.table("rank")) == []
    assert run.summary["status"] == "ok"


def test_weights_are_those_that_the_program_writes(run):
    last, tenth = run.weights(), run.weights(step=10)
    assert last.keys() == tenth.keys() and "model.embed_tokens.weight" in last
    assert last["model.embed_tokens.weight"].shape == (256, 32)
    assert all(array.dtype == numpy.float32 and numpy.isfinite(array).all() for array in last.values())
    assert any((last[name] != tenth[name]).any() for name in last)
    assert sum(array.size for array in last.values()) == json.loads(
        (run.folder / "metrics.jsonl").read_text().splitlines()[0])["parameters"]
    with pytest.raises(isthmus.RunError, match="step-0000010"):
        run.weights(step=7)


def test_columns_keep_what_rows_lack(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    rows = ['{"k":"train","step":1,"loss":"nan","who":"a"}', '{"k":"train","step":2,"loss":1}',
            '{"k":"train","step":3,"loss":null,"ok":true}', '{"k":"train","step":4']
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows))  # the last line is being written
    table = isthmus.open(tmp_path).table("train")
    assert table.rows == 3 and list(table["step"]) == [1, 2, 3]
    assert numpy.isnan(table["loss"][[0, 2]]).all() and table["loss"][1] == 1
    assert list(table["who"]) == ["a", None, None]
    with pytest.raises(KeyError, match="there are: step, loss, who, ok"):
        table["los"]


def test_half_precision_weights(weights_file):
    from isthmus._safetensors import read_weights
    values = numpy.array([1.5, -2, 0.0078125], numpy.float32)
    bf16 = (values.view(numpy.uint32) >> 16).astype("<u2").tobytes()
    path = weights_file({"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]},
                         "b": {"dtype": "F16", "shape": [], "data_offsets": [6, 8]},
                         "__metadata__": {"format": "pt"}}, bf16 + numpy.float16(0.5).tobytes())
    read = read_weights(path)
    assert list(read["a"]) == list(values) and read["b"] == 0.5 and read["b"].shape == ()


@pytest.mark.parametrize("header, data, words", [
    ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234", "'w' of shape"),
    ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"12", "ends within tensor 'w'"),
    ({"w": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, b"1", "F8_E4M3"),
    ({"w": {"dtype": "F32"}}, b"", "'w' has no"),
])
def test_weights_that_are_none(weights_file, header, data, words):
    from isthmus._safetensors import read_weights
    with pytest.raises(isthmus.RunError, match=words):
        read_weights(weights_file(header, data))
    with pytest.raises(isthmus.RunError, match="is no safetensors file"):
        read_weights(weights_file(header, data, size=1 << 60))


def test_no_run_is_told_of(tmp_path, run):
    with pytest.raises(isthmus.ConfigError, match="is no run"):
        isthmus.open(tmp_path)
    with pytest.raises(isthmus.ConfigError, match='table\\("losses"\\)'):
        run.table("losses")
