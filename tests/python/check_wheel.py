#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel of a build, in a venv of its own: `check_wheel.py --build build/release --tools PYTHON`.

scripts/wheel makes it with the interpreter PYTHON, which has packages/python.txt. The venv takes numpy from the
system's Python and nothing from an index. Exit code 77, which ctest takes for skipped, where PYTHON lacks a tool.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = """
[run]
name = "from-a-wheel"
workers = 2
seed = 3
[train]
steps = 5
[outer]
method = "diloco"
H = 5
"""
TRAIN = """
import numpy, sys
import isthmus

starts = []
def body(site):
    params = {"weight": numpy.full(8, float(site.index), numpy.float32)}
    site.attach(params)
    starts.append(params["weight"].copy())
    for t, batch in site.steps(lambda t: t):
        params["weight"] -= numpy.float32(0.1) * (params["weight"] - batch)
        site.step(float(numpy.square(params["weight"]).mean()), tokens=8)
    ends.append(params["weight"].copy())

ends = []
outcome = isthmus.run("run.toml", body, out="out")
assert outcome.exit_code == 0 and outcome.steps == 5, outcome
assert (starts[0] == starts[1]).all() and (ends[0] == ends[1]).all() and (ends[0] != starts[0]).all(), (starts, ends)
assert len(isthmus.open("out").table("worker")["loss"]) == 10
assert isthmus.__file__.startswith(sys.prefix) and str(isthmus.program_path()).startswith(sys.prefix)
"""


def skip(text):
    print(f"skipped: {text}")
    sys.exit(77)


def run(*command, **how):
    done = subprocess.run([str(each) for each in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def files_of(folder):
    return {str(each) for each in folder.rglob("*") if "__pycache__" not in each.parts}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--tools", required=True)
    arguments = parser.parse_args()
    needs = subprocess.run([arguments.tools, "-c", "import auditwheel, pip, scikit_build_core"], capture_output=True)
    if needs.returncode != 0:
        skip(f"{arguments.tools} has no auditwheel, pip or scikit-build-core (packages/python.txt)")
    for module in ("numpy", "ensurepip"):
        if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode != 0:
            skip(f"{sys.executable} has no {module}: apt install python3-numpy python3-venv")
    with tempfile.TemporaryDirectory(dir=arguments.build) as name:
        folder = pathlib.Path(name).resolve()
        environment = {word: value for word, value in os.environ.items() if not word.startswith(("ISTHMUS_", "PYTHON"))}
        made = run(arguments.tools, ROOT / "scripts/wheel", "--build", arguments.build, "--out", folder / "dist",
                   env=environment)
        venv.create(folder / "venv", system_site_packages=True, with_pip=True)
        python = folder / "venv/bin/python"
        before = files_of(folder / "venv")
        run(python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", "--find-links", folder / "dist",
            "isthmus", env=environment, cwd=folder)
        said = run(python, "-m", "isthmus", "--version", env=environment, cwd=folder)
        version, = [path.name.split("-")[1] for path in (folder / "dist").glob("*.whl")]
        if version not in said or run(folder / "venv/bin/isthmus", "--version", env=environment) != said:
            sys.exit(f"the wheel {version} holds the program {said}")
        (folder / "run.toml").write_text(RUN)
        run(python, "-c", TRAIN, env=environment, cwd=folder)
        run(python, "-m", "pip", "uninstall", "-y", "--disable-pip-version-check", "isthmus", env=environment, cwd=folder)
        left = sorted(files_of(folder / "venv") - before)
        if left:
            sys.exit(f"uninstalling leaves {left}")
    print(made)


main()
