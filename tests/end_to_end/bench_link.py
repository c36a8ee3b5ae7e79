#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`bench link`: sites over loopback measure their links, and simulate and plan read what they wrote.

  python3 tests/end_to_end/bench_link.py --isthmus build/src/app/isthmus

Also: one after another, a site that is missing, one that dies, keys that do not fit, two machines
without a file, links files that do not fit a configuration. What rates come out is not looked at:
tests/sim/link_survey_test.cpp does, where they are known.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib

from scenario import Failure, free_ports, require, small_run

NAMES = ("east", "west", "north")
QUICK = ("--seconds", "1", "--streams", "2")
TEXT = small_run("links", arch="gpt2", layers=1, d_model=16, heads=1, source="text:words.txt", steps=4,
                 global_batch="384 tok", threads=1) + """
[outer]
method = "diloco"
H = 2
[net]
dead_after = "20s"
gather = "{gather}"
"""


class Bench:
    def __init__(self, isthmus, folder):
        self.isthmus = isthmus
        self.folder = folder
        (folder / "words.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)

    def write(self, name, sites, gather="120s", keys=None):
        text = TEXT.format(gather=gather)
        for site, port in zip(NAMES[:sites], free_ports(sites)):
            text += f'[[site]]\nname = "{site}"\naddress = "127.0.0.1:{port}"\n'
            if keys:
                text += f'key = {json.dumps(keys[site])}\n'
        path = self.folder / name
        path.write_text(text)
        return path

    def keys(self, *names):
        """Key files in keys/; RETURNS the public keys."""
        done = self.run("keygen", *names, "--json", "--out", self.folder / "keys")
        return {each["name"]: each["key"] for each in json.loads(done.stdout)["sites"]}

    def start(self, *words):
        return subprocess.Popen([self.isthmus, *map(str, words)], cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words, code=0):
        return self.finish(self.start(*words), code)

    def finish(self, process, code=0):
        try:
            out, err = process.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failure(f"{process.args}: no end; it said {process.communicate()}") from None
        require(process.returncode == code,
                f"{process.args}: exit {process.returncode}, not {code}: {out}{err}")
        process.stdout, process.stderr = out, err
        return process

    def sites(self, toml, count, *flags):
        """All sites measure. RETURNS the ended processes."""
        running = [self.start("bench", "link", toml, "--site", name, *QUICK, *flags, "--out",
                              f"{name}.toml") for name in NAMES[:count]]
        return [self.finish(each) for each in running]


def entries(path):
    return tomllib.loads(path.read_text())["link"]


def two_sites_measure_and_simulate_and_plan_read_it(bench):
    toml = bench.write("two.toml", 2)
    east, west = bench.sites(toml, 2, "--json")
    lines = [json.loads(line) for line in east.stdout.splitlines()]
    require([(line["from"], line["to"]) for line in lines] == [("east", "west"), ("west", "east")],
            east.stdout)
    require(east.stdout == west.stdout, "the sites found different things")
    for line in lines:
        require(line["bench"] == "link" and line["bits_per_s"] > 0 and line["echoes"] >= 8 and
                0 < line["rtt_least_ms"] <= line["rtt_p50_ms"] <= line["rtt_p99_ms"], str(line))
        require({each["streams"] for each in line["scan"]} <= {1, 2}, str(line))
        require(line["streams"] in (None, 1, 2), str(line))
        require(line["segments"] is None or 0 <= line["segments_resent"] <= line["segments"],
                str(line))
    require("1 link between 2 sites" in east.stderr and "once all are here" in east.stderr,
            east.stderr)
    found = entries(bench.folder / "east.toml")
    require(found == entries(bench.folder / "west.toml"), "the sites wrote different links")
    require([link["between"] for link in found] == [["east", "west"]], str(found))
    measured = tomllib.loads((bench.folder / "east.toml").read_text())["measured"]
    require(measured["by"].startswith("isthmus ") and "--seconds 1" in measured["how"],
            str(measured))

    bench.run("simulate", toml, code=3)  # the file has no links
    bench.run("simulate", toml, "--links", "east.toml", "--out", "run", "--progress", "none")
    resolved = (bench.folder / "run/config.resolved.toml").read_text()
    require(f"--links east.toml (measured {measured['at']}" in resolved, resolved)
    used = tomllib.loads(resolved)["link"]
    require(all(used[0][key] == value for key, value in found[0].items()), resolved)
    bench.run("simulate", toml, "--links", "east.toml", "--link", "1Gbit/s,1ms", code=2)
    plan = bench.run("plan", "utilisation", toml, "--params", "1B", "--step-time", "100ms",
                     "--links", "west.toml", "--json")
    answer = json.loads(plan.stdout)
    slowest = min(line["bits_per_s"] for line in lines) / 1e9
    require("the slowest link of west.toml" in answer["link"] and
            slowest < answer["bandwidth_gbit_s"] < 1.2 * slowest + 1e-3, plan.stdout)


def three_sites_with_keys_measure_each_pair(bench):
    toml = bench.write("three.toml", 3, keys=bench.keys(*NAMES))
    ended = bench.sites(toml, 3)
    for name, each in zip(NAMES, ended):
        require("[3/3]" in each.stderr, each.stderr)
        require(each.stdout.count("east") >= 4 and "resent" in each.stdout, each.stdout)
        pairs = [frozenset(link["between"]) for link in entries(bench.folder / f"{name}.toml")]
        require(sorted(map(sorted, pairs)) == [["east", "north"], ["east", "west"],
                                               ["north", "west"]], str(pairs))
    require(len({each.stdout for each in ended}) == 1, "the sites show different tables")
    bench.run("simulate", toml, "--links", "north.toml", "--out", "run3", "--progress", "none")
    two = bench.write("two.toml", 2)
    error = bench.run("simulate", two, "--links", "north.toml", code=3).stderr
    require("names 'north', which is no site" in error, error)
    (bench.folder / "short.toml").write_text(
        '[[link]]\nbetween = ["east", "west"]\nrate = "1Gbit/s"\nrtt = "1ms"\n')
    error = bench.run("simulate", toml, "--links", "short.toml", code=3).stderr
    require("no [[link]] joins 'east' and 'north', 'west' and 'north'" in error, error)


def a_missing_site_is_named_and_nothing_is_written(bench):
    toml = bench.write("alone.toml", 2, gather="3s")
    done = bench.run("bench", "link", toml, "--site", "east", *QUICK, "--out", "alone-out.toml",
                     code=5)
    require("member 1 (west) at tcp://127.0.0.1" in done.stderr, done.stderr)
    require(not (bench.folder / "alone-out.toml").exists(), "a links file of nothing")
    done = bench.run("bench", "link", toml, "--site", "south", code=3)
    require("sites: east, west" in done.stderr, done.stderr)


def a_wrong_key_is_told_to_both(bench):
    keys = bench.keys("first", "second", "third")
    for site, key in (("east", "first"), ("west", "second")):
        (bench.folder / f"keys/{key}.key").rename(bench.folder / f"keys/wrong-{site}.key")
    # west has another key than the one that the file names.
    toml = bench.write("keys.toml", 2, gather="8s",
                       keys={"east": keys["first"], "west": keys["second"]})
    running = [bench.start("bench", "link", toml, "--site", site, *QUICK, "--key", key)
               for site, key in (("east", "keys/wrong-east.key"), ("west", "keys/third.key"))]
    east, west = bench.finish(running[0], code=5), bench.finish(running[1], code=3)
    require(keys["third"][:8] in west.stderr and keys["second"][:8] in west.stderr, west.stderr)
    require("west" in east.stderr, east.stderr)
    # Two files that name unlike keys: both ends know their own one.
    other = bench.folder / "other.toml"
    other.write_text(toml.read_text().replace(json.dumps(keys["second"]), json.dumps(keys["third"])))
    running = [bench.start("bench", "link", toml, "--site", "east", *QUICK, "--key",
                           "keys/wrong-east.key"),
               bench.start("bench", "link", other, "--site", "west", *QUICK, "--key",
                           "keys/third.key")]
    for each in running:
        require("key" in bench.finish(each, code=5).stderr, each.stderr)


def a_site_that_dies_is_named(bench):
    toml = bench.write("dying.toml", 2)
    east = bench.start("bench", "link", toml, "--site", "east", "--seconds", "20")
    west = bench.start("bench", "link", toml, "--site", "west", "--seconds", "20")
    said = ""
    for line in east.stderr:
        said += line
        if "connection" in line:  # the first rate
            break
    require("connection" in said, said)
    west.kill()
    west.communicate()
    require("west" in bench.finish(east, code=5).stderr.splitlines()[-1], east.stderr)


def unlike_plans_are_told_apart(bench):
    toml = bench.write("unlike.toml", 2)
    running = [bench.start("bench", "link", toml, "--site", name, "--streams", "2", "--seconds", s)
               for name, s in (("east", "1"), ("west", "2"))]
    for each in running:
        require("--seconds" in bench.finish(each, code=5).stderr.splitlines()[-1], each.stderr)


def two_machines_need_no_file(bench):
    port = free_ports(1)[0]
    caller = bench.start("bench", "link", "--to", f"127.0.0.1:{port}", *QUICK, "--site", "b",
                         "--out", "pair.toml")
    listener = bench.start("bench", "link", "--listen", f"127.0.0.1:{port}", *QUICK, "--site", "a")
    for each in (listener, caller):
        bench.finish(each)
    require(listener.stdout == caller.stdout and "a " in caller.stdout, caller.stdout)
    require(entries(bench.folder / "pair.toml")[0]["between"] == ["a", "b"], "other names")
    error = bench.run("bench", "link", "--to", "192.0.2.1:48200", code=3).stderr
    require("unencrypted" in error, error)
    require("--listen" in bench.run("bench", "link", code=2).stderr, "no hint")
    require("HOST:PORT" in bench.run("bench", "link", "--to", "nowhere", code=2).stderr, "no hint")


def doctor_says_whom_a_site_reaches(bench):
    toml = bench.write("doctor.toml", 2)
    alone = bench.run("doctor", toml, "--site", "east", "--seconds", "2", "--json", code=5)
    west = json.loads(alone.stdout.splitlines()[0])["sites"][0]
    require(west["to"] == "west" and not west["reached"] and "refused" in west["why"], alone.stdout)
    bench.run("doctor", toml, code=2)
    running = [bench.start("doctor", toml, "--site", name, "--seconds", "30")
               for name in NAMES[:2]]
    for each in running:
        require("reached, in plain text" in bench.finish(each).stdout, each.stdout)


SCENARIOS = (two_sites_measure_and_simulate_and_plan_read_it,
             three_sites_with_keys_measure_each_pair,
             a_missing_site_is_named_and_nothing_is_written, a_wrong_key_is_told_to_both,
             a_site_that_dies_is_named, unlike_plans_are_told_apart, two_machines_need_no_file,
             doctor_says_whom_a_site_reaches)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--only", help="one scenario")
    args = parser.parse_args()
    for scenario in SCENARIOS:
        if args.only not in (None, scenario.__name__):
            continue
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                scenario(Bench(args.isthmus, pathlib.Path(folder)))
            except Failure as failure:
                sys.exit(f"{scenario.__name__}: {failure}")
        print(f"{scenario.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)


main()
