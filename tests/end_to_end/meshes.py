#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Meshes of ranks inside a site through the binary: every mesh follows the run on one rank, under every
outer method; sites with unlike meshes train as one model; simulating a mesh gives the bits of training
it; a checkpoint goes on under another mesh; meshes that cannot work are refused before anything starts.

  python3 tests/end_to_end/meshes.py --isthmus build/bin/isthmus
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

METHODS = {
    "ddp": "",
    "localsgd": "H = 4\n",
    "streaming-diloco": 'H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\n',
    "eager": "H = 5\n",
    "co2": "H = 5\n",
    "1bit-adam": "freeze = 6\n",
    "spsa": "samples = 2\n",
}
MESHES = {
    "tp = 2": "tp = 2\n",
    "dp = 2": "dp = 2\n",
    "pp = 2": "pp = 2\n",
    "2 x 2 x 2": "tp = 2\npp = 2\ndp = 2\n",
    "interleaved": 'pp = 2\nschedule = "interleaved-1f1b"\nvirtual_stages = 2\nmicro_batches = 2\n',
    "4 stages": "pp = 4\n",
    "pp = 2, dp = 2, zero = 2": "pp = 2\ndp = 2\nzero = 2\n",
    "2 x 2 x 2, zero = 3": "tp = 2\npp = 2\ndp = 2\nzero = 3\n",
    "zb-h1": 'tp = 2\npp = 2\nschedule = "zb-h1"\nmicro_batches = 4\n',
}
# Key heads of the model and mesh, over more steps.
SPLIT_MESHES = {
    "tp = 2, split": (4, "tp = 2\nsequence_parallel = true\n"),
    "2 x 2 x 2, split": (4, "tp = 2\npp = 2\ndp = 2\nsequence_parallel = true\n"),
    "tp = 4 of 2 key heads": (2, "tp = 4\n"),
    "tp = 4 of 2 key heads, split": (2, "tp = 4\nsequence_parallel = true\n"),
}
# What the ranks share out does not change a bit, but for the norm (sums of squares in another order)
# and, from 2 on, several micro-batches.
SHARED = {
    "dp = 2, zero = 1": "dp = 2\nzero = 1\n",
    "dp = 2, zero = 2": "dp = 2\nmicro_batches = 1\nzero = 2\n",
    "tp = 2, dp = 2, zero = 3": "tp = 2\ndp = 2\nmicro_batches = 1\nzero = 3\n",
    "2 x 2 x 2, zero = 1": "tp = 2\npp = 2\ndp = 2\nzero = 1\n",
    "pp = 2, dp = 2, zero = 2": "pp = 2\ndp = 2\nmicro_batches = 1\nzero = 2\n",
    "2 x 2 x 2, zero = 3": "tp = 2\npp = 2\ndp = 2\nmicro_batches = 1\nzero = 3\n",
}
SHARED_METHODS = ("ddp", "streaming-diloco", "co2")
STEPS = 16
LONG = 50
ROUNDING = 1e-4  # of a loss, relative: the same sums of floats in another order


def config(text_file, arch="llama", method="diloco", keys="H = 4\n", parallel="", sites="", steps=STEPS, kv_heads=0):
    workers = "" if sites else "workers = 2\n"
    return f"""
[run]
name = "mesh"
{workers}seed = 3
[model]
arch = "{arch}"
layers = 4
d_model = 32
heads = 4
{f"kv_heads = {kv_heads}" if kv_heads else ""}
[data]
source = "text:{text_file}"
[train]
steps = {steps}
global_batch = "512 tok"
context = 32
[inner]
lr = 2e-3
[outer]
method = "{method}"
{keys}
[parallel]
{parallel}
[eval]
every = 8
tokens = "1k"
[sim]
step_time = "50ms"
link_model = "ideal"
{sites}"""


class Runs:
    def __init__(self, isthmus, folder):
        self.isthmus, self.folder, self.count = isthmus, folder, 0
        self.text = folder / "text.txt"
        self.text.write_text("".join(f"{n} bottles of beer on the wall, take {n % 7} down.\n" for n in range(4000)))

    def run(self, command, text, *more, expect=0):
        self.count += 1
        file, out = self.folder / f"{self.count}.toml", self.folder / f"out-{self.count}"
        file.write_text(text)
        done = subprocess.run([self.isthmus, command, file, "--out", out, "--progress", "none", *more],
                              capture_output=True, text=True)
        if done.returncode != expect:
            sys.exit(f"exit code {done.returncode}, wanted {expect}: {done.args}\n{text}\n{done.stderr[-2000:]}")
        return done.stderr if expect else out


