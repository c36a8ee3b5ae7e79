# SPDX-License-Identifier: Apache-2.0
"""`isthmus compare` whose runs a Python program or function trains."""
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys

import compared
import numpy
import pytest

import isthmus

TOML = """
[run]
name = "compared"
[train]
trainer = "external"
steps = 12
[inner]
lr = 0.05
[eval]
every = 4
[compare]
baseline = "ddp"
seeds = {seeds}
{compare}
[target]
factor = 1.2
[variant.ddp]
outer = {{ method = "ddp" }}
[variant.diloco]
outer = {{ method = "diloco", H = 4, codec = "{codec}" }}
{more}
"""
CLOCK = """
[sim]
step_time = "10ms"
[[site]]
name = "east"
[[site]]
name = "west"
[[link]]
between = ["east", "west"]
rate = "1Mbit/s"
rtt = "50ms"
"""
SITES = """
[net]
gather = "60s"
[[site]]
name = "east"
[[site]]
name = "west"
"""


@pytest.fixture
def toml(tmp_path):
    def write(more=CLOCK, seeds=2, compare="", codec="fp32"):
        path = tmp_path / "cmp.toml"
        path.write_text(TOML.format(more=more, seeds=seeds, compare=compare, codec=codec))
        return path
    return write


def program(*how):
    return shlex.join([sys.executable, compared.__file__, *how])


def command(file, out, *words, how=()):
    return [isthmus.program_path(), "compare", file, "--out", out, "--program", program(*how), "--progress", "none",
            *words]


