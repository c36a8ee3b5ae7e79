# SPDX-License-Identifier: Apache-2.0
"""What site.step() costs at a step without a sync, beside the bare loop of about 20 ms a step, in turns.

  python3 bench/python/overhead.py [--rounds 5] [--steps 100]

One JSON line. Bounds: at most 1.005 times the bare loop, at most 40 us a step. "call_us" is the wall time of the call,
"call_cpu_us" the processor time of its thread, which says more on a busy machine."""
import argparse
import json
import pathlib
import statistics
import tempfile
import time

import torch

import isthmus
import isthmus.torch

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--rows", type=int, default=256, help="of a batch: how long a step takes")
args = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(12)])
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
x = torch.randn(args.rows, 256)


def train():
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss


def bare():
    times = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        train()
        times.append(time.perf_counter() - begin)
    return times


whole, calls, used, without = [], [], [], []
file = pathlib.Path(tempfile.mkdtemp()) / "run.toml"
file.write_text(f"""
[run]
workers = 1
[train]
steps = {args.rounds * args.steps}
[outer]
method = "diloco"
H = 1000000
final_sync = "none"
""")


def body(site):
    isthmus.torch.attach(site, model, opt)
    for t, _ in site.steps():
        if t % args.steps == 1:
            without.extend(bare())
        begin = time.perf_counter()
        loss = train()
        told, own = time.perf_counter(), time.thread_time()
        site.step(loss, tokens=256)
        used.append(time.thread_time() - own)
        end = time.perf_counter()
        whole.append(end - begin)
        calls.append(end - told)


isthmus.run(file, body, out=file.parent / "run")
base, ours = statistics.median(without), statistics.median(whole)
print(json.dumps({"bench": "overhead", "torch": torch.__version__, "steps": len(whole), "bare_ms": base * 1e3,
                  "with_ms": ours * 1e3, "ratio": ours / base, "call_us": statistics.median(calls) * 1e6,
                  "call_us_p90": statistics.quantiles(calls, n=10)[8] * 1e6,
                  "call_cpu_us": statistics.median(used) * 1e6}))
