#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted round times beside measured ones, over shaped links with real TCP and over emulated ones.

  sudo python3 bench/transport/predicted.py --build BUILD [--row NAME ...] [--trials 7]

Shaped: wan.py's namespaces and bench_wan, a process a member; predicted is bench_exchange_simulated,
the same trials in virtual time over the link as a [[link]] would declare it, headers, congestion
control, losses and its start after idle time included. A member's line is shared by its links, so
each gets its part of the rate. Emulated: `simulate --emulate`, a whole run and its own prediction.
The error is predicted / measured - 1, of the median over the trials, at least twenty with loss. Prints a JSON line a row, and on
stderr a table. Without root only the emulated ones are run, and it says so.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import wan

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/sites.toml"


@dataclass
class Shaped:
    name: str
    mbit: float
    rtt_ms: float
    congestion: str
    mb: float = 12.5  # of the vector in fp32
    members: int = 2
    loss: float = 0
    codec: str = "fp32"
    pause: float = 0  # seconds of silence before each trial

    def row(self):
        return wan.Row(self.name, [self.mbit] * self.members, self.mb, congestion=self.congestion,
                       codec=self.codec, loss=self.loss, rtt_ms=self.rtt_ms)

    def link(self):
        loss = f",{100 * self.loss:g}%" if self.loss else ""
        return f"{self.mbit / (self.members - 1):.6g}Mbit/s,{self.rtt_ms:g}ms{loss}"


SHAPED = [
    Shaped("cubic-10ms", 100, 10, "cubic"),
    Shaped("cubic-50ms", 100, 50, "cubic", mb=25),
    Shaped("cubic-200ms", 100, 200, "cubic", mb=25),
    Shaped("bbr-10ms", 100, 10, "bbr"),
    Shaped("bbr-50ms", 100, 50, "bbr", mb=25),
    Shaped("bbr-200ms", 100, 200, "bbr", mb=25),
    Shaped("cubic-50ms-loss", 100, 50, "cubic", mb=25, loss=0.001),
    Shaped("bbr-50ms-loss", 100, 50, "bbr", mb=25, loss=0.001),
    Shaped("cubic-50ms-int8", 100, 50, "cubic", mb=25, codec="int8"),
    Shaped("cubic-20mbit", 20, 50, "cubic", mb=5),
    Shaped("cubic-of-four", 50, 50, "cubic", members=4),
    Shaped("bbr-of-four", 50, 50, "bbr", members=4),
    Shaped("cubic-after-idle", 100, 100, "cubic", mb=5, pause=2),
    Shaped("bbr-after-idle", 100, 100, "bbr", mb=5, pause=2),
    # No constant of the model was set on these:
    Shaped("held-bbr-150ms", 30, 150, "bbr", mb=10),
    Shaped("held-cubic-80ms", 60, 80, "cubic", mb=20),
    Shaped("held-bbr-of-three", 60, 80, "bbr", mb=15, members=3),
    Shaped("held-bbr-20ms-int8", 100, 20, "bbr", mb=25, codec="int8"),
    Shaped("held-cubic-100ms-loss", 50, 100, "cubic", mb=10, loss=0.001),
    Shaped("held-bbr-after-idle", 50, 120, "bbr", mb=8, pause=3),
]
LOSSY_TRIALS = 20  # at least: of few random losses the median of a few trials says little
EMULATED = ["2Mbit/s,40ms", "5Mbit/s,200ms", "20Mbit/s,10ms", "10Mbit/s,100ms,0.1%"]


def trials_of(shaped, args):
    return max(args.trials, LOSSY_TRIALS) if shaped.loss > 0 else args.trials


def predict(shaped, args):
    command = [args.build / "bench/transport/bench_exchange_simulated", "--members", shaped.members,
               "--link", shaped.link(), "--congestion", shaped.congestion, "--streams", args.streams,
               "--bytes", int(shaped.mb * 1e6), "--codec", shaped.codec, "--trials", trials_of(shaped, args),
               "--pause", shaped.pause]
    lines = [json.loads(line) for line in wan.call(*command).splitlines() if line.startswith("{")]
    return statistics.median(line["seconds"] for line in lines if line["bench"] == "exchange")


def measure_shaped(shaped, args):
    row = shaped.row()
    how = argparse.Namespace(build=args.build, streams=args.streams, kind="auto", pause=shaped.pause,
                             no_commit=False)
    with wan.namespaces(shaped.members):
        with wan.shaped_links(row, args.build, args.seed) as counters:
            trials = trials_of(shaped, args)
            lines = wan.run_members(wan.isthmus_commands(row, how, trials),
                                    limit_s=120 + trials * (30 + shaped.pause))
    seconds = [line["seconds"] for line in lines[0] if line["bench"] == "exchange"]
    return seconds, counters


def shaped_line(shaped, args):
    seconds, counters = measure_shaped(shaped, args)
    return {"bench": "predicted", "row": shaped.name, "links": "shaped", "members": shaped.members,
            "mbit": shaped.mbit, "rtt_ms": shaped.rtt_ms, "loss": shaped.loss,
            "congestion": shaped.congestion, "streams": args.streams, "mb": shaped.mb,
            "codec": shaped.codec, "pause_s": shaped.pause, "trials": len(seconds),
            "predicted_s": predict(shaped, args), "measured_s": statistics.median(seconds),
            "measured_min_s": min(seconds), "measured_max_s": max(seconds),
            "late_over_1ms": counters.get("late_over_1ms"), "load": round(os.getloadavg()[0], 2)}


def emulated_line(link, args):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "run")
        wan.call(args.build / "src/app/isthmus", "simulate", EXAMPLE, "--emulate", "--link", link,
                 "--progress", "none", "--set", "train.steps=60", "--set", "eval.every=0", "--out", out)
        prediction = json.loads((out / "summary.json").read_text())["prediction"]
    return {"bench": "predicted", "row": "emulated " + link, "links": "emulated", "trials": 1,
            "predicted_s": prediction["predicted_s"], "measured_s": prediction["measured_s"],
            "load": round(os.getloadavg()[0], 2)}


def finished(line):
    line["error"] = round(line["predicted_s"] / line["measured_s"] - 1, 4)
    print(json.dumps(line), flush=True)
    return line


def table(lines):
    print(f"{'row':28} {'predicted':>9} {'measured':>9} {'error':>7}  {'least':>7} {'most':>7}", file=sys.stderr)
    for line in lines:
        least, most = line.get("measured_min_s"), line.get("measured_max_s")
        spread = f"  {least:7.3f} {most:7.3f}" if least else ""
        print(f"{line['row']:28} {line['predicted_s']:9.3f} {line['measured_s']:9.3f} {line['error']:+7.1%}{spread}",
              file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(), required=True)
    names = [shaped.name for shaped in SHAPED] + ["emulated"]
    parser.add_argument("--row", action="append", choices=names)
    parser.add_argument("--trials", type=int, default=7)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    root = os.geteuid() == 0
    if not root:
        print("skipped: shaped links need root for network namespaces; use sudo", file=sys.stderr)
    lines = []
    wan.end_in_order()
    try:
        for shaped in SHAPED:
            if root and (not args.row or shaped.name in args.row):
                lines.append(finished(shaped_line(shaped, args)))
        for link in EMULATED:
            if not args.row or "emulated" in args.row:
                lines.append(finished(emulated_line(link, args)))
    except (wan.Failure, subprocess.SubprocessError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    finally:
        table(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
