#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A site joins over shaped links: how fast its state comes, and what that costs the others' rounds.

  sudo python3 bench/transport/joining.py --build BUILD [--joins 3] [--method diloco] [--serve 20Mbit/s]

Three sites train in network namespaces joined by bench_wan; a fourth is killed and started again, so
it joins. The state's time is from the table of its pieces to the last piece, as the joiner logs it.
Its bound is the least time that the lines allow: all of it over the joiner's line, what only the donor
has over the donor's. A round's time is what the first site waits for it: the median of those that
ran while a state was on its way, over that of those of the same members before. Prints JSON lines.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import wan

NAMES = ("east", "west", "north", "south")
TEXT = """
[run]
name = "joining"
seed = 3
[model]
arch = "llama"
layers = 2
d_model = {d_model}
heads = 4
[data]
source = "text:{corpus}"
[train]
steps = 1000000
global_batch = "128 tok"
context = 32
threads = 1
[inner]
lr = 1e-4
schedule = "constant"
[ckpt]
every = "100000 steps"
[eval]
every = 1000000
[net]
gather = "120s"
plaintext = true
{net}
[outer]
method = "{method}"
{keys}
{sites}
"""


class Run:
    def __init__(self, args, folder):
        self.isthmus, self.folder = args.build / "src/app/isthmus", folder
        sites = "".join(f'[[site]]\nname = "{name}"\naddress = "{wan.address(member)}:{wan.PORT}"\n'
                        for member, name in enumerate(NAMES))
        self.toml = folder / "run.toml"
        self.toml.write_text(TEXT.format(
            corpus=args.text, d_model=args.d_model, method=args.method, sites=sites,
            keys=f'H = {args.H}\ncodec = "{args.codec}"' if args.method == "diloco" else "",
            net=(f'serve = "{args.serve}"\n' if args.serve else "") + "min_sites = 1"))
        self.sites = {}
        for name in NAMES:
            self.start(name)

    def start(self, name, *flags):
        said = open(self.folder / f"{name}.err", "a")
        self.sites[name] = subprocess.Popen(
            wan.inside(NAMES.index(name), self.isthmus, "train", self.toml, "--site", name, "--progress",
                       "none", "--out", self.folder / name, *flags),
            stdout=subprocess.DEVNULL, stderr=said)

    def said(self, name):
        return (self.folder / f"{name}.err").read_text()

    def rounds(self, members=None):
        path = self.folder / "east/metrics.jsonl"
        text = path.read_text().rpartition("\n")[0] if path.exists() else ""
        rows = [json.loads(line) for line in text.splitlines() if '"k":"round"' in line]
        return [row for row in rows if members in (None, row["members"])]

    def until(self, what, condition, patience=300):
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > patience:
                raise wan.Failure(f"not within {patience} s: {what}: " +
                                  "; ".join(self.said(name)[-400:] for name in NAMES))
            time.sleep(0.02)

    def end(self):
        for site in self.sites.values():
            if site.poll() is None:
                site.send_signal(signal.SIGKILL)
                site.wait()


def joins(args, run):
    run.until("rounds of all", lambda: len(run.rounds(4)) > 1)
    for number in range(args.joins):
        run.sites["south"].kill()
        run.sites["south"].wait()
        (run.folder / "south.err").write_text("")
        before = len(run.rounds(3))
        run.until("rounds of three", lambda: len(run.rounds(3)) >= before + args.rounds + 1)
        alone = run.rounds(3)[before + 1:]
        run.start("south", "--resume", "auto")
        run.until("an offer", lambda: run.said("east").count("takes over this site's state") > number)
        first = len(run.rounds())
        run.until("the state", lambda: "is here:" in run.said("south"))
        # The round under way at the end is one that was disturbed, and the last of them.
        run.until("a round after it", lambda: len(run.rounds()) > first)
        disturbed = run.rounds()[first:]
        run.until("rounds of all again", lambda: run.rounds()[-1]["members"] == 4)
        yield run.said("south"), alone, disturbed


def describe(args, said, alone, disturbed):
    found = re.search(r"is here: (\d+) bytes in ([0-9.]+) s; (.*)", said)
    given = {name: int(count) for name, count in re.findall(r"(\w+) (\d+) bytes", found.group(3))}
    total, seconds = int(found.group(1)), float(found.group(2))
    own = total * args.own_share
    bound = max(total * 8 / args.mbit[3], own * 8 / args.mbit[0], total * 8 / sum(args.mbit[:3])) / 1e6
    wait = lambda rows: [row["wait_s"] for row in rows]
    return {
        "bench": "joining", "method": args.method, "mbit": args.mbit, "rtt_ms": args.rtt_ms,
        "serve": args.serve, "state_bytes": total, "given": given, "seconds": seconds,
        "of_joiners_line": round(total * 8 / seconds / 1e6 / args.mbit[3], 3),
        "bound_s": round(bound, 3), "of_bound": round(bound / seconds, 3),
        "rounds_alone_s": wait(alone), "rounds_disturbed_s": wait(disturbed),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--joins", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4, help="undisturbed ones before each join")
    parser.add_argument("--method", choices=["diloco", "ddp"], default="diloco")
    parser.add_argument("--H", type=int, default=200)
    parser.add_argument("--codec", default="int8")
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--mbit", type=lambda t: [float(x) for x in t.split(",")], default=[50, 50, 50, 100])
    parser.add_argument("--rtt-ms", type=float, default=20)
    parser.add_argument("--serve")
    parser.add_argument("--text", default="/usr/include/linux/bpf.h")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    # What the donor alone has, at the end of a window: AdamW's two moments, of these, local parameters and
    # two outer buffers.
    args.own_share = 0.4 if args.method == "diloco" else 0.0
    if os.geteuid() != 0:
        print("skipped: joining.py needs root for network namespaces; use sudo", file=sys.stderr)
        return 0
    wan.end_in_order()
    wan.namespace = lambda member: f"isthmus-join-{NAMES[member]}"
    row = wan.Row("joining", args.mbit, 0, rtt_ms=args.rtt_ms)
    lines = []
    try:
        with wan.namespaces(len(NAMES)), wan.shaped_links(row, args.build, args.seed) as counters, \
                tempfile.TemporaryDirectory() as folder:
            run = Run(args, pathlib.Path(folder))
            try:
                for each in joins(args, run):
                    lines.append(describe(args, *each))
                    print(json.dumps(lines[-1]), flush=True)
            finally:
                run.end()
    except wan.Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    alone = [s for line in lines for s in line["rounds_alone_s"]]
    disturbed = [s for line in lines for s in line["rounds_disturbed_s"]]
    print(json.dumps({
        "bench": "joining_summary", "joins": len(lines),
        "of_joiners_line_median": statistics.median(line["of_joiners_line"] for line in lines),
        "of_bound_median": statistics.median(line["of_bound"] for line in lines),
        "round_alone_median_s": statistics.median(alone), "round_disturbed_median_s": statistics.median(disturbed),
        "rounds": [len(alone), len(disturbed)],
        "rounds_longer": round(statistics.median(disturbed) / statistics.median(alone) - 1, 3),
        "load": round(os.getloadavg()[0], 2), "late_us": counters.get("late_us")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
