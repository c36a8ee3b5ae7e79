#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run writes for other tools, read by those tools.

  python3 tests/end_to_end/exports.py --isthmus build/src/app/isthmus

TensorBoard's EventAccumulator and mlperf-logging's parser and rules read the files where they are
installed, and Perfetto's trace processor where its program is named by PERFETTO_TRACE_PROCESSOR; what
is absent is skipped by name (pip install tensorboard mlperf-logging perfetto). CSV and the rules of a
trace (sorted, no overlap in a row, arrows in pairs) are checked with Python alone.
"""
import argparse
import csv
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from scenario import Failure, require, small_run

STEPS, RESUME_AFTER = 40, 20
BASE = small_run("exported", arch="gpt2", source="text:corpus.txt", steps=STEPS, global_batch="192 tok") + """
[outer]
method = "streaming-diloco"
H = 8
fragments = 2
overlap = 2
codec = "int8"
[eval]
every = 10
tokens = "1k"
[ckpt]
every = "10 steps"
keep = 10
[sim]
step_time = "50ms"
[[site]]
name = "east"
[[site]]
name = "west"
[[site]]
name = "north"
[[link]]
between = ["*", "*"]
rate = "2Mbit/s"
rtt = "80ms"
"""
LIVE = BASE + '[log]\nsinks = ["jsonl", "tensorboard"]\n'
COMPARISON = LIVE + """
[compare]
seeds = 2
[compare.tune]
space = { "inner.lr" = [1e-3] }
trials = 1
follow_ups = 0
seeds = 1
[variant.ddp]
outer = { method = "ddp" }
[variant.local]
outer = { method = "localsgd", H = 8 }
"""


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]


class Exports:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.skipped = binary, folder, []
        text = " ".join(f"{i} sheep jump over fence {i * i % 97}." for i in range(4000))
        (folder / "corpus.txt").write_text(text)
        for name, config in (("plain", BASE), ("live", LIVE), ("compare", COMPARISON)):
            (folder / f"{name}.toml").write_text(config)

    def call(self, *words, code=0):
        done = subprocess.run([self.binary, *map(str, words)], cwd=self.folder, text=True,
                              capture_output=True, timeout=300)
        require(done.returncode == code, f"{words}: exit {done.returncode}\n{done.stderr}")
        return done

    def refuses(self, code, text, *words):
        last = self.call(*words, code=code).stderr.strip().splitlines()[-1]
        require(text in last, f"{words}: says {last!r}, not {text!r}")

    def run(self):
        self.call("simulate", "plain.toml", "--out", "sim", "--progress", "none")
        self.call("train", "live.toml", "--out", "real", "--progress", "none")
        self.call("compare", "compare.toml", "--out", "cmp", "--progress", "none")
        self.tensorboard()
        self.csv()
        self.chrome()
        self.mlperf()
        self.bad_input()

    # TensorBoard -------------------------------------------------------------------------------
    def read(self, folder):
        events = self.accumulator.EventAccumulator(str(self.folder / folder),
                                                   size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        return events

    def compare_with_metrics(self, events, run, simulated):
        metrics = lines_of(self.folder / run / "metrics.jsonl")
        wanted = {
            "train/loss": [(m["step"], m["loss"]) for m in metrics if m["k"] == "train"],
            "train/lr": [(m["step"], m["lr"]) for m in metrics if m["k"] == "train"],
            "eval/loss": [(m["step"], m["loss"]) for m in metrics if m["k"] == "eval"],
            "worker-2/loss": [(m["step"], m["loss"]) for m in metrics
                              if m["k"] == "worker" and m["w"] == 2],
        }
        wire = {}
        for m in metrics:
            if m["k"] == "round":
                wire[m["step"]] = wire.get(m["step"], 0) + m["bytes_wire"]
        wanted["round/bytes_wire"] = sorted(wire.items())
        for tag, points in wanted.items():
            found = [(e.step, e.value) for e in events.Scalars(tag)]
            require(found == [(step, float32(value)) for step, value in points],
                    f"{run}: {tag} reads {found[:3]}... ({len(found)} points), not {points[:3]}... "
                    f"({len(points)})")
        clock = "ts" if simulated else "t"
        times = [m[clock] for m in metrics if m["k"] == "train"]
        require([e.wall_time for e in events.Scalars("train/loss")] == times,
                f"{run}: wall times are not those of the run's clock")
        texts = [t.decode() for e in events.Tensors("config/text_summary")
                 for t in e.tensor_proto.string_val]
        require(len(texts) == 1 and 'method = "streaming-diloco"' in texts[0], f"{run}: {texts}")

    def tensorboard(self):
        try:
            from tensorboard import version
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError:
            self.skipped.append("TensorBoard (tensorboard is not installed)")
            return
        self.accumulator = event_accumulator
        self.call("export", "sim", "--to", "tb", "tb-sim")
        self.call("export", "real", "--to", "tb", "tb-real")
        self.compare_with_metrics(self.read("tb-sim"), "sim", True)
        self.compare_with_metrics(self.read("tb-real"), "real", False)
        self.compare_with_metrics(self.read("real/tb"), "real", False)
        self.resumed()
        self.call("export", "cmp", "--to", "tb", "tb-cmp")
        for top, inner in (("tb-cmp", ""), ("cmp", "tb")):
            runs = sorted(f.parent.relative_to(self.folder / top).as_posix()
                          for f in (self.folder / top).rglob("*tfevents*"))
            wanted = [str(pathlib.PurePosixPath(v, s, inner))
                      for v in ("ddp", "local") for s in ("seed-1", "seed-2")]
            require(runs == wanted, f"{top}: event files in {runs}")
        require(len(self.read("tb-cmp/local/seed-2").Scalars("train/loss")) == STEPS, "steps")
        print(f"tensorboard {version.VERSION} read the exports, the live files and a resumed run")

    def resumed(self):
        """A run killed after RESUME_AFTER's checkpoint: what it had written beyond comes again."""
        ckpt = self.folder / "real/ckpt"
        for folder in ckpt.glob("step-*"):
            if int(folder.name[5:]) > RESUME_AFTER:
                shutil.rmtree(folder)
        (ckpt / "last").unlink()
        first = next((self.folder / "real/tb").iterdir())
        first.write_bytes(first.read_bytes()[:-7])  # torn in the middle of a record
        self.call("train", "live.toml", "--out", "real", "--resume", "auto", "--progress", "none")
        require(len(list((self.folder / "real/tb").iterdir())) == 2, "a resume begins a file")
        self.compare_with_metrics(self.read("real/tb"), "real", False)
        self.served_has("real/tb", STEPS)
        # Resumed twice more, from two checkpoints, the last time made longer.
        shutil.copytree(self.folder / "real", self.folder / "more", symlinks=True)
        for keep, total in ((RESUME_AFTER, STEPS), (10, STEPS + 10)):
            for folder in (self.folder / "more/ckpt").glob("step-*"):
                if int(folder.name[5:]) > keep:
                    shutil.rmtree(folder)
            (self.folder / "more/ckpt/last").unlink()
            self.call("train", "live.toml", "--out", "more", "--resume", "auto", "--progress", "none",
                      *(["--change", f"train.steps={total}"] if total != STEPS else []))
            self.served_has("more/tb", total)
            self.compare_with_metrics(self.read("more/tb"), "more", False)

    def served_has(self, folder, total):
        """TensorBoard's own server, which takes the first session start for the run's beginning, has every step once."""
        from tensorboard.backend.event_processing import plugin_event_accumulator
        served = plugin_event_accumulator.EventAccumulator(str(self.folder / folder),
                                                           tensor_size_guidance={"scalars": 0})
        served.Reload()
        for tag, steps in (("train/loss", range(1, total + 1)), ("eval/loss", range(10, total + 1, 10))):
            found = [event.step for event in served.Tensors(tag)]
            require(found == list(steps), f"TensorBoard's server: {tag} has steps {found}")

    # CSV ---------------------------------------------------------------------------------------
    def csv(self):
        self.call("export", "sim", "--to", "csv", "csv-sim")
        self.call("export", "cmp", "--to", "csv", "csv-cmp")
        metrics = lines_of(self.folder / "sim/metrics.jsonl")
        for name, kind, columns in (("train", "train", ("step", "loss", "lr", "grad_norm")),
                                    ("eval", "eval", ("step", "loss", "ppl")),
                                    ("rounds", "round", ("frag", "step_send", "bytes_wire"))):
            with open(self.folder / f"csv-sim/{name}.csv", newline="") as file:
                rows = list(csv.DictReader(file, strict=True))
            lines = [m for m in metrics if m["k"] == kind]
            require(rows and len(rows) == len(lines), f"{name}.csv: {len(rows)} rows")
            for column in columns:
                require(sorted(float(r[column]) for r in rows) ==
                        sorted(float(m[column]) for m in lines), f"{name}.csv: {column}")
        with open(self.folder / "csv-cmp/runs.csv", newline="") as file:
            names = [row["run"] for row in csv.DictReader(file, strict=True)]
        require(names == ["ddp/seed-1", "ddp/seed-2", "local/seed-1", "local/seed-2"], names)
        print("csv: tables of a run and of a comparison")

    # Chrome / Perfetto -------------------------------------------------------------------------
    def chrome(self):
        self.call("export", "sim", "--to", "chrome", "sim.json")
        self.call("export", "cmp", "--to", "chrome", "chrome-cmp")
        require((self.folder / "chrome-cmp/ddp/seed-1.json").is_file(), "trace of ddp/seed-1")
        trace = json.loads((self.folder / "sim.json").read_text())
        timed = [e for e in trace["traceEvents"] if e["ph"] != "M"]
        require(all(a["ts"] <= b["ts"] for a, b in zip(timed, timed[1:])), "not sorted")
        row_end, slices = {}, {}
        for event in timed:
            if event["ph"] == "X":
                row, begin = (event["pid"], event["tid"]), round(event["ts"] * 1000)
                require(begin >= row_end.get(row, 0), f"overlap: {event}")
                row_end[row] = begin + round(event["dur"] * 1000)
                slices.setdefault(row, []).append((begin, row_end[row], event["cat"]))
        count = {}
        for event in timed:
            if event["ph"] in "sf":
                at = round(event["ts"] * 1000)
                kind = {"s": "send", "f": "receive"}[event["ph"]]
                require(any(b <= at < e and cat == kind
                            for b, e, cat in slices[(event["pid"], event["tid"])]),
                        f"an arrow hangs on nothing: {event}")
                count.setdefault(event["id"], []).append(event["ph"])
        events = lines_of(self.folder / "sim/events.jsonl")
        sends = sum(e["k"] == "send" and e["t1"] > e["t0"] for e in events)
        require(len(count) == sends and all(sorted(p) == ["f", "s"] for p in count.values()),
                f"{len(count)} arrows for {sends} sends")
        counters = {e["name"] for e in timed if e["ph"] == "C"}
        require(counters == {f"{a}->{b} Mbit/s" for a in ("east", "west", "north")
                             for b in ("east", "west", "north") if a != b}, counters)
        require(max(e["args"]["Mbit/s"] for e in timed if e["ph"] == "C") <= 2.0 + 1e-3,
                "faster than the link")
        print(f"chrome: {len(timed)} events, {sends} arrows")
        self.perfetto(len([e for e in timed if e["ph"] == "X"]), sends)

    def perfetto(self, slices, sends):
        program = os.environ.get("PERFETTO_TRACE_PROCESSOR")
        if not program:
            self.skipped.append("Perfetto (PERFETTO_TRACE_PROCESSOR names no program)")
            return
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
        with TraceProcessor(trace=str(self.folder / "sim.json"),
                            config=TraceProcessorConfig(bin_path=program)) as processor:
            def one(query):
                return next(iter(processor.query(query))).n
            require(one("select count(*) as n from slice") == slices, "slices were dropped")
            require(one("select count(*) as n from flow") == sends, "arrows were dropped")
            require(one("select ifnull(sum(value), 0) as n from stats "
                        "where severity != 'info' and value > 0") == 0, "Perfetto complains")
        print("perfetto: every slice and arrow")

    # MLPerf ------------------------------------------------------------------------------------
    def mlperf(self):
        self.call("export", "sim", "--to", "mlperf", "sim.log")
        self.call("export", "cmp", "--to", "mlperf", "mlperf-cmp")
        require((self.folder / "mlperf-cmp/local/seed-2.log").is_file(), "log of local/seed-2")
        try:
            from mlperf_logging.compliance_checker import mlp_compliance, mlp_parser
        except ImportError:
            self.skipped.append("MLPerf (mlperf-logging is not installed)")
            return
        ruleset = "6.0.0"
        lines, errors = mlp_parser.parse_file(str(self.folder / "sim.log"), ruleset=ruleset)
        require(not errors, errors)
        evals = [m for m in lines_of(self.folder / "sim/metrics.jsonl") if m["k"] == "eval"]
        require([line.value["value"] for line in lines if line.key == "eval_accuracy"] ==
                [m["loss"] for m in evals], "eval_accuracy")
        checker = mlp_compliance.make_checker("training", ruleset, False, False)
        rules = pathlib.Path(mlp_compliance.__file__).parent / f"training_{ruleset}/common.yaml"
        checker.configured_checks(lines, str(rules))
        checker.log_messages()
        require(not checker.has_messages(), "the common rules are not met")
        print(f"mlperf-logging: {len(lines)} lines meet the common rules of training {ruleset}")

    # Bad input ---------------------------------------------------------------------------------
    def bad_input(self):
        (self.folder / "used").mkdir()
        (self.folder / "used/x").touch()
        for to in ("tb", "csv"):
            self.refuses(2, "'used' is not empty", "export", "sim", "--to", to, "used")
            self.refuses(4, "absent: no such run", "export", "absent", "--to", to, "out")
        self.refuses(2, "'sim.json' is there already", "export", "sim", "--to", "chrome", "sim.json")
        self.refuses(4, "not a run directory", "export", "used", "--to", "mlperf", "out")
        damaged = self.folder / "damaged"
        shutil.copytree(self.folder / "sim", damaged, symlinks=True)
        for name, formats in (("metrics.jsonl", ("tb", "csv", "mlperf")),
                              ("events.jsonl", ("chrome",))):
            lines = (damaged / name).read_text().splitlines(keepends=True)
            lines[4] = '{"k":"tra\n'
            (damaged / name).write_text("".join(lines))
            for to in formats:
                self.refuses(4, f"{name}:5: damaged line", "export", "damaged", "--to", to, "out")
        (damaged / "events.jsonl").unlink()
        self.refuses(4, "no trace to write", "export", "damaged", "--to", "chrome", "out")
        require(not (self.folder / "out").exists(), "a refused export left something")
        (damaged / "metrics.jsonl").write_text("")
        for to in ("tb", "csv"):
            done = self.call("export", "damaged", "--to", to, f"none-{to}")
            require("metrics.jsonl: holds no training step yet" in done.stderr, f"{to}: {done.stderr}")
        done = self.call("train", "plain.toml", "--set", 'log.sinks=["jsonl", "wandb"]', code=3)
        require("must be one of jsonl, tensorboard" in done.stderr, done.stderr)
        (self.folder / "bad.toml").write_text(LIVE.replace('"tensorboard"', '"tensorbord"'))
        done = self.call("train", "bad.toml", code=3)
        line = LIVE.splitlines().index('sinks = ["jsonl", "tensorboard"]') + 1
        require(f"bad.toml:{line}:19: error" in done.stderr and
                "did you mean 'tensorboard'" in done.stderr, done.stderr)
        print("bad input: one error each")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="isthmus-exports-") as folder:
        exports = Exports(arguments.isthmus.resolve(), pathlib.Path(folder))
        try:
            exports.run()
        except Failure as failure:
            print(f"failed: {failure}")
            return 1
    for reader in exports.skipped:
        print(f"skipped: {reader}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
