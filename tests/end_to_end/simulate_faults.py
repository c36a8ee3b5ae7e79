#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What faults of a file cost in virtual time, against arithmetic; they change times alone.

  python3 tests/end_to_end/simulate_faults.py --isthmus build/bin/isthmus

Steps take 10 s; a blocking exchange begins at 40 s and sends for well over half a second before
anybody answers. So a cut or a slower line within that time, a pause and a slow stretch delay the end by
exactly what they take, and a fault while nobody waits for it by nothing.
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

from scenario import Failure, require, small_run

STEP_S = 10
# Two sites send each other what they have; west says DONE when it has both parts, and the first site commits.
# When west alone is late, it has east's part before its own has left: half a round trip less.
HALF_A_ROUND_TRIP = 0.001
BASE = small_run("faults", seed=5, arch="llama", source="text:{text}", steps="{steps}", global_batch="128 tok",
                 lr="2e-3") + """
[outer]
{outer}
[eval]
tokens = "1k"
[sim]
step_time = "10s"
link_model = "ideal"
[[site]]
name = "east"
[[site]]
name = "west"
[[link]]
between = ["east", "west"]
rate = "1Mbit/s"
rtt = "2ms"
"""
BLOCKING = 'method = "diloco"\nH = 4'
OVERLAPPED = 'method = "streaming-diloco"\nH = 4\nfragments = 1\noverlap = 2'
OF_LINK = 'between = ["west", "east"]'


def fault(kind, where, at, lasts, more=""):
    return f'[[fault]]\nkind = "{kind}"\n{where}\nat = "{at}s"\nlasts = "{lasts}s"\n{more}\n'


# method, faults, seconds that they cost
CASES = {
    "a cut within a blocking exchange": (BLOCKING, fault("cut", OF_LINK, 40.3, 300), 300),
    "a slower line within it": (BLOCKING, fault("rate", OF_LINK, 40.2, 0.4, 'rate = "250kbit/s"'), 0.3),
    "a cut while all compute": (BLOCKING, fault("cut", OF_LINK, 5, 30), 0),
    "a site that stands still": (BLOCKING, fault("pause", 'site = "west"', 15, 20), 20 - HALF_A_ROUND_TRIP),
    "the first site does": (BLOCKING, fault("pause", 'site = "east"', 15, 20), 20),
    "two that do at the same time": (BLOCKING, fault("pause", 'site = "west"', 15, 20) +
                                     fault("pause", 'site = "east"', 15, 20), 20),
    "one that does twice": (BLOCKING, fault("pause", 'site = "east"', 5, 5) +
                            fault("pause", 'site = "east"', 25, 10), 15),
    "a site at half its speed": (BLOCKING, fault("slow", 'site = "east"', 5, 20, "pace = 0.5"), 10),
    "a cut that an overlapped exchange hides": (OVERLAPPED, fault("cut", OF_LINK, 40.3, 10), 0),
    "a site that stands still in its backward pass": ('method = "ddp"', fault("pause", 'site = "west"', 6, 25), 25),
    "a fault after the end": (BLOCKING, fault("cut", '  between = ["*", "*"]', 100000, 5), 0),
}


class Bench:
    def __init__(self, isthmus, folder, text):
        self.isthmus, self.folder, self.text = isthmus, folder, text

    def write(self, name, outer, faults, steps=12):
        path = self.folder / name
        path.write_text(BASE.format(text=self.text, steps=steps, outer=outer) + faults)
        return path

    def run(self, *words, code=0):
        done = subprocess.run([self.isthmus, *map(str, words)], capture_output=True, text=True, check=False)
        require(done.returncode == code, f"{words}: exit {done.returncode}: {done.stderr}")
        return done

    def simulate(self, toml, out, *more):
        return json.loads(self.run("simulate", toml, "--out", self.folder / out, "--json", "--progress", "none",
                                   *more).stdout)

    def outcome(self, out):
        """Parameters and losses; no times."""
        model = (self.folder / out / "ckpt/last/model.safetensors").read_bytes()
        rows = map(json.loads, (self.folder / out / "metrics.jsonl").read_text().splitlines())
        return (hashlib.sha256(model).hexdigest(),
                [(row["k"], row["step"], row["loss"]) for row in rows if row["k"] in ("train", "eval")])


def costs(bench):
    undisturbed = {}
    for number, (name, (outer, faults, cost)) in enumerate(CASES.items()):
        if outer not in undisturbed:
            out = f"without-{number}"
            undisturbed[outer] = (bench.simulate(bench.write("without.toml", outer, ""), out)["simulated_s"],
                                  bench.outcome(out))
        without_s, outcome = undisturbed[outer]
        told = bench.simulate(bench.write("with.toml", outer, faults), f"with-{number}")
        require(bench.outcome(f"with-{number}") == outcome, f"{name}: other parameters or losses")
        took = told["simulated_s"] - without_s
        require(abs(took - cost) < 1e-6, f"{name}: cost {took} s, arithmetic says {cost}")
        said = told["faults"]
        require(said["exact"] and abs(said["cost_s"] - cost) < 1e-6 and
                abs(said["without_s"] - without_s) < 1e-6, f"{name}: said {said}")
        require(sum(told["compute_s"]) <= 2 * 12 * STEP_S + 10 + 1e-6, f"{name}: standing still counts as computing")
        print(f"{name}: {took:.6f} s", flush=True)
    print(bench.run("simulate", bench.write("with.toml", BLOCKING, CASES["a cut within a blocking exchange"][1]),
                    "--out", bench.folder / "said", "--progress", "none").stdout)


