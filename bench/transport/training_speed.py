#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of the training speed without exchanges is left over a thin link.

  bench/transport/training_speed.py --build BUILD --text FILE [--rounds 3] [--fills 0.5,0.65,0.8]

Two sites of one core each train a 10.8M GPT-2 style model, joined over loopback; `net.cap` makes the
line of each as thin as lets one window's exchange fill the given share of the window. In turns:
no exchange at all (a window longer than the run), streaming-diloco and blocking diloco. The speed is
the mean over whole windows, the first left out, by the first site's lines; the rate
follows from the step time of the runs without exchange. Prints JSON lines, one a run, then one a fill
and method with the median ratio; on stderr a table.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from loopback import free_ports

TEXT = """
[run]
name = "speed"
seed = 1
[model]
arch = "gpt2"
layers = {layers}
d_model = {d_model}
heads = 6
[data]
source = "text:{corpus}"
[train]
steps = {steps}
global_batch = "{batch} tok"
context = {context}
threads = 1
pin = true
[inner]
lr = 3e-4
schedule = "constant"
[eval]
every = {steps}
tokens = "{context}"
[net]
streams = 2
{net}
[outer]
{outer}
{sites}
"""
METHODS = {
    "none": 'method = "diloco"\nH = {never}\nfinal_sync = "none"\n',
    "streaming-diloco": 'method = "streaming-diloco"\nH = {H}\nfragments = 3\noverlap = {overlap}\n'
                        'codec = "int8"\n',
    "diloco": 'method = "diloco"\nH = {H}\ncodec = "int8"\n',
}


def train(args, method, cap):
    """RETURNS: seconds a step at the first site, over whole windows but the first, and bytes a window."""
    warm, steps = args.H, args.H * (args.windows + 1)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        sites = "".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
                        for name, port in zip(("east", "west"), free_ports(2)))
        outer = METHODS[method].format(never=10 * steps, H=args.H, overlap=args.overlap)
        toml = folder / "run.toml"
        toml.write_text(TEXT.format(
            layers=args.layers, d_model=args.d_model, corpus=args.text.resolve(), steps=steps,
            batch=2 * args.tokens, context=args.context, outer=outer, sites=sites,
            net=f'cap = "{cap / 1e6:.3f}Mbit/s"' if cap else ""))
        started = [subprocess.Popen(
            [args.build / "src/app/isthmus", "train", toml, "--site", name, "--progress", "none", "--out",
             folder / name], stdout=subprocess.DEVNULL, stderr=open(folder / f"{name}.err", "w"))
            for name in ("east", "west")]
        codes = [site.wait() for site in started]
        if codes != [0, 0]:
            sys.exit((folder / "east.err").read_text() + (folder / "west.err").read_text())
        lines = [json.loads(line) for line in (folder / "east/metrics.jsonl").read_text().splitlines()]
    took = [2 * args.tokens / line["tok_s"] for line in lines
            if line["k"] == "train" and warm < line["step"] < steps]
    sent = sum(line["bytes_wire"] for line in lines if line["k"] == "round") / (args.windows + 1)
    return statistics.mean(took), sent


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fills", type=lambda text: [float(f) for f in text.split(",")], default=[0.65])
    parser.add_argument("--windows", type=int, default=2, help="that count; one more goes before them")
    parser.add_argument("--H", type=int, default=20)
    parser.add_argument("--overlap", type=int, default=6)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--d-model", type=int, default=384)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=512, help="of a site in one step")
    args = parser.parse_args()
    seconds = {}
    window_bytes = None
    for _ in range(args.rounds):
        step_s, _ = train(args, "none", None)
        seconds.setdefault(("none", None), []).append(step_s)
        for fill in args.fills:
            for method in ("streaming-diloco", "diloco"):
                if window_bytes is None:  # what one window sends is known once one has been sent
                    window_bytes = train(args, "diloco", None)[1]
                median = statistics.median(seconds["none", None])
                cap = window_bytes * 8 / (fill * args.H * median)
                own_s, sent = train(args, method, cap)
                seconds.setdefault((method, fill), []).append(own_s)
                print(json.dumps({"bench": "training_speed", "method": method, "fill": fill,
                                  "cap_mbit": round(cap / 1e6, 3), "step_s": round(own_s, 4),
                                  "alone_step_s": round(step_s, 4), "window_bytes": sent, "H": args.H,
                                  "overlap": args.overlap, "tokens": args.tokens,
                                  "load": os.getloadavg()[0]}), flush=True)
    alone = seconds.pop(("none", None))
    for (method, fill), its in seconds.items():
        ratios = [a / own for a, own in zip(alone, its)]
        row = {"bench": "training_speed_row", "method": method, "fill": fill, "rounds": len(ratios),
               "speed": round(statistics.median(ratios), 4), "least": round(min(ratios), 4),
               "most": round(max(ratios), 4), "alone_step_s": round(statistics.median(alone), 4),
               "cores": os.cpu_count()}
        print(json.dumps(row), flush=True)
        print(f"{method:17} exchange fills {fill:.0%} of the window: {row['speed']:.1%} of the speed without "
              f"({row['least']:.1%} to {row['most']:.1%})", file=sys.stderr)


if __name__ == "__main__":
    main()
