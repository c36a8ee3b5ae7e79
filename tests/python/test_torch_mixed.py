# SPDX-License-Identifier: Apache-2.0
"""One run of a PyTorch site and one with the built-in trainer, against the same run of two built-in ones."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy
import pytest

import isthmus
from isthmus._safetensors import read_weights

torch = pytest.importorskip("torch")
import mixed_bodies  # noqa: E402

TOML = """
[run]
name = "mixed"
seed = 3
[model]
init = "init"
[data]
source = "text:words.txt"
[train]
steps = 30
context = 16
global_batch = "128 tok"
[inner]
lr = 3e-3
[outer]
method = "{method}"
H = 5
codec = "fp32"
[eval]
every = 10
[ckpt]
every = "10 steps"
[[site]]
name = "east"
[[site]]
name = "west"
[net]
plaintext = true
gather = "100s"
{net}
"""


@pytest.fixture
def kind():
    return "gpt2"


@pytest.fixture
def folder(tmp_path, kind):
    torch.manual_seed(11)
    mixed_bodies.save(mixed_bodies.made(kind), tmp_path / "init")
    (tmp_path / "words.txt").write_text(pathlib.Path(__file__).read_text() * 4)
    return tmp_path


def launch(folder, out, *words, method="diloco", net='start = "same"', program=None, file="run.toml"):
    (folder / "run.toml").write_text(TOML.format(method=method, net=net))
    script = program or pathlib.Path(mixed_bodies.__file__)
    mixed = ["--program", f"east='{sys.executable}' '{script}' {file}"] if out != "own" else []
    return subprocess.run(
        ["timeout", "--kill-after=10", "200", isthmus.program_path(), "launch", "run.toml", "--out", out, *mixed,
         *words],
        cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def rows(run, kind):
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in found if row["k"] == kind]


PACK = ("--set", "data.pack=documents", "--set", "data.eos=32")  # words, none longer than a window


@pytest.mark.parametrize("kind, method, words", [
    ("gpt2", "diloco", ()), ("gpt2", "streaming-diloco", ()), ("llama", "diloco", ()),
    ("gpt2", "diloco", PACK), ("llama", "diloco", PACK)])
def test_a_pytorch_site_and_a_built_in_one_train_one_model(folder, kind, method, words):
    for out in ("own", "mixed"):
        ended = launch(folder, out, *words, method=method)
        assert ended.returncode == 0, ended.stderr
    own, mixed = folder / "own/west", folder / "mixed/west"
    losses = [{(row["step"], row["w"]): row["loss"] for row in rows(run, "worker")} for run in (own, mixed)]
    assert len(losses[0]) == 60 and losses[0].keys() == losses[1].keys()
    for step, value in losses[0].items():
        assert abs(losses[1][step] - value) <= 1e-5 * value, step
    evals = [{row["step"]: row["loss"] for row in rows(run, "eval")} for run in (own, mixed)]
    assert sorted(evals[0]) == sorted(evals[1]) == [10, 20, 30]
    for step, value in evals[0].items():
        assert abs(evals[1][step] - value) <= 1e-5 * value, step
    # Both sites hold the same outer parameters, bit for bit, at every checkpoint.
    for checkpoint in sorted((folder / "mixed/east/ckpt").glob("step*")):
        east, west = (read_weights(site / "ckpt" / checkpoint.name / "model.safetensors")
                      for site in (folder / "mixed/east", folder / "mixed/west"))
        assert east.keys() == west.keys()
        for name, value in east.items():
            assert value.tobytes() == west[name].tobytes(), (checkpoint.name, name)


@pytest.mark.parametrize("dies", ["east", "west"])
def test_a_site_that_comes_back_is_given_the_state_of_another_trainer(folder, dies):
    """The PyTorch site (east) from a built-in one, and the other way round: what the optimizer holds begins anew."""
    order = ["west", "north", "east"] if dies == "east" else ["east", "north", "west"]
    head, tail = TOML.split("[[site]]")[0], TOML[TOML.index("[net]"):]
    sites = "".join(f'[[site]]\nname = "{name}"\n' for name in order)
    text = (head + sites + tail).format(method="diloco", net='start = "same"\nmin_sites = 2')
    text = text.replace("steps = 30", "steps = 1000000").replace('"128 tok"', '"96 tok"')
    (folder / "run.toml").write_text(text.replace('every = "10 steps"', 'every = "50 steps"'))
    program = folder / "site.py"
    program.write_text(pathlib.Path(mixed_bodies.__file__).read_text().replace("        for _, _ in site.steps():", """\
        import os, signal
        first = not os.path.exists("began")
        open("began", "a").close()
        for t, _ in site.steps():
            if first and t == 12 and DIES:
                os.kill(os.getpid(), signal.SIGKILL)
            if os.path.exists("back"):
                site.stop()""".replace("DIES", str(dies == "east"))))
    launched = subprocess.Popen(
        ["timeout", "--kill-after=10", "200", isthmus.program_path(), "launch", "run.toml", "--out", "out", "--restart",
         "3", "--program", f"east='{sys.executable}' '{program}' run.toml"], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert launched.stderr is not None
    said, killed = [], dies == "east"
    for line in launched.stderr:
        said.append(line)
        if not killed and "| step " in line:
            killed = True
            for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                words = entry.read_bytes().split(b"\0") if entry.exists() else []
                if b"--site" in words and b"west" in words and b"out/west" in words:
                    os.kill(int(entry.parent.name), signal.SIGKILL)
        if f"site {dies} is back" in line:
            (folder / "back").touch()
    assert launched.wait() == 130, said
    assert any(line.startswith(dies) and "begins anew" in line for line in said), said
    newest = [sorted((folder / "out" / name / "ckpt").glob("step*"))[-1] for name in ("east", "west")]
    assert newest[0].name == newest[1].name
    east, west = (read_weights(each / "model.safetensors") for each in newest)
    for name, value in east.items():
        assert value.tobytes() == west[name].tobytes(), name


def test_a_site_that_evaluates_nothing_is_refused_with_the_remedy(folder):
    program = folder / "site.py"
    program.write_text(pathlib.Path(mixed_bodies.__file__).read_text().replace(
        """evaluate=evaluate,
                            evaluation_parts="file")""", "evaluate=None)"))
    ended = launch(folder, "mixed", program=program)
    assert ended.returncode == 3, ended.stderr
    assert "evaluation is nothing at east" in ended.stderr or "and nothing at east" in ended.stderr, ended.stderr
    assert "evaluation_parts=" in ended.stderr


def test_sites_with_unlike_data_are_refused(folder):
    """Each evaluates its share of the same windows."""
    (folder / "other").mkdir()
    (folder / "other/init").symlink_to(folder / "init")
    (folder / "other/run.toml").write_text(TOML.format(method="diloco", net='start = "same"'))
    (folder / "other/words.txt").write_text((folder / "words.txt").read_text().swapcase())
    program = folder / "elsewhere.py"
    program.write_text(pathlib.Path(mixed_bodies.__file__).read_text())
    ended = launch(folder, "mixed", program=program, file="other/run.toml")
    assert ended.returncode == 3, ended.stderr
    assert "evaluation is" in ended.stderr and "parts of data" in ended.stderr, ended.stderr


def test_what_launch_sets_is_what_the_optimizer_has(folder):
    ended = launch(folder, "mixed", "--set", "inner.lr=1e-3", "--set", "train.steps=10")
    assert ended.returncode == 0, ended.stderr
    first = launch(folder, "own", "--set", "inner.lr=1e-3", "--set", "train.steps=10")
    assert first.returncode == 0, first.stderr
    losses = [{(row["step"], row["w"]): row["loss"] for row in rows(folder / run / "west", "worker")}
              for run in ("own", "mixed")]
    for step, value in losses[0].items():
        assert abs(losses[1][step] - value) <= 1e-5 * value, step


def test_unlike_starts_say_what_to_write(folder):
    ended = launch(folder, "mixed", net="")
    assert ended.returncode == 3, ended.stderr
    assert "say net.start in the file of every site" in ended.stderr, ended.stderr


def test_rows_of_another_method_differ(folder):
    """The comparison above can fail."""
    assert launch(folder, "own").returncode == 0
    first = rows(folder / "own/west", "worker")
    assert launch(folder, "own", "--force", "--set", "outer.momentum=0.5").returncode == 0
    assert first[-1]["loss"] != rows(folder / "own/west", "worker")[-1]["loss"]
    assert numpy.isfinite(first[-1]["loss"])
