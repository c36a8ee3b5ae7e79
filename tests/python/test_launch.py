# SPDX-License-Identifier: Apache-2.0
"""`isthmus launch --program`: a program of the user's as each site, started again, told to stop, refused."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import bodies
import isthmus
import numpy
import pytest

TOML = """
[run]
name = "launched"
seed = 2
[train]
trainer = "external"
steps = {steps}
[outer]
method = "diloco"
H = 5
[ckpt]
every = "5 steps"
[[site]]
name = "east"
[[site]]
name = "west"
[net]
plaintext = true
gather = "{gather}"
"""

PROGRAM = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import bodies, isthmus, numpy
name = os.environ["ISTHMUS_SITE"]
trainer = bodies.Trainer(["east", "west"].index(name))
once = "{out}-" + name + "-died"
with isthmus.join("{file}", trainer.params, state=trainer.state) as site:
    for t, _ in site.steps():
        if name in {dies!r} and t == 12 and not os.path.exists(once):
            open(once, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        site.step(trainer.train(t), tokens=bodies.TOKENS)
numpy.savez("{out}-" + name + ".npz", H=site.config.outer.H, **trainer.params)
sys.exit(site.outcome.exit_code)
"""


def launch(tmp_path, *words, steps=20, dies=(), text=PROGRAM, gather="60s"):
    file, out, program = tmp_path / "run.toml", tmp_path / "out", tmp_path / "site.py"
    file.write_text(TOML.format(steps=steps, gather=gather))
    program.write_text(text.format(tests=str(pathlib.Path(__file__).parent), out=out, file=file, dies=dies))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([isthmus.program_path(), "launch", file, "--out", out, "--program",
                            f"'{sys.executable}' '{program}'", *words], capture_output=True, text=True,
                           env=environment, timeout=300, cwd=tmp_path)
    return ended, out


def values(out, name):
    return dict(numpy.load(f"{out}-{name}.npz"))


def test_each_site_is_a_program_that_hears_of_the_command_line(tmp_path):
    ended, out = launch(tmp_path, "--set", "outer.H=4")
    assert ended.returncode == 0, ended.stderr
    assert "done: 2 sites" in ended.stdout
    east, west = values(out, "east"), values(out, "west")
    assert east["H"] == 4
    assert bodies.bits(east) == bodies.bits(west)
    anchor, _ = bodies.diloco(workers=2, steps=20, H=4)
    for name, value in anchor.items():
        assert numpy.abs(east[name] - value).max() < 1e-5, name
    for name in ("east", "west"):
        assert json.loads((out / name / "manifest.json").read_text())["status"] == "ok"


def test_a_run_of_programs_goes_on_with_a_change(tmp_path):
    ended, out = launch(tmp_path)
    assert ended.returncode == 0, ended.stderr
    ended, out = launch(tmp_path, "--resume", "auto", "--change", "train.steps=30", "--change", "outer.H=10")
    assert ended.returncode == 0, ended.stderr
    for name in ("east", "west"):
        manifest = json.loads((out / name / "manifest.json").read_text())
        assert sorted(each["change"] for each in manifest["changes"]) == ["outer.H = 10 (5 before)",
                                                                          "train.steps = 30 (20 before)"]
        assert values(out, name)["H"] == 10


