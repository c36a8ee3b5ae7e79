#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/compute/predicted_meshes.py runs, and its table follows from its lines, however slow the machine.

  python3 tests/end_to_end/predicted_meshes.py --isthmus build/src/app/isthmus
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/compute/predicted_meshes.py"
MESHES = ["one rank", "tp=2", "pp=2, 1f1b, m=4"]


def table(isthmus, *flags):
    command = [sys.executable, SCRIPT, "--isthmus", isthmus, "--config", "nano", *flags]
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, check=True)
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    return lines, {line["mesh"]: line for line in lines if line["bench"] == "predicted_mesh"}


def check(good, text):
    if not good:
        sys.exit(f"predicted_meshes: {text}")


def near(a, b):
    return abs(a - b) <= 1e-3 * b  # of what is printed with six digits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    isthmus = parser.parse_args().isthmus
    only = [word for mesh in MESHES for word in ("--only", mesh)]
    lines, rows = table(isthmus, "--rounds", "1", "--seconds", "0.01", "--largest-mib", "1", *only)
    check(list(rows) == MESHES, f"rows {list(rows)}, asked for {MESHES}")
    for row in rows.values():
        check(row["runs"] == row["of_runs"] == 1, f"one round, but {row}")
        check(near(sum(row["time_s"].values()) * 1e3, row["predicted_ms"]), f"parts of {row}")
        check(abs(row["predicted_ms"] / row["measured_ms"] - 1 - row["error"]) < 1e-3, f"error of {row}")

    # A run of one rank whose parts are known: what is predicted for one rank is its step again.
    alone = {"ms_med": 100.0, "ms_best": 90.0, "attention_ms": 10.0, "optimizer_ms": 1.0, "waited": 0}
    made = [{**line, **alone} if line.get("row") == "alone" else line for line in lines if "row" in line]
    # With two side by side at half the speed, two ranks take what one took, and their sums.
    half = {key: 2 * value for key, value in alone.items()}
    made = [{**line, **half} if line["row"] == "side by side" else line for line in made]
    # Quiet runs count, where there are three: here one of three is left out of four.
    first = next(line for line in made if line["row"] == "one rank")
    made += [{**first, "round": number, "ms_med": 80.0 + number, "ms_best": 80.0, "waited": 0} for number in (1, 2, 3)]
    first.update({"ms_med": 1000.0, "ms_best": 70.0, "waited": 0.5})
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "lines.jsonl")
        file.write_text("".join(json.dumps(line) + "\n" for line in made))
        _, rows = table(isthmus, "--again", file, *only)
    one, tensor, stages = (rows[mesh] for mesh in MESHES)
    check(near(one["predicted_ms"], 100) and near(one["predicted_best_ms"], 90), f"one rank: {one}")
    check((one["runs"], one["of_runs"], one["measured_ms"], one["best_ms"]) == (3, 4, 82, 80), f"quiet runs: {one}")
    whole = (tensor["time_s"]["compute"] + tensor["time_s"]["update"]) * 1e3
    check(100 <= whole < 115, f"tensor-parallel ranks repeat norms alone: {tensor}")
    check(tensor["time_s"]["tensor"] > 0 and stages["time_s"]["bubble"] > 0, f"{tensor}, {stages}")
    medians = statistics.median(line["ms_med"] for line in made if line["row"] == "tp=2")
    check(near(medians, tensor["measured_ms"]), f"{tensor}: measured {medians}")


if __name__ == "__main__":
    main()
