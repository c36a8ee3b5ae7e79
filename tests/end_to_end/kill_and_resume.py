#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run killed with -9 at random moments and resumed equals the uninterrupted one, bit for bit.

  python3 tests/end_to_end/kill_and_resume.py --isthmus build/bin/isthmus [--rounds 3] [--seed 1]

For each method a reference run is trained once. Then the same run is started, killed after a random
time (often in the middle of writing a checkpoint: one is written every step or two), resumed with
`--resume auto`, killed again, until it ends. Compared: every tensor file of the last checkpoint,
and (step, loss, lr, grad_norm) of all train and eval lines, each step exactly once.
"""
import argparse
import functools
import hashlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from scenario import Failure, require, small_run, together

METHODS = {
    "ddp": "",
    "localsgd": "H = 4\n",
    "diloco": "H = 4\n",
    "streaming-diloco": 'H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\ncodec = "int8:256"\n',
    "muloco": 'H = 4\ncodec = "lm2:ef"\nlr_warmup = 14\nlr_decay = 12\nmomentum_warmup = 9\n',
    "gpa": "mu_x = 0.9\n",
    "decoupled": 'H = 5\ngrace = "1h"\ncodec = "int8:256"\n',
    # A round is in flight after almost every step; H is no multiple of the checkpoints' period.
    "delayed": 'H = 5\ncodec = "int8:256"\n',
    "eager": 'H = 5\ncodec = "int8:256"\n',
    "streaming-diloco at half pace": 'H = 6\nfragments = 2\noverlap = 4\ncodec = "topk:512:ef"\n',
    "co2": 'H = 5\nmomentum = 0.3\nstaleness_penalty = "gap-aware"\nmomentum_clip = 0.01\n',
    "sparseloco": "H = 5\n",
    "1bit-adam": "freeze = 6\n",
    # Both phases, and syncs two and four steps apart.
    "01-adam": "var_freeze_step = 24\nvar_update_scaler = 4\nlocal_step_scaler = 10\nlocal_step_clipper = 4\n",
    "spsa": "samples = 2\n",
}


def config(name, text_file):
    method, _, paced = name.partition(" at ")
    workers = '[[site]]\nname = "a"\n[[site]]\nname = "b"\npace = 0.5\n' if paced else ""
    return small_run("kill", run="" if paced else f"workers = {1 if name == 'gpa' else 2}", seed=7, arch="gpt2",
                     source=f"text:{text_file}", steps=60, global_batch="256 tok", lr=2e-3, schedule="cosine",
                     warmup=5) + f"""
[outer]
method = "{method}"
{METHODS[name]}
[eval]
every = 10
tokens = "1k"
[ckpt]
every = "2 steps"
keep = 2
{workers}"""


def fingerprint(out):
    files = {}
    for path in sorted((out / "ckpt" / "last").resolve().glob("*.safetensors")):
        files[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    log = out / "method.log"
    if log.exists():
        files[log.name] = hashlib.sha256(log.read_bytes()).hexdigest()
    rows = []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["k"] in ("train", "eval"):
            rows.append((row["k"], row["step"], row["loss"], row.get("lr"), row.get("grad_norm")))
    return files, rows


def killed_and_resumed(args, method):
    chance = random.Random(f"{args.seed} {method}")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        toml = work / "run.toml"
        toml.write_text(config(method, pathlib.Path(args.text).resolve()))
        command = [args.isthmus, "train", str(toml), "--progress", "none"]
        begin = time.monotonic()
        subprocess.run(command + ["--out", str(work / "reference")], check=True, stdout=subprocess.DEVNULL)
        whole = time.monotonic() - begin
        want = fingerprint(work / "reference")
        for attempt in range(args.rounds):
            out = work / f"killed-{attempt}"
            kills = 0
            while True:
                process = subprocess.Popen(command + ["--out", str(out), "--resume", "auto"],
                                           stdout=subprocess.DEVNULL)
                try:
                    # The first kills come early; later ones leave time to get on.
                    process.wait(timeout=chance.uniform(0.02, whole * (0.3 + 0.1 * kills)))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    kills += 1
                    continue
                require(process.returncode == 0, f"{method}: resumed run ended with {process.returncode}")
                break
            got = fingerprint(out)
            if got != want:
                different = [name for name in want[0] if got[0].get(name) != want[0][name]]
                raise Failure(f"{method}, seed {args.seed}, attempt {attempt}, {kills} kills: "
                              f"differs in {different or 'metrics lines'}")
            print(f"{method}: {kills} kills, identical", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:  # two at a time: a run mostly waits for the disk, which holds a checkpoint of every second step
        together([functools.partial(killed_and_resumed, args, method) for method in METHODS], at_once=2)
    except Failure as failure:
        sys.exit(str(failure))


main()
