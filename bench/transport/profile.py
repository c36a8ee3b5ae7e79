#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the processor time of an exchange over loopback goes, beside gloo's and bare TCP's.

  bench/transport/profile.py --build BUILD [--gloo PYTHON] [--members 2,4] [--codec fp32] [--trials 18]

Prints JSON lines:
  passes  what `bench_passes` prints: a pass over memory, and the same bytes by bare TCP
  split   processor seconds of one member a GB (1e9 bytes of the vector in fp32) by what they go to, from samples
          by `perf record` (apt install linux-perf; absent: no such line). `share` is of all samples.
  member  wall and processor seconds, changes of context and page faults of a trial, medians over all trials of
          member 0, of isthmus and of gloo in turns
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from loopback import BYTES, free_ports
from wan import HERE, Failure, end_in_order, quantile, run_members

# What a function's samples count as; the first that fits. Names of the kernel differ by its version.
PARTS = [
    ("copies in the kernel", r"_copy_(to|from)_iter|copy_user|rep_movs|_copy_(to|from)_user|skb_copy"),
    ("memory taken the first time", r"clear_page|fault|handle_mm|alloc_pages|folio|lru_|memcg|charge|pte_|zap_"),
    ("checksums", r"crc32c|folded"),
    ("digests", r"XXH"),
    ("sums", r"decode_add|reduce_tile|decode_with|decode"),
    ("encoding", r"[Ee]ncode|block_amax|scales_for"),
    ("copies", r"memmove|memcpy|Fp32Codec::decode\b"),
    ("memory written with zeros", r"memset"),
    ("waiting and waking", r"epoll|poll|futex|eventfd|schedule|wake|switch|sched|ttwu|idle"),
    ("TCP and system calls", r"tcp|skb|ip_|inet|sock|net_|softirq|spin|syscall|entry|loopback|xmit|bbr|cubic|timer|ipi"),
    ("ZeroMQ", r"zmq"),
]


def part_of(symbol, library):
    if "zmq" in library:
        return "ZeroMQ"
    for name, pattern in PARTS:
        if re.search(pattern, symbol):
            return name
    return "rest of the kernel" if symbol.startswith("[k]") else "rest"


def commands(args, members, wrap=()):
    endpoints = ",".join(f"tcp://127.0.0.1:{port}" for port in free_ports(members))
    program = args.build / "bench/transport/bench_exchange_member"
    lines = [[program, "--member", m, "--endpoints", endpoints, "--bytes", BYTES, "--codec", args.codec,
              "--trials", args.trials] for m in range(members)]
    return [[*wrap, *lines[0]], *lines[1:]]


def gloo(args, members):
    port = free_ports(1)[0]
    return [[args.gloo, HERE / "gloo_member.py", "--member", m, "--members", members, "--address", "127.0.0.1",
             "--port", port, "--interface", "lo", "--bytes", BYTES, "--trials", args.trials] for m in range(members)]


def here(_, *command):
    return [str(part) for part in command]


def trials_of(lines):
    return [line for line in lines if line["bench"] == "exchange"]


def gb_s(trials):
    return sum(t["user_s"] + t["system_s"] for t in trials) / len(trials) / (BYTES / 1e9)


def member_line(contender, members, codec, trials):
    middle = {key: quantile([t[key] for t in trials], 0.5)
              for key in ("seconds", "user_s", "system_s", "switches", "faults")}
    seconds = sorted(t["seconds"] for t in trials)
    return {"bench": "member", "contender": contender, "members": members, "codec": codec, "bytes": BYTES,
            "trials": len(trials), "best_s": seconds[0], **middle, "cpu_s_per_gb": round(gb_s(trials), 3),
            "gbit_s_a_core": round(8 / gb_s(trials), 2), "load": os.getloadavg()[0]}


def split(args, members):
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "samples")
        lines = run_members(commands(args, members, ["perf", "record", "-q", "-F", 1999, "-o", data]),
                            60 + 10 * args.trials, where=here)[0]
        report = subprocess.run(["perf", "report", "-i", str(data), "--sort", "dso,symbol", "-F", "overhead,dso,symbol",
                                 "--field-separator", "\t"], capture_output=True, text=True, check=True).stdout
    shares = {}
    for line in report.splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) >= 3 and fields[0].endswith("%"):
            name = part_of(fields[2], fields[1])
            shares[name] = shares.get(name, 0) + float(fields[0][:-1]) / 100
    whole = gb_s(trials_of(lines))
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        print(json.dumps({"bench": "split", "members": members, "codec": args.codec, "part": name,
                          "share": round(share, 4), "s_per_gb": round(share * whole, 4)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--gloo", metavar="PYTHON", help="interpreter that has torch")
    parser.add_argument("--members", type=lambda text: [int(m) for m in text.split(",")], default=[2, 4])
    parser.add_argument("--codec", default="fp32")
    parser.add_argument("--trials", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    end_in_order()
    try:
        subprocess.run([args.build / "bench/transport/bench_passes"], check=True)
        for members in args.members:
            trials = {}
            for _ in range(args.rounds):
                trials.setdefault("isthmus", []).extend(
                    trials_of(run_members(commands(args, members), 60 + 10 * args.trials, where=here)[0]))
                if args.gloo:
                    trials.setdefault("gloo", []).extend(
                        trials_of(run_members(gloo(args, members), 60 + 10 * args.trials, where=here)[0]))
            for contender, its in trials.items():
                codec = args.codec if contender == "isthmus" else "fp32"
                print(json.dumps(member_line(contender, members, codec, its)), flush=True)
            if shutil.which("perf"):
                split(args, members)
    except (Failure, subprocess.CalledProcessError) as failure:
        sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
