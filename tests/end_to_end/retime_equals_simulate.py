#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A finished run re-timed over another link is the run simulated there: every evaluation of every
method at the same nanosecond, through the real binary. What cannot be re-timed says why."""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

BASE = """
[run]
name = "retime"
[model]
layers = 2
d_model = 16
heads = 2
[surrogate]
params = "300M"
step_time = "400ms"
[data]
source = "synth:markov2"
[train]
steps = {steps}
global_batch = "240 tok"
context = 16
[eval]
every = 7
tokens = "512"
[[site]]
name = "a"
[[site]]
name = "b"
[[site]]
name = "c"
[[link]]
between = ["*", "*"]
rate = "200Mbit/s"
rtt = "60ms"
"""

METHODS = {
    "ddp": 'method = "ddp"',
    "localsgd": 'method = "localsgd"\nH = 6\nfinal_sync = "full"',
    "diloco": 'method = "diloco"\nH = 6\ncodec = "int8"',
    "streaming-diloco": 'method = "streaming-diloco"\nH = 6\nfragments = 2\noverlap = 4',
    "delayed": 'method = "delayed"\nH = 6',
    "eager": 'method = "eager"\nH = 6',
    "co2": 'method = "co2"\nH = 6',
    "sparseloco": 'method = "sparseloco"\nH = 6',
    "1bit-adam": 'method = "1bit-adam"\nfreeze = 9',
    "01-adam": 'method = "01-adam"',
    "spsa": 'method = "spsa"',
}
OTHER = ["5Mbit/s,300ms", "20Gbit/s,1ms"]


def run(isthmus, *words):
    done = subprocess.run([isthmus, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def clocks(folder):
    lines = [json.loads(line) for line in open(folder / "metrics.jsonl", encoding="utf-8")]
    return [[line["step"], line["ts"]] for line in lines if line["k"] == "eval"]


def reaching(folder, target):
    """When a run's loss comes to `target`: linear between its evaluations."""
    lines = [json.loads(line) for line in open(folder / "metrics.jsonl", encoding="utf-8")]
    before = None
    for line in (line for line in lines if line["k"] == "eval"):
        if line["loss"] <= target:
            share = (before["loss"] - target) / (before["loss"] - line["loss"])
            return before["ts"] + (line["ts"] - before["ts"]) * share
        before = line
    return float("inf")


def of_all_seeds(isthmus, folder):
    """Steps with jitter: every seed has a clock of its own, on other links too."""
    link, target = "20Gbit/s,1ms", 5.45
    config = folder / "jitter.toml"
    config.write_text(BASE.format(steps=26).replace('name = "a"', 'name = "a"\njitter = 0.5')
                      + f"""[target]
value = {target}
[compare]
seeds = 3
links = ["{link}"]
[variant.ddp]
[variant.diloco]
outer = {{ method = "diloco", H = 6 }}
""", encoding="utf-8")
    told = json.loads(run(isthmus, "compare", config, "--out", folder / "jitter", "--json", "--progress", "none"))
    for variant in told["variants"]:
        times = []
        for seed in told["seeds"]:
            one = folder / "jitter" / variant["name"] / f"seed-{seed}"
            there = folder / f"jitter-{variant['name']}-{seed}"
            run(isthmus, "simulate", one / "config.toml", "--link", link, "--out", there, "--progress", "none")
            times.append(reaching(there, target))
        assert len(set(times)) == 3 and max(times) < float("inf"), times
        found = variant["to_target_on_links_s"][link]
        assert abs(found - statistics.median(times)) < 1e-9, (variant["name"], found, times)
    print("jitter: every seed's own clock")

    def page_of(name):
        return (folder / name / "report.html").read_text(encoding="utf-8")
    assert "these runs: 200 Mbit/s" in page_of("jitter")
    unlike = folder / "unlike.toml"
    unlike.write_text(config.read_text(encoding="utf-8").replace(
        'rate = "200Mbit/s"', 'rate_up = "200Mbit/s"\nrate_down = "20Mbit/s"'), encoding="utf-8")
    run(isthmus, "compare", unlike, "--out", folder / "unlike", "--seeds", "1", "--progress", "none")
    assert "these runs: " not in page_of("unlike"), "one rate for links that have two"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    isthmus = parser.parse_args().isthmus
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for method, outer in METHODS.items():
            config = folder / f"{method}.toml"
            config.write_text(BASE.format(steps=26) + "[outer]\n" + outer + "\n", encoding="utf-8")
            def simulate(out, *more):
                run(isthmus, "simulate", config, "--out", out, "--progress", "none", *more)

            here = folder / method
            simulate(here)
            told = json.loads(run(isthmus, "report", here, "--json", "--links", *OTHER))
            retimed = told["retimed"][0]
            assert retimed["needs_simulating"] == "", (method, retimed["needs_simulating"])
            for place, link in enumerate(OTHER):
                there = folder / f"{method}-{place}"
                simulate(there, "--link", link)
                expected, found = clocks(there), retimed["links"][link]["evals"]
                assert len(expected) >= 4, expected
                assert found == expected, f"{method} over {link}: {found}, simulated {expected}"
                assert expected != clocks(here), method
            print(f"{method}: {len(expected)} evaluations over {len(OTHER)} links alike")

        of_all_seeds(isthmus, folder)
        config = folder / "auto.toml"
        config.write_text(BASE.format(steps=26) + '[outer]\nmethod = "1bit-adam"\n', encoding="utf-8")
        run(isthmus, "simulate", config, "--out", folder / "auto", "--progress", "none")
        told = json.loads(run(isthmus, "report", folder / "auto", "--json", "--links", OTHER[0]))
        assert "outer.freeze" in told["retimed"][0]["needs_simulating"], told

        # A run that is not what its configuration gives (here: damaged) is not re-timed.
        metrics = folder / "ddp" / "metrics.jsonl"
        lines = metrics.read_text(encoding="utf-8").splitlines()
        for i, line in enumerate(lines):
            entry = json.loads(line)
            if entry["k"] == "eval":
                entry["ts"] += 1e-6
                lines[i] = json.dumps(entry)
        metrics.write_text("\n".join(lines) + "\n", encoding="utf-8")
        told = json.loads(run(isthmus, "report", folder / "ddp", "--json", "--links", OTHER[0]))
        assert "its own links" in told["retimed"][0]["needs_simulating"], told


if __name__ == "__main__":
    main()
