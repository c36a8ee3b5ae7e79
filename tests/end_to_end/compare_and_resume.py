#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A comparison killed with -9 at random moments and resumed gives the same table, and runs again
only the cells that had not finished.

  python3 tests/end_to_end/compare_and_resume.py --isthmus build/bin/isthmus [--attempts 2] [--seed 1]

Compared with an uninterrupted comparison: everything that is printed, summary.json, and every
cell's evaluations. Lines of cells.jsonl that stood before a kill must stand after the resume, byte
for byte, and every cell must be there once.
"""
import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from scenario import small_run

EXPERIMENT = small_run("three", layers=1, source="text:{text}", steps=40, global_batch="512 tok", lr="2e-3",
                       schedule="cosine") + """
[eval]
every = 10
tokens = "1k"
[sim]
step_time = "100ms"
[[site]]
name = "east"
[[site]]
name = "west"
[[link]]
between = ["east", "west"]
rate = "10Mbit/s"
rtt = "40ms"
[compare]
seeds = 6
tune = {{ space = {{ "inner.lr" = [2e-3, 4e-3] }}, seeds = 1 }}
[variant.ddp]
[variant.diloco]
outer = {{ method = "diloco", H = 5, final_sync = "full" }}
[variant.eager]
outer = {{ method = "eager", H = 5, codec = "int8" }}
"""
CELLS = 3 * (2 + 2 + 6)


class Comparison:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        self.toml = folder / "three.toml"

    def command(self, out, *more):
        return [self.program, "compare", str(self.toml), "--progress", "none", "--out",
                str(self.folder / out), *more]

    def run(self, out, *more, code=0):
        done = subprocess.run(self.command(out, *more), capture_output=True, text=True)
        if done.returncode != code:
            sys.exit(f"{more}: exit {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}")
        return done

    def summary(self, out):
        """Without what tells one start from another."""
        summary = json.loads((self.folder / out / "summary.json").read_text())
        counts = summary.pop("cells_run"), summary.pop("cells_reused")
        summary.pop("directory")
        return summary, counts

    def lines(self, out):
        path = self.folder / out / "cells.jsonl"
        text = path.read_text() if path.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def results(self, out):
        cells = map(json.loads, self.lines(out))
        return sorted((c["directory"], c["key"], str(c["tuned"]), str(c["evals"])) for c in cells)


def printed(done):
    """The table without the folder's name."""
    return [line for line in done.stdout.splitlines() if not line.startswith("files ")]


def require(condition, *words):
    if not condition:
        sys.exit(" ".join(map(str, words)))


