#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The mean of 64 MB over loopback, a process a member, beside PyTorch's gloo and Open MPI in turns.

  bench/transport/loopback.py --build BUILD [--gloo PYTHON] [--mpi] [--members 2,4] [--trials 9] [--rounds 2]

--mpi: Open MPI twice, over TCP like the others, and as it does it by itself on one machine, by memory
that the processes share. Prints the JSON lines of member 0, one a trial, then one a contender with the median over all rounds
and its bus rate, 2 (M-1)/M x bytes / seconds; on stderr a table. What bounds it is the processor:
every byte is copied into the kernel and out of it, and summed.
"""
import argparse
import json
import os
import pathlib
import socket
import sys

import open_mpi
from wan import HERE, Failure, end_in_order, quantile, run_members

BYTES = 64_000_000


def here(_, *command):
    return [str(part) for part in command]


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def a_process_each(commands):
    return lambda args, members, codec, limit_s: run_members(commands(args, members, codec), limit_s, where=here)


def mpi(sockets):
    return lambda args, members, _, limit_s: open_mpi.here(args.build, members, BYTES, args.trials, limit_s, sockets)


def isthmus(args, members, codec, *also):
    endpoints = ",".join(f"tcp://127.0.0.1:{port}" for port in free_ports(members))
    return [[args.build / "bench/transport/bench_exchange_member", "--member", m, "--endpoints", endpoints,
             "--streams", args.streams, "--bytes", BYTES, "--codec", codec, "--trials", args.trials, *also]
            for m in range(members)]


def encrypted(args, members, codec):
    return isthmus(args, members, codec, "--keys")


def gloo(args, members, _):
    port = free_ports(1)[0]
    return [[args.gloo, HERE / "gloo_member.py", "--member", m, "--members", members, "--address", "127.0.0.1",
             "--port", port, "--interface", "lo", "--bytes", BYTES, "--trials", args.trials]
            for m in range(members)]


def measure(args, contenders):
    for members in args.members:
        seconds = {}
        for _ in range(args.rounds):
            for name, codec, run in contenders:
                lines = run(args, members, codec, 60 + 10 * args.trials)[0]
                trials = [line for line in lines if line["bench"] == "exchange"]
                for line in trials:
                    print(json.dumps({"row": f"loopback-m{members}", "contender": name, **line}), flush=True)
                seconds.setdefault((name, codec), []).extend(line["seconds"] for line in trials)
        for (name, codec), its in seconds.items():
            median = quantile(its, 0.5)
            row = {"bench": "loopback_row", "members": members, "contender": name, "codec": codec, "bytes": BYTES,
                   "trials": len(its), "best_s": min(its), "median_s": median, "p95_s": quantile(its, 0.95),
                   "bus_gb_s": round(2 * (members - 1) / members * BYTES / median / 1e9, 3),
                   "load": os.getloadavg()[0], "cores": os.cpu_count()}
            print(json.dumps(row), flush=True)
            print(f"M={members} {name:23} {codec:5} best {min(its):.3f} median {median:.3f} p95 {row['p95_s']:.3f} s",
                  file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--gloo", metavar="PYTHON", help="interpreter that has torch")
    parser.add_argument("--mpi", action="store_true", help="Open MPI too")
    parser.add_argument("--members", type=lambda text: [int(m) for m in text.split(",")], default=[2, 4])
    parser.add_argument("--trials", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--streams", type=lambda text: text if text == "auto" else int(text), default="auto")
    args = parser.parse_args()
    if args.mpi and (why := open_mpi.missing(args.build)):
        sys.exit(f"error: --mpi: {why}")
    contenders = [("isthmus", "fp32", a_process_each(isthmus)), ("isthmus", "int8", a_process_each(isthmus)),
                  ("isthmus, encrypted", "fp32", a_process_each(encrypted))]
    if args.gloo:
        contenders.insert(1, ("gloo", "fp32", a_process_each(gloo)))
    if args.mpi:
        contenders += [("open mpi, tcp", "fp32", mpi(True)), ("open mpi, shared memory", "fp32", mpi(False))]
    end_in_order()
    try:
        measure(args, contenders)
    except (Failure, open_mpi.MpiFailure) as failure:
        sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
