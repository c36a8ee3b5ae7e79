#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`simulate --emulate`: real threads and sockets behind declared links, in real time.

  python3 tests/end_to_end/emulate.py --isthmus build/src/app/isthmus

The same losses as the simulation, bit for bit; a slow link takes as long as it says; the closed form
and the clock are laid beside one another.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/sites.toml"
# One round of 123 kB each way: about half a second at 2 Mbit/s, three rounds.
LINK = "2Mbit/s,40ms"
# Of rounds that take a second and a half, on a machine that does other things.
TOLERANCE = 0.3


def require(condition, text):
    if not condition:
        sys.exit(text)


def run(isthmus, out, *flags, code=0):
    done = subprocess.run([isthmus, "simulate", str(EXAMPLE), "--link", LINK, "--progress", "none",
                           "--set", "train.steps=60", "--set", "eval.every=0", "--out", str(out),
                           *flags], capture_output=True, text=True, timeout=300)
    require(done.returncode == code, f"exit {done.returncode}: {done.stderr}")
    return done


def rows(folder, kind):
    whole = (folder / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, whole) if row["k"] == kind]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(args.isthmus, folder / "simulated")
        said = run(args.isthmus, folder / "emulated", "--emulate").stdout
        want = [(row["step"], row["loss"]) for row in rows(folder / "simulated", "train")]
        found = [(row["step"], row["loss"]) for row in rows(folder / "emulated", "train")]
        require(found == want, "other losses than the simulation's")
        require("predicted" in said and "measured" in said, said)
        predicted = json.loads((folder / "emulated/summary.json").read_text())["prediction"]
        require(abs(predicted["error"]) < TOLERANCE, f"prediction: {predicted}")
        rounds = predicted["rounds"]
        require([row["rounds"] for row in rounds["fragments"]] == [3], f"rounds: {rounds}")
        require([pair[:2] for pair in rounds["pairs"]] == [[0, 20], [0, 40], [0, 60]], f"rounds: {rounds}")
        require(abs(rounds["all"]["error"]) < TOLERANCE, f"rounds: {rounds}")
        require(f"{100 * rounds['all']['error']:+.2f} %" in said, said)
        page = folder / "report.html"
        subprocess.run([args.isthmus, "report", str(folder / "emulated"), "--out", str(page)], check=True,
                       stdout=subprocess.DEVNULL)
        require('id="round-times-0"' in page.read_text(), "no rounds laid over each other in the report")
        exact = json.loads((folder / "simulated/summary.json").read_text())["prediction"]["rounds"]
        require(exact["all"]["rounds"] == 3 and abs(exact["all"]["error"]) < 1e-4, f"simulated: {exact}")
        ideal = json.loads(run(args.isthmus, folder / "ideal", "--set", 'sim.link_model="ideal"',
                               "--json").stdout)["prediction"]["rounds"]
        require(abs(ideal["all"]["error"]) < 1e-5, f"over ideal links: {ideal}")
        waits = [row["wait_s"] for row in rows(folder / "emulated", "round")]
        least = 123000 * 8 / 2e6 + 0.02  # bytes at the line's rate, and half a round trip
        require(len(waits) == 3 and min(waits) >= 0.9 * least, f"waits {waits}, least {least}")
        require(not any(row["ts"] for row in rows(folder / "emulated", "train")), "a simulated clock")
        said = run(args.isthmus, folder / "refused", "--emulate", "--set", 'surrogate.params="1B"',
                   "--set", 'surrogate.step_time="1s"', code=3).stderr
        require("[surrogate]" in said, said)
        print(f"ok: predicted {predicted['predicted_s']:.2f} s, {100 * predicted['error']:+.1f} %")


main()