def compare(file, out, *words, how=(), code=0):
    done = subprocess.run(["timeout", "--kill-after=10", "240", *command(file, out, *words, how=how)],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == code, done.stdout + done.stderr
    return done


def lines_of(out):
    """Cells, each evaluation as a dictionary."""
    found = [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()]
    return [{**each, "evals": [dict(zip(each["eval_columns"], row)) for row in each["evals"]]} for each in found]


def cells(out):
    return {(each["variant"], each["seed"]): each for each in lines_of(out)}


def test_a_programs_cells_are_the_runs_that_it_makes(toml, tmp_path):
    """Each cell is what isthmus.simulate finds of the same configuration; table and page are there."""
    out = tmp_path / "cmp"
    said = compare(toml(), out).stdout
    assert "ddp" in said and "diloco" in said
    found = cells(out)
    assert sorted(found) == [("ddp", 1), ("ddp", 2), ("diloco", 1), ("diloco", 2)]
    for (variant, seed), cell in found.items():
        folder = out / variant / f"seed-{seed}"
        again = isthmus.simulate(folder.with_suffix(".toml"), compared.body, out=tmp_path / f"{variant}{seed}",
                                 evaluation_parts=compared.PARTS)
        table = isthmus.open(again.directory).table("eval")
        assert [each["loss"] for each in cell["evals"]] == list(table["loss"])
        assert [each["step"] for each in cell["evals"]] == [4, 8, 12]
        assert [each["simulated_s"] for each in cell["evals"]] == pytest.approx(list(table["ts"]))
        assert [each["bytes_wire"] for each in cell["evals"]] == list(table["bytes_wire"])
        assert cell["steps"] == 12 and cell["simulated"] and cell["directory"] == f"{variant}/seed-{seed}"
        assert not (folder / "ckpt").exists() and isthmus.open(folder).config.run.seed == seed
    assert found["ddp", 1]["evals"] != found["ddp", 2]["evals"]
    summary = json.loads((out / "summary.json").read_text())
    assert [each["name"] for each in summary["variants"]] == ["ddp", "diloco"]
    assert summary["cells_run"] == 4 and "an external program" in summary["variants"][0]["needs_simulating"]
    assert "diloco" in (out / "report.html").read_text()


def test_finished_cells_stay_until_the_program_changes(toml, tmp_path):
    out, script = tmp_path / "cmp", tmp_path / "own.py"
    script.write_text(pathlib.Path(compared.__file__).read_text())
    told = {}
    for change, words in (("", ()), ("", ("--resume",)), ("# another trainer\n", ("--resume",))):
        script.write_text(script.read_text() + change)
        done = subprocess.run(
            [isthmus.program_path(), "compare", toml(seeds=1), "--out", out, "--progress", "none", "--json", *words,
             "--program", shlex.join([sys.executable, str(script)])], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        told[change, words] = summary["cells_run"], summary["cells_reused"]
    assert list(told.values()) == [(2, 0), (0, 2), (2, 0)]


def test_a_function_trains_and_its_rates_are_tuned(toml, tmp_path):
    """As by the program, cell by cell; the grid's values reach the body."""
    file = toml(seeds=1, compare='tune = { seeds = 1, space = { "inner.lr" = [0.02, 0.05] }, follow_ups = 0 }', codec="int8")
    found = isthmus.compare(file, train=compared.body, evaluation_parts=compared.PARTS, out=tmp_path / "cmp", jobs=2)
    compare(file, tmp_path / "same")
    own, others = ({(line["stage"], line["variant"], json.dumps(line["tuned"])): line["evals"]
                    for line in lines_of(folder)}
                   for folder in (tmp_path / "cmp", tmp_path / "same"))
    assert own == others and len(own) == 6
    assert [each["tuned"] for each in found["variants"]] != [None, None] and found["variants"][0]["trials"] == 2
    assert len({json.dumps(evals) for (stage, name, _), evals in own.items() if (stage, name) == ("tune", "ddp")}) == 2


def test_a_program_that_joins_is_started_for_each_site(toml, tmp_path):
    """Over sockets, with the bits of one process; bytes and losses are the first site's lines."""
    file, out = toml(more=SITES, seeds=1), tmp_path / "cmp"
    compare(file, out, "--each-site", how=("join",))
    compare(file, tmp_path / "same")
    apart, together = cells(out), cells(tmp_path / "same")
    for key, cell in apart.items():
        assert [each["loss"] for each in cell["evals"]] == [each["loss"] for each in together[key]["evals"]]
        assert [each["bytes_payload"] for each in cell["evals"]] == [
            each["bytes_payload"] for each in together[key]["evals"]]
        assert cell["directory"] == f"{key[0]}/seed-1/east" and (out / key[0] / "seed-1/west/summary.json").exists()
    assert (tmp_path / "cmp/report.html").exists()


@pytest.mark.parametrize("name", ["OVERRIDES", "CHANGES"])
def test_what_a_launcher_told_of_keys_does_not_reach_a_cell(toml, tmp_path, monkeypatch, name):
    monkeypatch.setenv(f"ISTHMUS_{name}", "train.steps=5")
    out = tmp_path / "cmp"
    compare(toml(more=SITES, seeds=1), out, "--each-site", how=("join",))
    assert {cell["steps"] for cell in cells(out).values()} == {12}


def test_a_loss_that_is_no_number_is_a_result(toml, tmp_path):
    out = tmp_path / "cmp"
    compare(toml(seeds=1), out, how=("nan",))
    found = cells(out)
    assert found["ddp", 1]["status"] == "ok" and found["diloco", 1]["status"] == "failed"
    assert "step 7: the loss is nan: the run has diverged" in found["diloco", 1]["cause"]


@pytest.mark.parametrize("how, words", [
    ("nothing", ["has left no run in", "call isthmus.run or isthmus.simulate", "ends: no run here"]),
    ("steps", ["has trained 5 steps", "the comparison's file says 12"]),
    ("keys", ["has trained another configuration", "inner.lr", "leave `overrides`"]),
    ("fails", ["ended with exit code 1", "KeyError: 'mine'", "seed-1.log"]),
    ("dies", ["was ended by signal 9"]),
    ("blind", ["has evaluated nothing", "evaluation_parts"]),
    ("twice", ["ended with exit code 3", "a cell of isthmus compare is one run"]),
    ("link", ["link = \"1Gbit/s,1ms\" in a cell"]),
    ("joins", ["join in a cell of isthmus compare", "--each-site"]),
])
def test_a_program_that_leaves_no_such_run_is_one_error(toml, tmp_path, how, words):
    done = compare(toml(seeds=1), tmp_path / "cmp", "--jobs", "1", how=(how,), code=1)
    for each in words:
        assert each in done.stderr, done.stderr
    assert done.stderr.count("error:") == 1 and not (tmp_path / "cmp/summary.json").exists()


def test_ctrl_c_keeps_what_is_finished(toml, tmp_path):
    """The running cell stops between steps, the finished ones stay, and --resume runs the others."""
    out, fifo = tmp_path / "cmp", tmp_path / "fifo"
    file = toml(seeds=2)
    os.mkfifo(fifo)
    going = subprocess.Popen([*command(file, out, "--jobs", "1", how=("waits",))], stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COMPARED_FIFO": str(fifo)})
    with open(fifo) as reached:  # the second run of ddp is in step 5
        reached.read()
    going.send_signal(signal.SIGINT)
    said = going.communicate(timeout=120)[1]
    assert going.returncode == 130 and "stopped with 1 of 4 cells done" in said
    assert set(cells(out)) == {("ddp", 1)}
    # The command is a part of what a run's key says.
    going = subprocess.Popen([*command(file, out, "--jobs", "1", "--resume", how=("waits",))],
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COMPARED_FIFO": os.devnull,
                                  "COMPARED_GOES_ON": "1"})
    assert going.wait(240) == 0
    assert len(cells(out)) == 4 and json.loads((out / "summary.json").read_text())["cells_reused"] == 1


@pytest.mark.parametrize("words, text", [
    (["--set", "train.offload=\"x\""], "train.offload together with --program"),
    (["--set", "variant.diloco.outer.method=\"1bit-adam\""], "takes the inner update over"),
    (["--each-site"], "--each-site starts a process for each site"),
])
def test_keys_that_a_program_cannot_have_are_named(toml, tmp_path, words, text):
    file = toml()
    if "1bit" in str(words):
        file.write_text(file.read_text().replace('method = "diloco", H = 4, codec = "fp32"', 'method = "1bit-adam"'))
        words = []
    done = compare(file, tmp_path / "cmp", *words, code=3)
    assert text in done.stderr and not (tmp_path / "cmp").exists()


def test_a_file_with_a_trainer_of_its_own_needs_a_program(toml, tmp_path):
    done = subprocess.run([isthmus.program_path(), "compare", toml(), "--out", tmp_path / "cmp"], capture_output=True,
                          text=True)
    assert done.returncode == 3 and "no --program: the trainer is in a program of yours" in done.stderr
    done = compare(toml(), tmp_path / "cmp", "--dry-run", "--set", "train.precision=bf16")
    assert "a program trains them, whose speed is not known" in done.stdout
    assert "the built-in trainer alone obeys train.precision" in done.stderr


@pytest.mark.parametrize("train, words", [(lambda site: None, "must be a function at the top"),
                                          (numpy.random.default_rng(1).normal, "must be a function at the top")])
def test_functions_that_no_other_process_finds_are_refused(toml, train, words):
    with pytest.raises(isthmus.ConfigError, match=words):
        isthmus.compare(toml(), train=train, evaluation_parts=1)


def test_losses_are_needed_and_one_trainer(toml):
    with pytest.raises(isthmus.ConfigError, match="give evaluation_parts"):
        isthmus.compare(toml(), train=compared.body)
    with pytest.raises(isthmus.ConfigError, match="train and program together"):
        isthmus.compare(toml(), train=compared.body, program="python x.py")
