#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""decoupled, as the program runs it: what docs/guarantees/decoupled.md promises of whole runs.

  python3 tests/end_to_end/decoupled.py --isthmus build/bin/isthmus

A run in which nobody is late is diloco's bit for bit. A site that stands still costs the others no
simulated time, and diloco its whole pause. Every merge has one line, and the merges' tokens are those
that were trained, where the run is interrupted and resumed too. Unlike sites are predicted. A simulation repeats its lines, times included. Sites of separate processes without a
hub, and a quorum of more than all, are refused by name.
"""
import argparse
import hashlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from scenario import small_run

CONFIG = small_run("decoupled", seed=3, arch="llama", source="text:{text}", steps="{steps}", global_batch="384 tok",
                   lr="2e-3") + """
[outer]
H = 5
{outer}
[eval]
every = 10
tokens = "1k"
[sim]
step_time = "1s"
link_model = "ideal"
[[site]]
name = "a"
address = "127.0.0.1:48201"
[[site]]
name = "b"
address = "127.0.0.1:48202"
[[site]]
name = "c"
address = "127.0.0.1:48203"
{of_c}
[[link]]
between = ["*", "*"]
rate = "1Gbit/s"
rtt = "40ms"
{more}
"""
PAUSE = '[[fault]]\nkind = "pause"\nsite = "c"\nat = "7s"\nlasts = "10s"\n'
SLOW = '[[fault]]\nkind = "slow"\nsite = "b"\nat = "3s"\nlasts = "1h"\npace = 0.4\n'
AUTO = 'method = "decoupled"'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    args = parser.parse_args()
    text = pathlib.Path(args.text).resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)

        def run(command, name, outer, more="", steps=24, words=(), code=0, of_c=""):
            toml = work / f"{name}.toml"
            toml.write_text(CONFIG.format(text=text, outer=outer, more=more, steps=steps,
                                          of_c=of_c))
            done = subprocess.run([args.isthmus, command, str(toml), "--out", str(work / name),
                                   "--progress", "none", "--json", *words], capture_output=True,
                                  text=True)
            if done.returncode != code:
                sys.exit(f"{name}: exit {done.returncode} in place of {code}\n{done.stderr}")
            return json.loads(done.stdout) if code == 0 else done.stderr + done.stdout

        def model(name):
            return hashlib.sha256(
                (work / name / "ckpt" / "last" / "model.safetensors").read_bytes()).hexdigest()

        def rows(name, *kinds):
            lines = (work / name / "metrics.jsonl").read_text().splitlines()
            return [row for row in map(json.loads, lines) if row["k"] in kinds]

        def expect_each_merge_once(name):
            trained = sum(row["tokens"] for row in rows(name, "worker"))
            merges = rows(name, "round")
            if [row["merge"] for row in merges] != list(range(1, len(merges) + 1)):
                sys.exit(f"{name}: the merges have the numbers {[row['merge'] for row in merges]}")
            for fragment in {row["frag"] for row in merges}:
                merged = sum(row["tokens"] for row in merges if row["frag"] == fragment)
                if merged != trained:
                    sys.exit(f"{name}: fragment {fragment}: {trained} tokens trained, {merged} merged")

        # Nobody is late: 24 steps end in the middle of a window.
        run("simulate", "diloco", 'method = "diloco"\nexchange = "reduce"')
        for command in ("simulate", "train"):
            run(command, command, AUTO + '\nquorum = 2\ngrace = "1h"')
            if model(command) != model("diloco"):
                sys.exit(f"{command}: decoupled without a late worker is not diloco")

        # A site that stands still for ten of forty seconds.
        waits = run("simulate", "waits", 'method = "diloco"', PAUSE, steps=40)["simulated_s"]
        paused = run("simulate", "goes-on", AUTO, PAUSE, steps=40)
        goes_on = paused["simulated_s"]
        if "nobody waits" not in paused["faults"]["notes"][0]:
            sys.exit(f"the pause's notes are {paused['faults']['notes']}")
        if not (goes_on < 42 and waits > 49.5):  # it is up to a window behind where the last merge is
            sys.exit(f"decoupled takes {goes_on} s, diloco {waits} s, of 40 steps and a pause of 10 s")
        idle = 3 * 40 - sum(1 for _ in rows("goes-on", "worker"))
        if not 8 <= idle <= 12:
            sys.exit(f"{idle} steps were skipped for a pause of ten")

        # The clock of unlike sites is the fastest one's, and is predicted so.
        for grace in ("auto", "1ms"):
            predicted = run("simulate", f"unlike-{grace}", AUTO + f'\ngrace = "{grace}"', steps=100,
                            of_c="pace = 0.5")["prediction"]
            if abs(predicted["error"]) > 0.02:
                sys.exit(f"unlike sites, grace {grace}: {predicted}")

        # Every merge once; what was trained is merged, no more and no less.
        for name, outer, more in (("goes-on", None, None), ("slow", AUTO + "\nfragments = 2", SLOW)):
            if outer:
                run("simulate", name, outer, more, steps=40)
            expect_each_merge_once(name)
        run("simulate", "again", AUTO + "\nfragments = 2", SLOW, steps=40)
        for once, again in zip(rows("slow", "train", "round", "eval", "worker"),
                               rows("again", "train", "round", "eval", "worker")):
            for key in ("run", "t", "tok_s"):  # of the real clock
                once.pop(key, None)
                again.pop(key, None)
            if once != again:
                sys.exit(f"a simulation did not repeat its lines:\n{once}\n{again}")

        # An interrupted run that goes on, of sites that have not applied the same merges.
        toml = work / "stopped.toml"
        toml.write_text(CONFIG.format(text=text, outer=AUTO + "\nfragments = 2", more=SLOW, steps=400, of_c=""))
        words = [args.isthmus, "simulate", str(toml), "--out", str(work / "stopped"), "--progress", "none"]
        lines = work / "stopped" / "metrics.jsonl"
        code, stops = None, 0
        while code != 0:
            process = subprocess.Popen([*words, *(["--resume"] if stops else [])],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while stops < 4 and process.poll() is None:
                if lines.exists() and lines.read_text().count('"k":"train"') >= 60 * (stops + 1):
                    process.send_signal(signal.SIGINT)
                    break
                time.sleep(0.01)
            code = process.wait(120)
            stops += code == 130
            if code not in (0, 130):
                sys.exit(f"stopped: exit {code}")
        if stops < 2:
            sys.exit(f"stopped: only {stops} interruptions")
        expect_each_merge_once("stopped")

        for words, outer, part in (
                (("--site", "a"), AUTO, "has no [hub]: add one with its address"),
                ((), AUTO + "\nquorum = 4", "more than the 3 workers"),
                ((), AUTO + "\noverlap = 1", "without 'outer.grace'"),
                ((), 'method = "diloco"\nquorum = 2', "not used by method 'diloco'")):
            text_of = run("train", "refused", outer, words=words, code=3)
            if part not in text_of:
                sys.exit(f"{part!r} is not in the refusal:\n{text_of}")
    print("decoupled keeps its promises")


main()