def rows(out, kind):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["k"] == kind]


def losses(out):
    return [(row["step"], row["loss"]) for kind in ("train", "eval") for row in rows(out, kind)]


def model_hash(out):
    return hashlib.sha256((out / "ckpt/last/model.safetensors").read_bytes()).hexdigest()


def check_close(name, one, mesh):
    if [step for step, _ in one] != [step for step, _ in mesh]:
        sys.exit(f"{name}: other steps than on one rank")
    worst = max(abs(a - b) / abs(a) for (_, a), (_, b) in zip(one, mesh))
    if not worst <= ROUNDING:
        sys.exit(f"{name}: losses are up to {worst:.2e} from those of one rank, allowed {ROUNDING:g}")
    print(f"{name}: within {worst:.1e} of one rank")


def check_meshes(runs):
    for arch in ("gpt2", "llama"):
        one = losses(runs.run("train", config(runs.text, arch)))
        for name, parallel in MESHES.items():
            check_close(f"{arch}, {name}", one, losses(runs.run("train", config(runs.text, arch, parallel=parallel))))


def check_split(runs):
    for arch, tied in (("gpt2", "true"), ("llama", "true"), ("llama", "false")):
        for kv_heads in (4, 2) if arch == "llama" else (4,):
            def trained(parallel):
                text = config(runs.text, arch, parallel=parallel, steps=LONG, kv_heads=kv_heads if arch == "llama" else 0)
                return losses(runs.run("train", text.replace("heads = 4\n", f"heads = 4\ntied = {tied}\n", 1)))
            one = trained("")
            for name, (heads, parallel) in SPLIT_MESHES.items():
                if heads == kv_heads:
                    check_close(f"{arch}{'' if tied == 'true' else ' untied'}, {name}, {LONG} steps", one, trained(parallel))


def check_methods(runs):
    for method, keys in METHODS.items():
        one = losses(runs.run("train", config(runs.text, method=method, keys=keys)))
        mesh = runs.run("train", config(runs.text, method=method, keys=keys, parallel=MESHES["2 x 2 x 2"]))
        check_close(f"{method}, 2 x 2 x 2", one, losses(mesh))


def check_zero(runs):
    for name, parallel in SHARED.items():
        plain = runs.run("train", config(runs.text, "gpt2", parallel=parallel.rpartition("zero")[0]))
        shared = runs.run("train", config(runs.text, "gpt2", parallel=parallel))
        if losses(plain) != losses(shared) or model_hash(plain) != model_hash(shared):
            sys.exit(f"{name}: not the bits of the mesh without it")
        print(f"{name}: the bits of the mesh without it")
    for method in SHARED_METHODS:
        text = config(runs.text, method=method, keys=METHODS[method], parallel="dp = 2\nmicro_batches = 1\n")
        plain = runs.run("train", text)
        for zero in (1, 2):
            shared = runs.run("train", text.replace("dp = 2", f"dp = 2\nzero = {zero}"))
            if losses(plain) != losses(shared) or model_hash(plain) != model_hash(shared):
                sys.exit(f"{method}, zero = {zero}: not the bits of the mesh without it")
        print(f"{method}, zero = 1 and 2: the bits of the mesh without it")
    for zero in (1, 2):
        text = config(runs.text, method="1bit-adam", keys=METHODS["1bit-adam"], parallel=f"dp = 2\nzero = {zero}\n")
        error = runs.run("train", text, expect=3)
        if "parallel.zero" not in error or "Adam's moments" not in error:
            sys.exit(f"1bit-adam with zero = {zero}: {error}")


def check_unlike_sites(runs):
    keys = 'H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\ncodec = "int8"\n'
    sites = '[[site]]\nname = "a"\ntp = 2\n[[site]]\nname = "b"\npp = 2\n'
    text = config(runs.text, method="streaming-diloco", keys=keys, sites=sites)
    one = runs.run("train", config(runs.text, method="streaming-diloco", keys=keys))
    trained = runs.run("train", text)
    # int8 rounds what differs by rounding now and then to the next step of its grid.
    check_close("2x1x1 and 1x2x1", losses(one), losses(trained))
    simulated = runs.run("simulate", text, "--link", "100Mbit/s,20ms")
    if losses(trained) != losses(simulated) or model_hash(trained) != model_hash(simulated):
        sys.exit("a simulated mesh differs from a trained one")
    print("a simulated mesh has the bits of the trained one")
    unlike = text.replace("[parallel]\n", "[parallel]\nzero = 3\n").replace("pp = 2", "dp = 2")
    check_close("2x1x1 and 1x1x2 with zero = 3", losses(one), losses(runs.run("train", unlike)))


