#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hub decides in the place of the first site; it, and any site, may die and come back.

  python3 tests/end_to_end/hub.py --isthmus build/src/app/isthmus

With a hub the run's lines are those of one without, to the bit, though the hub is killed and frozen
meanwhile, at moments drawn from a seed too. The first site is killed: the others go on, it takes
part again, though the hub or its donor dies meanwhile. A hub without the log of the run, or with an
older copy of it, is refused by name, as is a second one beside it. `launch` starts a hub too.
"""
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import threading
import urllib.request

import sites_come_and_go
import sites_wait
from scenario import Failure, free_ports, play, require

STEPS = 400


class HubRun(sites_come_and_go.Run):
    """Sites of one run, and a hub, each a process."""

    def __init__(self, isthmus, folder, corpus, method, members, steps=100000, hub=True,
                 min_sites=1, net=""):
        self.isthmus, self.folder = isthmus, folder
        self.names = sites_come_and_go.NAMES[:members]
        folder.mkdir()
        ports = free_ports(members + 1)
        tables = "".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
                         for name, port in zip(self.names, ports))
        if hub:
            tables = f'[hub]\naddress = "127.0.0.1:{ports[-1]}"\n' + tables
        self.toml = folder / "run.toml"
        text = sites_come_and_go.TEXT.replace("steps = 100000", f"steps = {steps}")
        if "dead_after" in net:
            text = text.replace('dead_after = "5s"\n', "")
        text = text.replace("[net]\n", f"[net]\n{net}\n")
        self.toml.write_text(text.format(
            method=method.split()[0], keys=sites_come_and_go.METHODS[method], sites=tables,
            batch=members * 128, corpus=corpus, min_sites=min_sites, gather="60s"))
        self.sites, self.hub = {}, None
        if hub:
            self.start_hub()
        for name in self.names:
            self.start(name)

    def start_hub(self, *flags, out="hub", **how):
        said = open(self.folder / f"{out}.err", "a")
        self.hub = subprocess.Popen(
            [self.isthmus, "hub", str(self.toml), "--out", str(self.folder / out), "--http",
             "127.0.0.1:0", *flags],
            stdout=subprocess.DEVNULL, stderr=said, **how)
        return self.hub

    def kill_hub(self):
        self.hub.kill()
        self.hub.wait()

    def until(self, what, condition, patience=120):
        try:
            return super().until(what, condition, patience)
        except Failure as failure:
            said = self.said("hub")[-1500:] if self.hub else ""
            raise Failure(f"{failure}\nhub: {said}")

    def said(self, name):
        path = self.folder / f"{name}.err"
        return path.read_text() if path.exists() else ""

    def steps_of(self, name):
        rows = self.rows(name, "train")
        return rows[-1]["step"] if rows else 0

    def goes_on(self, name, steps=30):
        before = self.steps_of(name)
        self.until(f"{name} takes {steps} more steps", lambda: self.steps_of(name) >= before + steps)

    def ends(self):
        for name in self.names:
            require(self.code_of(name) == 0, f"{name}: {self.said(name)[-800:]}")
        if self.hub:
            require(self.hub.wait(timeout=60) == 0, f"hub: {self.said('hub')}")

    def end(self):
        super().end()
        if self.hub and self.hub.poll() is None:
            self.kill_hub()


def losses(run, name):
    return [(row["k"], row["step"], row["loss"]) for kind in ("train", "eval")
            for row in run.rows(name, kind)]


def hub_dies_and_nothing_changes(isthmus, folder, corpus):
    """Killed twice and frozen once, in a run whose every line is known from one without a hub."""
    plain = HubRun(isthmus, folder / "plain", corpus, "diloco", 2, STEPS, hub=False)
    try:
        plain.ends()
        expected = losses(plain, "east")
    finally:
        plain.end()
    run = HubRun(isthmus, folder / "hub", corpus, "diloco", 2, STEPS)
    try:
        for round_ in range(2):
            run.goes_on("west", 20)
            run.kill_hub()
            run.until("the sites have noticed", lambda: run.said("east").count("the hub is gone") >
                      round_)
            run.start_hub("--resume", "auto")
            run.until("it is back", lambda: run.said("east").count("the hub is back") > round_)
        run.goes_on("west", 20)
        run.hub.send_signal(signal.SIGSTOP)
        run.until("the sites count a frozen hub as gone",
                  lambda: run.said("east").count("the hub is gone") > 2)
        run.hub.send_signal(signal.SIGCONT)
        run.until("it begins anew", lambda: run.said("east").count("the hub is back") > 2)
        run.ends()
        for name in run.names:
            require(losses(run, name) == expected, f"{name}: other lines than without a hub")
            require(not run.rows(name, "event"), f"{name}: somebody came or went")
    finally:
        run.end()


def hub_dies_at_random_moments(isthmus, folder, corpus):
    """Up to six times in a run, as long as it goes on, some of them again while its next process
    begins: every line and the outer parameters are those of a run without a hub."""
    seed = int(os.environ.get("ISTHMUS_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed {seed} (ISTHMUS_SEED={seed} plays it again)", flush=True)
    draws = random.Random(seed)
    # Lines are written each second; at this rate a site takes 100 steps in it, on a fast machine too.
    steps, last, slowly = 600, 400, 'cap = "16Mbit/s"'
    plain = HubRun(isthmus, folder / "moments_plain", corpus, "streaming-diloco", 2, steps, hub=False)
    try:
        plain.ends()
        expected = losses(plain, "east")
        model = (plain.folder / "east/ckpt/last/model.safetensors").read_bytes()
    finally:
        plain.end()
    run = HubRun(isthmus, folder / "moments", corpus, "streaming-diloco", 2, steps, net=slowly)
    moment = threading.Event()  # never set: the moments are the test
    try:
        deaths = 0
        while deaths < 6 and run.steps_of("west") < last:
            run.goes_on("west", draws.randrange(1, 50))
            moment.wait(draws.uniform(0, 0.1))
            require(run.hub.poll() is None, f"seed {seed}: the hub has ended before death {deaths}")
            run.kill_hub()
            deaths += 1
            run.start_hub("--resume", "auto")
            if draws.random() < 0.3:
                moment.wait(draws.uniform(0, 0.3))
                run.kill_hub()
                run.start_hub("--resume", "auto")
        run.ends()
        print(f"killed {deaths} times")
        for name in run.names:
            require(losses(run, name) == expected, f"seed {seed}: {name}: other lines than without a hub")
            require((run.folder / name / "ckpt/last/model.safetensors").read_bytes() == model,
                    f"seed {seed}: {name}: other parameters")
            require(not run.rows(name, "event"), f"seed {seed}: {name}: somebody came or went")
    finally:
        run.end()


def metrics_of(run):
    url = re.search(r"watch the hub at (http://[0-9.:]+/)", run.said("hub")).group(1)
    require(urllib.request.urlopen(f"{url}healthz", timeout=20).status == 200, "the hub is not well")
    text = urllib.request.urlopen(f"{url}metrics", timeout=20).read().decode()
    values = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("isthmus_hub_"): float(value) for name, _, value in values}


def first_site_dies(isthmus, folder, corpus):
    run = HubRun(isthmus, folder / "first", corpus, "streaming-diloco", 3)
    try:
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)
        before = metrics_of(run)
        require(before["members"] == before["sites"] == 3 and before["rounds_total"] > 0 and
                before["log_write_seconds_total"] > 0, f"the hub's page: {before}")
        run.kill("east")
        run.until("rounds of two", lambda: run.members_of_last_round("west") == 2, 60)
        after = metrics_of(run)
        require(after["members"] == 2 and after["epoch"] > before["epoch"] and
                after['site_connected{site="east"}'] == 0 and
                after["rounds_total"] > before["rounds_total"], f"the hub's page: {after}")
        run.start("east", "--resume", "auto")
        run.until("rounds of three again", lambda: run.members_of_last_round("west") == 3)
        run.kill("west")  # now the first, a former newcomer, is the donor
        run.until("rounds of two", lambda: run.members_of_last_round("north") == 2, 60)
        run.start("west", "--resume", "auto")
        run.until("rounds of three again", lambda: run.members_of_last_round("north") == 3)
        run.stop()
        require(run.hub.wait(timeout=60) == 0, f"hub: {run.said('hub')}")
    finally:
        run.end()


def a_site_is_started_at_once_after_its_death(isthmus, folder, corpus):
    """The others hold the links of its former process still, and refuse the next one until that has
    been silent for a while: it waits for that."""
    run = HubRun(isthmus, folder / "at_once", corpus, "streaming-diloco", 3)
    try:
        run.until("rounds of three", lambda: run.members_of_last_round("north") == 3)
        for deaths in (1, 2):
            joined = run.said("west").count("has joined")
            for _ in range(deaths):  # the second time it dies while it is refused, or joins
                run.kill("west")
                run.start("west", "--resume", "auto")
            run.until("it joins", lambda: run.said("west").count("has joined") > joined)
            run.until("rounds of three again", lambda: run.members_of_last_round("north") == 3)
        run.stop()
    finally:
        run.end()


def the_wrong_log(isthmus, folder, corpus):
    run = HubRun(isthmus, folder / "wrong", corpus, "diloco", 3)
    try:
        run.goes_on("west", 20)
        second = subprocess.run([isthmus, "hub", str(run.toml), "--out", str(run.folder / "hub")],
                                capture_output=True, text=True, timeout=60)
        require(second.returncode == 4 and "is in use: process" in second.stderr and "end that hub first" in second.stderr, second.stderr)
        run.kill_hub()
        require(run.start_hub().wait(timeout=60) == 3, run.said("hub"))
        require("holds the log of run" in run.said("hub"), run.said("hub"))
        require(run.start_hub(out="other").wait(timeout=60) == 3, run.said("other"))
        require("there is no log of it here" in run.said("other"), run.said("other"))
        run.start_hub("--resume", "auto")
        run.goes_on("west", 20)
        run.stop()
        run.start_hub("--resume", "auto")
        run.start("west", "--resume", "auto", "--change", "train.steps=200000")
        require(run.sites["west"].wait(timeout=60) == 3, run.said("west"))
        require("with --change the hub is given with --set" in run.said("west"), run.said("west"))
    finally:
        run.end()


def an_older_copy_of_its_log(isthmus, folder, corpus):
    """A folder that was restored from a backup: rounds were told as final that it knows nothing of."""
    run = HubRun(isthmus, folder / "older", corpus, "diloco", 2)
    log, older, newest = (run.folder / "hub/hub.log", run.folder / "older.log",
                          run.folder / "newest.log")
    try:
        run.goes_on("west", 20)
        shutil.copy(log, older)
        run.goes_on("west", 40)
        run.kill_hub()
        shutil.copy(log, newest)
        shutil.copy(older, log)
        require(run.start_hub("--resume", "auto").wait(timeout=60) == 3, run.said("hub"))
        require("it is an older copy of that run's log" in run.said("hub"), run.said("hub"))
        shutil.copy(newest, log)
        run.start_hub("--resume", "auto")
        run.goes_on("west", 20)
        run.stop()
    finally:
        run.end()


def hub_dies_while_a_site_joins(isthmus, folder, corpus):
    run = HubRun(isthmus, folder / "joins", corpus, "diloco", 3)
    try:
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)
        run.kill("east")
        run.until("rounds of two", lambda: run.members_of_last_round("west") == 2, 60)
        run.start("east", "--resume", "auto")
        run.until("it joins", lambda: "joining" in run.said("east"))
        run.kill_hub()
        run.start_hub("--resume", "auto")
        run.until("rounds of three again", lambda: run.members_of_last_round("west") == 3)
        run.stop()
    finally:
        run.end()


def donor_dies_while_a_site_joins(isthmus, folder, corpus):
    run = HubRun(isthmus, folder / "donor", corpus, "diloco", 3)
    try:
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)
        run.kill("east")
        run.until("rounds of two", lambda: run.members_of_last_round("west") == 2, 60)
        run.start("east", "--resume", "auto")
        run.until("it joins", lambda: "joining" in run.said("east"))
        run.kill("west")
        run.until("rounds of the other two", lambda: run.members_of_last_round("north") == 2 and
                  run.members_of_last_round("east") == 2)
        run.start("west", "--resume", "auto")
        run.until("rounds of three again", lambda: run.members_of_last_round("west") == 3)
        run.stop()
    finally:
        run.end()


def all_sites_start_anew(isthmus, folder, corpus):
    """One after another, sooner than anybody can be taken in again: they begin together."""
    run = HubRun(isthmus, folder / "anew", corpus, "diloco", 3)
    try:
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)
        run.until("a checkpoint to go back to",
                  lambda: all((run.folder / name / "ckpt/last").exists() for name in run.names))
        for name in run.names:
            run.kill(name)
        for name in run.names:
            run.start(name, "--resume", "auto")
        run.until("a second start", lambda: run.said("hub").count("sites are together") == 2)
        run.goes_on("west", 20)
        run.stop()
        require(run.hub.wait(timeout=60) == 0, f"hub: {run.said('hub')}")
    finally:
        run.end()


def too_few_wait_though_the_hub_dies(isthmus, folder, corpus):
    run = HubRun(isthmus, folder / "few", corpus, "streaming-diloco", 3, min_sites=3)
    try:
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)
        run.kill("east")
        stood = sites_wait.stands(run, ["east"])
        run.kill_hub()
        run.until("the sites have noticed", lambda: "the hub is gone" in run.said("west"))
        run.start_hub("--resume", "auto")
        run.until("it is back", lambda: "the hub is back" in run.said("west"))
        run.start("east", "--resume", "auto")
        run.goes_on("west", 20)
        run.until("rounds of three again", lambda: run.members_of_last_round("west") == 3)
        run.stop()
        steps = sites_come_and_go.check_lines(run, "west")
        require(steps == list(range(1, len(steps) + 1)), f"after {stood}: lines are lacking")
    finally:
        run.end()


def stopped_while_the_hub_is_away(isthmus, folder, corpus):
    run = HubRun(isthmus, folder / "away", corpus, "diloco", 3)
    try:
        run.goes_on("west", 20)
        run.kill_hub()
        run.until("all have noticed",
                  lambda: all("the hub is gone" in run.said(name) for name in run.names))
        run.sites["east"].send_signal(signal.SIGINT)
        run.start_hub("--resume", "auto")
        run.stop()
        require(run.hub.wait(timeout=60) == 0, f"hub: {run.said('hub')}")
    finally:
        run.end()


def launched_with_keys(isthmus, folder, corpus):
    """All processes by one command; the hub is killed, and started again."""
    run = HubRun.__new__(HubRun)
    names = sites_come_and_go.NAMES[:2]
    run.isthmus, run.folder, run.names, run.sites, run.hub = (
        isthmus, folder / "launched", names, {}, None)
    run.folder.mkdir()
    printed = subprocess.run([isthmus, "keygen", *names, "hub", "--out", "keys"], cwd=run.folder,
                             check=True, capture_output=True, text=True).stdout
    keys = [line for line in printed.splitlines() if line.startswith("key")]
    tables = f'[hub]\naddress = "127.0.0.1:1"\n{keys[2]}\n' + "".join(
        f'[[site]]\nname = "{name}"\n{key}\n' for name, key in zip(names, keys))
    text = sites_come_and_go.TEXT.replace("steps = 100000", f"steps = {STEPS}")
    run.toml = run.folder / "run.toml"
    run.toml.write_text(text.format(method="diloco", keys=sites_come_and_go.METHODS["diloco"],
                                    sites=tables, batch=256, corpus=corpus, min_sites=1,
                                    gather="60s"))
    said = run.folder / "launch.err"
    launched = subprocess.Popen(
        [isthmus, "launch", str(run.toml), "--out", str(run.folder), "--force", "--restart", "3"],
        stdout=subprocess.DEVNULL, stderr=open(said, "w"))
    try:
        run.until("steps", lambda: run.steps_of("west") > 30)
        children = pathlib.Path(f"/proc/{launched.pid}/task/{launched.pid}/children").read_text()
        hub = [pid for pid in children.split()
               if "hub" in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1:2]]
        require(len(hub) == 1, f"hubs: {hub}")
        os.kill(int(hub[0]), signal.SIGKILL)
        require(launched.wait(timeout=120) == 0, said.read_text())
        require("the hub is back" in said.read_text(), said.read_text())
        require("encrypted" in said.read_text(), said.read_text())
    finally:
        if launched.poll() is None:
            launched.kill()
            launched.wait()


def a_full_disk_loses_nothing(isthmus, folder, corpus):
    """The hub ends where it cannot write a decision down; with room again the run goes on."""
    run = HubRun(isthmus, folder / "full", corpus, "diloco", 2)

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    try:
        run.goes_on("west", 20)
        run.kill_hub()
        run.start_hub("--resume", "auto", preexec_fn=small_files)
        require(run.hub.wait(timeout=120) == 4, run.said("hub"))
        require("File too large" in run.said("hub").splitlines()[-1], run.said("hub"))
        run.start_hub("--resume", "auto")
        run.goes_on("west", 20)
        run.stop()
        steps = sites_come_and_go.check_lines(run, "east")
        require(steps == list(range(1, len(steps) + 1)), "lines are lacking")
    finally:
        run.end()


if __name__ == "__main__":
    play(__doc__, (hub_dies_and_nothing_changes, hub_dies_at_random_moments, first_site_dies,
                   a_site_is_started_at_once_after_its_death, the_wrong_log,
                   an_older_copy_of_its_log,
                   hub_dies_while_a_site_joins, donor_dies_while_a_site_joins,
                   all_sites_start_anew, too_few_wait_though_the_hub_dies,
                   stopped_while_the_hub_is_away, launched_with_keys, a_full_disk_loses_nothing), at_once=3)
