# SPDX-License-Identifier: Apache-2.0
"""A site of two FSDP2 ranks beside a site of one process, each alone on the machine and in turns: a step without a
sync, a sync of 9.0 M float32 values in 148 tensors (H = 1, one site, so no line is in the way), memory of rank 0.

  python3 bench/python/ranks.py [--rounds 3] [--syncs 20] [--steps 300]

JSON lines. "step": what site.step() takes where nothing is due, between steps of --work-ms that all ranks take, and
what an empty broadcast over gloo takes in the same places. "sync": site.step() with a sync in it. "rss_mib": peak of
rank 0, less that of the same process before join."""
import argparse
import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch

SHAPES = [(5000, 192)] + [(64, 192), (192,), (192, 192), (576, 64), (192,), (192, 192), (192,)] * 21


def model_of(values):
    torch.manual_seed(0)
    shapes = SHAPES[:148]
    rest = values - sum(torch.Size(each).numel() for each in shapes[1:])
    if rest < 0:
        shapes, rest = [()], values
    return torch.nn.ParameterList([torch.nn.Parameter(0.01 * torch.randn(rest))]
                                  + [torch.nn.Parameter(0.01 * torch.randn(each)) for each in shapes[1:]])


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(what, kind, file, out, steps, work_ms):
    import isthmus.torch
    dist = torch.distributed
    torch.set_num_threads(1)
    shared = "WORLD_SIZE" in os.environ
    if shared:
        dist.init_process_group("gloo")
    model = model_of(9_000_000 if what == "sync" else 1000)
    if kind == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    times, bare = [], []
    word = torch.zeros(4, dtype=torch.int64)
    before = memory()

    def work():
        end = time.perf_counter() + work_ms / 1000
        while time.perf_counter() < end:
            pass
        if shared:
            dist.barrier()  # as the collectives of a training step do

    with isthmus.torch.join(file, model, site="east", out=out) as site:
        for t, _ in site.steps():
            if what == "sync":
                with torch.no_grad():
                    for each in model:
                        each.mul_(1 - 1e-4)
            else:
                work()
                if shared:
                    begin = time.perf_counter()
                    dist.broadcast(word, 0)
                    bare.append(time.perf_counter() - begin)
            if shared:
                dist.barrier()
            begin = time.perf_counter()
            site.step(0.0)
            times.append(time.perf_counter() - begin)
    print(json.dumps({"times": times[3:-1], "bare": bare[3:], "rss_mib": memory() - before}))


def play(what, kind, steps, work_ms):
    folder = pathlib.Path(tempfile.mkdtemp())
    file = folder / "run.toml"
    H = 1 if what == "sync" else 1_000_000
    file.write_text(f'[train]\nsteps = {steps}\n[outer]\nmethod = "diloco"\nH = {H}\nfinal_sync = "none"\n'
                    f'[net]\nplaintext = true\n[[site]]\nname = "east"\naddress = "127.0.0.1:{free_port()}"\n')
    port, size = str(free_port()), 2 if kind != "one" else 1
    children = []
    for rank in range(size):
        env = dict(os.environ)
        if size > 1:
            env.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        children.append(subprocess.Popen([sys.executable, __file__, "child", what, kind, file, folder / "out",
                                          str(steps), str(work_ms)], stdout=subprocess.PIPE, text=True, env=env))
    return [json.loads(each.communicate()[0].splitlines()[-1]) for each in children][0]


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "child":
        what, kind, file, out, steps, work_ms = sys.argv[2:]
        child(what, kind, file, out, int(steps), float(work_ms))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--syncs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--work-ms", type=float, default=5)
    args = parser.parse_args()
    kinds = ("one", "replicas", "fsdp2")
    for what, steps in (("step", args.steps), ("sync", args.syncs)):
        found = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind in kinds:
                found[kind].append(play(what, kind, steps, args.work_ms))
        for kind in kinds:
            times = [each for one in found[kind] for each in one["times"]]
            bare = [each for one in found[kind] for each in one["bare"]]
            row = {"bench": "ranks", "what": what, "kind": kind, "torch": torch.__version__, "count": len(times),
                   "median_us": statistics.median(times) * 1e6, "p90_us": statistics.quantiles(times, n=10)[8] * 1e6,
                   "best_us": min(times) * 1e6}
            if bare:
                row["broadcast_us"] = statistics.median(bare) * 1e6
            if what == "sync":
                row["rss_mib"] = max(one["rss_mib"] for one in found[kind])
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
