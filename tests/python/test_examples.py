# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python that are whole runs: simulate, compare, mixed. Those that are one site are run by
test_torch (torch_plain, hf_trainer) and test_ranks (fsdp2)."""
import json
import os
import pathlib
import shlex
import subprocess
import sys

import numpy
import pytest

import isthmus

pytest.importorskip("torch")
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/python"


def done(*command, cwd=None):
    path = os.pathsep.join([str(isthmus.program_path().parent), os.environ["PATH"]])
    found = subprocess.run(["timeout", "--kill-after=10", "500", *command], capture_output=True, text=True, cwd=cwd,
                           env={**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_simulate_shows_what_methods_cost(tmp_path):
    """A round in 20 steps sends a 20th, and the thin link costs that much less time; losses go down."""
    lines = done(sys.executable, EXAMPLES / "simulate.py", tmp_path).splitlines()[1:]
    assert [line[:22].strip() for line in lines] == ["every step", "every 20 steps", "every 20, in 8 bits"]
    ends = [isthmus.open(tmp_path / str(number)).summary for number in range(3)]
    bytes_, seconds = [max(end["bytes_payload"]) for end in ends], [end["simulated_s"] for end in ends]
    assert bytes_[0] / bytes_[1] == pytest.approx(20, rel=0.01) and 0.4 < bytes_[2] / bytes_[1] < 0.6
    assert seconds[0] > 2 * seconds[1] > 2 * seconds[2] > 60 * 0.1 * 2
    assert all(end["final_eval_loss"] < 3.7 for end in ends)
    fast = done(sys.executable, EXAMPLES / "simulate.py", tmp_path, "10Gbit/s,1ms").splitlines()[1:]
    assert [line[22:30] for line in fast] == [line[22:30] for line in lines]  # a link changes no loss
    assert isthmus.open(tmp_path / "0").summary["simulated_s"] < 1.1 * 60 * 0.1


def test_compare_tells_methods_apart_by_a_body(tmp_path):
    lines = done(sys.executable, EXAMPLES / "compare.py", tmp_path / "x", "1").splitlines()
    assert [line.split()[0] for line in lines] == ["every-step", "every-20", "every-20-8bit"]
    cells = [json.loads(line) for line in (tmp_path / "x/cells.jsonl").read_text().splitlines()]
    assert len(cells) == 3 and all(cell["status"] == "ok" and len(cell["evals"]) == 6 for cell in cells)
    done("isthmus", "compare", EXAMPLES / "compare.toml", "--out", tmp_path / "y", "--seeds", "1", "--only", "every-20",
         "--program", shlex.join([sys.executable, str(EXAMPLES / "compare.py")]))
    again = [json.loads(line) for line in (tmp_path / "y/cells.jsonl").read_text().splitlines()]
    of = {(cell["variant"], cell["seed"]): cell["evals"] for cell in cells}
    assert len(again) == 2 and all(of[cell["variant"], cell["seed"]] == cell["evals"] for cell in again)


def test_mixed_trains_one_model_at_sites_of_both_kinds(tmp_path):
    """East is PyTorch, west is built in: the same weights at the end, and east's own program did east's steps."""
    file = tmp_path / "mixed.toml"
    file.write_text((EXAMPLES / "mixed.toml").read_text().replace("../../runs/mixed-start", "start").replace(
        "../../ARCHITECTURE.md", str(EXAMPLES.parents[1] / "ARCHITECTURE.md")))
    done(sys.executable, EXAMPLES / "mixed.py", "--start", tmp_path / "start")
    done("isthmus", "launch", file, "--out", tmp_path / "mixed", "--program",
         "east=" + shlex.join([sys.executable, str(EXAMPLES / "mixed.py"), str(file)]))
    runs = [isthmus.open(tmp_path / "mixed" / name) for name in ("east", "west")]
    assert [run.summary["steps"] for run in runs] == [60, 60]
    losses = runs[0].table("eval")["loss"]
    assert losses[-1] < losses[0] < numpy.log(256)
    weights = [run.weights() for run in runs]
    assert set(weights[0]) == set(weights[1])
    assert all(numpy.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
