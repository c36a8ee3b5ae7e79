#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`isthmus replay`: the weights that an spsa run began from and its log give its checkpoints, bit
for bit, and what does not fit is refused.

  python3 tests/end_to_end/replay_spsa.py --isthmus build/src/app/isthmus
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

RUN = """
[run]
workers = 2
[model]
arch = "gpt2"
layers = 2
d_model = {width}
heads = 2
[data]
source = "text:words.txt"
[train]
steps = {steps}
global_batch = "128 tok"
context = 32
[eval]
every = 0
tokens = "1k"
[ckpt]
every = "40 steps"
keep = 9
"""
SPSA = '[outer]\nmethod = "spsa"\nsamples = 2\nweight_decay = 0.1\n[inner]\nlr = 1e-3\n'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    program = str(pathlib.Path(parser.parse_args().isthmus).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        check(program, pathlib.Path(scratch))
    print("replayed bit for bit, refused what does not fit")


def check(program, folder):
    def run(*arguments, code=0, words=""):
        done = subprocess.run([program, *map(str, arguments)], cwd=folder, capture_output=True,
                              text=True, check=False)
        if done.returncode != code or words not in done.stderr:
            sys.exit(f"{arguments}: exit {done.returncode} instead of {code}, or no '{words}' in\n"
                     f"{done.stdout}{done.stderr}")
        return done.stdout

    (folder / "words.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
    (folder / "small.toml").write_text(RUN.format(width=16, steps=2))
    (folder / "base.toml").write_text(RUN.format(width=32, steps=5))
    run("train", "base.toml", "--out", "base-run", "--progress", "none")
    run("export", "base-run", "--to", "hf", "base")
    run("train", "small.toml", "--out", "small-run", "--progress", "none")
    run("export", "small-run", "--to", "hf", "small")
    fine = RUN.format(width=32, steps=100) + SPSA
    fine = fine[:fine.index("[model]")] + '[model]\ninit = "base"\n' + fine[fine.index("[data]"):]
    (folder / "fine.toml").write_text(fine)
    run("train", "fine.toml", "--out", "fine", "--progress", "none")
    log, last = folder / "fine/method.log", folder / "fine/ckpt/last"

    # Any base: where the run began, and each of its checkpoints.
    whole = json.loads(run("replay", log, "base", "--out", "now", "--expect", last, "--json"))
    assert (whole["from_step"], whole["to_step"]) == (0, 100), whole
    assert whole["entries"] == 100 * 2 * 2 and whole["as_expected"], whole
    assert whole["log_bytes"] == log.stat().st_size, whole
    for step in (40, 80):
        rest = json.loads(run("replay", log, f"fine/ckpt/step-{step:07}", "--expect", last, "--json"))
        assert (rest["from_step"], rest["weights"]) == (step, whole["weights"]), rest
        assert rest["log_bytes"] < whole["log_bytes"] * (1.1 - step / 100), rest
    assert tensors(folder / "now/model.safetensors") == tensors(last / "model.safetensors")
    assert tensors(folder / "now/model.safetensors") != tensors(folder / "base/model.safetensors")
    assert "bit for bit those of" in run("replay", log, "base", "--expect", last)

    # Refused before the replay: the log is not read.
    (folder / "adapted").mkdir()
    (folder / "adapted/adapter_config.json").write_text("{}")
    run("replay", "absent.log", "base", "--out", "adapted", code=4, words="adapter_config.json")

    # One bit of one weight, another model, a log that has been changed, weights of another step.
    model = folder / "base/model.safetensors"
    raw = bytearray(model.read_bytes())
    raw[-2] ^= 1
    model.write_bytes(raw)
    run("replay", log, "base", code=1, words="not those the log starts from")
    run("replay", log, "small", code=1, words="the log is of another model")
    run("replay", log, "base/absent", code=4, words="config.json")
    run("replay", log, "fine/ckpt/step-0000040", "--expect", "fine/ckpt/step-0000080", code=1,
        words="has the weights after step 80, the log ends with 100")
    run("replay", log, "fine/ckpt/step-0000040", "--expect", "base", code=1, words="weights differ")
    run("replay", log, "fine/ckpt/step-0000040", "--expect", "small", code=1, words="another model")
    bytes_of_log = bytearray(log.read_bytes())
    bytes_of_log[200] ^= 1
    log.write_bytes(bytes_of_log)
    run("replay", log, last, code=1, words="method.log: ")


def tensors(file):
    """Bytes of every tensor by name: headers may differ."""
    raw = file.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + size])
    return {name: raw[8 + size + place["data_offsets"][0]:8 + size + place["data_offsets"][1]]
            for name, place in head.items() if name != "__metadata__"}


main()
