#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How close `isthmus bench link` comes to links whose rate and round trip are known: two network
namespaces joined by bench_wan (wan.py beside this file says how).

  sudo python3 bench/transport/link_survey.py --build BUILD [--seconds 6] [--row NAME ...]

Prints a JSON line a direction: what `bench link --json` says, the line's rate and round trip, and
the measured rate as a share of what the line can carry as TCP payload (1448 of 1500 bytes).
"""
import argparse
import json
import os
import signal
import subprocess
import sys

import wan

PAYLOAD = 1448 / 1500
wan.namespace = lambda member: "isthmus-link-" + "ab"[member]  # beside those of wan.py
# name: rate of each member's line in Mbit/s, round trip in ms, congestion control, loss
ROWS = {
    "20m-20ms-cubic": ([20, 20], 20, "cubic", 0),
    "100m-50ms-cubic": ([100, 100], 50, "cubic", 0),
    "100m-50ms-bbr": ([100, 100], 50, "bbr", 0),
    "100m-50ms-loss-cubic": ([100, 100], 50, "cubic", 0.001),
    "uneven-100ms-cubic": ([50, 10], 100, "cubic", 0),
    "50m-200ms-bbr": ([50, 50], 200, "bbr", 0),
}


def measure(name, args):
    mbit, rtt_ms, congestion, loss = ROWS[name]
    wan.DELAY_MS = rtt_ms / 4
    row = wan.Row(name, mbit, 0, congestion=congestion, loss=loss)
    # A member's line is as fast up as down: each direction gets the slower of the two ends.
    line = min(mbit)
    isthmus = args.build / "src/app/isthmus"
    common = ["--seconds", args.seconds, "--plaintext", "--json", "--progress", "none"]
    load = os.getloadavg()[0]
    with wan.namespaces(2), wan.shaped_links(row, args.build, args.seed) as counters:
        first = wan.address(0)
        running = [subprocess.Popen(wan.inside(member, isthmus, "bench", "link", *words, *common),
                                    stdout=subprocess.PIPE, text=True)
                   for member, words in ((0, ["--listen", f"{first}:{wan.PORT}", "--site", "a"]),
                                         (1, ["--to", f"{first}:{wan.PORT}", "--site", "b"]))]
        try:
            said = [each.communicate(timeout=600)[0] for each in running]
        finally:
            for each in running:
                wan.end(each)
        if any(each.returncode for each in running):
            raise wan.Failure(f"{name}: see above")
    for text in said[0].splitlines():
        found = json.loads(text)
        found = {"row": name, "line_mbit": line, "line_rtt_ms": rtt_ms, "line_loss": loss, **found,
                 "share_of_payload": round(found["bits_per_s"] / (line * 1e6 * PAYLOAD), 4),
                 "rtt_error_ms": round(found["rtt_p50_ms"] - rtt_ms, 3), "seconds": args.seconds,
                 "load": round(load, 2), "late_over_1ms": counters.get("late_over_1ms")}
        print(json.dumps(found), flush=True)
        print(f"{name:22} {found['from']}->{found['to']} {found['bits_per_s'] / 1e6:8.2f} Mbit/s"
              f" {found['share_of_payload']:7.1%} of payload, rtt {found['rtt_p50_ms']:7.2f} ms,"
              f" loaded {found['rtt_loaded_ms'] or 0:7.1f} ms, streams {found['streams']}",
              file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=lambda p: wan.pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--row", action="append", choices=ROWS)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: link_survey.py needs root for network namespaces; use sudo", file=sys.stderr)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything made is removed
    try:
        for name in args.row or ROWS:
            measure(name, args)
    except wan.Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
