# SPDX-License-Identifier: Apache-2.0
"""A sync of 9.0 M float32 values in 148 tensors between two processes on loopback: isthmus beside DiLoCo written
in PyTorch with one flat all-reduce over gloo, in turns.

  python3 bench/python/sync.py [--rounds 3] [--syncs 20]

JSON lines. The inner step is empty, so the time of a step is that of a sync. Bounds of the ratio to gloo: fp32 1.0,
int8 and bf16 0.6."""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch

SHAPES = [(5000, 192)] + [(64, 192), (192,), (192, 192), (576, 64), (192,), (192, 192), (192,)] * 21


def model_of():
    torch.manual_seed(0)
    shapes = SHAPES[:148]
    rest = 9_000_000 - sum(torch.Size(each).numel() for each in shapes[1:])
    return torch.nn.ParameterList([torch.nn.Parameter(0.01 * torch.randn(rest))]
                                  + [torch.nn.Parameter(0.01 * torch.randn(each)) for each in shapes[1:]])


def change(model, rank, t):
    with torch.no_grad():
        for each in model:
            each.mul_(1 - 1e-4 * (1 + rank))


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def gloo(rank, port, syncs):
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    model = model_of()
    anchor = torch.cat([each.detach().reshape(-1) for each in model])
    outer = torch.nn.Parameter(anchor)
    optimizer = torch.optim.SGD([outer], lr=0.7, momentum=0.9, nesterov=True)
    times = []
    for t in range(1, syncs + 1):
        change(model, rank, t)
        dist.barrier()
        begin = time.perf_counter()
        with torch.no_grad():
            delta = outer - torch.cat([each.detach().reshape(-1) for each in model])
            dist.all_reduce(delta)
            outer.grad = delta.div_(2)
            optimizer.step()
            at = 0
            for each in model:
                each.copy_(outer[at : at + each.numel()].view_as(each))
                at += each.numel()
        times.append(time.perf_counter() - begin)
    return times


def isthmus_site(rank, file, out):
    import isthmus.torch
    model = model_of()
    times = []
    with isthmus.torch.join(file, model, site=("east", "west")[rank], out=out) as site:
        for t, _ in site.steps():
            change(model, rank, t)
            begin = time.perf_counter()
            site.step(0.0)
            times.append(time.perf_counter() - begin)
    return times[:-1]  # the last one writes the run's end


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "child":
        _, _, kind, rank, *rest = sys.argv
        torch.set_num_threads(1)
        times = gloo(int(rank), int(rest[0]), int(rest[1])) if kind == "gloo" else isthmus_site(int(rank), *rest)
        print(json.dumps(times[3:]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--syncs", type=int, default=20)
    args = parser.parse_args()
    found = {}
    for _ in range(args.rounds):
        for kind in ("gloo", "fp32", "bf16", "int8"):
            folder = pathlib.Path(tempfile.mkdtemp())
            if kind == "gloo":
                rest = [str(free_port()), str(args.syncs)]
                given = [["child", "gloo", str(rank), *rest] for rank in range(2)]
            else:
                file = folder / "run.toml"
                file.write_text(
                    f'[train]\nsteps = {args.syncs}\n[outer]\nmethod = "diloco"\nH = 1\ncodec = "{kind}"\n'
                    f'[net]\nplaintext = true\n[[site]]\nname = "east"\naddress = "127.0.0.1:{free_port()}"\n'
                    f'[[site]]\nname = "west"\naddress = "127.0.0.1:{free_port()}"\n')
                given = [["child", "isthmus", str(rank), str(file), str(folder / str(rank))] for rank in range(2)]
            children = [subprocess.Popen([sys.executable, __file__, *each], stdout=subprocess.PIPE, text=True,
                                         env=os.environ) for each in given]
            for each in children:
                found.setdefault(kind, []).extend(json.loads(each.communicate()[0].splitlines()[-1]))
    base = statistics.median(found["gloo"])
    for kind, times in found.items():
        median = statistics.median(times)
        print(json.dumps({"bench": "sync", "kind": kind, "torch": torch.__version__, "values": 9_000_000,
                          "tensors": 148, "syncs": len(times), "median_ms": median * 1e3, "best_ms": min(times) * 1e3,
                          "ratio_to_gloo": median / base}))


if __name__ == "__main__":
    main()
