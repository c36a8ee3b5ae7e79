#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer that is no part of the program takes part in runs: examples/toy_site.cpp.

  python3 tests/end_to_end/toy_site.py --isthmus build/src/app/isthmus --toy-site build/examples/toy_site

Two sites train as processes over TCP, with encrypted links. One of them is killed, then the other,
and both are resumed: every later step has the bits of a run that nobody killed, of the same run in
one process, and of its simulation over a declared link. Where the run may lose a site, both write a
checkpoint when one site asks for it, one site trains on after the other was killed, and the killed
site joins again: from its own folder, and from an empty one. The program refuses to train the file.
"""
import argparse
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from scenario import Failure, free_ports, require, rows_of

NAMES = ("east", "west")
TEXT = """
[run]
name = "toy"
[train]
trainer = "external"
steps = {steps}
[outer]
method = "{method}"
{keys}
[eval]
every = 4000
[ckpt]
every = "2000 steps"
[sim]
step_time = "1ms"
[net]
gather = "60s"
dead_after = "5s"
{net}
{sites}
[[link]]
between = ["east", "west"]
rate = "100Mbit/s"
rtt = "20ms"
"""
METHODS = {
    "diloco": "H = 10\nlr = 0.4\n",
    "streaming-diloco": 'H = 10\nfragments = 2\noverlap = 3\ncodec = "int8"\n',
}


class Run:
    """Two sites of one run, each a process of the example program."""

    def __init__(self, programs, folder, method, steps, net=""):
        self.isthmus, self.toy_site = programs
        self.folder = folder
        folder.mkdir()
        printed = subprocess.run([self.isthmus, "keygen", *NAMES, "--out", "keys"], cwd=folder, check=True,
                                 capture_output=True, text=True).stdout
        keys = [line for line in printed.splitlines() if line.startswith("key")]
        sites = "".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n{key}\n'
                        for name, port, key in zip(NAMES, free_ports(2), keys))
        self.toml = folder / "run.toml"
        self.toml.write_text(TEXT.format(steps=steps, method=method, keys=METHODS[method], net=net, sites=sites))
        self.sites = {}

    def start(self, name, *flags, out=None):
        said = open(self.folder / f"{name}.err", "a")
        self.sites[name] = subprocess.Popen(
            [self.toy_site, str(self.toml), "--site", name, "--out", str(self.folder / (out or name)), *flags],
            stdout=subprocess.DEVNULL, stderr=said)

    def in_one_process(self, out, *flags):
        done = subprocess.run([self.toy_site, str(self.toml), "--out", str(self.folder / out), *flags],
                              capture_output=True, text=True, timeout=300)
        require(done.returncode == 0, f"{out}: exit {done.returncode}: {done.stderr}")

    def said(self, name):
        return (self.folder / f"{name}.err").read_text()

    def rows(self, out, kind):
        return rows_of(self.folder / out, kind)

    def steps(self, out):
        rows = self.rows(out, "train")
        return rows[-1]["step"] if rows else 0

    def members(self, out):
        rounds = self.rows(out, "round")
        return rounds[-1]["members"] if rounds else 0

    def until(self, what, condition, patience=120):
        begin = time.monotonic()
        while not condition():
            require(time.monotonic() - begin < patience, f"not within {patience} s: {what}\n" +
                    "\n".join(f"{name}: {self.said(name)[-1500:]}" for name in self.sites))
            time.sleep(0.05)

    def code_of(self, name):
        try:
            return self.sites[name].wait(timeout=180)
        except subprocess.TimeoutExpired:
            raise Failure(f"{name} does not end: {self.said(name)[-1500:]}")

    def kill(self, name):
        self.sites[name].kill()
        self.sites[name].wait()

    def model(self, out):
        return (self.folder / out / "ckpt/last/model.safetensors").read_bytes()

    def end(self):
        for site in self.sites.values():
            if site.poll() is None:
                site.kill()
                site.wait()


def killed_and_resumed(programs, folder, method):
    run = Run(programs, folder, method, steps=12000, net="min_sites = 2")
    try:
        for name in NAMES:
            run.start(name)
        run.until("a checkpoint", lambda: run.rows("west", "ckpt"))
        run.kill("west")
        run.until("a word of the loss", lambda: run.rows("east", "event"))  # east waits for west from here on
        run.kill("east")
        require(run.steps("east") < 12000, "the run was over before a site was killed")
        for name in NAMES:
            run.start(name, "--resume", "auto")
        for name in NAMES:
            require(run.code_of(name) == 0, f"{name}: {run.said(name)[-1500:]}")
        require("encrypted" in run.said("east"), f"the links are not encrypted: {run.said('east')[:1500]}")
        run.in_one_process("together")
        run.in_one_process("virtual", "--simulate")
        models = {run.model(out) for out in (*NAMES, "together", "virtual")}
        require(len(models) == 1, f"{method}: unlike parameters")
        losses = [[(row["step"], row["loss"]) for row in run.rows(out, "train")]
                  for out in (*NAMES, "together", "virtual")]
        require(len(losses[2]) == 12000, f"{len(losses[2])} lines")
        require(all(each == losses[2] for each in losses), f"{method}: unlike losses")
        clock = json.loads((run.folder / "virtual/summary.json").read_text())["simulated_s"]
        require(clock > 12, f"{clock} s of virtual time for 12000 steps of 1 ms")
    finally:
        run.end()


def dies_and_joins_again(programs, folder, method):
    run = Run(programs, folder, method, steps=100000000, net="min_sites = 1")
    try:
        for name in NAMES:
            run.start(name)
        run.until("rounds of both", lambda: run.members("east") == 2 and run.members("west") == 2)
        run.sites["west"].send_signal(signal.SIGUSR1)  # a checkpoint, at both
        for name in NAMES:
            run.until("the checkpoint that west asked for",
                      lambda: any(row["step"] % 2000 for row in run.rows(name, "ckpt")))
        for out, flags in (("west", ("--resume", "auto")), ("west-anew", ())):
            run.kill("west")
            run.until("rounds of the other alone", lambda: run.members("east") == 1)
            run.start("west", *flags, out=out)
            run.until(f"rounds of both again, {out}", lambda: run.members("east") == 2)
            run.until(f"lines of the one that joined, {out}", lambda: run.members(out) == 2)
        run.sites["west"].send_signal(signal.SIGINT)
        for name in NAMES:
            require(run.code_of(name) == 130, f"{name}: {run.said(name)[-1500:]}")
        require(run.steps("east") == run.steps("west-anew"), "stopped after unlike steps")
        require(run.model("east") == run.model("west-anew"), "the sites hold unlike parameters")
        happened = [row["what"] for row in run.rows("east", "event") if row["what"].startswith("site")]
        require(happened == 2 * ["site left", "site joined"], f"{happened}")
    finally:
        run.end()


def refusals(programs, folder):
    run = Run(programs, folder, "diloco", steps=100)
    own = folder / "own.toml"
    own.write_text(run.toml.read_text().replace('trainer = "external"', 'trainer = "external"\nseed_note = 1'))
    done = subprocess.run([run.isthmus, "train", str(run.toml), "--site", "east"], capture_output=True, text=True)
    require(done.returncode == 3 and "external" in done.stderr, f"exit {done.returncode}: {done.stderr}")
    done = subprocess.run([run.toy_site, str(own)], capture_output=True, text=True)
    require(done.returncode == 3 and "seed_note" in done.stderr, f"exit {done.returncode}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--toy-site", required=True)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    programs = tuple(str(pathlib.Path(path).resolve()) for path in (arguments.isthmus, arguments.toy_site))
    scenarios = {f"killed and resumed, {method}": (killed_and_resumed, method) for method in METHODS}
    scenarios["dies and joins again"] = (dies_and_joins_again, "diloco")
    scenarios["refusals"] = (refusals,)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            for number, (name, (scenario, *rest)) in enumerate(scenarios.items()):
                if arguments.only in (None, name):
                    scenario(programs, pathlib.Path(temporary) / str(number), *rest)
                    print(f"ok: {name}", flush=True)
        except Failure as failure:
            sys.exit(f"{name}: {failure}")


if __name__ == "__main__":
    main()
