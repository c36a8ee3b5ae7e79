# SPDX-License-Identifier: Apache-2.0
"""isthmus.simulate with M = 4 bodies of numpy, beside the same bodies one after another without isthmus, in turns.

  python3 bench/python/simulate.py [--rounds 3] [--steps 80] [--ms 20]

One JSON line. Bound: "share", the time of the bodies one after another over the time of the simulation, at least
0.95."""
import argparse
import json
import pathlib
import statistics
import tempfile
import time

import numpy as np

import isthmus

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--ms", type=float, default=20, help="about what a step takes")
args = parser.parse_args()
size = 512
x = np.random.default_rng(0).standard_normal((size, size), np.float32) / size


def model():
    return {"w": np.ones((size, size), np.float32)}


def train(params, repeats):
    for _ in range(repeats):
        params["w"] -= 1e-3 * (x @ (x @ params["w"]))


params = model()
begin, repeats = time.perf_counter(), 0
while time.perf_counter() - begin < 20 * args.ms / 1e3:
    train(params, 1)
    repeats += 1
repeats = max(1, repeats // 20)


def alone():
    for _ in range(args.workers):
        own = model()
        for _ in range(args.steps):
            train(own, repeats)


def body(site):
    own = model()
    site.attach(own)
    for _ in site.steps():
        train(own, repeats)
        site.step(1.0, tokens=size)


folder = pathlib.Path(tempfile.mkdtemp())
file = folder / "run.toml"
file.write_text(f"""
[run]
workers = {args.workers}
[train]
steps = {args.steps}
[outer]
method = "diloco"
H = 10
[sim]
step_time = "20ms"
""")
shares, both = [], []
for number in range(args.rounds):
    begin = time.perf_counter()
    alone()
    middle = time.perf_counter()
    isthmus.simulate(file, body, link="100Mbit/s,80ms", out=folder / str(number))
    end = time.perf_counter()
    both.append((middle - begin, end - middle))
    shares.append((middle - begin) / (end - middle))
print(json.dumps({"bench": "simulate", "workers": args.workers, "steps": args.steps,
                  "alone_s": statistics.median(each[0] for each in both),
                  "simulated_s": statistics.median(each[1] for each in both),
                  "share": statistics.median(shares), "least": min(shares), "most": max(shares)}))
