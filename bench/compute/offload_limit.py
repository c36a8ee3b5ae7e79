#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model whose training state is beyond 2 GiB takes three steps under a memory limit.

sudo offload_limit.py --isthmus PROGRAM --folder FOLDER [--limit-mib 512] [--layers 14]

Runs GPT-2 (d 768, 50257 tokens, 14 layers: 138.6 M parameters) twice on FOLDER's disk: in memory
without a limit, then with train.offload in a memory cgroup of its own (v1 or v2; root), where the
page cache counts too and swap is not used. Prints a JSON line for each, and one that says whether
checkpoints, losses and norms have the same bits. Exit code 1 when they have not.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

RUN = """[run]
workers = 1
[model]
arch = "gpt2"
n_layers = {layers}
n_heads = 12
d_model = 768
vocab = 50257
[data]
source = "synth:zipf:vocab=50257,tokens=100000"
[train]
steps = 3
global_batch = "{batch} tok"
context = {context}
recompute = true
[eval]
tokens = {context}
[outer]
method = "streaming-diloco"
H = 3
fragments = {layers}
codec = "int4"
"""
V1 = pathlib.Path("/sys/fs/cgroup/memory")
V2 = pathlib.Path("/sys/fs/cgroup")


class Group:
    """A memory cgroup; without a limit it only measures."""

    def __init__(self, limit):
        self.v1 = (V1 / "memory.limit_in_bytes").exists()
        self.path = (V1 if self.v1 else V2) / f"isthmus-offload-{os.getpid()}"
        self.path.mkdir()
        if limit and self.v1:
            (self.path / "memory.limit_in_bytes").write_text(str(limit))
        elif limit:
            (self.path / "memory.max").write_text(str(limit))
            (self.path / "memory.swap.max").write_text("0")

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self):
        return int((self.path / ("memory.max_usage_in_bytes" if self.v1 else "memory.peak")).read_text())

    def remove(self):
        self.path.rmdir()


def watch(pid, peaks):
    """The largest VmHWM and RssAnon that /proc shows, every 20 ms."""
    while True:
        try:
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name in ("VmHWM", "RssAnon", "RssFile", "VmData"):
                peaks[name] = max(peaks.get(name, 0), int(value.split()[0]) * 1024)
        time.sleep(0.02)


def train(arguments, out, more, limit):
    group = Group(limit)
    peaks = {}
    begin = time.monotonic()
    try:
        child = subprocess.Popen([arguments.isthmus, "train", "run.toml", "--out", out, "--force",
                                  "--progress", "none", *more],
                                 cwd=arguments.folder, preexec_fn=group.enter,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        watcher = threading.Thread(target=watch, args=(child.pid, peaks))
        watcher.start()
        _, errors = child.communicate()
        watcher.join()
        peak = group.peak()
    finally:
        group.remove()
    record = {"bench": "offload_limit", "run": out, "limit_bytes": limit, "exit": child.returncode,
              "wall_s": round(time.monotonic() - begin, 2), "cgroup_peak_bytes": peak,
              **{name: peaks.get(name) for name in ("VmHWM", "RssAnon", "RssFile", "VmData")}}
    folder = arguments.folder / out
    if child.returncode != 0:
        record["error"] = errors.strip().splitlines()[-1:]
        return record, None
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    spans = {kind: [(e["t0"], e["t1"], e.get("bytes", 0)) for e in events if e["k"] == kind]
             for kind in ("compute", "read", "write")}
    record["step_s"] = [round(t1 - t0, 3) for t0, t1, _ in spans["compute"]]
    for kind, key in (("read", "read_bytes"), ("write", "written_bytes")):
        record[key] = [sum(e["bytes"] for e in events if e["k"] == kind and e["step"] == step)
                       for step in range(4)]  # 0: before the first
    record["log"] = [line for line in errors.splitlines() if "train.offload" in line]
    for kind in ("read", "write"):
        during = sum(max(0, min(t1, b) - max(t0, a))
                     for t0, t1, _ in spans[kind] for a, b, _ in spans["compute"])
        record[kind + "_s"] = round(sum(t1 - t0 for t0, t1, _ in spans[kind]), 2)
        record[kind + "_beside_compute_s"] = round(during, 2)
    record["ckpt_s"] = [line["s"] for line in lines if line["k"] == "ckpt"]
    record["parameters"] = lines[0]["parameters"]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
               for path in sorted((folder / "ckpt" / "last").glob("*.safetensors"))
               if path.name != "shared.safetensors"}
    numbers = [(line["k"], line["step"], line["loss"], line.get("grad_norm")) for line in lines
               if line["k"] in ("train", "eval")]
    return record, (digests, numbers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--limit-mib", type=int, default=512)
    parser.add_argument("--layers", type=int, default=14)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--only-limited", action="store_true", help="leave out the run in memory")
    arguments = parser.parse_args()
    arguments.isthmus = arguments.isthmus.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "run.toml").write_text(RUN.format(
        layers=arguments.layers, context=arguments.context,
        batch=arguments.context * arguments.sequences))
    runs = [] if arguments.only_limited else [("memory", [], 0)]
    runs.append(("files", ["--set", "train.offload=state"], arguments.limit_mib << 20))
    results = []
    for name, more, limit in runs:
        record, result = train(arguments, name, more, limit)
        print(json.dumps(record), flush=True)
        results.append(result)
    equal = None not in results and all(result == results[0] for result in results)
    print(json.dumps({"bench": "offload_limit", "same_bits": equal, "compared": len(results)}))
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
