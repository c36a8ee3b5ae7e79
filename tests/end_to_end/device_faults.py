#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A device, a driver or a library that fails ends a run with one error and exit code 4.

  python3 tests/end_to_end/device_faults.py --isthmus build/tests/cuda/program/isthmus_emulated

The program computes on an emulated device, whose faults the environment sets (tests/cuda/emulated/faults.h). A device
that is lost, and memory that is not there, in the middle of a step: the error names device, call and remedy, the newest
checkpoint is whole, and the same command with `--resume auto` ends in the bits of a run without the fault; with one
worker, with several, and with two ranks on two devices. Before a run begins: too little memory, a driver that is too
old, libraries that cannot be used. By name each is an error; under "auto" the run is on the CPU, and its one line about
the device says why.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from scenario import Failure, require, small_run

STEPS, CHECKPOINT = 8, 3
CONFIGURATION, ENVIRONMENT = 3, 4  # exit codes
CONFIG = small_run("faults", workers="{workers}", seed=5, arch="gpt2", source="text:corpus.txt", steps="{steps}",
                   global_batch="64 tok", context=16, lr="1e-3") + """
[outer]
method = "streaming-diloco"
H = 2
fragments = 2
overlap = 1
alpha = 0.5
[eval]
every = 4
tokens = "32"
[ckpt]
every = "{checkpoint} steps"
keep = 9
"""
MESH = "[parallel]\ndp = 2\n"


class Bench:
    def __init__(self, isthmus, folder):
        self.isthmus, self.folder = isthmus, folder
        (folder / "corpus.txt").write_text(" ".join(f"the {n} of {n * n % 97} sites" for n in range(600)))

    def write(self, name, workers=1, extra=""):
        path = self.folder / f"{name}.toml"
        path.write_text(CONFIG.format(workers=workers, steps=STEPS, checkpoint=CHECKPOINT) + extra)
        return path

    def run(self, toml, out, *flags, fault="", code=0):
        """What the run says on stderr, as lines."""
        command = [self.isthmus, "train", str(toml), "--progress", "none", "--out", str(self.folder / out), *flags]
        environment = {key: value for key, value in os.environ.items() if key != "ISTHMUS_EMULATED_FAULT"}
        if fault:
            environment["ISTHMUS_EMULATED_FAULT"] = fault
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
        require(done.returncode == code, f"{out}, {fault}: exit {done.returncode}, not {code}: {done.stderr}")
        return done.stderr.splitlines()

    def model(self, out):
        return (self.folder / out / "ckpt/last/model.safetensors").read_bytes()

    def losses(self, out):
        """Of the steps that count: a resumed run writes those after its checkpoint once more."""
        rows = map(json.loads, (self.folder / out / "metrics.jsonl").read_text().splitlines())
        return {row["step"]: row["loss"] for row in rows if row["k"] == "train"}


def one_error(lines, *words):
    """The run's one error, its last line, with all words; warnings before it do not tell of it again."""
    errors = [line for line in lines if "error" in line.lower()]
    require(len(errors) == 1 and errors[0] == lines[-1], f"not one error: {lines}")
    for word in words:
        require(word in errors[0], f"no {word!r} in: {errors[0]}")
    require(not any("is lost" in line for line in lines[:-1]), f"told twice: {lines}")


def in_the_middle(bench, name, toml, faults, *words):
    """Each fault comes after the checkpoint of CHECKPOINT, some kernels later."""
    whole = f"{name}-whole"
    if not (bench.folder / whole).exists():
        bench.run(toml, whole, "--device", "cuda")
    for number, (fault, kernels) in enumerate(faults):
        out = f"{name}-{fault.replace(':', '-')}-{number}"
        checkpoint = bench.folder / out / f"ckpt/step-{CHECKPOINT:07d}"
        lines = bench.run(toml, out, "--device", "cuda", fault=f"{fault}:{kernels}:{checkpoint}", code=ENVIRONMENT)
        one_error(lines, *words, "--resume auto")
        kept = sorted(path.name for path in (bench.folder / out / "ckpt").iterdir() if path.name.startswith("step-"))
        require(checkpoint.name in kept, f"{out}: {kept}")
        manifest = json.loads((bench.folder / out / "manifest.json").read_text())
        require(manifest["status"] == "failed", f"{out}: {manifest['status']}")
        bench.run(toml, out, "--device", "cuda", "--resume", "auto")
        require(bench.model(out) == bench.model(whole), f"{out}: another model than without the fault")
        require(bench.losses(out) == bench.losses(whole), f"{out}: other losses")


