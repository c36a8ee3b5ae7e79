#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The experiments that are comparisons: each folder has compare.toml (one file, or several sizes),
cells.jsonl beside it (raw results, one line a training run) and README.md, whose blocks

    <!-- NAME -->
    ...
    <!-- end -->

this program writes from the raw results.

  FOLDER/run                    judge the cells again, write the blocks of README.md
  FOLDER/run --check            the same, and exit 1 where README.md says something else
  FOLDER/run --train [--jobs N] train the cells that are missing first (hours: README.md says)

A folder may hold several comparisons, small.toml with small.jsonl and so on; blocks of the first
are named 'table', of the others 'table small'. What is said of a comparison: `isthmus compare FILE
--judge CELLS --json`; docs/how-to/comparing.md has the meaning of each number.
"""
import argparse
import hashlib
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs"  # folders of comparisons under way, in no commit


def nats(value):
    return f"{value:.4f}"


def signed(value):
    return f"{value:+.4f}"


def percent(share):
    return f"{100 * share:+.2f} %"


def number(value, digits=3):
    """Three digits, as people write them: 2.05M, 410, 12.5."""
    if value is None or value == "inf" or not math.isfinite(float(value)):
        return "–"
    value = float(value)
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.{digits}g}{unit}"
    return f"{value:.{digits}g}" if abs(value) < 100 else f"{value:,.0f}"


def duration(seconds):
    if seconds is None or seconds == "inf" or not math.isfinite(float(seconds)):
        return "–"
    seconds = float(seconds)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def times(value):
    return "–" if value is None else f"{value:.3g}x" if value < 100 else f"{value:,.0f}x"


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
                     + ["| " + " | ".join(row) + " |" for row in rows])


class Comparison:
    """One TOML file and its cells, judged by the program."""

    def __init__(self, program, toml, cells, overrides=()):
        self.program, self.toml, self.cells_file = program, toml, cells
        asked = [str(program), "compare", str(toml), "--judge", str(cells), "--json",
                 *(word for override in overrides for word in ("--set", override))]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(asked)}: exit {done.returncode}\n{done.stderr}")
        self.summary = json.loads(done.stdout)
        self.cells = [json.loads(line) for line in cells.read_text().splitlines()]
        self.variants = self.summary["variants"]
        self.baseline = next(v for v in self.variants if v["baseline"])

    def judged_with(self, *overrides):
        """The same runs by other rules: "compare.baseline=NAME"."""
        return Comparison(self.program, self.toml, self.cells_file, overrides)

    def variant(self, name):
        return next(v for v in self.variants if v["name"] == name)

    def runs(self, name):
        """The runs judged: the file may hold others, of another configuration."""
        keys = {run["key"] for run in self.variant(name)["runs"]}
        return sorted((c for c in self.cells if c["key"] in keys), key=lambda c: c["seed"])

    def mean(self, variant):
        return variant["final_eval_loss"]["mean"] if variant["final_eval_loss"] else math.nan

    def gap(self, variant):
        """Of the mean final losses, as a share of the baseline's."""
        return self.mean(variant) / self.mean(self.baseline) - 1

    def blocks(self):
        yield "table", self.losses()
        yield "target", self.to_target()
        yield "verdicts", self.verdicts()
        yield "setting", self.setting()

    @staticmethod
    def rates(variant):
        marked = {edge["key"] for edge in variant["edges"]}
        return ", ".join(f"{key.split('.', 1)[1] if key == 'inner.lr' else key} {value}"
                         + (" (edge)" if key in marked else "")
                         for key, value in (variant["tuned"] or {}).items()) or "as given"

    def shown(self, variant):
        against = variant["difference"]
        if variant["baseline"]:
            return "baseline"
        if against is None:
            return "a run failed"
        words = ["within the margin" if against["equivalent"] else "",
                 ("higher" if against["mean"] > 0 else "lower") if against["different"] else ""]
        return " and ".join(filter(None, words)) or "not told apart"

    def computing(self, name):
        """Mean share of the time spent computing, over the file's own link."""
        shares = [run["compute_utilisation"] for run in self.runs(name)]
        return f"{100 * sum(shares) / len(shares):.1f} %" if shares else "–"

    def losses(self):
        rows = []
        for v in self.variants:
            loss, against = v["final_eval_loss"], v["difference"]
            rows.append([v["name"],
                         f"{nats(loss['mean'])} ± {nats(loss['sd'])}" if loss else
                         f"failed {v['failed']}/{v['failed'] + v['finished']}",
                         "" if against is None else f"{signed(against['mean'])} [{signed(against['low'])}, "
                         f"{signed(against['high'])}]",
                         "" if against is None else percent(self.gap(v)), self.shown(v), self.computing(v["name"]), self.rates(v)])
        level = f"{100 * self.summary['confidence']:g} %"
        return table(["variant", "final loss, mean ± sd", f"minus {self.baseline['name']} [{level} jointly]",
                      "gap", "shown", "computing", "rates found"], rows)

    def to_target(self):
        links = list(next((v["to_target_on_links_s"] for v in self.variants
                           if v["to_target_on_links_s"]), {}))
        base = self.baseline["to_target"]
        rows = []
        for v in self.variants:
            way = v["to_target"]
            there = way["steps"] != "inf"
            fewer = base["bytes_payload"] / way["bytes_payload"] if there and way["bytes_payload"] else None
            rows.append([v["name"], f"{way['reached']}/{way['runs']}", number(way["steps"]),
                         number(way["bytes_payload"]) + "B" if there else "–", times(fewer)]
                        + [duration(v["to_target_on_links_s"][link]) for link in links])
        target = self.summary["target"]
        return (f"Target: validation loss {nats(target['value'])}.\n\n"
                + table(["variant", "reached", "steps", "sent by a site", "fewer than "
                         + self.baseline["name"]] + [f"time, {link}" for link in links], rows))

    def verdicts(self):
        lines = [f"- {v['name']}: {v['verdict']}"
                 + (f" *No claim: {v['no_claim']}.*" if v["no_claim"] else "")
                 for v in self.variants if not v["baseline"]]
        return "\n".join(lines + [f"- Note: {note}." for note in self.summary["notes"]])

    def setting(self):
        runs, trials = ([c for c in self.cells if c["stage"] == stage] for stage in ("seed", "tune"))
        wall = sum(c["wall_s"] for c in self.cells) / 3600
        versions = ", ".join(sorted({c["version"] for c in self.cells}))
        one = runs[0]
        return (f"{len(self.variants)} variants, {len(runs)} runs on seeds "
                f"{self.summary['seeds'][0]} to {self.summary['seeds'][-1]} and {len(trials)} tuning "
                f"trials; {one['parameters']:,} parameters, {one['steps']:,} steps, "
                f"{one['tokens']:,} tokens of {one['data_tokens']:,} to train on; margin "
                f"{nats(self.summary['margin'])} nats; {wall:.1f} hours of cells, each on one core "
                f"beside others; program {versions}.")