def test_a_program_that_dies_is_started_again_and_goes_on(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    ended, whole = launch(tmp_path / "whole")
    assert ended.returncode == 0, ended.stderr
    # Both die at once: with one alone the others' loss would end them too, with their own restart.
    ended, killed = launch(tmp_path / "killed", "--restart", "3", dies=("east", "west"))
    assert ended.returncode == 0, ended.stderr
    assert "starting it again" in ended.stderr
    assert bodies.bits(values(whole, "east")) == bodies.bits(values(killed, "east"))


def test_a_mistake_in_the_program_ends_the_run_with_its_words(tmp_path):
    ended, _ = launch(tmp_path, text=PROGRAM.replace("site.step(", "site.step(1 / 0, "))
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr


def test_a_site_that_fails_before_it_joins_ends_the_others(tmp_path):
    """They would wait for it, as long as net.gather."""
    begun = time.monotonic()
    ended, _ = launch(tmp_path, text=PROGRAM.replace('name = os.environ["ISTHMUS_SITE"]',
                                      'name = os.environ["ISTHMUS_SITE"]\nif name == "east": import no_such_module'),
                      steps=5, gather="300s")
    assert ended.returncode == 1, ended.stderr
    assert "ModuleNotFoundError" in ended.stderr
    assert time.monotonic() - begun < 200


def test_a_program_that_does_not_say_how_its_run_ended_is_looked_up(tmp_path):
    text = PROGRAM.replace("sys.exit(site.outcome.exit_code)", "").replace(
        "for t, _ in site.steps():", "for t, _ in site.steps():\n        if t == 3: site.stop()")
    ended, out = launch(tmp_path, text=text, steps=1_000_000)
    assert ended.returncode == 130, ended.stderr
    assert json.loads((out / "east" / "manifest.json").read_text())["status"] == "interrupted"


def test_a_program_is_a_line_of_the_shell(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TOML.format(steps=5, gather="60s"))
    ended = subprocess.run([isthmus.program_path(), "launch", file, "--out", tmp_path / "out", "--program",
                            "SEEN=it && cd / && echo $SEEN of $ISTHMUS_SITE in $PWD"], capture_output=True, text=True)
    assert "it of east in /" in ended.stderr and "it of west in /" in ended.stderr, ended.stderr
    ended = subprocess.run([isthmus.program_path(), "launch", file, "--out", tmp_path / "out", "--program",
                            "esat=python3 train.py"], capture_output=True, text=True)
    assert ended.returncode == 2 and "--program esat: no such site; sites: east, west" in ended.stderr, ended.stderr


def test_an_error_of_isthmus_is_the_exit_code(tmp_path):
    ended, _ = launch(tmp_path, "--set", "outer.codec=nothing", "--restart", "5")
    assert ended.returncode == 3, ended.stderr
    assert "starting it again" not in ended.stderr


@pytest.mark.parametrize("words, text", [
    (["--via", "mpi"], "--via mpi together with --program"),
    (["--ranks", "processes"], "--ranks processes together with --program"),
    (["--resume", "auto", "--change", "outer.codec=int8"], 'change outer.codec = "int8": the run has taken'),
])
def test_flags_that_a_program_does_not_take_are_refused(tmp_path, words, text):
    if "--change" in words:
        assert launch(tmp_path)[0].returncode == 0
    ended, _ = launch(tmp_path, *words)
    assert ended.returncode in (2, 3)
    assert text in ended.stderr


def test_a_run_of_an_external_trainer_needs_its_program(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TOML.format(steps=5, gather="60s"))
    ended = subprocess.run([isthmus.program_path(), "launch", file, "--program", "west=true"], capture_output=True,
                           text=True)
    assert ended.returncode == 3
    assert "no --program for site 'east'" in ended.stderr


def test_ctrl_c_is_handed_on(tmp_path):
    text = PROGRAM.replace("site.step(trainer", 'print("step", t, flush=True)\n        site.step(trainer')
    file, out, program = tmp_path / "run.toml", tmp_path / "out", tmp_path / "site.py"
    file.write_text(TOML.format(steps=1_000_000, gather="60s"))
    program.write_text(text.format(tests=str(pathlib.Path(__file__).parent), out=out, file=file, dies=()))
    launched = subprocess.Popen([isthmus.program_path(), "launch", file, "--out", out, "--program",
                                 f"'{sys.executable}' '{program}'"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        assert launched.stderr is not None
        for line in launched.stderr:
            if "step 7" in line:
                break
        launched.send_signal(signal.SIGINT)
        rest = launched.stderr.read()
        assert launched.wait(timeout=120) == 130, rest
    finally:
        launched.kill()
    assert json.loads((out / "east" / "manifest.json").read_text())["status"] == "interrupted"