def without_declared_times(bench):
    """A step's measured length, one site, and a run whose end only the closed form knows."""
    toml = bench.write("measured.toml", BLOCKING, fault("cut", OF_LINK, 1, 30))
    toml.write_text(toml.read_text().replace('step_time = "10s"', ""))
    told = bench.simulate(toml, "measured")["faults"]
    require(told["exact"] and 28 < told["cost_s"] < 30.001, told)
    toml = bench.write("one.toml", 'method = "ddp"', fault("slow", 'site = "east"', 5, 20, "pace = 0.25"))
    text = toml.read_text()
    begin, end = text.index('[[site]]\nname = "west"'), text.index("[[fault]]")
    toml.write_text(text[:begin] + text[end:])
    told = bench.simulate(toml, "one")["faults"]
    require(told["exact"] and abs(told["cost_s"] - 15) < 1e-6 and abs(told["without_s"] - 12 * STEP_S) < 1e-6, told)
    toml = bench.write("inexact.toml", 'method = "1bit-adam"', fault("pause", 'site = "west"', 5, 20))
    said = bench.run("simulate", toml, "--out", bench.folder / "inexact", "--progress", "none").stdout
    require("cost about 20 s: about" in said and "measured" not in said, said)
    print("costs without declared step times, of one site, and about")


