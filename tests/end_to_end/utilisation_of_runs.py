#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plan utilisation run.toml` against the utilisation that `simulate` measures for the same file.

  python3 tests/end_to_end/utilisation_of_runs.py --isthmus build/src/app/isthmus

Two workers on the clock of a declared model over a link without loss and almost without delay. The
simulator of `plan` sends layer by layer as backward goes, where our methods send when the step is
over, so the two may differ by what one step of a window hides. It also tells the long run, where a
run's first round waits for nobody and its last one may have to be drained: hence many rounds.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from scenario import small_run

MOST = 0.05  # of the utilisation, absolute
STEPS = 400
H = 20
CONFIG = small_run("utilisation", arch="gpt2", layers=8, d_model=16, source="text:words.txt", steps="{steps}",
                   global_batch="64 tok") + """
[outer]
{outer}
[surrogate]
params = "1B"
step_time = "1s"
[sim]
link_model = "ideal"
[[site]]
name = "east"
[[site]]
name = "west"
[[link]]
between = ["east", "west"]
rate = "{rate}"
rtt = "1ms"
"""
CASES = [('method = "ddp"', rate) for rate in ["200Mbit/s", "1Gbit/s"]]
for rate in ["1Gbit/s", "3Gbit/s"]:
    for method in ["localsgd", "diloco", "delayed", "eager", "co2"]:
        CASES.append((f'method = "{method}"\nH = {H}', rate))
    for fragments, overlap, codec in [(2, 0, "bf16"), (2, 5, "bf16"), (2, 1, "int8"),
                                      (4, H - 1, "fp32")]:
        CASES.append((f'method = "streaming-diloco"\nH = {H}\nfragments = {fragments}\n'
                      f'overlap = {overlap}\ncodec = "{codec}"', rate))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    program = parser.parse_args().isthmus
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "words.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)

        def ask(*arguments):
            done = subprocess.run([program, *arguments, "--json"], cwd=folder, capture_output=True,
                                  text=True, timeout=120)
            if done.returncode != 0:
                sys.exit(f"{arguments}: exit {done.returncode}\n{done.stderr}")
            return json.loads(done.stdout.splitlines()[-1])

        for number, (outer, rate) in enumerate(CASES):
            (folder / "run.toml").write_text(CONFIG.format(steps=STEPS, outer=outer, rate=rate))
            ask("simulate", "run.toml", "--out", f"out-{number}", "--progress", "none")
            summary = json.loads((folder / f"out-{number}" / "summary.json").read_text())
            measured = summary["compute_utilisation"]
            planned = ask("plan", "utilisation", "run.toml", "--bandwidth", rate)["utilisation"]
            verdict = "ok" if abs(planned - measured) <= MOST else "TOO FAR"
            failures += verdict != "ok"
            words = " ".join(outer.replace('"', "").replace(" = ", "=").split())
            print(f"{words} {rate}: simulated {measured:.4f}, planned {planned:.4f} {verdict}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
