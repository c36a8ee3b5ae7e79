#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sites die while a run goes on, and come back to it.

  python3 tests/end_to_end/sites_come_and_go.py --isthmus build/src/app/isthmus

A site is killed; the others go on within seconds, in rounds of those that are left. It is started
again by the same command, and takes part again: rounds of all, and the same outer parameters, to
the bit, at every site. For methods of each kind, two and three sites, and a site that is killed
while it joins; where its folder is the same it goes on from the pieces that it has. Its state comes
from all who are there; one of these may be killed meanwhile. One that was frozen is left out and
comes back by itself; when the first site dies all wait for it and go on from the newest checkpoint.
With the default settings survivors have gone on within the stated times.
"""
import json
import re
import signal
import subprocess
import sys
import time

from scenario import Failure, free_ports, play_runs, require, rows_of, small_run

NAMES = ("east", "west", "north")
METHODS = {
    "diloco": 'H = 5\ncodec = "int8"\n',
    "streaming-diloco": "H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\n",
    "co2": "H = 5\n",
    "delayed": 'H = 5\ncodec = "int4:ef"\n',
    "ddp": "",
    "ddp goes back": 'commit = "every:16"\n',
    "1bit-adam": "freeze = 12\n",
    "spsa": "samples = 2\n",
    "streaming-diloco slip": 'H = 6\nfragments = 2\noverlap = 1\nlate = "slip"\n',
}
# What a joiner misses while it is away is less than what it has of the state.
KEYS = {**METHODS, "diloco seldom": 'H = 1000\ncodec = "int4"\n', "diloco rare": 'H = 2000\ncodec = "int4"\n'}
# It has steps until the test has seen what it wants.
TEXT = small_run("come-and-go", seed=3, arch="llama", steps=100000, global_batch="{batch} tok", threads=1, lr="1e-3",
                 schedule="constant") + """