def devices_that_are_lost(bench):
    lost = ("illegal memory access", "CUDA_VISIBLE_DEVICES", "--device cpu")
    # In the next step, later, and as far as the next checkpoint's copies.
    some = [("lost:0", kernels) for kernels in (0, 37, 150, 280)]
    in_the_middle(bench, "one", bench.write("one"), some, "cuda:0 is lost", *lost)
    several = bench.write("several", workers=2)  # each worker has a device
    in_the_middle(bench, "several", several, [("lost:1", 60)], "cuda:1 is lost", *lost)
    mesh = bench.write("mesh", extra=MESH)
    for device in (0, 1):
        in_the_middle(bench, "mesh", mesh, [(f"lost:{device}", 45)], f"cuda:{device} is lost", *lost)


def memory_that_is_not_there(bench):
    toml = bench.folder / "one.toml"
    words = ("out of memory", "bytes are free", "nvidia-smi", "train.recompute = true")
    in_the_middle(bench, "one", toml, [("memory:0", 1)], *words)
    start = bench.run(toml, "small", "--device", "cuda", fault="bytes:300000", code=ENVIRONMENT)
    one_error(start, "cuda:0", "are free", "lower train.global_batch")
    falls_back(bench, toml, "bytes:300000", "are free")


def falls_back(bench, toml, fault, *words):
    lines = bench.run(toml, "auto-" + fault.split(":")[0], "--device", "auto", fault=fault)
    said = [line for line in lines if "computes on" in line]
    require(len(said) == 1 and "computes on cpu: " in said[0], f"{fault}: {lines}")
    for word in words:
        require(word in said[0], f"no {word!r} in: {said[0]}")
    require(not any("warning" in line and word in line for line in lines for word in words), f"twice: {lines}")


def drivers_and_libraries(bench):
    toml = bench.folder / "one.toml"
    for fault, words in (
        ("driver:12040", ("driver is too old", "CUDA 12.4", "install driver", "--device cpu")),
        ("products:libcublasLt.so.13 is of version 12.4.5", ("libcublasLt.so.13 is of version 12.4.5",)),
    ):
        lines = bench.run(toml, "named", "--device", "cuda", fault=fault, code=ENVIRONMENT)
        one_error(lines, 'train.device = "cuda"', *words)
        require(not (bench.folder / "named").exists(), f"{fault}: a folder is left")
        falls_back(bench, toml, fault, *words)
    cudnn = ("--set", 'train.precision="bf16"', "--set", 'train.attention="cudnn"')
    missing = "libcudnn.so.9 is of version 9.1.0"
    for device in ("cuda", "auto"):
        lines = bench.run(toml, "cudnn", "--device", device, *cudnn, fault=f"cudnn:{missing}", code=ENVIRONMENT)
        one_error(lines, 'train.attention = "cudnn"', missing, '"own"')
    own = bench.run(toml, "own", "--device", "cuda", *cudnn[:2], fault=f"cudnn:{missing}")
    require(any("computes on cuda:0" in line and "cuDNN" not in line for line in own), own)


def tables_of_products(bench):
    """A table of cuBLASLt's algorithms beside the program: used where it is of the device and version, and named."""
    beside = bench.folder / "program"
    beside.mkdir()
    program, table = beside / "isthmus", beside / "matmul-table.txt"
    shutil.copy2(bench.isthmus, program)
    toml, bench.isthmus = bench.folder / "one.toml", str(program)
    head = "isthmus matmul table 1\ndevice emulated on the CPU, compute capability 8.0\ncublaslt {}\n"
    table.write_text(head.format("emulated"))
    said = [line for line in bench.run(toml, "table", "--device", "cuda") if "computes on" in line]
    words = "products by cuBLASLt emulated with the choices of matmul-table.txt (0 products, xxh3 "
    require(len(said) == 1 and words in said[0], said)
    manifest = json.loads((bench.folder / "table/manifest.json").read_text())
    require(words in manifest["device"], manifest["device"])
    require(bench.model("table") == bench.model("one-whole"), "another model with an empty table")
    table.write_text(head.format("12.4.5"))
    lines = bench.run(toml, "older-table", "--device", "cuda")
    require(sum("matmul-table.txt is not used: it is of cuBLASLt 12.4.5" in line for line in lines) == 1, lines)
    require(not any("with the choices" in line for line in lines), lines)
    table.write_text("words")
    lines = bench.run(toml, "no-table", "--device", "cuda", code=CONFIGURATION)
    one_error(lines, "matmul-table.txt:1: ", "bench_cuda_matmul_table")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.isthmus, pathlib.Path(folder))
        tests = (devices_that_are_lost, memory_that_is_not_there, drivers_and_libraries, tables_of_products)
        for test in tests:
            test(bench)
            print(f"ok: {test.__name__}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"FAILED: {failure}")
