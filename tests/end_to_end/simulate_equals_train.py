#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A simulated and an in-process run of one file give the same parameters, losses and rounds' numbers,
bit for bit.

  python3 tests/end_to_end/simulate_equals_train.py --isthmus build/bin/isthmus

Also: the same seed simulated twice gives the same metrics, simulated times included; another number
of threads changes nothing; the predicted time agrees with the simulated one.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

from scenario import small_run

METHODS = {
    "ddp": "",
    "localsgd": "H = 4\n",
    "diloco": 'H = 4\ncodec = "int8"\n',
    "streaming-diloco": "H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\n",
    "muloco": 'H = 5\ncodec = "lm2:ef"\nlr_warmup = 12\nmomentum_decay = 9\n',
    "gpa": "mu_x = 0.9\n",
    # With a grace window as long as any merge takes, which real time needs for equal bits.
    "decoupled": 'H = 5\ngrace = "1h"\ncodec = "int8"\n',
    "delayed": "H = 5\n",
    # The last worker takes every other step.
    "delayed at half pace": 'H = 5\ncodec = "int8:ef"\n',
    "eager": 'H = 5\ncodec = "int8"\n',
    "co2": 'H = 5\nstaleness_penalty = "gap-aware"\nmomentum_clip = 0.01\nfinal_sync = "full"\n',
    "sparseloco": 'H = 5\nfinal_sync = "full"\n',
    "1bit-adam": "freeze = 6\n",
    "01-adam": "var_freeze_step = 10\nvar_update_scaler = 3\nlocal_step_scaler = 6\nlocal_step_clipper = 2\n",
    "spsa": "samples = 2\n",
}
# Fragments whose rounds overlap queue behind one another on a link; the closed form adds them up.
# A merge of decoupled goes by the coordinator, one way more than the gather that is predicted.
PREDICTION_TOLERANCE = {"streaming-diloco": 0.05, "decoupled": 0.12}
EXACT = 0.001


def config(name, workers, text_file):
    method, _, paced = name.partition(" at ")
    paces = [1] * (workers - 1) + [0.5 if workers > 1 else 1] if paced else []
    sites = "".join(f'[[site]]\nname = "w{w}"\npace = {pace}\n' for w, pace in enumerate(paces))
    return small_run("same", run="" if paces else f"workers = {workers}", seed=3, arch="llama",
                     source=f"text:{text_file}", steps=24, global_batch=f"{workers * 128} tok", lr=2e-3) + f"""
[outer]
method = "{method}"
{METHODS[name]}
[eval]
every = 6
tokens = "1k"
[sim]
step_time = "50ms"
link_model = "ideal"
{sites}"""


def fingerprint(out, with_time=False):
    model = out / "ckpt" / "last" / "model.safetensors"
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    keys = ("k", "step", "loss", "grad_norm", "lr", "delta_norm", "err", "cos") + (
        ("ts",) if with_time else ())
    return (hashlib.sha256(model.read_bytes()).hexdigest(),
            [[row.get(key) for key in keys] for row in rows
             if row["k"] in ("train", "eval", "round")])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    args = parser.parse_args()
    for method in METHODS:
        for workers in (1,) if method == "gpa" else (1, 2, 3):
            with tempfile.TemporaryDirectory() as folder:
                work = pathlib.Path(folder)
                toml = work / "run.toml"
                toml.write_text(config(method, workers, pathlib.Path(args.text).resolve()))

                def run(command, name, *extra):
                    subprocess.run([args.isthmus, command, str(toml), "--out", str(work / name),
                                    "--progress", "none", *extra], check=True,
                                   stdout=subprocess.DEVNULL)
                    return work / name

                link = ("--link", "10Mbit/s,40ms")
                real = fingerprint(run("train", "real"))
                single = fingerprint(run("train", "single", "--set", "train.threads=12"))
                simulated = run("simulate", "simulated", *link)
                again = run("simulate", "again", *link)
                if not real == single == fingerprint(simulated):
                    sys.exit(f"{method}, {workers} workers: worlds differ")
                if fingerprint(simulated, True) != fingerprint(again, True):
                    sys.exit(f"{method}, {workers} workers: two simulations differ")
                summary = json.loads((simulated / "summary.json").read_text())
                error = abs(summary["prediction"]["error"])
                if error > PREDICTION_TOLERANCE.get(method, EXACT):
                    sys.exit(f"{method}, {workers} workers: prediction off by {error:.2%}")
                print(f"{method}, {workers} workers: identical, prediction off by {error:.3%}",
                      flush=True)


main()