def killed_and_resumed(comparison, chance, whole, reference, attempt):
    out = f"killed-{attempt}"
    kills = 0
    before = []
    while True:
        process = subprocess.Popen(comparison.command(out, "--resume"), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            stdout, stderr = process.communicate(timeout=chance.uniform(0.1, whole * (0.25 + 0.1 * kills)))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            now = comparison.lines(out)
            require(now[: len(before)] == before, "a finished cell's line changed")
            before = now
            continue
        require(process.returncode == 0, "resumed comparison ended with", process.returncode, stderr)
        break
    after = comparison.lines(out)
    require(after[: len(before)] == before, "a finished cell's line changed")
    keys = [json.loads(line)["key"] for line in after]
    require(len(keys) == len(set(keys)) == CELLS, "cells:", len(keys), "keys:", len(set(keys)))
    summary, (ran, reused) = comparison.summary(out)
    require((ran, reused) == (CELLS - len(before), len(before)), "ran", ran, "reused", reused,
            "of", len(before), "that were finished")
    table = [line for line in stdout.splitlines() if not line.startswith("files ")]
    require(table == reference["table"], "another table:\n" + stdout)
    require(summary == reference["summary"], "another summary")
    require(comparison.results(out) == reference["results"], "other results")
    print(f"{kills} kills, {len(before)} of {CELLS} cells kept: the same table", flush=True)


def judged_again(comparison, folder, text, reference):
    """From its cells alone, on a machine without the text, a comparison says the same."""
    elsewhere = folder / "elsewhere.toml"
    elsewhere.write_text(EXPERIMENT.format(text="/nowhere"))

    def judge(code, *more):
        done = subprocess.run([comparison.program, "compare", elsewhere, "--judge",
                               folder / "reference/cells.jsonl", *more], capture_output=True,
                              text=True, check=False)
        require(done.returncode == code, "judge:", done.returncode, done.stderr)
        return done
    require(judge(0).stdout.splitlines() == reference["table"], "judged again: another table")
    summary = json.loads(judge(0, "--json").stdout)
    for key in ("target", "variants"):
        want = json.dumps(reference["summary"][key])
        require(json.dumps(summary[key]) == want, "judged again: other", key)
    refused = judge(3, "--set", "variant.eager.outer.H=4").stderr
    require("no run of eager" in refused and "--resume" in refused, refused)
    cells = folder / "reference/cells.jsonl"
    whole = cells.read_text()
    first = json.loads(whole.splitlines()[0])
    cells.write_text(whole + json.dumps({**first, "key": "0" * 32}) + "\n")
    require("unlike data" in judge(3).stderr, "a cell of another text beside one")
    first["data_tokens"] += 1
    cells.write_text("\n".join([json.dumps(first), *whole.splitlines()[1:]]) + "\n")
    require("unlike data" in judge(3).stderr, "a cell of another text in the place of one")
    cells.write_text(whole)
    require("--dry-run" in judge(2, "--dry-run").stderr, "--judge together with --dry-run")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(args.isthmus, pathlib.Path(folder))
        text = pathlib.Path(args.text).resolve()
        comparison.toml.write_text(EXPERIMENT.format(text=text))
        begin = time.monotonic()
        reference = {"table": printed(comparison.run("reference", "--jobs", "1"))}
        whole = time.monotonic() - begin
        reference["summary"], counts = comparison.summary("reference")
        require(counts == (CELLS, 0), "cells run and reused:", counts)
        reference["results"] = comparison.results("reference")
        require(len(reference["results"]) == CELLS, "cells:", len(reference["results"]))
        for line in reference["table"]:
            require(len(line) <= 100, "wider than 100 columns:", line)

        comparison.run("wide", "--jobs", "5")
        require(comparison.results("wide") == reference["results"], "jobs changed the results")
        for attempt in range(args.attempts):
            killed_and_resumed(comparison, chance, whole, reference, attempt)

        # A folder that is used is refused; a torn last line costs one cell; a changed variant costs
        # its own cells and no other's.
        comparison.run("wide", code=3)
        cells = pathlib.Path(folder) / "wide" / "cells.jsonl"
        cells.write_bytes(cells.read_bytes()[:-40])
        comparison.run("wide", "--resume")
        require(comparison.summary("wide") == (reference["summary"], (1, CELLS - 1)), "torn line")
        comparison.run("wide", "--resume", "--set", "variant.eager.outer.H=4")
        require(comparison.summary("wide")[1] == (CELLS // 3, 2 * CELLS // 3), "changed variant")
        comparison.run("wide", "--resume", "--seeds", "7")
        require(comparison.summary("wide")[1] == (3, CELLS), "one more seed")

        judged_again(comparison, pathlib.Path(folder), text, reference)

        # Stopped by Ctrl+C between cells or within them.
        process = subprocess.Popen(comparison.command("stopped"), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        while not comparison.lines("stopped") and process.poll() is None:
            pass
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
        require(process.returncode == 130, "stopped:", process.returncode, stderr)
        require("--resume" in stderr.splitlines()[-1], stderr)
        comparison.run("stopped", "--resume")
        require(comparison.results("stopped") == reference["results"], "stopped and resumed")

        require("target" in comparison.run("wide", "--force", "--quick", "--require", "--set",
                                           "target.value=0.01", code=6).stderr, "--require")
        done = comparison.run("wide", "--resume", "--quick", "--require", "--set",
                              "target.value=100.0")
        require(done.stdout.startswith("NOT A RESULT"), done.stdout)
        require(not comparison.summary("wide")[0]["result"], "--quick is called a result")
        require(not (pathlib.Path(folder) / "wide/eager/seed-7").exists(), "--force left a cell")
    print("a torn line, a changed variant, Ctrl+C, --quick and --require behave", flush=True)


main()