def stop_in_the_middle(bench, toml, out):
    metrics = bench.folder / out / "metrics.jsonl"
    first = subprocess.Popen([bench.isthmus, "simulate", str(toml), "--out", str(bench.folder / out),
                              "--progress", "none"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begin = time.monotonic()
    while first.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < 10):
        require(time.monotonic() - begin < 120, "no step within two minutes")
        time.sleep(0.01)
    first.send_signal(signal.SIGUSR1)
    require(first.wait(120) == 85, "the run was over before it could be stopped")


def stops_and_goes_on(bench):
    steps = 2000
    toml = bench.write("long.toml", BLOCKING, fault("pause", 'site = "west"', 50, 15000) +
                       fault("cut", OF_LINK, 17000, 4000), steps)
    whole = bench.simulate(toml, "whole")
    stop_in_the_middle(bench, toml, "parts")
    stopped = bench.simulate(toml, "parts", "--resume", "auto")
    require(abs(stopped["simulated_s"] - whole["simulated_s"]) < 1e-6,
            f"{stopped['simulated_s']} s in two parts, {whole['simulated_s']} s in one")
    require(bench.outcome("parts")[0] == bench.outcome("whole")[0], "other parameters")
    require(whole["faults"]["cost_s"] > 15000 - STEP_S, whole["faults"])
    require("net.dead_after" in whole["faults"]["notes"][0], whole["faults"])
    print("stopped and gone on: the same clock")


def goes_on_elsewhere(bench):
    """Without the trace that it began with: the run's folder has a copy, and goes on from that, in its place too."""
    csv = bench.folder / "day.csv"
    slow = "0,500kbit/s,500kbit/s\n10,1Mbit/s,1Mbit/s\n20,500kbit/s,500kbit/s\n20.5,repeat\n"
    toml = traced(bench.write("long_traced.toml", BLOCKING, "", 2000), csv, slow)
    whole = bench.simulate(toml, "whole_traced")
    stop_in_the_middle(bench, toml, "here")
    csv.unlink()
    there = (bench.folder / "here").rename(bench.folder / "there")
    told = bench.simulate(there / "config.resolved.toml", "there", "--resume", "auto")
    # Both begin again at one moment, and were half a round trip apart at most. Rates of another time cost far more.
    require(abs(told["simulated_s"] - whole["simulated_s"]) <= HALF_A_ROUND_TRIP + 1e-6,
            f"{told['simulated_s']} s in two places, {whole['simulated_s']} s in one")
    require(bench.outcome("there")[0] == bench.outcome("whole_traced")[0], "other parameters")
    copies = {copy.name: copy.read_bytes() for copy in (there / "link_traces").iterdir()}
    require(list(copies) == [hashlib.sha256(text).hexdigest()[:16] + ".csv" for text in copies.values()] and
            b"".join(copies.values()).decode().endswith(slow), f"the copy is another one: {copies}")
    print("gone on elsewhere with the trace of its folder")


def traced(toml, csv, lines):
    """The same file over a link whose rates a trace says."""
    csv.write_text("seconds,rate_up,rate_down\n" + lines)
    path = toml.with_name("traced.toml")
    path.write_text(toml.read_text().replace('rate = "1Mbit/s"', f'trace = "{csv.name}"'))
    return path


def traces(bench):
    """Rates over time from a file: what a rate fault of the same time and rate costs, to the nanosecond."""
    csv = bench.folder / "rates.csv"
    steady = bench.write("without.toml", BLOCKING, "")
    without = bench.simulate(steady, "steady")["simulated_s"]
    same = bench.simulate(traced(steady, csv, "0,1000000,1Mbit/s\n"), "same")
    require(same["simulated_s"] == without, f"{same['simulated_s']} s at one rate, {without} s without a trace")
    slow = "0,1Mbit/s,1Mbit/s\n40.2,250kbit/s,250kbit/s\n40.6,1Mbit/s,1Mbit/s\n"
    told = bench.simulate(traced(steady, csv, slow), "slow")
    require(abs(told["simulated_s"] - without - 0.3) < 1e-6, f"{told['simulated_s']} s, {without} s without")
    require(bench.outcome("slow") == bench.outcome("steady"), "other parameters or losses")
    clock = told["simulated_s"]
    faulty = bench.write("traced_fault.toml", BLOCKING, fault("cut", OF_LINK, 40.3, 30))
    faulty = traced(faulty, csv, slow)
    told = bench.simulate(faulty, "slow_and_cut")
    said = told["faults"]
    require(said["cost_s"] is None and said["without_s"] is None and "link.trace" in said["unknown"] and not said["exact"],
            f"the trace's effect passes for the fault's: {said}")
    shown = bench.run("simulate", faulty, "--out", bench.folder / "shown", "--progress", "none").stdout
    require("cost is not known" in shown, shown)
    toml = traced(steady, csv, "0,500kbit/s,500kbit/s\n10,1Mbit/s,1Mbit/s\n20,500kbit/s,500kbit/s\n20.5,repeat\n")
    words = ("simulate", toml, "--out", bench.folder / "mean", "--progress", "none")
    require("of rates over time (link.trace) the mean" in bench.run(*words).stdout, "whose rate is predicted is not said")
    terms = (bench.folder / "mean/summary.json").read_text()
    require("(link.trace)" in terms, f"not in summary.json: {terms}")
    require("mean rate of each trace" in bench.run("simulate", toml, "--dry-run").stdout, "--dry-run says nothing")
    require("its mean rate" in bench.run("plan", "utilisation", toml).stderr, "plan says nothing")
    for words in (("train", toml), ("simulate", toml, "--emulate")):
        said = bench.run(*words, "--out", bench.folder / "no", code=3).stderr
        require("trace" in said and "real time" in said and not (bench.folder / "no").exists(), said)
    links = json.loads((bench.folder / "mean/links.json").read_text())["links"][0]
    # 10.5 s at half the rate of the other 10.
    require(links["trace"] == str(csv) and abs(links["bits_per_s_up"] - (10 + 10.5 / 2) / 20.5 * 1e6) < 1, links)
    require(links["trace_digest"] == hashlib.sha256(csv.read_bytes()).hexdigest()[:16], links)
    told = json.loads(bench.run("report", bench.folder / "slow", "--json", "--links", "1Gbit/s,1ms").stdout)
    require("trace" in told["retimed"][0]["needs_simulating"], told)
    csv.unlink()
    moved = (bench.folder / "slow").rename(bench.folder / "moved")
    require(json.loads(bench.run("status", moved, "--json").stdout)["steps"] == 12, "the folder lacks its trace")
    again = bench.simulate(moved / "config.resolved.toml", "again")
    require(again["simulated_s"] == clock, f"{again['simulated_s']} s from the folder's own files, {clock} s before")
    said = bench.run("simulate", moved / "config.resolved.toml", "--out", moved, "--force", code=3).stderr
    require("--force would remove link.trace" in said, said)
    csv.write_text("seconds,rate_up,rate_down\n0,1mbps,1\n")
    require("rates.csv:2:3" in bench.run("simulate", toml, "--dry-run", code=3).stderr, "a bad file without its place")
    print("rates over time from a file")


def refusals(bench):
    toml = bench.write("with.toml", BLOCKING, fault("cut", OF_LINK, 40.3, 30))
    for words in (("train", toml), ("simulate", toml, "--emulate")):
        said = bench.run(*words, "--out", bench.folder / "no", code=3).stderr
        require("[[fault]]" in said and "real time" in said, said)
        require(not (bench.folder / "no").exists(), "a refused run has written something")
    said = bench.run("simulate", toml, "--set", "fault.kind=rate", code=3).stderr
    require("cannot be set" in said, said)
    require("[[fault]]" in bench.run("plan", "utilisation", toml).stderr, "plan says nothing")
    require("faults" in bench.run("simulate", toml, "--dry-run").stdout, "--dry-run says nothing")
    bench.simulate(toml, "cut")
    told = json.loads(bench.run("report", bench.folder / "cut", "--json", "--links", "1Gbit/s,1ms").stdout)
    require("[[fault]]" in told["retimed"][0]["needs_simulating"], told)
    print("refused by name")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.isthmus, pathlib.Path(folder), pathlib.Path(arguments.text).resolve())
        try:
            costs(bench)
            without_declared_times(bench)
            stops_and_goes_on(bench)
            goes_on_elsewhere(bench)
            traces(bench)
            refusals(bench)
        except Failure as failure:
            print(f"FAILED: {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
