#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One and the same file in every world: in one process, simulated, as sites over loopback, as an MPI job.

  python3 tests/end_to_end/one_file_everywhere.py --isthmus build/src/app/isthmus

The outer parameters and the losses of every step are the same to the bit, at every site, for diloco and for
streaming-diloco in int8. Worlds that this build lacks are skipped by name.
"""
import json
import os
import shutil
import subprocess

from scenario import play, require, small_run

NAMES = ("east", "west", "north")
METHODS = {
    "diloco": 'method = "diloco"\nH = 5\n',
    "streaming": 'method = "streaming-diloco"\nH = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\ncodec = "int8"\n',
}
TEXT = small_run("everywhere", seed=3, arch="llama", layers=3, d_model=64, steps=36, global_batch="384 tok",
                 threads=1, lr="2e-3") + """
[eval]
every = 12
tokens = "1k"
[sim]
step_time = "5ms"
[net]
gather = "60s"
[outer]
{method}
[[site]]
name = "east"
[[site]]
name = "west"
[[site]]
name = "north"
[[link]]
between = ["*", "*"]
rate = "50Mbit/s"
rtt = "10ms"
[[link]]
between = ["north", "*"]
rate = "10Mbit/s"
rtt = "30ms"
"""
# As root, with more processes than cores, and over shared memory that containers allow.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def run(words, **how):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, **how)
    require(done.returncode == 0, f"{words[:3]}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def found(out):
    """Losses of every step and evaluation, and the outer parameters at the end."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [(row["k"], row["step"], row["loss"]) for row in rows if row["k"] in ("train", "eval")]
    require(rows[-1]["k"] == "end" and rows[-1]["status"] == "ok", f"{out}: {rows[-1]}")
    return sorted(losses), (out / "ckpt/last/model.safetensors").read_bytes()


def same(out, expected, what):
    losses, anchors = found(out)
    require(losses == expected[0], f"{what}: other losses")
    require(anchors == expected[1], f"{what}: other outer parameters")


def worlds_of(isthmus):
    """Which carriers of frames between processes this build and machine have."""
    findings = json.loads(run([isthmus, "doctor", "--json"]))["findings"]
    there = {each["name"] for each in findings if each["value"] != "not in this build"}
    return {world for world, name in (("zmq", "ZeroMQ"), ("mpi", "MPI"))
            if name in there and (world != "mpi" or shutil.which("mpirun"))}


def play_everywhere(isthmus, folder, toml):
    quiet = ("--progress", "none")
    run([isthmus, "train", toml, *quiet, "--out", folder / "process", "--set", "net.transport=inproc"])
    expected = found(folder / "process")
    run([isthmus, "simulate", toml, *quiet, "--out", folder / "simulated"])
    same(folder / "simulated", expected, "simulated")
    worlds = worlds_of(isthmus)
    if "zmq" in worlds:
        run([isthmus, "launch", toml, *quiet, "--out", folder / "launched"])
    if "mpi" in worlds:
        run(["mpirun", "-n", len(NAMES), isthmus, "train", toml, *quiet, "--out", folder / "mpi"],
            env={**os.environ, **MPI})
    for world, out in (("zmq", "launched"), ("mpi", "mpi")):
        for name in NAMES if world in worlds else ():
            same(folder / out / name, expected, f"{out}/{name}")
        if world not in worlds:
            print(f"skipped: {world} is not in this build", flush=True)

def write(folder, corpus, method):
    folder.mkdir()
    toml = folder / "run.toml"
    toml.write_text(TEXT.format(corpus=corpus, method=METHODS[method]))
    return toml


def diloco_is_the_same_in_every_world(isthmus, folder, corpus):
    folder = folder / "diloco"
    play_everywhere(isthmus, folder, write(folder, corpus, "diloco"))


def streaming_int8_is_the_same_in_every_world(isthmus, folder, corpus):
    folder = folder / "streaming"
    play_everywhere(isthmus, folder, write(folder, corpus, "streaming"))


if __name__ == "__main__":
    play(__doc__, (diloco_is_the_same_in_every_world, streaming_int8_is_the_same_in_every_world))
