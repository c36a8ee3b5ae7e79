# SPDX-License-Identifier: Apache-2.0
"""Fixtures. ISTHMUS_LIBRARY and ISTHMUS_PROGRAM name what is tested, or the package is installed."""
import pathlib
import subprocess

import pytest

import isthmus

RUN = """
[run]
name = "of-pytest"
workers = 2
seed = 4
[model]
arch = "llama"
layers = 2
d_model = 32
heads = 2
[data]
source = "synth:markov1"
[train]
steps = 20
global_batch = "256 tok"
context = 32
[inner]
lr = 1e-3
[outer]
method = "diloco"
H = 5
codec = "int8"
[eval]
every = 10
tokens = "1k"
[ckpt]
every = "10 steps"
"""


@pytest.fixture(scope="session")
def toml(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "run.toml"
    path.write_text(RUN)
    return path


@pytest.fixture(scope="session")
def run(toml, tmp_path_factory):
    """A run that has ended."""
    out = tmp_path_factory.mktemp("runs") / "x"
    subprocess.run([isthmus.program_path(), "train", toml, "--out", out, "--progress", "none"],
                   check=True, capture_output=True)
    return isthmus.open(out)


def safetensors(header, data, size=None):
    import json
    text = json.dumps(header).encode()
    return (size if size is not None else len(text)).to_bytes(8, "little") + text + data


@pytest.fixture
def weights_file(tmp_path):
    def write(header, data, size=None):
        path = pathlib.Path(tmp_path) / "model.safetensors"
        path.write_bytes(safetensors(header, data, size))
        return path
    return write
