#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Too few sites are left of a run, and one that was cut off comes back with its work.

  python3 tests/end_to_end/sites_wait.py --isthmus build/src/app/isthmus

With fewer than net.min_sites the rest stand after one step, lose nothing, and go on once enough are
back, whoever dies meanwhile. What a site has trained on in its open window when it is cut off is in
the next rounds, but not with train.offload; so is what it trains on alone from then on, for
net.max_solo_rounds windows.
"""
import collections
import functools
import re
import signal
import subprocess
import sys

from scenario import play_runs, require, together
from sites_come_and_go import Run, check_lines


def stands(run, gone, times=1):
    """Who is left waits, after one step, with a checkpoint. RETURNS: the step."""
    here = [name for name in run.names if name not in gone]
    told = re.compile(r"fewer than net.min_sites.*: waiting after step (\d+)")
    run.until("they wait", lambda: all(
        len(told.findall(run.said(name))) >= times and
        all(each in run.said(name) for each in gone) for name in here))
    stood = {int(told.findall(run.said(name))[-1]) for name in here}
    require(len(stood) == 1, f"{run.folder.name}: they stand after steps {stood}")
    stood = stood.pop()
    for name in here:
        require((run.folder / name / f"ckpt/step-{stood:07d}").exists(),
                f"{run.folder.name}: {name} has no checkpoint of step {stood}")
        require(run.rows(name, "train")[-1]["step"] == stood, f"{run.folder.name}: {name} goes on")
    return stood


def too_few_wait_for_the_others(run_of):
    for method, victims in (("diloco", ["north"]), ("ddp", ["north"]),
                            ("streaming-diloco slip", ["west", "north"])):
        run = run_of(f"few-{method}", method, 3, min_sites=3)
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        for victim in victims:
            run.kill(victim)
        stood = stands(run, victims)
        for victim in victims:
            run.start(victim, "--resume", "auto")
        run.until("rounds of all again", lambda: all(
            run.members_of_last_round(name) == 3 for name in run.names))
        run.stop()
        steps = check_lines(run, "east")
        require(steps == list(range(1, len(steps) + 1)), f"{method}: lines are lacking")
        took = collections.Counter(row["step"] for row in run.rows("east", "worker"))
        few = [step for step in steps if step > stood and took[step] < 3]
        # Where two have to come back, the first is taken in within two windows.
        require(len(few) <= (2 * 6 + 2 if len(victims) > 1 else 0),
                f"{method}: after step {stood} too few took {few}")


def too_few_wait_whoever_dies_and_may_be_stopped(run_of):
    run = run_of("fewer", "diloco", 3, min_sites=3)
    run.until("checkpoints", lambda: all(run.rows(name, "ckpt") for name in run.names))
    run.sites["north"].send_signal(signal.SIGSTOP)
    stood = stands(run, ["north"])
    run.sites["north"].send_signal(signal.SIGCONT)  # it comes back by itself
    run.until("rounds of all again", lambda: all(
        run.members_of_last_round(name) == 3 for name in run.names))
    run.until("a checkpoint of all", lambda: all(
        run.rows(name, "ckpt")[-1]["step"] > stood for name in run.names))
    run.kill("north")
    stood = stands(run, ["north"], times=2)
    run.kill("east")  # the first: all go on from a checkpoint
    run.until("it waits for the first", lambda: "trying to come back" in run.said("west"))
    run.start("east", "--resume", "auto")
    run.start("north", "--resume", "auto")
    run.until("they start together",
              lambda: run.said("west").count("sites are together") == 2)
    run.until("they go on", lambda: all(run.rows(name, "train")[-1]["step"] > stood
                                        for name in run.names))
    run.kill("north")
    stood = stands(run, ["north"], times=3)
    run.sites["west"].send_signal(signal.SIGINT)
    for name in ("east", "west"):
        require(run.code_of(name) == 130, f"{name}: {run.said(name)}")
        last = (run.folder / name / "ckpt/last").resolve().name
        require(last == f"step-{stood:07d}", f"{name}: {last}, not {stood}")


def too_few_do_not_wait_for_ever(run_of):
    run = run_of("alone", "diloco", 2, min_sites=2, gather="8s")
    run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
    run.kill("west")
    code = run.code_of("east")
    last = run.said("east").splitlines()[-1]
    require(code == 5 and "net.gather" in last and "west" in last, f"exit {code}: {last}")


def a_frozen_site_takes_its_work_along(run_of):
    run = run_of("carried", "diloco rare", 3)
    run.until("a window is open, long before its end", lambda: run.rows("north", "round") and
              run.rows("north", "train")[-1]["step"] >= 2050)
    run.sites["north"].send_signal(signal.SIGSTOP)
    run.until("rounds of two", lambda: run.members_of_last_round() == 2)
    run.sites["north"].send_signal(signal.SIGCONT)
    run.until("rounds of all again", lambda: run.members_of_last_round() == 3)
    said = run.said("north")
    told = re.search(r"uncommitted work of this site by step \d+, (\d+) tokens come along .*, and (\d+) are lost", said)
    require(told and int(told.group(1)) > 0 and told.group(2) == "0", said)
    came_back = lambda: [row for row in run.rows("north", "event") if row["what"] == "site came back"]
    run.until("north's own line", came_back)  # the first site may be ahead with its lines
    back = came_back()
    require([(row["site"], row["tokens_kept"], row["tokens_lost"]) for row in back] ==
            [("north", int(told.group(1)), 0)], f"the run's lines: {back}")
    report = run.folder / "north.html"
    subprocess.run([run.isthmus, "report", str(run.folder / "north"), "--out", str(report)],
                   check=True, capture_output=True)
    require("tokens kept, 0 lost" in report.read_text(), "the report does not tell")
    run.stop()


def with_offload_it_comes_back_without(run_of):
    run = run_of("offload", "diloco", 2, train='offload = "state"')
    run.until("rounds of both", lambda: len(run.rows("east", "round")) > 3)
    run.sites["west"].send_signal(signal.SIGSTOP)
    run.until("rounds of one", lambda: run.members_of_last_round() == 1)
    run.sites["west"].send_signal(signal.SIGCONT)
    run.until("rounds of both again", lambda: run.members_of_last_round() == 2)
    said = run.said("west")
    require("with train.offload no work" in said and "come along" not in said, said)
    run.stop()


def a_site_that_is_cut_off_trains_alone(run_of):
    def alone(windows):
        run = run_of(f"alone-{windows}", "diloco", 2, net=f"max_solo_rounds = {windows}")
        run.until("rounds of both", lambda: len(run.rows("west", "round")) > 3)
        run.sites["east"].send_signal(signal.SIGSTOP)  # nothing passes, and nobody can tell why
        run.until("it is cut off", lambda: "trying to come back" in run.said("west"))
        if windows:
            run.until("it has trained alone", lambda: "trained on alone" in run.said("west"))
        run.sites["east"].send_signal(signal.SIGCONT)
        run.until("it is back", lambda: any(row["what"] == "site came back"
                                            for row in run.rows("west", "event")))
        back = [row for row in run.rows("west", "event") if row["what"] == "site came back"]
        require(len(back) == 1 and back[0]["steps_alone"] == 5 * windows and
                back[0]["tokens_alone"] == 5 * windows * 128, f"{windows} windows: {back}")
        # Beside them at most the open window.
        require(0 <= back[0]["tokens_kept"] - back[0]["tokens_alone"] < 5 * 128, f"{back}")
        report = run.folder / "west.html"
        subprocess.run([run.isthmus, "report", str(run.folder / "west"), "--out", str(report)],
                       check=True, capture_output=True)
        require(("steps alone" in report.read_text()) == (windows > 0), "the report does not tell")
        run.stop()
        check_lines(run, "west")

    together([functools.partial(alone, windows) for windows in (0, 1, 3)])


def a_method_that_carries_nothing_waits_at_once(run_of):
    run = run_of("co2", "co2", 2)
    run.until("rounds of both", lambda: len(run.rows("west", "round")) > 3)
    run.sites["east"].send_signal(signal.SIGSTOP)
    run.until("it is cut off", lambda: "trying to come back" in run.said("west"))
    run.sites["east"].send_signal(signal.SIGCONT)
    run.until("rounds of both again", lambda: run.members_of_last_round() == 2 and any(
        row["what"] == "site joined" for row in run.rows("east", "event")))
    said = run.said("west")
    require("does not train on alone" in said and "outer.method = co2" in said and
            "trained on alone" not in said, said)
    run.stop()


SCENARIOS = (too_few_wait_for_the_others, too_few_wait_whoever_dies_and_may_be_stopped,
             too_few_do_not_wait_for_ever, a_frozen_site_takes_its_work_along,
             with_offload_it_comes_back_without, a_site_that_is_cut_off_trains_alone,
             a_method_that_carries_nothing_waits_at_once)


def scenarios(run_of):
    return [], [functools.update_wrapper(functools.partial(scenario, run_of), scenario) for scenario in SCENARIOS]


if __name__ == "__main__":
    sys.exit(play_runs(__doc__, Run, scenarios))
