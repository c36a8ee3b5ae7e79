#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A site is killed at a named moment of a round, of a checkpoint or of a join.

  python3 tests/end_to_end/killed_at_points.py --isthmus build/src/app/isthmus
  python3 tests/end_to_end/killed_at_points.py --isthmus build/src/app/isthmus --all --seed 1

Four processes. One ends itself by SIGKILL where ISTHMUS_FAULT says (src/transport/README.md); the
others go on in rounds of those that are left, or, where it was the first, wait for it; it is
started again and takes part again. In the end all hold the same parameters to the bit, and every
round was of the same members at all who took part in it, with the same losses. By itself a few points
are tried; --all tries each, at a time of it that the seed draws, with methods of three kinds.
"""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import sites_come_and_go
from scenario import Failure, require
from sites_come_and_go import Run, check_lines

sites_come_and_go.NAMES = NAMES = ("east", "west", "north", "south")
FIRST, VICTIM = NAMES[0], NAMES[-1]
# Who is killed there, and how often the point is passed in the first seconds of a run. A first site
# that is killed before it has its first checkpoint has none in common with those who have theirs:
# that ends the run, by name.
OF_A_MEMBER = {"contributes": 30, "contributed": 30, "answers": 20, "answered": 20, "says-done": 8,
               "said-done": 30, "committed": 8, "applies": 8, "applied": 30, "checkpoints": 2,
               "checkpointed": 2}
OF_THE_FIRST = {"commits": 24, "applies": 8, "checkpoints": 3, "checkpointed": 3}
OF_A_JOIN = {"joins": 1, "fetches": 3, "entered": 1}  # at who joins
OF_A_DONOR = {"serves": 3}
OF_WHO_ADMITS = {"admits": 4}  # the first, of a death and a join: three members are told each time
BY_ITSELF = [("answers", VICTIM, 5), ("said-done", VICTIM, 9), ("committed", VICTIM, 4),
             ("commits", FIRST, 8), ("fetches", VICTIM, 2)]
METHODS = ("diloco", "streaming-diloco", "ddp goes back")


class ArmedRun(Run):
    """Of its sites some are to be killed once; started again they are not."""

    def __init__(self, faults, *how, **more):
        self.faults = dict(faults)
        super().__init__(*how, **more)

    def start(self, name, *flags):
        environment = dict(os.environ)
        fault = self.faults.pop(name, None)
        if fault:
            environment["ISTHMUS_FAULT"] = f"kill@{fault[0]}:{fault[1]}"
        said = open(self.folder / f"{name}.err", "a")
        self.sites[name] = subprocess.Popen(
            [self.isthmus, "train", str(self.toml), "--site", name, "--progress", "none", "--out",
             str(self.folder / name), *flags], stdout=subprocess.DEVNULL, stderr=said,
            env=environment)

    def until_killed(self, name):
        self.until(f"{name} is killed", lambda: self.sites[name].poll() is not None)
        code = self.sites[name].returncode
        require(code == -signal.SIGKILL, f"{self.folder.name}: {name}: exit {code}: "
                f"{self.said(name)[-800:]}")

    def until_rounds_of(self, count, names):
        """... that have begun after all that there are now."""
        before = {name: len(self.rows(name, "round")) for name in names}
        self.until(f"rounds of {count} at {names}", lambda: all(
            [row["members"] for row in self.rows(name, "round")][before[name]:][-1:] == [count]
            for name in names))


def all_agree(run):
    """Whoever took part in a round has the same line of it. A step's line has the mean loss of the sites that said
    theirs, each in a line of its own; what a site that is killed had said may have reached nobody else. So a site's
    loss of a step is the same wherever it is known, and so is the mean of the same sites."""
    said = {name: {} for name in run.names}  # step: sites
    for name in run.names:
        for row in run.rows(name, "worker"):
            said[name].setdefault(row["step"], set()).add(row["w"])
    for kind, key, what in (("round", ("step_send", "frag"), ("members",)),
                            ("worker", ("w", "step"), ("loss",)),
                            ("train", ("step",), ("loss",))):
        lines = {}
        for name in run.names:
            for row in run.rows(name, kind):
                found = [row[each] for each in what]
                of = frozenset(said[name][row["step"]]) if kind == "train" else None
                other = lines.setdefault((of, *(row[each] for each in key)), (name, found))
                require(other[1] == found, f"{run.folder.name}: {kind} {row}: {name} has {found}, "
                        f"{other[0]} {other[1]}")
    for name in run.names:
        check_lines(run, name)


def all_take_part_again(run):
    run.until_rounds_of(len(run.names), run.names)
    run.stop()
    all_agree(run)


def killed_in_a_round(run_of, point, victim, nth, method):
    run = run_of(point, victim, nth, method, {victim: (point, nth)})
    run.until_killed(victim)
    others = [name for name in NAMES if name != victim]
    if victim != FIRST:
        run.until_rounds_of(len(others), others)
    run.start(victim, "--resume", "auto")
    all_take_part_again(run)


def killed_in_a_join(run_of, point, victim, nth, method):
    """South dies and comes back, when `victim` is killed; it may be itself."""
    run = run_of(point, victim, nth, method, {} if victim == VICTIM else {victim: (point, nth)})
    run.until("rounds of all", lambda: len(run.rows(VICTIM, "round")) > 3)
    run.kill(VICTIM)
    if victim == VICTIM:
        run.faults[VICTIM] = (point, nth)
    died_early = victim == FIRST and nth <= len(NAMES) - 1  # the word of the death kills it
    if not died_early:
        run.until_rounds_of(len(NAMES) - 1, NAMES[:-1])
    run.start(VICTIM, "--resume", "auto")
    run.until_killed(victim)
    run.start(victim, "--resume", "auto")
    all_take_part_again(run)


def scenario_of(point, victim):
    joins = point in OF_WHO_ADMITS or point in OF_A_DONOR or point in OF_A_JOIN
    return killed_in_a_join if joins else killed_in_a_round


def the_sweep(seed):
    draw = random.Random(seed)
    for method in METHODS:
        for victim, points in ((VICTIM, OF_A_MEMBER), (FIRST, OF_THE_FIRST), (VICTIM, OF_A_JOIN),
                               (NAMES[1], OF_A_DONOR), (FIRST, OF_WHO_ADMITS)):
            for point, most in points.items():
                first_checkpoint = victim == FIRST and point.startswith("checkpoint")
                yield point, victim, draw.randint(2 if first_checkpoint else 1, most), method


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/include/linux/bpf.h")
    parser.add_argument("--all", action="store_true", help="each point, with each method")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="POINT:N, or POINT:N@SITE of METHOD")
    arguments = parser.parse_args()
    isthmus = str(pathlib.Path(arguments.isthmus).resolve())
    cases = [(*each, METHODS[0]) for each in BY_ITSELF]
    if arguments.all:
        cases = list(the_sweep(arguments.seed))
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        corpus = folder / "corpus.txt"
        corpus.write_bytes(pathlib.Path(arguments.text).read_bytes())
        for number, (point, victim, nth, method) in enumerate(cases):
            label = f"{point}:{nth}@{victim} of {method}"
            if arguments.only and not label.startswith(arguments.only):
                continue
            runs = []

            def run_of(point, victim, nth, method, faults):
                name = f"{number}-{point}-{nth}-{victim}-{method.replace(' ', '-')}"
                runs.append(ArmedRun(faults, isthmus, folder / name, corpus, method, len(NAMES)))
                return runs[-1]

            begin = time.monotonic()
            try:
                scenario_of(point, victim)(run_of, point, victim, nth, method)
                print(f"{label}: ok, {time.monotonic() - begin:.1f} s", flush=True)
            except Failure as failure:
                print(f"{label}: {failure}", file=sys.stderr, flush=True)
                failed.append(label)
            finally:
                for run in runs:
                    run.end()
    print(f"{len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
