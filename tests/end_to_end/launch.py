#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`launch`: sites on this machine, lines to paste, programs that stand in for ssh and srun.

  python3 tests/end_to_end/launch.py --isthmus build/src/app/isthmus
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from scenario import Failure, require

# As root, with more processes than cores, and over shared memory that containers allow.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/sites.toml"


def rows(folder, kind):
    path = folder / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [row for row in map(json.loads, whole) if row["k"] == kind]


def steps_begin(launcher, out):
    deadline = time.monotonic() + 120
    while len(rows(out / "west", "train")) < 5:
        if launcher.poll() is not None:
            said = launcher.stdout.read() if launcher.stdout else ""
            raise Failure(f"the launcher ends by itself, with {launcher.returncode}: {said}")
        require(time.monotonic() < deadline, "no steps within two minutes")
        time.sleep(0.05)


class Bench:
    def __init__(self, isthmus, folder):
        self.isthmus = isthmus
        self.folder = folder
        self.running = []  # to be ended with the test, however it ends

    def run(self, *words, code=0, **environment):
        done = subprocess.run([self.isthmus, *map(str, words)], capture_output=True, text=True,
                              env={**os.environ, **environment}, timeout=300)
        require(done.returncode == code, f"{words}: exit {done.returncode}: {done.stderr}")
        return done

    def script(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path


def both_sites_here_find_what_one_process_finds(bench):
    out = bench.folder / "here"
    done = bench.run("launch", EXAMPLE, "--out", out, "--set", "train.steps=60")
    require("done: 2 sites" in done.stdout, done.stdout)
    require("east | " in done.stderr and "west | " in done.stderr, done.stderr)
    bench.run("train", EXAMPLE, "--out", bench.folder / "one", "--set", "train.steps=60",
              "--progress", "none")
    want = [(row["step"], row["loss"]) for row in rows(bench.folder / "one", "train")]
    for name in ("east", "west"):
        found = [(row["step"], row["loss"]) for row in rows(out / name, "train")]
        require(found == want, f"{name}: other losses")
    # Beside the clock stands what the declared link gives: three rounds of at least a round trip.
    for name in ("east", "west"):
        prediction = json.loads((out / name / "summary.json").read_text())["prediction"]
        require(prediction["predicted_s"] > 3 * 0.08 and prediction["measured_s"] > 0, prediction)
        require(prediction["rounds"]["at"] == name and prediction["rounds"]["all"]["rounds"] == 3, prediction)
    bench.run("report", out / "east")
    bench.run("export", out / "west", "--to", "hf", bench.folder / "model")


def a_signal_to_the_launcher_stops_and_resume_goes_on(bench):
    out = bench.folder / "stopped"
    process = subprocess.Popen([bench.isthmus, "launch", str(EXAMPLE), "--out", str(out), "--set",
                                "train.steps=4000"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    steps_begin(process, out)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    require(process.returncode == 85, f"exit {process.returncode}: {said}")
    stopped = [len(rows(out / name, "train")) for name in ("east", "west")]
    require(stopped[0] == stopped[1] < 4000, f"stopped after {stopped} steps")


def a_killed_launcher_leaves_nobody_behind(bench):
    out = bench.folder / "killed"
    process = subprocess.Popen([bench.isthmus, "launch", str(EXAMPLE), "--out", str(out), "--set",
                                "train.steps=100000"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    steps_begin(process, out)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while subprocess.run(["pgrep", "-f", str(out)], capture_output=True).returncode == 0:
        require(time.monotonic() < deadline, "sites outlive the launcher")


def state_of(bench, out):
    """What each site has written last, and what it said last but for its progress."""
    said = (bench.folder / "said").read_text().splitlines()
    text = []
    for name in ("east", "west"):
        lines = [line for line in said if line.startswith(f"{name} | ") and " | step " not in line]
        last = {kind: (rows(out / name, kind) or [None])[-1] for kind in ("round", "train", "event")}
        running = subprocess.run(["pgrep", "-f", "--", f"--site {name} --out {out}/{name}"],
                                 capture_output=True, text=True).stdout.split()
        text += [f"{name}: processes {running}, last lines {last}", *lines[-25:]]
    return "\n".join(text)


# The others are in the middle of a step when the first site is back: its links find processes that
# do not know yet that it was gone. To be sure of that, the other site stands still meanwhile.
LONG_STEPS = ('train.global_batch="16k tok"', "outer.H=2", "eval.every=0", 'ckpt.every="2 steps"')
SHORT_STEPS = ('ckpt.every="200 steps"',)


def a_site_that_dies_is_started_again(bench):
    for victim, settings in (("west", SHORT_STEPS), ("east", SHORT_STEPS), ("east", LONG_STEPS)):
        out = bench.folder / f"restart-{victim}-{len(settings)}"
        changes = [word for each in settings for word in ("--set", each)]
        process = subprocess.Popen([bench.isthmus, "launch", str(EXAMPLE), "--out", str(out),
                                    "--restart", "2", "--set", "train.steps=100000", *changes],
                                   stdout=subprocess.PIPE,
                                   stderr=open(bench.folder / "said", "w"), text=True)

        def until(what, condition):
            deadline = time.monotonic() + 240
            while not condition():
                require(time.monotonic() < deadline and process.poll() is None,
                        f"{victim}, {settings}: no {what} ({process.poll()}): "
                        f"{state_of(bench, out)}")
                time.sleep(0.05)

        def pid(name=victim):
            found = subprocess.run(["pgrep", "-f", "--", f"--site {name} --out {out}/{name}"],
                                   capture_output=True, text=True).stdout.split()
            return int(found[0]) if found else None

        def last_round(name):
            return (rows(out / name, "round") or [{"step": 0, "members": 0}])[-1]

        bench.running.append(process)
        until("checkpoint", lambda: all((out / name / "ckpt/last").exists()
                                          for name in ("east", "west")))
        first = pid()
        held_up = pid("west") if settings is LONG_STEPS else None
        if held_up:
            os.kill(held_up, signal.SIGSTOP)
        os.kill(first, signal.SIGKILL)
        until("new process of it", lambda: pid() not in (None, first))
        if held_up:
            os.kill(held_up, signal.SIGCONT)
        reached = max(last_round(name)["step"] for name in ("east", "west"))
        until("rounds of both again", lambda: all(last_round(name)["members"] == 2 and
                                                  last_round(name)["step"] > reached
                                                  for name in ("east", "west")))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        said = (bench.folder / "said").read_text()
        require(process.returncode == 130, f"{victim}: exit {process.returncode}: {said}")
        require(f"{victim} | ended by signal 9; starting it again in 1 s (restart 1 of 2)" in said,
                said)
        require(said.count("starting it again") == 1, said)
        last = {(out / name / "ckpt/last").resolve().name for name in ("east", "west")}
        require(len(last) == 1, f"{victim}: stopped after unlike steps: {last}")


def one_sites_failure_is_the_launchers(bench):
    done = bench.run("launch", EXAMPLE, "--out", bench.folder / "failing", "--set",
                     'data.source="text:/nowhere/*.txt"', code=4)
    require("exit code 4" in done.stdout and "/nowhere" in done.stderr, done.stdout + done.stderr)


def lines_to_paste_name_every_site(bench):
    done = bench.run("launch", EXAMPLE, "--via", "print", "--out", "runs/a b", "--address",
                     "east=10.0.0.1:48200", "--address", "west=10.0.0.2:48200", "--set",
                     "net.plaintext=true")
    require("'runs/a b/east'" in done.stdout and "--site west" in done.stdout, done.stdout)
    done = bench.run("launch", EXAMPLE, "--via", "print", code=3)
    require("address" in done.stderr, done.stderr)
    done = bench.run("launch", EXAMPLE, "--site", "north", code=2)
    require("sites: east, west" in done.stderr, done.stderr)


def ssh_and_srun_are_told_what_to_run(bench):
    told = bench.folder / "told"
    addresses = ("--address", "east=a.example:1", "--address", "west=b.example:2", "--set",
                 "net.plaintext=true")
    ssh = bench.script("ssh", f'echo "$@" >> {told}\n')
    bench.run("launch", EXAMPLE, "--via", "ssh", "--ssh", ssh, "--host", "west=me@login", "--directory",
              "/data/my runs", "--out", "out", *addresses)
    lines = sorted(told.read_text().splitlines())
    require("a.example cd '/data/my runs' && exec isthmus train" in lines[0] and
            "--site east" in lines[0], lines[0])
    require("me@login" in lines[1] and "--site west" in lines[1], lines[1])
    told.unlink()
    bench.script("srun", f'echo "$@" >> {told}\n')
    bench.script("scontrol", "echo node7\necho node8\n")
    path = f"{bench.folder}:{os.environ['PATH']}"
    bench.run("launch", EXAMPLE, "--via", "slurm", "--out", "out", "--set", "net.plaintext=true",
              PATH=path)
    lines = sorted(told.read_text().splitlines())
    require("--nodelist=node7" in lines[0] and "--address east=node7:48200" in lines[0], lines[0])
    require("--nodelist=node8" in lines[1] and "--site west" in lines[1], lines[1])
    bench.script("scontrol", "exit 1\n")
    done = bench.run("launch", EXAMPLE, "--via", "slurm", code=3, PATH=path)
    require("salloc" in done.stderr, done.stderr)


def ranks_may_be_processes(bench):
    """Two unlike meshes, each an MPI job of its own, joined over TCP."""
    text = EXAMPLE.read_text().replace("../src", str(EXAMPLE.parent.parent / "src"))
    text = text.replace('name = "east"', 'name = "east"\ntp = 2').replace('name = "west"', 'name = "west"\ndp = 2')
    config = bench.folder / "meshes.toml"
    config.write_text(text)
    where = ("--via", "print", "--address", "east=10.0.0.1:1", "--address", "west=10.0.0.2:1",
             "--set", "net.plaintext=true")
    done = bench.run("launch", config, "--ranks", "processes", *where)
    require(done.stdout.count("mpirun -n 2 isthmus train") == 2, done.stdout)
    require("mpirun" not in bench.run("launch", config, *where).stdout, "threads by an mpirun")
    # Jobs that begin at once would find each other's folders half made.
    stands_in = bench.script("stands_in", 'test -d "$TMPDIR" && echo "in $TMPDIR."\n')
    said = bench.run("launch", config, "--ranks", "processes", "--mpirun", stands_in, "--out",
                     bench.folder / "apart").stderr
    folders = re.findall(r"\| in (.*)\.", said)
    require(len(set(folders)) == 2, said)
    require(not any(pathlib.Path(folder).exists() for folder in folders), f"left behind: {folders}")
    doctor = bench.run("doctor").stdout
    if shutil.which("mpirun") is None or "Open MPI v" not in doctor:
        print("no mpirun, or a build without MPI: not started")
        return
    steps = ("--set", "train.steps=40")
    bench.run("launch", config, "--out", bench.folder / "threads", *steps)
    bench.run("launch", config, "--out", bench.folder / "processes", "--ranks", "processes", *steps,
              **OPEN_MPI)
    for name in ("east", "west"):
        models = {(bench.folder / how / name / "ckpt/last/model.safetensors").read_bytes()
                  for how in ("threads", "processes")}
        require(len(models) == 1, f"{name}: ranks that are processes find another model")
    out = bench.folder / "stopped jobs"
    process = subprocess.Popen([bench.isthmus, "launch", str(config), "--out", str(out), "--ranks",
                                "processes", "--set", "train.steps=100000"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, env={**os.environ, **OPEN_MPI})
    bench.running.append(process)
    steps_begin(process, out)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    require(process.returncode == 85, f"exit {process.returncode}: {said}")
    stopped = [len(rows(out / name, "train")) for name in ("east", "west")]
    require(stopped[0] == stopped[1], f"stopped after {stopped} steps")


SCENARIOS = (both_sites_here_find_what_one_process_finds,
             a_signal_to_the_launcher_stops_and_resume_goes_on,
             a_killed_launcher_leaves_nobody_behind, a_site_that_dies_is_started_again, one_sites_failure_is_the_launchers,
             lines_to_paste_name_every_site, ssh_and_srun_are_told_what_to_run,
             ranks_may_be_processes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.isthmus, pathlib.Path(folder))
        for scenario in SCENARIOS:
            begin = time.monotonic()
            try:
                scenario(bench)
            except Failure as failure:
                sys.exit(f"{scenario.__name__}: {failure}")
            finally:
                for process in bench.running:
                    if process.poll() is None:
                        process.kill()  # its sites end with it
                        process.wait()
            print(f"{scenario.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)


main()