def check_resume(runs):
    """Stopped after 8 steps on 2 x 1 x 2 (tp x pp x dp), gone on with on 1 x 2 x 1."""
    whole = losses(runs.run("train", config(runs.text)))
    every = '[ckpt]\nevery = "8 steps"\nkeep = 4\n[eval]'
    first = runs.run("train", config(runs.text, parallel="tp = 2\ndp = 2\n").replace("[eval]", every))
    middle = next(path for path in sorted((first / "ckpt").iterdir()) if path.name.endswith("8") and path.name != "last")
    again = runs.run("train", config(runs.text, parallel="pp = 2\n"), "--resume", str(middle))
    tail = [(step, loss) for step, loss in whole if step > 8]
    check_close("1 x 2 x 1 after 2 x 1 x 2", tail, [(step, loss) for step, loss in losses(again) if step > 8])
    # What the ranks shared out goes on shared out otherwise, to the same bits.
    plain = config(runs.text, parallel="dp = 2\nmicro_batches = 1\n").replace("[eval]", every)
    shared = plain.replace("dp = 2", "dp = 2\nzero = 2")
    whole = runs.run("train", plain)
    for before, after in ((shared, plain), (plain, shared)):
        first = runs.run("train", before)
        middle = next(path for path in sorted((first / "ckpt").iterdir()) if path.name.endswith("8") and path.name != "last")
        again = runs.run("train", after, "--resume", str(middle))
        if model_hash(again) != model_hash(whole):
            sys.exit("a checkpoint that went on with another parallel.zero has other bits")
    print("a checkpoint goes on with and without zero to the same bits")


def check_refusals(runs):
    for parallel, words in {
        "tp = 3\n": ("parallel.tp = 3", "model.n_heads = 4", "nearest that works is 2"),
        "tp = 8\n": ("parallel.tp = 8", "model.n_heads = 4", "nearest that works is 4"),
        "sequence_parallel = true\n": ("parallel.sequence_parallel", "tp > 1"),
        "pp = 5\n": ("parallel.pp = 5", "model.n_layers = 4", "nearest that works is 4"),
        "dp = 3\n": ("global_batch", "384 tok"),
        "micro_batches = 3\n": ("micro_batches", "8 samples"),
        "virtual_stages = 2\n": ("virtual_stages", "interleaved-1f1b"),
        'pp = 2\nschedule = "interleaved-1f1b"\nvirtual_stages = 2\nmicro_batches = 1\n': ("micro_batches",),
        'pp = 2\nschedule = "zb-h1"\nvirtual_stages = 2\n': ("virtual_stages", "interleaved-1f1b"),
        'schedule = "zb-h1"\n': ("parallel.schedule", "pp > 1"),
        'pp = 4\nschedule = "interleaved-1f1b"\nvirtual_stages = 2\nmicro_batches = 4\n': ("n_layers = 4",),
        'dp = 2\ncodec_data = "int8:ef"\n': ("codec_data", "leave :ef out"),
        'codec_data = "int8"\n': ("codec_data", "dp > 1"),
        "zero = 1\n": ("zero", "dp > 1"),
        'pp = 2\ndp = 2\nzero = 2\nschedule = "zb-h1"\n': ("parallel.zero = 2", "zb-h1", "1f1b", "zero = 1"),
    }.items():
        error = runs.run("train", config(runs.text, parallel=parallel), expect=3)
        if (runs.folder / f"out-{runs.count}").exists():
            sys.exit(f"{parallel!r}: something was written")
        missing = [word for word in words if word not in error]
        if missing:
            sys.exit(f"{parallel!r}: the error does not say {missing}:\n{error}")
    for recompute in ("true", "selective"):
        error = runs.run("train", config(runs.text, parallel='pp = 2\nschedule = "zb-h1"\n'),
                         "--set", f"train.recompute={recompute}", expect=3)
        if "train.recompute" not in error or "1f1b" not in error:
            sys.exit(f"zb-h1 with recomputation: {error}")
    print("meshes that cannot work are refused by name")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    isthmus = parser.parse_args().isthmus
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(isthmus, pathlib.Path(folder))
        check_meshes(runs)
        check_split(runs)
        check_methods(runs)
        check_zero(runs)
        check_unlike_sites(runs)
        check_resume(runs)
        check_refusals(runs)


if __name__ == "__main__":
    main()
