#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes made-up run directories to look at the report with: DIR/ddp, DIR/diloco and DIR/wide.

Two workers over 100 Mbit/s and 80 ms on the simulated clock of a declared 1B model. The numbers are
invented, though consistent (bytes = 4 a value, time = bytes * 8 / rate + round trips), so that the
page can be judged by eye. Usage: make_fixture_runs.py DIR
"""
import json
import math
import pathlib
import random
import sys

PARAMS, SCALE = 824_832, 1e9 / 824_832
STEP_S, RATE, RTT = 0.9, 1e8, 0.08


def toml(method, H, workers):
    return f"""# every value of this run, with where it came from
schema = 1

[run]
name = "wan"                     # wan.toml:3:8
workers = {workers}                      # wan.toml:4:11
seed = 1                         # default
[model]
arch = "llama"                   # wan.toml:7:8
layers = 4                       # default
d_model = 128                    # wan.toml:8:11
[data]
source = "text:tinyshakespeare.txt"  # wan.toml:10:10
[train]
steps = 400                      # wan.toml:12:9
global_batch = "4096 tok"        # wan.toml:13:16
context = 128                    # default
[inner]
optimizer = "adamw"              # default
lr = 0.003                       # wan.toml:18:6
schedule = "cosine"              # wan.toml:19:12
warmup = "5%"                    # wan.toml:20:10
[outer]
method = "{method}"                  # --set outer.method={method}
H = {H}                           # wan.toml:24:5
codec = "fp32"                   # default
[[link]]
between = ["east", "west"]       # wan.toml:27:11
rate = "100Mbit/s"               # wan.toml:28:8
rtt = "80ms"                     # wan.toml:29:7
[surrogate]
params = "1B"                    # wan.toml:31:10
step_time = "900ms"              # wan.toml:32:13
"""


def make(root, method, H, steps, workers=2, slow=0.0):
    rng = random.Random(method)
    out = root / method if workers == 2 else root / "wide"
    out.mkdir(parents=True, exist_ok=True)
    big = int(PARAMS * 4 * SCALE)
    metrics, events = [], []
    now, wall, sent = 0.0, 1.79e9, 0
    compute = [0.0] * workers
    metrics.append({"v": 1, "k": "meta", "run_id": f"{method}-a1b2", "method": method, "workers": workers})
    for step in range(1, steps + 1):
        floor = 1.55 + (0.02 if method != "ddp" else 0.0)
        loss = floor + 4.0 * math.exp(-step / 60) + 0.35 * math.exp(-step / 300) + rng.gauss(0, 0.025)
        warm = min(1.0, step / 20)
        lr = 3e-3 * warm * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for w in range(workers):
            length = STEP_S * (1 + slow * w)
            events.append({"k": "compute", "w": w, "peer": -1, "t0": now, "t1": now + length, "bytes": 0, "frag": -1, "step": step})
            compute[w] += length
            if now + length < now + STEP_S * (1 + slow * (workers - 1)):
                events.append({"k": "wait", "w": w, "peer": -1, "t0": now + length, "t1": now + STEP_S * (1 + slow * (workers - 1)), "bytes": 0, "frag": 0, "step": step})
        now += STEP_S * (1 + slow * (workers - 1))
        wall += 0.031
        synced = step % H == 0
        if synced:
            send = big * 8 / RATE
            for w in range(workers):
                for p in range(workers):
                    if p != w:
                        events.append({"k": "send", "w": w, "peer": p, "t0": now, "t1": now + send, "bytes": big, "frag": 0, "step": step})
                        events.append({"k": "receive", "w": w, "peer": p, "t0": now + RTT / 2, "t1": now + send + RTT / 2, "bytes": big, "frag": 0, "step": step})
                events.append({"k": "wait", "w": w, "peer": -1, "t0": now, "t1": now + send + 1.5 * RTT, "bytes": 0, "frag": 0, "step": step})
            waited = send + 1.5 * RTT
            now += waited
            sent += big * (workers - 1)
            metrics.append({"k": "round", "step": step, "frag": 0, "step_send": step, "step_apply": step, "bytes_payload": big * (workers - 1), "bytes_wire": int(big * 1.00004) * (workers - 1) + 4200, "members": workers, "codec": "fp32", "delta_norm": (0.8 if H == 1 else 5.0) * math.exp(-step / 250) + rng.random() * 0.1, "wait_s": waited, "err": None if H == 1 else 0.009 + rng.random() * 0.001, "cos": None if H == 1 else 0.6 + 0.3 * math.exp(-step / 200) + rng.random() * 0.02})
        metrics.append({"k": "train", "step": step, "loss": round(loss, 6), "lr": lr, "grad_norm": 0.6 + 2 * math.exp(-step / 30) + rng.random() * 0.1, "tok_s": 131000.0 + rng.random() * 3000, "tokens": step * 4096, "t": wall, "ts": now})
        for w in range(workers):
            metrics.append({"k": "worker", "w": w, "step": step, "loss": loss + rng.gauss(0, 0.03)})
        if step % 20 == 0 or step == steps:
            ev = floor + 0.05 + 4.0 * math.exp(-step / 60) + 0.35 * math.exp(-step / 300)
            metrics.append({"k": "eval", "step": step, "loss": ev, "ppl": math.exp(ev), "n_tokens": 32768, "t": wall, "ts": now})
    rounds = steps // H
    metrics.append({"k": "ckpt", "step": steps, "path": "ckpt/last"})
    metrics.append({"k": "end", "status": "completed"})
    (out / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))
    (out / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    config = toml(method, H, workers)
    (out / "config.toml").write_text(config)
    (out / "config.resolved.toml").write_text(config)
    names = ["east", "west", "north", "south", "isle", "peak", "dale", "moor"]
    links = [{"a": names[a], "b": names[b], "bits_per_s_up": RATE, "bits_per_s_down": RATE, "rtt_s": RTT, "loss": 0.0, "streams": 1, "congestion": "bbr"} for a in range(workers) for b in range(a + 1, workers)]
    (out / "links.json").write_text(json.dumps({"links": links}))
    payload = rounds * big * (workers - 1)
    terms = [
        {"name": "compute", "seconds": steps * STEP_S, "formula": f"steps * step_time = {steps} * 0.9 s"},
        {"name": "payload on the link", "seconds": rounds * big * 8 / RATE, "formula": f"rounds * bytes * 8 / rate = {rounds} * {big} * 8 / 100 Mbit/s"},
        {"name": "propagation", "seconds": rounds * RTT / 2, "formula": f"rounds * phases * rtt/2 = {rounds} * 1 * 40 ms"},
        {"name": "commit", "seconds": rounds * RTT, "formula": f"rounds * rtt = {rounds} * 80 ms"},
        {"name": "frame headers", "seconds": rounds * big * 0.00004 * 8 / RATE, "formula": "frames * header bytes * 8 / rate"},
    ]
    predicted = sum(t["seconds"] for t in terms)
    one = big * 8 / RATE + 1.5 * RTT
    pairs = [[0, t, one, one * (1.03 + 0.05 * rng.random())] for t in range(H, steps + 1, H)]
    measured = sorted(pair[3] for pair in pairs)
    whole = {"rounds": len(pairs), "predicted_median_s": one, "predicted_p95_s": one, "measured_median_s": measured[len(pairs) // 2], "measured_p95_s": measured[len(pairs) * 95 // 100], "error": one / measured[len(pairs) // 2] - 1}
    summary = {
        "status": "completed", "steps": steps, "tokens": steps * 4096, "final_train_loss": metrics[-5 - workers if False else -4 - workers].get("loss", 1.6),
        "final_eval_loss": ev, "bytes_payload": [payload] * workers, "bytes_wire": [int(payload * 1.00004)] * workers,
        "simulated_s": now, "wall_s": wall - 1.79e9, "compute_s": compute, "compute_utilisation": sum(compute) / workers / now,
        "traffic": [[0 if i == j else rounds * big for j in range(workers)] for i in range(workers)],
        "prediction": {"terms": terms, "predicted_s": predicted, "measured_s": now, "error": predicted / now - 1,
                       "rounds": {"at": "east", "all": whole, "fragments": [{"frag": 0, **whole}], "pairs": pairs}},
    }
    (out / "summary.json").write_text(json.dumps(summary))
    manifest = {
        "schema": 1, "run_id": f"{method}-a1b2c3", "name": "wan", "command": "simulate",
        "argv": ["isthmus", "simulate", "wan.toml", "--set", f"outer.method={method}", "--out", f"runs/{method}"],
        "config_hash": "9f2c61d0a4e8b7753a1f", "started": "2026-11-20T15:30:00Z", "ended": "2026-11-20T15:30:14Z", "status": "completed",
        "version": "0.1.0", "git": "a246714", "compiler": "GNU 12.2.0", "flags": "-O3 -ffp-contract=off", "cpu": "Intel(R) Xeon(R) Platinum 8481C", "cores": 2, "os": "Debian GNU/Linux 12",
        "data": [{"path": "tinyshakespeare.txt", "bytes": 1115394, "sha256": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"}],
        "simulated": True, "clock": "virtual", "surrogate": {"params": 1e9, "step_time_s": STEP_S}, "method": method, "workers": workers,
        "model": {"arch": "llama", "layers": 4, "d_model": 128, "heads": 4, "kv_heads": 4, "vocab": 256, "context": 128, "parameters": PARAMS}, "parent": None,
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    make(target, "ddp", 1, 400)
    make(target, "diloco", 20, 400)
    make(target, "streaming", 10, 1200, workers=8, slow=0.02)