def cells_of(toml):
    """The file of a comparison's raw results."""
    return toml.with_name("cells.jsonl" if toml.stem == "compare" else f"{toml.stem}.jsonl")


def comparisons(folder, program):
    for toml in sorted(folder.glob("*.toml"), key=lambda path: (path.stem != "compare", path.stem)):
        if cells_of(toml).exists():
            yield toml.stem, Comparison(program, toml, cells_of(toml))


def rendered(readme, blocks):
    text = readme.read_text()
    for name, block in blocks:
        pattern = re.compile(f"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if len(pattern.findall(text)) > 1:
            sys.exit(f"{readme}: more than one block '<!-- {name} -->'")
        text = pattern.sub(lambda match, block=block: f"{match[1]}{block}\n{match[2]}", text)
        if name in ("table", "verdicts") and not pattern.search(text):
            sys.exit(f"{readme}: no block '<!-- {name} -->', so nothing there is checked")
    names = [name for name, _ in blocks]
    for name in re.findall(r"<!-- *(.*?) *-->", text):
        if name != "end" and name not in names:
            sys.exit(f"{readme}: block '{name}' is none of: {', '.join(names)}")
    return text


def data_facts(manifest):
    """What the cells were trained on, short: the list of files is long and not ours."""
    files = json.loads(manifest.read_text())["data"]
    listed = "".join(f"{f['sha256']}  {f['path']}\n" for f in files)
    return {"files": len(files), "bytes": sum(f["bytes"] for f in files),
            "sha256_of_list": hashlib.sha256(listed.encode()).hexdigest()}


def whole_cells(path):
    """The lines of a file of cells by key, in order. A line that a kill has cut is left out."""
    cells = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            cells[json.loads(line)["key"]] = line
        except json.JSONDecodeError:
            continue
    return cells


def gather(target, source):
    """Appends to `target` the cells of `source` that it lacks. The file is never replaced: a program that outlived its
    `run` still appends to the one that it has opened. Only a last line that a kill has cut is taken off."""
    text = target.read_bytes() if target.exists() else b""
    if not text.endswith(b"\n"):
        target.touch()
        os.truncate(target, text.rfind(b"\n") + 1)
    there = whole_cells(target)
    lacking = [line for key, line in whole_cells(source).items() if key not in there]
    if lacking:
        with target.open("a") as file:
            file.write("".join(line + "\n" for line in lacking))


def record_data(toml, facts):
    """One data.json for a folder; STEM.data.json where another comparison of the folder had another text."""
    shared = toml.parent / "data.json"
    text = json.dumps(facts) + "\n"
    others = [path for path in toml.parent.glob("*.toml") if path != toml and cells_of(path).exists()]
    taken = bool(others) and shared.exists() and shared.read_text() != text
    own = toml.parent / f"{toml.stem}.data.json"
    (own if taken else shared).write_text(text)
    if not taken:
        own.unlink(missing_ok=True)  # of an earlier start, whose text was another


def train(program, toml, jobs):
    """Trains the cells that are missing. The comparison's folder below RUNS outlives a kill, so a finished cell is
    never lost: the next start takes it over."""
    cells = cells_of(toml)
    out = RUNS / f"{toml.parent.name}-{toml.stem}"
    out.mkdir(parents=True, exist_ok=True)
    gather(out / "cells.jsonl", cells)
    child = None
    asked = []

    def end_child(signal_number, _):
        asked.append(signal_number)
        if child:
            child.terminate()

    before = signal.signal(signal.SIGTERM, end_child)
    child = subprocess.Popen([program, "compare", str(toml), "--out", str(out), "--resume", *jobs])
    if asked:  # before `child` was there
        child.terminate()
    try:
        code = child.wait()
    except KeyboardInterrupt:  # the program has had the signal too, and ends its runs by itself
        code = child.wait()
    signal.signal(signal.SIGTERM, before)
    if whole_cells(out / "cells.jsonl"):
        gather(cells, out / "cells.jsonl")
    if code != 0 or asked:
        sys.exit(f"{toml.name}: exit {code}; finished cells are in {cells.name}, run again to go on")
    record_data(toml, data_facts(out / "manifest.json"))


def main(folder, more=None):
    """`more(comparisons by name)` yields blocks of the experiment's own: (name, text)."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", default=str(ROOT / "build/src/app/isthmus"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--only", help="with --train: this file's name without .toml")
    parser.add_argument("--jobs")
    arguments = parser.parse_args()
    folder = pathlib.Path(folder).resolve().parent
    if arguments.train:
        for toml in sorted(folder.glob("*.toml")):
            if arguments.only in (None, toml.stem):
                train(arguments.isthmus, toml, ["--jobs", arguments.jobs] if arguments.jobs else [])
    done = dict(comparisons(folder, arguments.isthmus))
    if not done:
        sys.exit(f"{folder.name}: no raw results yet; --train makes them")
    blocks = [(name if stem == "compare" else f"{name} {stem}", text)
              for stem, comparison in done.items() for name, text in comparison.blocks()]
    blocks += list(more(done)) if more else []
    readme = folder / "README.md"
    text = rendered(readme, blocks)
    if not arguments.check:
        readme.write_text(text)
        return 0
    differing = [(i, a, b) for i, (a, b) in enumerate(
        zip(readme.read_text().splitlines(), text.splitlines()), 1) if a != b]
    for line, was, now in differing:
        print(f"{readme.name}:{line}:\n  was {was}\n  is  {now}")
    same = readme.read_text() == text
    print(f"{len(blocks)} blocks, " + ("all as the raw results say" if same else "README.md differs"))
    return 0 if same else 1