[eval]
every = 50
tokens = "1k"
[ckpt]
every = "200 steps"
keep = 5
[net]
dead_after = "5s"
gather = "{gather}"
streams = 2
min_sites = {min_sites}
[outer]
method = "{method}"
{keys}
{sites}
"""


# Stated with default settings: broken connections have 1.5 s to come back, and silence of
# net.dead_after = 8 s is found at the next heartbeat of a second; rounds then begin again at once.
KILLED_S, FROZEN_S = 2, 10
# What lies between that and the line of a round here: lines are written each second. A machine that
# runs other tests beside this one takes as long again, and some seconds until a process has its turn.
LINES_S, LOADED = 1, 2


class Run:
    """Sites of one run, each a process."""

    def __init__(self, isthmus, folder, corpus, method, members, min_sites=1, gather="60s", net="",
                 train="", default_times=False, tokens=128):
        self.isthmus, self.folder, self.names = isthmus, folder, NAMES[:members]
        folder.mkdir()
        ports = free_ports(members)
        sites = "".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
                        for name, port in zip(self.names, ports))
        self.toml = folder / "run.toml"
        text = TEXT.replace("[outer]", f"{net}\n[outer]").replace("[inner]", f"{train}\n[inner]")
        if default_times:
            text = text.replace('dead_after = "5s"\n', "")
        self.toml.write_text(text.format(method=method.split()[0], keys=KEYS[method], sites=sites,
                                         batch=members * tokens, corpus=corpus,
                                         min_sites=min_sites, gather=gather))
        self.sites = {}
        for name in self.names:
            self.start(name)

    def start(self, name, *flags):
        said = open(self.folder / f"{name}.err", "a")
        self.sites[name] = subprocess.Popen(
            [self.isthmus, "train", str(self.toml), "--site", name, "--progress", "none", "--out",
             str(self.folder / name), *flags], stdout=subprocess.DEVNULL, stderr=said)

    def said(self, name):
        return (self.folder / f"{name}.err").read_text()

    def rows(self, name, kind):
        return rows_of(self.folder / name, kind)

    def members_of_last_round(self, name="east"):
        rounds = self.rows(name, "round")
        return rounds[-1]["members"] if rounds else 0

    def until(self, what, condition, patience=120):
        begin = time.monotonic()
        while not condition():
            require(time.monotonic() - begin < patience,
                    f"{self.folder.name}: not within {patience} s: {what}\n" +
                    "\n".join(f"{name}: {self.said(name)[-800:]}" for name in self.names))
            time.sleep(0.05)
        return time.monotonic() - begin

    def kill(self, name):
        self.sites[name].kill()
        self.sites[name].wait()

    def stop(self):
        """One site is asked to; all end after the same step, with the same parameters."""
        self.sites[self.names[-1]].send_signal(signal.SIGINT)
        for name, site in self.sites.items():
            code = self.code_of(name)
            require(code == 130, f"{self.folder.name}: {name}: exit {code}: {self.said(name)}")
        last = {(self.folder / name / "ckpt/last").resolve().name for name in self.names}
        require(len(last) == 1, f"{self.folder.name}: stopped after unlike steps: {last}")
        models = {(self.folder / name / "ckpt/last/model.safetensors").read_bytes()
                  for name in self.names}
        require(len(models) == 1, f"{self.folder.name}: sites hold unlike models")

    def code_of(self, name):
        try:
            return self.sites[name].wait(timeout=120)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.folder.name}: {name} does not end: {self.said(name)[-800:]}")

    def end(self):
        for site in self.sites.values():
            if site.poll() is None:
                site.kill()
                site.wait()


def check_lines(run, name):
    """Every step has one line, in order; where a site was away, after a gap."""
    steps = [row["step"] for row in run.rows(name, "train")]
    require(steps == sorted(set(steps)), f"{run.folder.name}: {name}: lines out of order")
    return steps


def dies_and_comes_back(run, victim):
    everyone = len(run.names)
    run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
    run.kill(victim)
    seconds = run.until("rounds of those left",
                        lambda: run.members_of_last_round() == everyone - 1, 60)
    run.start(victim, "--resume", "auto")
    run.until("rounds of all again", lambda: run.members_of_last_round() == everyone)
    run.until("lines of the one that came back",
              lambda: run.members_of_last_round(victim) == everyone)
    run.stop()
    steps = check_lines(run, "east")
    require(steps == list(range(1, len(steps) + 1)), f"{run.folder.name}: the first site lacks lines")
    check_lines(run, victim)
    happened = [(row["what"], row["site"]) for row in run.rows("east", "event")
                if row["what"].startswith("site")]
    for what in ("site left", "site joined"):
        require((what, victim) in happened, f"{run.folder.name}: {happened}")
    if run.folder.name == "ddp goes back":
        went_back(run, victim)
    return seconds


def went_back(run, victim):
    """Those who were left took the steps since the last committed one again: sixteen at most, all
    the same. Of steps that count each has one line, the same at each."""
    stayed = [name for name in run.names if name != victim]
    gone = [re.findall(r"back from step (\d+) to step (\d+)", run.said(name)) for name in stayed]
    for found in gone:
        require(found, f"{run.folder.name}: nobody went back: {run.said('east')[-800:]}")
        for begun, last in found:
            require(1 <= int(begun) - int(last) <= 16, f"{run.folder.name}: {found}")
    require(len({tuple(last for _, last in found) for found in gone}) == 1,
            f"{run.folder.name}: to unlike steps: {gone}")
    losses = [[(row["step"], row["loss"]) for row in run.rows(name, "train")] for name in stayed]
    shortest = min(map(len, losses))
    require(all(each[:shortest] == losses[0][:shortest] for each in losses),
            f"{run.folder.name}: unlike lines")


def leaves_and_comes_back(run):
    """The first site and one too many are refused, and go on."""
    others = ("east", "west")
    run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
    run.sites["east"].send_signal(signal.SIGUSR2)
    run.until("a word why not", lambda: "cannot leave: the first site" in run.said("east"))
    run.sites["north"].send_signal(signal.SIGUSR2)
    code = run.code_of("north")
    require(code == 85, f"{run.folder.name}: a site that left: exit {code}: {run.said('north')}")
    last = json.loads((run.folder / "north/ckpt/last/state.json").read_text())["step"]
    lines = run.rows("north", "train")
    require(lines[-1]["step"] == last, f"{run.folder.name}: lines end with {lines[-1]}, not {last}")
    run.until("rounds of those left", lambda: run.members_of_last_round() == 2, 60)
    run.sites["west"].send_signal(signal.SIGUSR2)
    run.until("a word why not", lambda: "fewer than net.min_sites" in run.said("west"))
    run.until("lines and checkpoint of each", lambda: all(  # one may be ahead of the other
        run.members_of_last_round(name) == 2 and
        (run.folder / name / f"ckpt/step-{last:07d}").exists() for name in others))
    for name in others:
        said = run.said(name)
        require("is gone" not in said, f"{run.folder.name}: {name} has lost somebody: {said}")
        for row in run.rows(name, "round"):
            require(row["members"] == (3 if row["step_send"] <= last else 2),
                    f"{run.folder.name}: north left after step {last}: {row}")
        left = [row["step"] for row in run.rows(name, "event") if row["what"] == "site left"]
        require(left == [last], f"{run.folder.name}: {name}: left after {left}, not {last}")
        model = run.folder / name / f"ckpt/step-{last:07d}/model.safetensors"
        require(model.read_bytes() == (run.folder / "north/ckpt/last/model.safetensors").read_bytes(),
                f"{run.folder.name}: {name} has another model after step {last}")
    run.start("north", "--resume", "auto")
    run.until("rounds of all again", lambda: run.members_of_last_round() == 3)


def scenarios(run_of):
    def methods():
        for number, method in enumerate(METHODS):
            members = 2 + number % 2
            victim = NAMES[1 + number % (members - 1)]
            run = run_of(method, method, members)
            seconds = dies_and_comes_back(run, victim)
            print(f"{method}: went on {seconds:.1f} s after {victim} was killed, took it back")

    def killed_while_it_joins():
        run = run_of("joining", "diloco", 3)
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        run.kill("north")
        run.until("rounds of two", lambda: run.members_of_last_round() == 2)
        for _ in range(2):
            run.start("north", "--resume", "auto")
            run.until("it joins", lambda: "joining" in run.said("north"))
            run.kill("north")
            (run.folder / "north.err").write_text("")
        run.start("north", "--resume", "auto")
        run.until("rounds of all again", lambda: run.members_of_last_round() == 3)
        run.stop()

    def killed_while_it_joins_and_goes_on_from_its_disk():
        run = run_of("pieces", "diloco seldom", 3, net='serve = "1200kbit/s"')
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 1)
        run.kill("north")
        run.until("rounds of two", lambda: run.members_of_last_round() == 2)
        pieces = run.folder / "north/joining.pieces"
        run.start("north", "--resume", "auto")
        run.until("much of the state is on its disk",
                  lambda: pieces.exists() and pieces.stat().st_size > 200_000)
        run.kill("north")
        run.start("north", "--resume", "auto")
        run.until("rounds of all again", lambda: run.members_of_last_round() == 3)
        said = run.said("north")
        given = re.search(r"the state after step (\d+) is here: (\d+) bytes in [0-9.]+ s; east "
                          r"(\d+) bytes, west (\d+) bytes, this site's disk (\d+) bytes\n", said)
        require(given, f"nothing was on the disk: {said}\n{run.said('east')}")
        step, whole, east, west, disk = map(int, given.groups())
        require(whole == east + west + disk and disk > 190_000, given.group(0))
        offers = re.findall(r"takes over this site's state after step (\d+)", run.said("east"))
        require(offers == [str(step)] * 2, f"two attempts, one state: {offers}")
        require(not pieces.exists(), "the pieces stay when they are of no more use")
        run.stop()
        print(f"killed while it joined: {disk / whole:.0%} of the state came from its disk")

    def the_state_comes_from_all_who_are_there():
        # Every step of ddp makes results that wait for the newcomer while the state is served: of
        # long steps these are few on a fast machine too.
        for method, serve in (("diloco", "800kbit/s"), ("ddp", "2Mbit/s")):
            run = run_of(f"sources-{method}", method, 3, net=f'serve = "{serve}"',
                         tokens=2048 if method == "ddp" else 128)
            run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
            run.kill("north")
            run.until("rounds of two", lambda: run.members_of_last_round() == 2)
            run.start("north", "--resume", "auto")
            run.until("rounds of all again", lambda: run.members_of_last_round() == 3)
            given = re.search(r"the state after step \d+ is here: (\d+) bytes in [0-9.]+ s; "
                              r"east (\d+) bytes, west (\d+) bytes\n", run.said("north"))
            require(given, f"{method}: not from both: {run.said('north')}")
            whole, east, west = map(int, given.groups())
            require(whole == east + west and west > whole / 5, f"{method}: {given.group(0)}")
            alike, pieces = map(int, re.search(r"joins: (\d+) of (\d+) pieces",
                                               run.said("west")).groups())
            require(alike > 0.9 * pieces if method == "ddp" else pieces / 2 < alike < pieces,
                    f"{method}: {alike} of {pieces} pieces are alike")
            run.stop()
            print(f"{method}: {alike} of {pieces} pieces alike, "
                  f"{west / whole:.0%} of the bytes from the second site")

    def a_source_is_killed_in_the_middle_of_a_join():
        # Steps of 2,048 tokens: the one that is left would else be 30,000 steps ahead of what is served.
        run = run_of("source", "diloco", 3, net='serve = "800kbit/s"\ncap = "8Mbit/s"', tokens=2048)
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        run.kill("north")
        run.until("rounds of two", lambda: run.members_of_last_round() == 2)
        run.start("north", "--resume", "auto")
        run.until("the second site gives", lambda: "site west gives" in run.said("north"))
        run.kill("west")
        run.until("a round with the one that joined",
                  lambda: run.members_of_last_round("north") == 2)
        said = run.said("north")
        require(re.search(r"is here: .* west \d+ bytes \(then lost\)", said), said)
        run.start("west", "--resume", "auto")
        run.until("rounds of all again", lambda: run.members_of_last_round() == 3)
        run.stop()

    def a_frozen_site_is_left_out_and_comes_back_by_itself():
        run = run_of("frozen", "diloco", 3)
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        run.sites["north"].send_signal(signal.SIGSTOP)
        seconds = run.until("rounds of two", lambda: run.members_of_last_round() == 2, 60)
        run.sites["north"].send_signal(signal.SIGCONT)
        run.until("rounds of all again", lambda: run.members_of_last_round() == 3)
        run.stop()
        print(f"frozen: went on after {seconds:.1f} s (net.dead_after = 5 s)")

    def survivors_go_on_within_the_stated_times():
        """With default settings; and the word of it, which comes before the rounds, sooner."""
        run = run_of("stated", "diloco", 3, default_times=True)
        for times, (kind, stated) in enumerate((("kill", KILLED_S), ("freeze", FROZEN_S)), 1):
            run.until("rounds of all", lambda: all(
                run.members_of_last_round(name) == 3 for name in NAMES))
            begin = time.monotonic()
            if kind == "kill":
                run.kill("north")
            else:
                run.sites["north"].send_signal(signal.SIGSTOP)
            run.until("the others count it as gone", lambda: all(
                run.said(name).count("site north is gone") == times for name in NAMES[:2]), 60)
            told = time.monotonic() - begin
            run.until("rounds of two", lambda: run.members_of_last_round("east") == 2 ==
                      run.members_of_last_round("west"), 60)
            took = time.monotonic() - begin
            print(f"{kind}: gone after {told:.1f} s, rounds of two after {took:.1f} s "
                  f"(stated: {stated} s)")
            require(told < LOADED * stated, f"{kind}: gone after {told:.1f} s")
            require(took < LOADED * (stated + LINES_S), f"{kind}: rounds after {took:.1f} s")
            if kind == "kill":
                run.start("north", "--resume", "auto")
            else:
                run.sites["north"].send_signal(signal.SIGCONT)
        run.until("rounds of all again", lambda: run.members_of_last_round() == 3)
        run.stop()

    def a_site_leaves_in_order_and_comes_back():
        for method in ("diloco", "streaming-diloco", "streaming-diloco slip", "1bit-adam"):
            run = run_of(f"leaving-{method}", method, 3, min_sites=2)
            leaves_and_comes_back(run)
            run.stop()

    def all_wait_for_the_first_site():
        run = run_of("first", "diloco", 3)
        run.until("checkpoints", lambda: len(run.rows("east", "ckpt")) > 1 and
                  len(run.rows("west", "ckpt")) > 1 and len(run.rows("north", "ckpt")) > 1)
        run.kill("east")
        run.until("they wait", lambda: "come back" in run.said("west") and
                  "come back" in run.said("north"))
        before = len(run.rows("west", "round"))
        run.start("east", "--resume", "auto")
        run.until("they go on", lambda: len(run.rows("west", "round")) > before + 3)
        run.stop()

    def nobody_waits_for_ever():
        run = run_of("gone", "diloco", 2, gather="8s")
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        run.kill("east")
        code = run.code_of("west")
        require(code == 5 and "east" in run.said("west").splitlines()[-1], run.said("west"))

    return [survivors_go_on_within_the_stated_times], [  # the first alone: it measures times
        killed_while_it_joins_and_goes_on_from_its_disk, methods, the_state_comes_from_all_who_are_there,
        a_source_is_killed_in_the_middle_of_a_join, nobody_waits_for_ever,
        a_site_leaves_in_order_and_comes_back, killed_while_it_joins,
        a_frozen_site_is_left_out_and_comes_back_by_itself, all_wait_for_the_first_site]


if __name__ == "__main__":
    sys.exit(play_runs(__doc__, Run, scenarios))
