#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""eager: what is written, exported and evaluated is the element-wise mean of the workers' anchors.

  python3 tests/end_to_end/eager_mean.py --isthmus build/bin/isthmus

The model of the last checkpoint against the mean of the workers' own anchors, bit for bit; the last
evaluation against that of a run that starts from the exported model and learns nothing.
"""
import argparse
import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

WORKERS = 3
CONFIG = """
[run]
name = "eager"
workers = {workers}
[model]
{model}
[data]
source = "text:{text}"
[train]
steps = {steps}
global_batch = "{batch} tok"
context = 32
[inner]
lr = {lr}
weight_decay = 0
[outer]
{outer}
[eval]
every = 100
tokens = "1k"
"""
SIZES = 'arch = "gpt2"\nlayers = 2\nd_model = 32\nheads = 2\n'


def tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    values = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            values[name] = array.array("f", data[8 + length + begin:8 + length + end])
    return values


def rounded(value):
    return array.array("f", [value])[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    args = parser.parse_args()

    def isthmus(*arguments):
        subprocess.run([args.isthmus, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    def last_eval(out):
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [row["loss"] for row in rows if row["k"] == "eval"][-1]

    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        text = pathlib.Path(args.text).resolve()
        outer = f'method = "eager"\nH = 4\ncodec = "int8"\n'
        (work / "run.toml").write_text(CONFIG.format(
            workers=WORKERS, model=SIZES, text=text, steps=18, batch=WORKERS * 128, lr="2e-3",
            outer=outer))
        isthmus("train", work / "run.toml", "--out", work / "run", "--progress", "none")
        checkpoint = work / "run" / "ckpt" / "last"
        model = tensors(checkpoint / "model.safetensors")
        anchors = []
        for worker in range(WORKERS):
            state = tensors(checkpoint / f"worker-{worker}.safetensors")
            anchors.append(next(v for n, v in state.items() if n.endswith("outer/anchor/0")))
        if anchors[0] == anchors[1]:
            sys.exit("the workers' anchors are the same: this is not eager")
        mean = array.array("f")
        for parts in zip(*anchors):
            total = parts[0]
            for part in parts[1:]:
                total = rounded(total + part)
            mean.append(rounded(total / WORKERS))
        written = sorted(value for values in model.values() for value in values)
        if written != sorted(mean):
            sys.exit("the model written is not the mean of the workers' anchors")

        isthmus("export", work / "run", "--to", "hf", work / "hf")
        (work / "again.toml").write_text(CONFIG.format(
            workers=1, model=f'init = "{work / "hf"}"', text=text, steps=1, batch=128, lr="1e-30",
            outer='method = "ddp"'))
        isthmus("train", work / "again.toml", "--out", work / "again", "--progress", "none")
        if last_eval(work / "run") != last_eval(work / "again"):
            sys.exit(f"evaluated {last_eval(work / 'run')}, exported model "
                     f"{last_eval(work / 'again')}")
        print("model, export and evaluation are those of the mean")


main()
