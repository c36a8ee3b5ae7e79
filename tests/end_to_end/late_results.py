#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Results that are late, and training that goes on without them: outer.late = "slip".

  python3 tests/end_to_end/late_results.py --isthmus build/bin/isthmus

Steps take 10 s. A round goes out after step 4, at 40 s, and is due after step 5; a cut of the link from
40.3 s to 65.3 s makes it late. Waiting for it costs what is left of the cut after step 5. A run that
slips applies it after step 7, before the next one goes out after step 8, and loses no time, unless all
sites meet before: then they wait there.
"""
import json
import shutil
import subprocess

from scenario import play, require, small_run

BASE = small_run("late", workers=2, seed=5, arch="llama", source="text:{text}", steps=16, global_batch="128 tok",
                 lr="2e-3") + """
[outer]
method = "streaming-diloco"
H = 4
fragments = 1
overlap = 1
late = "{late}"
[eval]
every = {eval_every}
tokens = "1k"
[ckpt]
every = "{ckpt_every} steps"
keep = 5
[sim]
step_time = "10s"
link_model = "ideal"
[[link]]
between = ["*", "*"]
rate = "1Mbit/s"
rtt = "2ms"
"""
CUT = """
[[fault]]
kind = "cut"
between = ["*", "*"]
at = "40.3s"
lasts = "25s"
"""
STEPS = 16


class Bench:
    def __init__(self, isthmus, folder, text):
        self.isthmus, self.folder, self.text = isthmus, folder, text

    def run(self, *words, code=0):
        done = subprocess.run([self.isthmus, *map(str, words)], capture_output=True, text=True, check=False)
        require(done.returncode == code, f"{words}: exit {done.returncode}: {done.stderr}")
        return done

    def file(self, name, late, cut, eval_every=STEPS, ckpt_every=STEPS):
        path = self.folder / f"{name}.toml"
        path.write_text(BASE.format(text=self.text, late=late, eval_every=eval_every, ckpt_every=ckpt_every) +
                        (CUT if cut else ""))
        return path

    def simulate(self, name, *how, **more):
        """Seconds of the run."""
        self.run("simulate", self.file(name, *how, **more), "--out", self.folder / name, "--progress", "none")
        return self.rows(name, "train")[-1]["ts"]

    def rows(self, name, kind):
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["k"] == kind]

    def applied(self, name):
        """Step of the apply, by step of the send; each round has one line."""
        rounds = self.rows(name, "round")
        steps = {row["step_send"]: row["step_apply"] for row in rounds}
        require(len(steps) == len(rounds), f"{name}: a round was applied twice: {rounds}")
        require(all(row["members"] == 2 for row in rounds), f"{name}: {rounds}")
        return steps

    def outcome(self, name):
        model = (self.folder / name / "ckpt/last/model.safetensors").read_bytes()
        return model, [(row["k"], row["step"], row["loss"], row["ts"])
                       for kind in ("train", "eval") for row in self.rows(name, kind)]


def check(bench):
    undisturbed = bench.simulate("undisturbed", "wait", False)
    require(bench.simulate("punctual", "slip", False) == undisturbed, "slipping costs time where nothing is late")
    require(bench.outcome("punctual") == bench.outcome("undisturbed"),
            "where nothing is late slipping is not waiting")
    require(bench.applied("punctual") == {4: 5, 8: 9, 12: 13, 16: 16}, bench.applied("punctual"))

    waits = bench.simulate("waits", "wait", True) - undisturbed
    require(15.3 < waits < 17, f"waiting for the cut costs {waits} s")
    slips = bench.simulate("slips", "slip", True) - undisturbed
    require(slips == 0, f"slipping costs {slips} s")
    require(bench.applied("slips") == {4: 7, 8: 9, 12: 13, 16: 16}, bench.applied("slips"))
    require(bench.outcome("slips")[0] != bench.outcome("waits")[0], "the delay has changed nothing")
    bench.simulate("again", "slip", True)
    require(bench.outcome("again") == bench.outcome("slips"), "the same file and seed give another run")

    for name, more in (("evaluates", {"eval_every": 6}), ("lays down", {"ckpt_every": 6})):
        meets = bench.simulate(name, "slip", True, **more) - undisturbed
        require(5.3 < meets < 7, f"{name}: meeting after step 6 costs {meets} s")
        require(bench.applied(name) == {4: 6, 8: 9, 12: 13, 16: 16}, bench.applied(name))

    # One rank decides for all of a worker's mesh.
    bench.run("simulate", bench.folder / "slips.toml", "--set", "parallel.tp=2", "--out", bench.folder / "mesh",
              "--progress", "none")
    require(bench.applied("mesh") == bench.applied("slips"), bench.applied("mesh"))

    # From a checkpoint it goes on, if not to the same bits; its rounds are those of the rest.
    folder = bench.folder / "lays down"
    for step in (12, 16):
        shutil.rmtree(folder / f"ckpt/step-{step:07d}")
    (folder / "ckpt/last").unlink()
    (folder / "ckpt/last").symlink_to("step-0000006")
    bench.run("simulate", bench.folder / "lays down.toml", "--out", folder, "--progress", "none", "--resume", "auto")
    require(bench.applied("lays down") == {4: 6, 8: 9, 12: 13, 16: 16}, bench.applied("lays down"))

    bench.run("train", bench.file("trains", "slip", False), "--out", bench.folder / "trains", "--progress", "none")
    applied = bench.applied("trains")
    require(sorted(applied) == [4, 8, 12, 16] and
            all(min(sent + 1, STEPS) <= step <= sent + 4 for sent, step in applied.items()), applied)

    said = bench.run("simulate", bench.folder / "slips.toml", "--dry-run").stdout
    require("waits for late results" in said, said)
    said = bench.run("train", bench.folder / "trains.toml", "--set", "outer.method=co2", "--out", bench.folder / "no",
                     code=3).stderr
    require("outer.late" in said, said)


def late_results(isthmus, folder, corpus):
    check(Bench(isthmus, folder, corpus))


if __name__ == "__main__":
    play(__doc__, (late_results,))
