#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that are told to stop, and what may go on from them.

  python3 tests/end_to_end/stop_and_resume.py --isthmus build/src/app/isthmus

SIGINT, SIGTERM and SIGUSR1 end a run with a checkpoint and their exit code, and the resumed run
equals the uninterrupted one; a finished run resumed stays as it is; `--resume PATH` goes back within
the run; more and fewer workers go on from the same checkpoint; other data, another configuration and
a `--force` that would remove what is resumed from are refused with nothing lost.
"""
import argparse
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from scenario import Failure, require, rows_of, small_run

STEPS = 80
CONFIG = small_run("stop", workers="{workers}", seed=3, arch="gpt2", source="text:corpus.txt", steps="{steps}",
                   global_batch="{batch} tok", lr="2e-3") + """
[outer]
method = "diloco"
H = 5
[eval]
every = 20
tokens = "1k"
[ckpt]
every = "{every}"
keep = 50
"""


class Bench:
    def __init__(self, isthmus, folder, text):
        self.isthmus = isthmus
        self.folder = folder
        (folder / "corpus.txt").write_bytes(pathlib.Path(text).read_bytes())
        self.toml = self.write("run.toml")

    def write(self, name, workers=2, steps=STEPS, batch=384, every="20 steps"):
        path = self.folder / name
        path.write_text(CONFIG.format(workers=workers, steps=steps, batch=batch, every=every))
        return path

    def command(self, out, *flags, toml=None, verb="train"):
        return [self.isthmus, verb, str(toml or self.toml), "--progress", "none", "--out",
                str(self.folder / out), *flags]

    def run(self, out, *flags, code=0, **other):
        done = subprocess.run(self.command(out, *flags, **other), capture_output=True, text=True)
        require(done.returncode == code, f"exit {done.returncode}, not {code}: {done.stderr}")
        return done

    def lines(self, out, kind):
        return rows_of(self.folder / out, kind)

    def losses(self, out):
        return [(row["step"], row["loss"]) for row in self.lines(out, "train")]

    def summary(self, out):
        return json.loads((self.folder / out / "summary.json").read_text())

    def model(self, out):
        return (self.folder / out / "ckpt/last/model.safetensors").read_bytes()

    def same_as_reference(self, out):
        require(self.losses(out) == self.losses("reference"), f"{out}: other losses")
        require(self.model(out) == self.model("reference"), f"{out}: another model")
        keep = ("status", "steps", "tokens", "rounds", "final_train_loss", "final_eval_loss",
                "bytes_wire", "bytes_payload")
        ours, want = self.summary(out), self.summary("reference")
        for key in keep:
            require(ours[key] == want[key], f"{out}: {key} is {ours[key]}, not {want[key]}")


def signals_end_with_a_checkpoint(bench):
    for number, code, status in ((signal.SIGINT, 130, "interrupted"),
                                 (signal.SIGTERM, 85, "checkpointed"),
                                 (signal.SIGUSR1, 85, "checkpointed")):
        out = f"signal-{number}"
        process = subprocess.Popen(bench.command(out), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while len(bench.losses(out)) < 7 and process.poll() is None:
            require(time.monotonic() < deadline, "no steps within a minute")
        process.send_signal(number)
        stderr = process.communicate(timeout=60)[1]
        if process.returncode == 0:
            print(f"{out}: the run was faster than the signal")
            continue
        require(process.returncode == code, f"{out}: exit {process.returncode}: {stderr}")
        require("--resume auto" in stderr.splitlines()[-1], f"{out}: {stderr}")
        stopped = len(bench.losses(out))
        require(stopped < STEPS, f"{out}: took every step")
        require(bench.summary(out)["status"] == status, f"{out}: {bench.summary(out)['status']}")
        require(bench.lines(out, "end")[-1]["status"] == status, f"{out}: end line")
        last = (bench.folder / out / "ckpt/last").resolve().name
        require(last == f"step-{stopped:07d}", f"{out}: {last} after {stopped} steps")
        bench.run(out, "--resume", "auto")
        bench.same_as_reference(out)


def a_finished_run_stays_as_it_is(bench):
    folder = bench.folder / "reference"
    def files():
        return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    before, summary = files(), bench.summary("reference")
    said = bench.run("reference", "--resume", "auto").stdout
    require("is complete" in said and f"all of its {STEPS} steps" in said, said)
    told = json.loads(bench.run("reference", "--resume", "auto", "--json").stdout)
    require(told["complete_before"] and told["steps"] == STEPS, str(told))
    require(told["final_eval_loss"] == summary["final_eval_loss"], str(told))
    require(files() == before, "a complete run was changed")
    # One that died between its last checkpoint and its summary is summed up.
    (folder / "summary.json").unlink()
    bench.run("reference", "--resume", "auto")
    after = bench.summary("reference")
    for key in ("steps", "final_train_loss", "final_eval_loss", "final_eval_step", "bytes_wire"):
        require(summary[key] == after[key], f"{key}: {summary[key]} became {after[key]}")


def a_path_goes_back_within_the_run(bench):
    shutil.copytree(bench.folder / "reference", bench.folder / "back", symlinks=True)
    bench.run("back", "--resume", str(bench.folder / "back/ckpt/step-0000040"))
    bench.same_as_reference("back")
    # Elsewhere it begins a run of its own, which holds the later steps only.
    bench.run("branch", "--resume", str(bench.folder / "reference/ckpt/step-0000040"))
    require(bench.losses("branch") == bench.losses("reference")[40:], "branch: other losses")
    manifest = json.loads((bench.folder / "branch/manifest.json").read_text())
    parent = json.loads((bench.folder / "reference/manifest.json").read_text())
    require(manifest["parent"] == parent["run_id"], "branch: no parent")


def other_numbers_of_workers_go_on(bench):
    for workers in (1, 3):
        toml = bench.write(f"workers-{workers}.toml", workers=workers)
        out = f"workers-{workers}"
        bench.run(out, "--resume", str(bench.folder / "reference/ckpt/step-0000040"), toml=toml)
        losses = bench.losses(out)
        require([step for step, _ in losses] == list(range(41, STEPS + 1)), f"{out}: steps")
        # The state went along: no worker starts anew.
        fresh = bench.losses("reference")[0][1]
        before = bench.losses("reference")[39][1]
        require(losses[0][1] < (fresh + before) / 2, f"{out}: loss {losses[0][1]} after resume")
        require(len(bench.lines(out, "worker")) == (workers * 40 if workers > 1 else 0),
                f"{out}: worker lines")


def the_same_data_in_another_place_goes_on(bench):
    elsewhere = bench.folder / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(bench.folder / "corpus.txt", elsewhere)
    toml = shutil.copy(bench.toml, elsewhere)
    shutil.copytree(bench.folder / "back", bench.folder / "moved", symlinks=True)
    checkpoint = str(bench.folder / "moved/ckpt/step-0000060")
    bench.run("moved", "--resume", checkpoint, toml=toml)
    bench.run("moved", "--resume", "auto", toml=bench.folder / "moved/config.resolved.toml")
    bench.same_as_reference("moved")
    # A folder that merely contains the run is another one, and not empty.
    done = subprocess.run([bench.isthmus, "train", str(toml), "--out", str(bench.folder),
                           "--resume", checkpoint], capture_output=True, text=True)
    require(done.returncode == 3 and "not empty" in done.stderr, f"parent folder: {done.stderr}")


def what_cannot_go_on_is_refused(bench):
    out = "refused"
    shutil.copytree(bench.folder / "reference", bench.folder / out, symlinks=True)
    checkpoint = str(bench.folder / out / "ckpt/last")

    def refuse(expected, *flags, **other):
        done = bench.run(out, *flags, code=3, **other)
        require(expected in done.stderr, f"{expected!r} not in {done.stderr}")
        require(bench.model(out) == bench.model("reference"), "the checkpoint is gone")
        require(bench.losses(out) == bench.losses("reference"), "the metrics are gone")

    refuse("inner.lr", "--resume", "auto", "--set", "inner.lr=1e-3")
    refuse("not empty")
    refuse("model.init", "--force", "--set", f'model.init="{checkpoint}"')
    refuse("outer.offsets", "--force", "--set", "outer.offsets=[1,2,3]")
    bench.run(out, "--force", "--resume", checkpoint)  # goes on: --force has nothing to replace
    require(bench.losses(out) == bench.losses("reference"), "--force with --resume lost steps")
    with (bench.folder / "corpus.txt").open("ab") as corpus:
        corpus.write(b"one more line\n")
    refuse("corpus.txt", "--resume", "auto")


def timed_checkpoints_leave_the_clock_alone(bench):
    toml = bench.write("timed.toml", workers=3, steps=20, every="20 steps")
    flags = ("--link", "10Mbit/s,20ms", "--set", 'sim.step_time="10ms"')
    bench.run("untimed", *flags, toml=toml, verb="simulate")
    bench.run("timed", *flags, "--set", 'ckpt.every="1ms"', toml=toml, verb="simulate")
    require(len(bench.lines("timed", "ckpt")) > 2, "no timed checkpoints")
    ours, want = bench.summary("timed"), bench.summary("untimed")
    require(ours["simulated_s"] == want["simulated_s"], "checkpoints took simulated time")
    require(ours["trace_hash"] == want["trace_hash"], "another trace")


def resolved_files_load(bench):
    bench.run("linked", "--link", "10Mbit/s,20ms", "--set", 'sim.step_time="10ms"',
              verb="simulate")
    bench.run("again", toml=bench.folder / "linked/config.resolved.toml", verb="simulate")
    slow = ("--link", "100bit/s,20ms", "--set", 'sim.step_time="10ms"', "--set", "train.steps=5")
    bench.run("slow", *slow, verb="simulate")  # a round takes longer than net.patience
    bench.run("slow-again", toml=bench.folder / "slow/config.resolved.toml", verb="simulate")
    require(bench.summary("linked")["simulated_s"] == bench.summary("again")["simulated_s"],
            "the resolved file means another link")


SCENARIOS = (signals_end_with_a_checkpoint, a_finished_run_stays_as_it_is,
             a_path_goes_back_within_the_run, other_numbers_of_workers_go_on,
             timed_checkpoints_leave_the_clock_alone, resolved_files_load,
             the_same_data_in_another_place_goes_on, what_cannot_go_on_is_refused)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.isthmus, pathlib.Path(folder), args.text)
        bench.run("reference")
        for scenario in SCENARIOS:
            try:
                scenario(bench)
            except Failure as failure:
                sys.exit(f"{scenario.__name__}: {failure}")
            print(f"{scenario.__name__}: ok", flush=True)


main()
