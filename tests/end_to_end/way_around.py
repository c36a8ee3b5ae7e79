#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two of three sites lose each other, and go on by way of the third.

  sudo python3 tests/end_to_end/way_around.py --isthmus build/src/app/isthmus

Each site is in a network namespace of its own, behind one router, which drops what two of them send
to each other: both ways, then one way, and before they have met. TCP is told nothing of it. Nobody
is left out, every round has all three members, and every line of the run is that of an undisturbed
one; when the way is back, it is taken again. The same where it drops only what is larger than a
kilobyte, so that the two hear each other all the time. A site that is killed meanwhile is missed as
soon as ever, and without net.detour one of the two is left out. Needs root.
"""
import argparse
import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from behind_nat import FOREVER, NAMES, Run
from scenario import Failure, require, together

SKIPPED = 77  # for ctest
AROUND, DIRECTLY = "by way of a relay from now on", "goes directly again"
NARROW = "small packets reach it directly, but nothing larger has"
DEAD_AFTER_S = 5  # of behind_nat.TEXT
# Of net.dead_after, without values getting through: see link_liveness.cpp. Two heartbeats, the
# time in which reports are gathered (reachability_reports.h), and what a loaded machine adds.
LOST_WITHIN_S = 1.5 * DEAD_AFTER_S + 2 + 3 + 6


class Router:
    """A network namespace a site, and one between them that forwards, or drops."""

    HOSTS = {name: f"10.79.{number}.2" for number, name in enumerate(NAMES, 1)}

    numbers = itertools.count()

    def __init__(self):
        word = f"isthmus-{os.getpid()}-{next(self.numbers)}"
        self.of = {name: f"{word}-{name}" for name in NAMES}
        self.between = f"{word}-between"
        self.runs = []
        try:
            for space in (self.between, *self.of.values()):
                self.ip("netns", "add", space)
                self.ip("-n", space, "link", "set", "lo", "up")
            for number, (name, space) in enumerate(self.of.items(), 1):
                wire = f"wire{number}"
                self.ip("link", "add", wire, "netns", self.between, "type", "veth", "peer", "name",
                        "wire", "netns", space)
                self.ip("-n", self.between, "addr", "add", f"10.79.{number}.1/24", "dev", wire)
                self.ip("-n", space, "addr", "add", f"{self.HOSTS[name]}/24", "dev", "wire")
                self.ip("-n", self.between, "link", "set", wire, "up")
                self.ip("-n", space, "link", "set", "wire", "up")
                self.ip("-n", space, "route", "add", "default", "via", f"10.79.{number}.1")
            self.ip("netns", "exec", self.between, "sh", "-c",
                    "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self.drop("add", "west", "north")  # whether this kernel can
            self.drop("del", "west", "north")
        except subprocess.CalledProcessError:
            self.remove()
            raise

    @staticmethod
    def ip_or_tc(*words):
        subprocess.run(words, check=True, capture_output=True)

    def ip(self, *words):
        self.ip_or_tc("ip", *words)

    def drop(self, verb, a, b):
        """add, del: the rule by which what a sends to b is lost, without a word."""
        self.ip("-n", self.between, "rule", verb, "from", self.HOSTS[a], "to", self.HOSTS[b],
                "blackhole")

    def narrow(self, a, b):
        """What a sends to b in packets of more than a kilobyte is lost, without a word, from now on;
        until `widen(b)`. Where this kernel can."""
        wire = f"wire{list(self.of).index(b) + 1}"
        tc = ["tc", "-n", self.between]
        for words in (["qdisc", "add", "dev", wire, "root", "handle", "1:", "htb", "default", "1"],
                      ["class", "add", "dev", wire, "parent", "1:", "classid", "1:1", "htb", "rate",
                       "10gbit", "quantum", "60000"],
                      ["class", "add", "dev", wire, "parent", "1:", "classid", "1:2", "htb", "rate",
                       "10gbit", "quantum", "60000"],
                      # A token bucket drops what is larger than the bucket.
                      ["qdisc", "add", "dev", wire, "parent", "1:2", "tbf", "rate", "10gbit", "burst",
                       "1000", "limit", "10mb"],
                      ["filter", "add", "dev", wire, "parent", "1:", "protocol", "ip", "prio", "1", "u32",
                       "match", "ip", "src", f"{self.HOSTS[a]}/32", "flowid", "1:2"]):
            self.ip_or_tc(*tc, *words)

    def widen(self, b):
        wire = f"wire{list(self.of).index(b) + 1}"
        subprocess.run(["tc", "-n", self.between, "qdisc", "del", "dev", wire, "root"], check=False,
                       capture_output=True)

    def reset(self, a, b):
        """Connections between the two break at both ends; RETURNS how many did."""
        broken = [subprocess.run(["ip", "netns", "exec", self.of[one], "ss", "-K", "dst", self.HOSTS[other]],
                                 check=False, capture_output=True, text=True).stdout.count("ESTAB")
                  for one, other in ((a, b), (b, a))]
        return sum(broken)

    def remove(self):
        for run in self.runs:
            run.end()
        for space in (self.between, *self.of.values()):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def count(run, name, words):
    return run.said(name).count(words)


def rounds_go_on(run, more=5):
    before = {name: len(run.rows(name, "round")) for name in NAMES}
    run.until("rounds go on",
              lambda: all(len(run.rows(name, "round")) >= before[name] + more for name in NAMES))


def nobody_was_missed(run):
    for name in NAMES:
        members = {row["members"] for row in run.rows(name, "round")}
        require(members == {3}, f"{run.folder.name}: {name}: rounds of {members}")
        events = [row for row in run.rows(name, "event") if row.get("event") in ("left", "joined", "lost")]
        require(not events, f"{run.folder.name}: {name}: {events}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/include/linux/bpf.h")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    isthmus = str(pathlib.Path(arguments.isthmus).resolve())
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("skipped: needs root and iproute2, for network namespaces")
        return SKIPPED
    try:
        Router().remove()
    except subprocess.CalledProcessError as error:
        print(f"skipped: no network namespaces with rules here: {error.stderr.decode().strip()}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        corpus = folder / "corpus.txt"
        corpus.write_bytes(pathlib.Path(arguments.text).read_bytes())

        def run_of(router, name, **how):
            run = Run(isthmus, folder / name, corpus, NAMES, ["east"], keys=True, host=Router.HOSTS,
                      spaces=router.of, **how)
            router.runs.append(run)
            if how["steps"] == FOREVER:  # and few of them while the test waits
                run.toml.write_text(run.toml.read_text().replace("[net]", '[net]\ncap = "4Mbit/s"'))
            return run

        def both_ways_then_one_way(router):
            run = run_of(router, "cut", steps=FOREVER)
            run.start_all()
            run.until("rounds", lambda: len(run.rows("east", "round")) > 3)
            begin = time.monotonic()
            router.drop("add", "west", "north")
            router.drop("add", "north", "west")
            run.until("both go round", lambda: count(run, "west", AROUND) == 1 and
                      count(run, "north", AROUND) == 1)
            rounds_go_on(run)
            print(f"rounds go on {time.monotonic() - begin:.1f} s after the cut (net.dead_after = 5 s)")
            router.drop("del", "west", "north")
            router.drop("del", "north", "west")
            run.until("both go directly again", lambda: count(run, "west", DIRECTLY) == 1 and
                      count(run, "north", DIRECTLY) == 1)
            rounds_go_on(run)
            router.drop("add", "west", "north")
            run.until("both go round again", lambda: count(run, "west", AROUND) == 2 and
                      count(run, "north", AROUND) == 2)
            rounds_go_on(run)
            router.drop("del", "west", "north")
            run.stop()
            nobody_was_missed(run)
            last = max(row["step"] for row in run.rows("west", "train")) - 20
            require(count(run, "east", AROUND) == 0, "east has gone round")
            plain = run_of(router, "plain", steps=last + 20)
            plain.start_all()
            plain.ends(0)
            for name in NAMES:
                lines = [[row for row in each.findings(name)
                          if row.get("step", row.get("step_apply", 0)) <= last]
                         for each in (run, plain)]
                require(len(lines[0]) > last, f"{name}: {len(lines[0])} lines of {last} steps")
                require(lines[0] == lines[1], f"{name}: other lines than undisturbed")

        def connections_that_are_reset(router):
            run = run_of(router, "reset", steps=FOREVER)
            run.start_all()
            run.until("rounds", lambda: len(run.rows("east", "round")) > 3)
            router.drop("add", "west", "north")
            router.drop("add", "north", "west")
            try:
                if router.reset("west", "north") == 0:
                    print("left out: this kernel resets no connections (ss -K)")
                    return
                run.until("both go round", lambda: count(run, "west", AROUND) == 1 and
                          count(run, "north", AROUND) == 1)
                rounds_go_on(run)
                run.stop()
                nobody_was_missed(run)
            finally:
                router.drop("del", "west", "north")
                router.drop("del", "north", "west")

        def two_that_have_never_met(router):
            router.drop("add", "west", "north")
            router.drop("add", "north", "west")
            try:
                run = run_of(router, "never", steps=800)
                text = run.toml.read_text()
                for often, seldom in (("H = 5", "H = 400"), ("every = 50", "every = 400"),
                                      ('"20 steps"', '"400 steps"')):
                    text = text.replace(often, seldom)
                run.toml.write_text(text)  # what sites tell one another of steps needs no round to go
                run.start_all()
                run.ends(0)
                nobody_was_missed(run)
            finally:
                router.drop("del", "west", "north")
                router.drop("del", "north", "west")

        def a_death_is_missed_as_soon_as_ever(router):
            run = run_of(router, "death", steps=FOREVER)
            run.start_all()
            run.until("rounds", lambda: len(run.rows("east", "round")) > 3)
            router.drop("add", "west", "north")
            router.drop("add", "north", "west")
            try:
                run.until("both go round", lambda: count(run, "west", AROUND) == 1 and
                          count(run, "north", AROUND) == 1)
                rounds_go_on(run)
                begin = time.monotonic()
                run.kill("north")
                run.until("rounds of two", lambda: run.members("east") == 2 == run.members("west"))
                took = time.monotonic() - begin
                require(took < 4, f"a death was missed after {took:.1f} s")
                print(f"rounds of two {took:.1f} s after a death behind a detour")
                run.start("north", "--resume", "auto")
                run.until("rounds of all again", lambda: run.members("east") == 3)
                rounds_go_on(run)
                run.stop()
            finally:
                router.drop("del", "west", "north")
                router.drop("del", "north", "west")

        def narrowed(router, test):
            """Plays it while the two are told nothing of what is dropped; where this kernel can."""
            try:
                router.narrow("west", "north")
                router.narrow("north", "west")
                test()
            except subprocess.CalledProcessError as error:
                print(f"left out: no queues that drop large packets: {error.stderr.decode().strip()}")
            finally:
                router.widen("west")
                router.widen("north")

        def a_way_that_drops_large_packets(router):
            run = run_of(router, "narrow", steps=FOREVER)
            run.start_all()
            run.until("rounds", lambda: len(run.rows("east", "round")) > 3)

            def go_round():
                begin = time.monotonic()
                run.until("both go round", lambda: count(run, "west", AROUND) >= 1 and
                          count(run, "north", AROUND) >= 1)
                rounds_go_on(run)
                print(f"rounds go on {time.monotonic() - begin:.1f} s after large packets are dropped")

            narrowed(router, go_round)
            if count(run, "west", AROUND):
                require(count(run, "west", NARROW) + count(run, "north", NARROW) > 0,
                        "nobody says what passes")
                run.until("both go directly again", lambda: count(run, "west", DIRECTLY) >= 1 and
                          count(run, "north", DIRECTLY) >= 1)
                rounds_go_on(run)
            run.stop()
            nobody_was_missed(run)

        def without_a_relay_who_gets_nothing_large_is_left_out(router):
            run = run_of(router, "narrow_without", steps=FOREVER)
            run.toml.write_text(run.toml.read_text().replace("[net]", "[net]\ndetour = false"))
            run.start_all()
            run.until("rounds", lambda: len(run.rows("east", "round")) > 3)

            def leave_one_out():
                begin = time.monotonic()
                run.until("a round of two", lambda: any(row["members"] == 2
                                                        for row in run.rows("east", "round")))
                took = time.monotonic() - begin
                print(f"a round of two {took:.1f} s after large packets are dropped")
                require(took < LOST_WITHIN_S, f"found after {took:.1f} s")
                require(any(count(run, name, "something drops packets of full size") for name in NAMES),
                        "nobody says why")

            narrowed(router, leave_one_out)

        def without_it_one_is_left_out(router):
            run = run_of(router, "without", steps=FOREVER)
            run.toml.write_text(run.toml.read_text().replace("[net]", "[net]\ndetour = false"))
            run.start_all()
            run.until("rounds", lambda: len(run.rows("east", "round")) > 3)
            router.drop("add", "west", "north")
            router.drop("add", "north", "west")
            try:
                # Who is left out tries to come back: it need not be out when one looks.
                run.until("a round of two", lambda: any(row["members"] == 2
                                                        for row in run.rows("east", "round")))
            finally:
                router.drop("del", "west", "north")
                router.drop("del", "north", "west")

        def played(test):
            router = Router()
            try:
                test(router)
                print(f"{test.__name__}: ok", flush=True)
            finally:
                router.remove()

        try:
            together([functools.partial(played, test) for test in (
                both_ways_then_one_way, a_way_that_drops_large_packets, a_death_is_missed_as_soon_as_ever,
                without_a_relay_who_gets_nothing_large_is_left_out, without_it_one_is_left_out,
                two_that_have_never_met, connections_that_are_reset)
                      if not arguments.only or arguments.only in test.__name__])
        except Failure as failure:
            print(f"FAILED: {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
