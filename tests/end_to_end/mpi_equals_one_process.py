#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The processes of an MPI job find what workers of one process find, bit for bit.

  python3 tests/end_to_end/mpi_equals_one_process.py --isthmus build/src/app/isthmus

Also: a signal ends the job with a checkpoint, and it goes on from there; so it does when a process
of it is killed, from the last checkpoint before; a job of another size is refused. Skipped by name (exit 77) without mpirun or in a build without MPI.
"""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from scenario import Failure, require, rows_of, small_run

SKIPPED = 77
CONFIG = small_run("mpi", workers="{workers}", seed=5, arch="gpt2", source="text:{text}", steps="{steps}",
                   global_batch="{batch} tok", threads=1, lr="2e-3") + """
[eval]
every = 20
tokens = "1k"
[outer]
method = "{method}"
{keys}
"""
METHODS = (("ddp", ""), ("diloco", 'H = 5\ncodec = "int8"'), ("spsa", "samples = 2"),
           ("streaming-diloco", "H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5"))
# As root, with more processes than cores, and over shared memory that containers allow.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


class Bench:
    def __init__(self, isthmus, folder, text):
        self.isthmus, self.folder, self.text = isthmus, folder, text

    def write(self, method, keys, workers, steps):
        path = self.folder / f"{method}-{workers}.toml"
        path.write_text(CONFIG.format(method=method, keys=keys, workers=workers, steps=steps,
                                      text=self.text, batch=workers * 64))
        return path

    def job(self, size, toml, out, *flags):
        return ["mpirun", "-n", str(size), self.isthmus, "train", str(toml), "--progress", "none",
                "--out", str(self.folder / out), *flags]

    def run(self, words, code=0):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **ENVIRONMENT})
        require(done.returncode == code, f"{words[:3]}: exit {done.returncode}: {done.stderr}")
        return done

    def rows(self, out, kind):
        return rows_of(self.folder / out, kind)

    def found(self, out):
        return ([(row["step"], row["loss"], row["grad_norm"]) for row in self.rows(out, "train")],
                [(row["step"], row["loss"]) for row in self.rows(out, "eval")],
                (self.folder / out / "ckpt/last/model.safetensors").read_bytes())

    def same(self, out, reference, names):
        for name in names:
            require(self.found(f"{out}/{name}") == self.found(reference), f"{out}/{name} differs")


def names_of(bench, out):
    return sorted(path.name for path in (bench.folder / out).iterdir())


def every_method_finds_the_same(bench):
    for workers, (method, keys) in zip((2, 3, 2, 4), METHODS):
        toml = bench.write(method, keys, workers, 60)
        bench.run([bench.isthmus, "train", str(toml), "--progress", "none", "--out",
                   str(bench.folder / f"{method}-one"), "--set", "net.transport=inproc"])
        bench.run(bench.job(workers, toml, f"{method}-mpi"))
        names = names_of(bench, f"{method}-mpi")
        require(len(names) == workers, f"{names}")
        bench.same(f"{method}-mpi", f"{method}-one", names)


def groups_find_the_same(bench):
    toml = bench.write("diloco", 'H = 5\ncodec = "int8"', 4, 60)
    sites = "".join(f'[[site]]\nname = "s{m}"\ngroup = "g{m % 2}"\n' for m in range(4))
    toml.write_text(toml.read_text().replace("workers = 4\n", "") +
                    '[net]\nreduction = "groups"\n' + sites)
    bench.run([bench.isthmus, "train", str(toml), "--progress", "none", "--out",
               str(bench.folder / "groups-one"), "--set", "net.transport=inproc"])
    bench.run(bench.job(4, toml, "groups-mpi"))
    bench.same("groups-mpi", "groups-one", names_of(bench, "groups-mpi"))


def a_signal_ends_with_a_checkpoint_and_it_goes_on(bench):
    toml = bench.write("diloco", 'H = 5\ncodec = "int8"', 3, 1500)
    bench.run([bench.isthmus, "train", str(toml), "--progress", "none", "--out",
               str(bench.folder / "long-one"), "--set", "net.transport=inproc"])
    process = subprocess.Popen(bench.job(3, toml, "long-mpi"), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, **ENVIRONMENT})
    first = f"long-mpi/{names_of(bench, 'diloco-mpi')[0]}"
    deadline = time.monotonic() + 60
    while len(bench.rows(first, "train")) < 5:
        require(time.monotonic() < deadline and process.poll() is None, "no steps within a minute")
    process.send_signal(signal.SIGUSR1)  # mpirun hands it on to every process
    said = process.communicate(timeout=60)[0]
    names = names_of(bench, "long-mpi")
    steps = {len(bench.rows(f"long-mpi/{name}", "train")) for name in names}
    require(len(steps) == 1 and steps.copy().pop() < 1500, f"stopped after {steps}: {said}")
    require(process.returncode == 85, f"exit {process.returncode}: {said}")
    bench.run(bench.job(3, toml, "long-mpi", "--resume", "auto"))
    bench.same("long-mpi", "long-one", names)


def a_killed_process_ends_the_job_and_it_goes_on(bench):
    toml = bench.write("diloco", 'H = 5\ncodec = "int8"', 3, 1500)
    toml.write_text(toml.read_text() + '[ckpt]\nevery = "50 steps"\n')
    launch = [bench.isthmus, "launch", str(toml), "--via", "mpi", "--progress", "none", "--out",
              str(bench.folder / "killed"), "--force"]
    process = subprocess.Popen(launch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, **ENVIRONMENT})
    one = bench.folder / "killed/w1"
    deadline = time.monotonic() + 60
    while len(bench.rows("killed/w1", "train")) < 120:
        require(time.monotonic() < deadline and process.poll() is None, "no steps within a minute")
    os.kill(processes_below(process.pid, str(bench.folder / "killed"))[-1], signal.SIGKILL)
    said = process.communicate(timeout=60)[0]
    require(process.returncode == 5, f"exit {process.returncode}: {said}")
    require((one / "ckpt/last/state.json").exists(), f"no checkpoint: {said}")
    bench.run(bench.job(3, toml, "killed", "--resume", "auto"))
    bench.same("killed", "long-one", names_of(bench, "killed"))


def processes_below(pid, word):
    """Of the job that `pid` has started, those that train with this word among their arguments."""
    found, todo = [], [pid]
    while todo:
        each = todo.pop()
        children = pathlib.Path(f"/proc/{each}/task/{each}/children").read_text()
        todo += [int(child) for child in children.split()]
        words = pathlib.Path(f"/proc/{each}/cmdline").read_text().split("\0")
        if "train" in words[1:2] and word in words:
            found.append(each)
    return found


def a_job_of_another_size_is_refused(bench):
    toml = bench.write("ddp", "", 2, 10)
    done = bench.run(bench.job(3, toml, "refused"), code=3)
    require("mpirun -n 2" in done.stderr, done.stderr)
    require(not (bench.folder / "refused").exists(), "something was written")


SCENARIOS = (every_method_finds_the_same, groups_find_the_same,
             a_signal_ends_with_a_checkpoint_and_it_goes_on,
             a_killed_process_ends_the_job_and_it_goes_on,
             a_job_of_another_size_is_refused)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    args = parser.parse_args()
    doctor = subprocess.run([args.isthmus, "doctor"], capture_output=True, text=True).stdout
    if shutil.which("mpirun") is None or "Open MPI v" not in doctor:
        print("skipped: no mpirun, or a build without MPI")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.isthmus, pathlib.Path(folder), args.text)
        for scenario in SCENARIOS:
            begin = time.monotonic()
            try:
                scenario(bench)
            except Failure as failure:
                sys.exit(f"{scenario.__name__}: {failure}")
            print(f"{scenario.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)


main()
