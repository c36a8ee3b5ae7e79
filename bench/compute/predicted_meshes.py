#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step times that `isthmus plan mesh` predicts beside measured ones, for meshes of threads on this machine.

  bench/compute/predicted_meshes.py --isthmus BUILD/src/app/isthmus [--config llama-mid ...] [--rounds 5] \\
      [--seconds 1] [--batch SEQUENCES] [--only NAME ...] [--again FILE]

A rank has one core. In each round every mesh is run by `bench compute`, and between them what the plan
is told of the machine, none of it by a mesh: the same model on one rank, alone and as many side by side
as a mesh has ranks (they share memory, its caches and the cores' clocks), and `bench collectives
--inner`. From a run of one rank: memory's rate (the optimizer's bytes over its time), attention's rate
(its operations over the time of attention alone), and the rate of all else (its operations over the rest
of the median step, less the bytes of the passes over memory's rate). One rank's own row is so met by
construction. A link's rate and latency are those of the operation and size that the mesh uses most.

The error is predicted / measured - 1 of medians over the rounds (and of best steps beside it). `waited`
is the share of a run's time for which its threads were kept from a core by other work; runs above
--disturbed are left out where three others are left. --again takes the lines of an earlier run instead
of measuring. Prints a JSON line a run and one a row, and on stderr a table.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

RANKS = 2
PIPE = ["--pp", "2", "--micro-batches"]
ALONE, SIDE = "alone", "side by side"
MESHES = {
    "one rank": [],
    "one rank, 4 micro-batches": ["--micro-batches", "4"],
    "one rank, recompute": ["--recompute"],
    "tp=2": ["--tp", "2"],
    "tp=2, sequence parallel": ["--tp", "2", "--sequence-parallel"],
    "tp=2, recompute": ["--tp", "2", "--recompute"],
    "dp=2": ["--dp", "2"],
    "dp=2, ZeRO 1": ["--dp", "2", "--zero", "1"],
    "dp=2, ZeRO 2": ["--dp", "2", "--zero", "2"],
    "dp=2, ZeRO 3": ["--dp", "2", "--zero", "3"],
    "pp=2, 1f1b, m=4": [*PIPE, "4"],
    "pp=2, 1f1b, m=8": [*PIPE, "8"],
    "pp=2, 1f1b, m=8, recompute": [*PIPE, "8", "--recompute"],
    "pp=2, gpipe, m=8": [*PIPE, "8", "--schedule", "gpipe"],
    "pp=2, zb-h1, m=8": [*PIPE, "8", "--schedule", "zb-h1"],
    "pp=2, interleaved v=2, m=8": [*PIPE, "8", "--schedule", "interleaved-1f1b", "--virtual-stages", "2"],
}
GOAL = 0.15


def ranks_of(flags):
    return RANKS if {"--tp", "--pp", "--dp"} & set(flags) else 1


def waited_s(pid):
    """Seconds for which each thread has stood in a run queue."""
    waits = {}
    for task in pathlib.Path("/proc", str(pid), "task").glob("*/schedstat"):
        try:
            waits[task] = int(task.read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue  # it has ended, or the system does not say
    return waits


def bench(args, config, flags, threads, copies=1):
    """Lines of so many runs side by side."""
    command = [args.isthmus, "bench", "compute", "--config", config, "--threads", str(threads), "--seconds",
               str(args.seconds), *flags]
    if args.batch:
        command += ["--batch", str(args.batch)]
    begin = time.monotonic()
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(copies)]
    waits = [{} for _ in runs]
    while any(run.poll() is None for run in runs):
        for run, wait in zip(runs, waits):
            wait.update(waited_s(run.pid))
        time.sleep(0.02)
    wall = time.monotonic() - begin
    lines = []
    for run, wait in zip(runs, waits):
        if run.returncode:
            sys.exit(f"predicted_meshes: {' '.join(command)} failed with exit code {run.returncode}")
        line = json.loads(run.stdout.read().decode().strip().splitlines()[-1])
        lines.append({**line, "waited": round(sum(wait.values()) / wall / threads, 3),
                      "load": round(os.getloadavg()[0], 2)})
    return lines


def collectives(args):
    command = [args.isthmus, "bench", "collectives", "--inner", "--ranks", str(RANKS), "--seconds", "0.05",
               "--largest-mib", str(args.largest_mib), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    return [line for line in lines if line["operation"] in ("all_reduce", "reduce_scatter", "message")]


def measure(args, config, names):
    """Lines of all rounds, each with its row."""
    lines = []

    def add(row, number, found):
        for line in found:
            lines.append({"row": row, "round": number, **line})
            print(json.dumps(lines[-1]), flush=True)

    every = -(-len(names) // args.calibrations)
    alone = any(ranks_of(MESHES[name]) == 1 for name in names)
    for number in range(args.rounds):
        for at, name in enumerate(names if number % 2 == 0 else reversed(names)):
            if at % every == 0:
                if alone:
                    add(ALONE, number, bench(args, config, [], 1))
                add(SIDE, number, bench(args, config, [], 1, copies=RANKS))
                add("collectives", number, [{"config": config, **line} for line in collectives(args)])
            add(name, number, bench(args, config, MESHES[name], ranks_of(MESHES[name])))
    return lines


class Lines:
    """What was measured of a configuration; `of` says which of a run's times counts."""

    def __init__(self, lines, disturbed):
        self.lines, self.disturbed = lines, disturbed

    def of(self, row):
        all_runs = [line for line in self.lines if line["row"] == row]
        calm = [line for line in all_runs if line["waited"] <= self.disturbed]
        return calm if len(calm) >= 3 else all_runs

    def value(self, row, key, best):
        if key == "ms":
            key = "ms_best" if best else "ms_med"
        return (min if best else statistics.median)(line[key] for line in self.of(row))

    def operation_us(self, operation, size, best):
        """Bytes and microseconds of an operation of the measured size that is nearest."""
        runs = [line for line in self.lines if line["row"] == "collectives" and line["operation"] == operation]
        near = min({line["bytes"] for line in runs}, key=lambda bytes_: abs(bytes_ - size))
        return near, statistics.median(line["least_us" if best else "us"] for line in runs if line["bytes"] == near)


def plan(args, line, flags, machine):
    """The plan's only mesh."""
    given = [{"--virtual-stages": "--virtual"}.get(flag, flag) for flag in flags if flag != "--sequence-parallel"]
    for flag, default in {"--tp": "1", "--pp": "1", "--dp": "1", "--micro-batches": "1", "--zero": "0",
                          "--schedule": "1f1b"}.items():
        if flag not in given:
            given += [flag, default]
    given += ["--sequence-parallel", "true" if "--sequence-parallel" in flags else "false"]
    command = [args.isthmus, "plan", "mesh", "--json", "--model", line["config"], "--context", str(line["T"]),
               "--batch", f"{line['B'] * line['T']} tok", "--precision", line["dtype"], "--optimizer",
               line["optimizer"], "--ranks", str(ranks_of(flags)), *given]
    for flag, value in machine.items():
        command += [flag, value]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["meshes"][0]


def work_of_one_rank(args, line):
    """Operations of products and of attention, bytes of passes and of the update, as the plan counts them."""
    most = "1e12GFLOP/s"
    products = plan(args, line, [], {"--compute": "1GFLOP/s", "--attention": most})["time_s"]["compute"] * 1e9
    attention = plan(args, line, [], {"--compute": most, "--attention": "1GFLOP/s"})["time_s"]["compute"] * 1e9
    memory = plan(args, line, [], {"--compute": most, "--memory-rate": "1GB/s"})["time_s"]
    return products, attention, memory["compute"] * 1e9, memory["update"] * 1e9


def machine_of(args, lines, row, best):
    """What one rank computes and reads a second, from runs of one rank."""
    products, attention, passes, update = work_of_one_rank(args, lines.of(row)[0])
    step, in_attention, in_update = (lines.value(row, key, best) / 1e3
                                     for key in ("ms", "attention_ms", "optimizer_ms"))
    memory = update / in_update
    rest = step - in_attention - in_update - passes / memory
    return {"--compute": f"{products / rest / 1e9:.6g}GFLOP/s",
            "--attention": f"{attention / in_attention / 1e9:.6g}GFLOP/s", "--memory-rate": f"{memory / 1e9:.6g}GB/s"}


def link_of(lines, flags, traffic, best):
    """Rate and latency of the operation that a mesh uses most, at its size."""
    dimension, operation = ("pipeline", "message") if "--pp" in flags else (
        "tensor" if "--tp" in flags else "data",
        "reduce_scatter" if "--sequence-parallel" in flags or "--dp" in flags else "all_reduce")
    used = traffic[dimension]
    size = used["payload_bytes"] / used["operations"]
    hops = 2 if operation == "all_reduce" else 1
    sent = 1 if operation in ("message", "all_reduce") else (RANKS - 1) / RANKS  # of the payload, by a rank
    latency = lines.operation_us(operation, 0, best)[1] / hops
    near, us = lines.operation_us(operation, size, best)
    return {"--node-link": f"{sent * near / max(us - hops * latency, 0.1) / 1e3:.6g}GB/s",
            "--node-latency": f"{latency:.6g}us"}


def predicted(args, lines, name, best):
    flags = MESHES[name]
    one = ranks_of(flags) == 1
    machine = machine_of(args, lines, ALONE if one else SIDE, best)
    line = lines.of(name)[0]
    if not one:
        machine |= link_of(lines, flags, plan(args, line, flags, machine)["traffic"], best)
    return plan(args, line, flags, machine), machine


def row_line(args, lines, name):
    mesh, machine = predicted(args, lines, name, best=False)
    best, _ = predicted(args, lines, name, best=True)
    runs = lines.of(name)
    medians = [run["ms_med"] for run in runs]
    measured, measured_best = statistics.median(medians), min(run["ms_best"] for run in runs)
    loads = [line["load"] for line in lines.lines if "load" in line]
    return {"bench": "predicted_mesh", "config": runs[0]["config"], "B": runs[0]["B"], "T": runs[0]["T"],
            "mesh": name, "runs": len(runs), "of_runs": sum(line["row"] == name for line in lines.lines),
            "predicted_ms": round(mesh["step_s"] * 1e3, 2), "measured_ms": round(measured, 2),
            "least_ms": round(min(medians), 2), "most_ms": round(max(medians), 2),
            "error": round(mesh["step_s"] * 1e3 / measured - 1, 4),
            "predicted_best_ms": round(best["step_s"] * 1e3, 2), "best_ms": round(measured_best, 2),
            "error_best": round(best["step_s"] * 1e3 / measured_best - 1, 4),
            "waited": round(statistics.median(run["waited"] for run in runs), 3),
            "load": [min(loads), max(loads)], "time_s": mesh["time_s"], "machine": machine}


def report(args, rows):
    for row in rows:
        print(json.dumps(row), flush=True)
    print(f"{'':28} predicted  measured (least to most)    error   of best  waited", file=sys.stderr)
    for row in rows:
        missed = "  misses" if abs(row["error"]) > GOAL else ""
        print(f"{row['mesh']:28} {row['predicted_ms']:6.0f} ms  {row['measured_ms']:5.0f} ({row['least_ms']:.0f} to "
              f"{row['most_ms']:.0f}, {row['runs']} runs) {row['error']:+7.1%}  {row['error_best']:+7.1%}  "
              f"{row['waited']:.2f}{missed}", file=sys.stderr)
    met = sum(abs(row["error"]) <= GOAL for row in rows)
    print(f"{met} of {len(rows)} within {GOAL:.0%}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--isthmus", required=True, help="path of the program")
    parser.add_argument("--config", action="append", help="workload of bench compute (default: llama-mid)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of timed steps, each run; at least three steps")
    parser.add_argument("--batch", type=int, help="sequences in a step (default: the workload's)")
    parser.add_argument("--only", action="append", choices=list(MESHES))
    parser.add_argument("--disturbed", type=float, default=0.1)
    parser.add_argument("--calibrations", type=int, default=3, help="in a round, spread over it")
    parser.add_argument("--largest-mib", type=int, default=16, help="of a measured collective")
    parser.add_argument("--again", type=pathlib.Path, metavar="FILE", help="lines of an earlier run")
    args = parser.parse_args()
    names = args.only or list(MESHES)
    earlier = []
    if args.again:
        earlier = [line for line in map(json.loads, args.again.read_text().splitlines()) if "row" in line]
    for config in args.config or ["llama-mid"]:
        lines = [line for line in earlier if line["config"] == config]
        if not args.again:
            lines = measure(args, config, names)
        found = Lines(lines, args.disturbed)
        rows = [row_line(args, found, name) for name in names if any(line["row"] == name for line in lines)]
        print(f"\n{config}", file=sys.stderr)
        report(args, rows)


if __name__ == "__main__":
    main()
