#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training step over a mesh of two ranks, beside one rank with two threads and PyTorch's DDP, in turns.

  bench/compute/meshes.py --isthmus BUILD/src/app/isthmus [--config llama-mid] [--rounds 5] \\
      [--seconds 4] [--batch SEQUENCES] [--ddp PYTHON] [--only NAME ...]

Ranks are threads of one core each; DDP is two processes of one thread each over gloo, with fused AdamW
and clipping, bucketed and overlapped as PyTorch does by default. Every contender takes the same global
batch (default: the workload's; with dp = 2 a rank takes half). Prints a JSON line a run and one a contender: the median over the rounds of its tokens/s (median
step) over those of one rank in the same round, the lowest and highest, and what is aimed at. A
pipeline is compared with one rank that takes as many micro-batches, less the bubble of its schedule.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys

MICRO_BATCHES = 8
ONE_RANK = "one rank"
SPLIT = "one rank, 8 micro-batches"
#            flags, compared with, share of its speed that is aimed at
CONTENDERS = {
    ONE_RANK: ([], None, None),
    SPLIT: (["--micro-batches", "8"], None, None),
    "tp=2": (["--tp", "2"], ONE_RANK, 0.90),
    "tp=2, sequence parallel": (["--tp", "2", "--sequence-parallel"], ONE_RANK, 0.90),
    "dp=2": (["--dp", "2"], ONE_RANK, 0.95),
    "dp=2, ZeRO 3": (["--dp", "2", "--zero", "3"], "dp=2", 0.85),
    # (p - 1) / (m + p - 1) of a step is bubble
    "pp=2": (["--pp", "2", "--micro-batches", "8"], SPLIT, 0.95 * MICRO_BATCHES / (MICRO_BATCHES + 1)),
    "pp=2, zb-h1": (["--pp", "2", "--micro-batches", "8", "--schedule", "zb-h1"], "pp=2", None),
}


def ours(args, flags):
    return [args.isthmus, "bench", "compute", "--config", args.config, "--threads", "2", "--seconds",
            str(args.seconds), *(["--batch", str(args.batch)] if args.batch else []), *flags]


def ddp_rank(args):
    """One process of DDP; the first prints its steps' times."""
    from time import perf_counter as now

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from compare_with_torch import WORKLOADS, torch_model
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=args.rank, world_size=2)
    vocab, context, batch = WORKLOADS[args.config][5:8]
    batch = args.batch or batch
    model = DistributedDataParallel(torch_model(WORKLOADS[args.config], "cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.randint(0, vocab, (batch // 2, context + 1))
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step():
        begin = now()
        model(inputs, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.barrier()
        return now() - begin

    step()
    steps = torch.tensor([min(400, max(3, int(args.seconds / step())))])
    dist.broadcast(steps, 0)
    times = [step() for _ in range(int(steps))]
    if args.rank == 0:
        print(json.dumps({"bench": "ddp", "torch": torch.__version__, "config": args.config, "B": batch,
                          "T": context, "steps": len(times), "ms_med": statistics.median(times) * 1e3,
                          "tok_s_med": batch * context / statistics.median(times)}))
    dist.destroy_process_group()


def run_ddp(args):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    ranks = [subprocess.Popen([args.ddp, os.path.abspath(__file__), "--config", args.config, "--seconds",
                               str(args.seconds), "--rank", str(rank), "--port", str(port),
                               *(["--batch", str(args.batch)] if args.batch else [])],
                              stdout=subprocess.PIPE, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
             for rank in range(2)]
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("meshes: a process of DDP failed")
    return json.loads(outputs[0].decode().strip().splitlines()[-1])


def run(args, name):
    if name == "ddp":
        return run_ddp(args)
    done = subprocess.run(ours(args, CONTENDERS[name][0]), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def summary(name, rounds):
    against, aim = CONTENDERS[name][1:] if name in CONTENDERS else (ONE_RANK, None)
    if against is None or against not in rounds[0]:
        return None
    ratios = [each[name] / each[against] for each in rounds]
    line = {"bench": "mesh_ratio", "mesh": name, "against": against, "rounds": len(rounds),
            "ratio": round(statistics.median(ratios), 3), "low": round(min(ratios), 3),
            "high": round(max(ratios), 3)}
    if aim is not None:
        line["aimed_at"] = round(aim, 3)
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--isthmus", help="path of the program")
    parser.add_argument("--config", default="llama-mid")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--batch", type=int, help="sequences in a step, of all ranks together")
    parser.add_argument("--ddp", metavar="PYTHON", help="interpreter that has torch")
    parser.add_argument("--only", action="append", choices=[*CONTENDERS, "ddp"])
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        return ddp_rank(args)
    if not args.isthmus:
        sys.exit("meshes: --isthmus PATH of the program is needed")
    names = args.only or [*CONTENDERS, *(["ddp"] if args.ddp else [])]
    rounds = []
    for number in range(args.rounds):
        rounds.append({})
        for name in names if number % 2 == 0 else reversed(names):
            line = run(args, name)
            rounds[-1][name] = line["tok_s_med"]
            print(json.dumps({"mesh": name, "round": number, **line}), flush=True)
    for name in names:
        line = summary(name, rounds)
        if line:
            print(json.dumps(line), flush=True)
            print(f"{name:24} {line['ratio']:.3f} of {line['against']} ({line['low']:.3f} to {line['high']:.3f})"
                  f"{', aimed at ' + format(line['aimed_at'], '.3f') if 'aimed_at' in line else ''}", file=sys.stderr)


if __name__ == "__main__":
    main()
