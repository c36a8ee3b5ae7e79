# SPDX-License-Identifier: Apache-2.0
"""What the scripts share whose sites' ranks are processes: a small run, how it is started, what it has found."""
import argparse
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from scenario import Failure, require, rows_of, small_run

SKIPPED = 77
CONFIG = small_run("ranks", seed=5, arch="{arch}", layers=4, heads=4, source="text:{text}", steps="{steps}",
                   global_batch="{batch} tok", threads=1, lr="2e-3") + """
[eval]
every = {every}
tokens = "128"
[outer]
method = "{method}"
{keys}
{rest}
"""
# As root, with more processes than cores, on whichever core is free (two processes are tied to one each by default),
# and over shared memory that containers allow.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


class Bench:
    def __init__(self, isthmus, folder, text):
        self.isthmus, self.folder, self.text = isthmus, folder, text
        self.started = []

    def write(self, name, rest, arch="llama", method="localsgd", keys="H = 4", steps=8, batch=128):
        path = self.folder / f"{name}.toml"
        path.write_text(CONFIG.format(arch=arch, method=method, keys=keys, steps=steps, text=self.text,
                                      batch=batch, rest=rest, every=4 if steps <= 16 else 20))
        return path

    def train(self, toml, out, *flags, ranks=1):
        job = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        return [*job, self.isthmus, "train", str(toml), "--progress", "none", "--out", str(self.folder / out),
                *flags]

    def start(self, words):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, **ENVIRONMENT})
        self.started.append(process)
        return process

    def end_all(self):
        for process in self.started:
            if process.poll() is not None:
                continue
            process.terminate()  # mpirun takes its processes along
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def said(self, process, seconds):
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired as late:
            raise Failure(f"{process.args[:4]} has not ended after {seconds} s: {late.output}") from None

    def run(self, words, code=0):
        process = self.start(words)
        said = self.said(process, 300)
        require(process.returncode in (code if isinstance(code, tuple) else (code,)), f"{words[:4]}: exit {process.returncode}: {said}")
        return said

    def rows(self, out, kind):
        return rows_of(self.folder / out, kind)

    def found(self, out):
        return ([(row["step"], row["loss"], row["grad_norm"]) for row in self.rows(out, "train")],
                [(row["step"], row["loss"]) for row in self.rows(out, "eval")],
                (self.folder / out / "ckpt/last/model.safetensors").read_bytes())

    def same(self, out, reference):
        require(self.found(out) == self.found(reference), f"{out} differs from {reference}")

    def await_steps(self, process, out, steps):
        deadline = time.monotonic() + 60
        while len(self.rows(out, "train")) < steps:
            require(time.monotonic() < deadline and process.poll() is None, f"{out}: not {steps} steps in a minute")
            time.sleep(0.02)


def mesh(**sizes):
    return "[parallel]\n" + "".join(f"{key} = {value}\n" for key, value in sizes.items())


def sites_toml(bench, name, meshes, steps=16, batch=128):
    sites = "".join(f'[[site]]\nname = "{site}"\n{size}\n' for site, size in meshes)
    return bench.write(name, sites, method="streaming-diloco", steps=steps, batch=batch * len(meshes),
                       keys='H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\ncodec = "int8"')


def children_of(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def processor_seconds():
    """User and system time of all processes that have ended and been waited for."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def play(scenarios):
    """The main of a script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--only", default="", help="scenarios whose name has this")
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    args = parser.parse_args()
    doctor = subprocess.run([args.isthmus, "doctor"], capture_output=True, text=True).stdout
    if shutil.which("mpirun") is None or "Open MPI v" not in doctor:
        print("skipped: no mpirun, or a build without MPI")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.isthmus, pathlib.Path(folder), args.text)
        for scenario in scenarios:
            if args.only not in scenario.__name__:
                continue
            begin, worked = time.monotonic(), processor_seconds()
            try:
                scenario(bench)
            except Failure as failure:
                sys.exit(f"{scenario.__name__}: {failure}")
            finally:
                bench.end_all()
            print(f"{scenario.__name__}: ok, {time.monotonic() - begin:.1f} s, "
                  f"{processor_seconds() - worked:.1f} s of processors", flush=True)
