#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an outer loop costs the inner steps of one worker on a CUDA device, exchange apart.

  outer_overhead.py --isthmus PROGRAM [--device cuda] [--steps 120] [--small]

Trains GPT-2 124M (windows of 1024, 32 of them a step, bf16; --small: a tiny model, to try the script) on random tokens
with one worker: by DiLoCo whose H is above the run's steps, so that no outer step comes, and by streaming DiLoCo
(H = 20, 4 fragments) with the outer state on the host and on the device. A step's time is what lies between the times
of two `train` lines of metrics.jsonl. Prints a JSON line a run: the median of steps that neither send nor apply a
fragment, and of those that do, in ms, and their ratios to the median step without outer steps.
"""

import argparse
import array
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

CONFIG = """
[run]
name = "overhead"
workers = 1
seed = 5
[model]
arch = "gpt2"
layers = {layers}
d_model = {width}
heads = {heads}
vocab = 50257
[data]
source = "tokens:tokens.bin"
[train]
steps = {steps}
global_batch = "{batch} tok"
context = {context}
precision = "bf16"
device = "{device}"
[inner]
lr = 1e-4
[outer]
{outer}
[eval]
every = 0
tokens = "{context}"
"""
ALONE = 'method = "diloco"\nH = 1000000'
STREAMING = 'method = "streaming-diloco"\nH = 20\nfragments = 4\noverlap = 4\nalpha = 0.5\nplacement = "{}"'
WARM_UP = 10  # steps


def step_times(folder):
    """RETURNS: milliseconds of each step behind the warm-up, and the steps in which a fragment is sent or applied."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    at = {line["step"]: line["t"] for line in lines if line["k"] == "train"}
    syncs = {line[key] for line in lines if line["k"] == "round" for key in ("step_send", "step_apply")}
    times = {step: 1e3 * (at[step] - at[step - 1]) for step in at if step - 1 in at and step > WARM_UP}
    return times, syncs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", required=True, type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    shape = {"layers": 12, "width": 768, "heads": 12, "context": 1024, "batch": 32768}
    if arguments.small:
        shape = {"layers": 4, "width": 64, "heads": 2, "context": 64, "batch": 256}
    base = None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        generator = random.Random(1)
        with open(folder / "tokens.bin", "wb") as file:
            array.array("H", (generator.randrange(50257) for _ in range(1 << 21))).tofile(file)
        for place in (None, "host", "device"):
            if place == "device" and arguments.device == "cpu":
                continue
            outer = ALONE if place is None else STREAMING.format(place)
            config = CONFIG.format(outer=outer, steps=arguments.steps, device=arguments.device, **shape)
            (folder / "run.toml").write_text(config)
            out = folder / f"out-{place}"
            command = [arguments.isthmus.resolve(), "train", "run.toml", "--out", out, "--progress", "none"]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times, syncs = step_times(out)
            method = "none" if place is None else "streaming-diloco"
            line = {"bench": "outer_overhead", "method": method, "placement": place}
            for kind, of in (("between", lambda s: s not in syncs), ("sync", lambda s: s in syncs)):
                some = [ms for step, ms in times.items() if of(step)]
                if not some:
                    continue
                median = statistics.median(some)
                base = base or median
                quartiles = statistics.quantiles(some, n=4)
                line |= {
                    f"{kind}_steps": len(some),
                    f"{kind}_ms_med": round(median, 3),
                    f"{kind}_ms_quartiles": [round(quartiles[0], 3), round(quartiles[2], 3)],
                    f"{kind}_ratio": round(median / base, 4),
                }
            config = "small" if arguments.small else "gpt2-124m-1k"
            print(json.dumps(line | {"device": arguments.device, "config": config}), flush=True)


if __name__ == "__main__":
    main()
