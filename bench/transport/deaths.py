#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of three sites is killed, or frozen, again and again: how soon those left go on.

  python3 bench/transport/deaths.py --build BUILD [--trials 20] [--only kill|freeze]

Three sites train on loopback with default settings. The last one is killed (`kill -9`) or frozen
(SIGSTOP); once the others have rounds of two it is started again, or wakes up, and the next trial
begins when rounds of three are back. Of each trial: when the other two have left it out, by which the
round that was open has begun again among them (`left_out_s`, the later of the two, of what they say on
the spot), and when both have a round of two in their lines, which are written each second
(`round_s`). Bounds: 1.5 s that broken connections have to come back; net.dead_after = 8 s, found at the
next heartbeat of a second. Prints a JSON line a trial, and one with median and 95th percentile.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/end_to_end"))
from scenario import Failure  # noqa: E402
from sites_come_and_go import Run  # noqa: E402

SURVIVORS, VICTIM = ("east", "west"), "north"


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def left_out(run, name):
    return run.said(name).count(f"site {VICTIM} is gone")


def trial(run, kind):
    run.until("rounds of three", lambda: all(
        run.members_of_last_round(name) == 3 for name in (*SURVIVORS, VICTIM)))
    before = {name: left_out(run, name) for name in SURVIVORS}
    begin = time.monotonic()
    if kind == "kill":
        run.kill(VICTIM)
    else:
        run.sites[VICTIM].send_signal(signal.SIGSTOP)
    out = run.until("the others leave it out", lambda: all(
        left_out(run, name) > before[name] for name in SURVIVORS))
    run.until("rounds of two", lambda: all(
        run.members_of_last_round(name) == 2 for name in SURVIVORS))
    took = time.monotonic() - begin
    if kind == "kill":
        run.start(VICTIM, "--resume", "auto")
    else:
        run.sites[VICTIM].send_signal(signal.SIGCONT)
    return {"left_out_s": round(out, 2), "round_s": round(took, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--only", choices=("kill", "freeze"))
    parser.add_argument("--text", default="/usr/include/linux/bpf.h")
    arguments = parser.parse_args()
    isthmus = str((arguments.build / "src/app/isthmus").resolve())
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("kill", "freeze"):
            if arguments.only not in (None, kind):
                continue
            run = Run(isthmus, pathlib.Path(folder) / kind, arguments.text, "diloco", 3,
                      default_times=True)
            rows = []
            try:
                for number in range(arguments.trials):
                    rows.append(trial(run, kind))
                    print(json.dumps({"bench": "deaths", "kind": kind, "trial": number, **rows[-1],
                                      "load": round(os.getloadavg()[0], 1)}), flush=True)
            except Failure as failure:
                print(f"error: {failure}", file=sys.stderr)
                return 1
            finally:
                run.end()
            summary = {"bench": "deaths", "kind": kind, "trials": len(rows)}
            for what in ("left_out_s", "round_s"):
                values = [row[what] for row in rows]
                summary[what] = {"median": statistics.median(values), "p95": percentile(values, 0.95),
                                 "most": max(values)}
            print(json.dumps(summary), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
