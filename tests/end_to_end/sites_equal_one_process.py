#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sites that are processes of their own, joined over loopback, find what workers of one process find.

  python3 tests/end_to_end/sites_equal_one_process.py --isthmus build/src/app/isthmus

Bit for bit: the outer parameters, every step's losses, rounds and evaluations, at every site, for
methods of each kind and two to four sites; a signal to one site ends all after one step, and what
goes on from there equals the uninterrupted run; so does what goes on after one site was killed;
unlike configurations, data, weights, checkpoints and addresses are refused at every site by name.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from scenario import Failure, free_ports, require, rows_of, small_run

STEPS = 60
NAMES = ("east", "west", "north", "south")
METHODS = {
    "ddp": "",
    "diloco": 'H = 5\ncodec = "int8"\n',
    "streaming-diloco": "H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\n",
    "co2": "H = 5\n",
    "1bit-adam": "freeze = 12\n",
    "spsa": "samples = 2\n",
}
# Sites that do not fit find that out by then, though net.gather is longer: 5 s of a wrong key, and
# what a loaded machine takes to start two processes.
SOON_S = 40
TEXT = small_run("sites", seed=3, arch="llama", steps="{steps}", global_batch="{batch} tok", threads=1, lr="2e-3",
                 run="{workers}") + """
[eval]
every = 20
tokens = "1k"
[ckpt]
every = "20 steps"
keep = 50
[net]
dead_after = "4s"
gather = "60s"
streams = {streams}
{net}
[outer]
method = "{method}"
{keys}
{sites}
"""


class Bench:
    def __init__(self, isthmus, folder, text):
        self.isthmus = isthmus
        self.folder = folder
        self.corpus = folder / "corpus.txt"
        self.corpus.write_bytes(pathlib.Path(text).read_bytes())

    def write(self, name, method, members, apart, steps=STEPS, ports=None, net=""):
        ports = ports or free_ports(members)
        sites = "".join(f'[[site]]\nname = "{NAMES[m]}"\naddress = "127.0.0.1:{ports[m]}"\n'
                        for m in range(members)) if apart else ""
        path = self.folder / name
        path.write_text(TEXT.format(workers="" if apart else f"workers = {members}", method=method,
                                    keys=METHODS[method], sites=sites, batch=members * 128,
                                    steps=steps, corpus=self.corpus, streams=2,
                                    net=net))
        return path

    def together(self, out, toml, *flags):
        subprocess.run([self.isthmus, "train", str(toml), "--progress", "none", "--out",
                        str(self.folder / out), *flags], check=True, capture_output=True)

    def start(self, out, toml, site, *flags, **how):
        return subprocess.Popen([self.isthmus, "train", str(toml), "--site", site, "--progress",
                                 "none", "--out", str(self.folder / out / site), *flags],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                **how)

    def apart(self, out, toml, members, *flags, code=0):
        """Runs all sites. RETURNS: what each said."""
        running = [self.start(out, toml, name, *flags) for name in NAMES[:members]]
        said = []
        for process in running:
            said.append(process.communicate(timeout=120)[1])
        for process, name, text in zip(running, NAMES, said):
            require(process.returncode == code,
                    f"{out}: {name}: exit {process.returncode}, not {code}: {text}")
        return said

    def lines(self, out, kinds):
        return rows_of(self.folder / out, *kinds)

    def findings(self, out):
        """What does not depend on clocks, links or the order in which sites are heard."""
        drop = {"t", "ts", "tok_s", "wait_s", "bytes_wire", "s"}
        # What an overlapped round has sent by an evaluation depends on when its parts came.
        rows = [{key: value for key, value in row.items()
                 if key not in drop and (row["k"], key) != ("eval", "bytes_payload")}
                for row in self.lines(out, ("train", "worker", "round", "eval"))]
        return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))

    def model(self, out):
        return (self.folder / out / "ckpt/last/model.safetensors").read_bytes()

    def same(self, out, reference, members):
        for name in NAMES[:members]:
            require(self.model(f"{out}/{name}") == self.model(reference), f"{out}/{name}: another model")
            ours, want = self.findings(f"{out}/{name}"), self.findings(reference)
            # Bytes are those of worker 0 in one process, and of whoever writes elsewhere: the same
            # by symmetry, but for spsa's first step.
            require(ours == want, f"{out}/{name}: other findings: "
                    f"{[pair for pair in zip(ours, want) if pair[0] != pair[1]][:1]}")
            status = self.lines(f"{out}/{name}", ("end",))[-1]["status"]
            require(status == "ok", f"{out}/{name}: {status}")


def every_method_finds_the_same(bench):
    for number, method in enumerate(METHODS):
        members = 2 + number % 3
        reference, out = f"{method}-together", f"{method}-apart"
        bench.together(reference, bench.write("together.toml", method, members, False))
        bench.apart(out, bench.write("apart.toml", method, members, True), members)
        bench.same(out, reference, members)


def groups_find_the_same(bench):
    def write(name, groups):
        toml = bench.write(name, "diloco", 4, True, net='reduction = "groups"')
        text = toml.read_text()
        for site, group in zip(NAMES, groups):
            text = text.replace(f'name = "{site}"\n', f'name = "{site}"\ngroup = "{group}"\n')
        toml.write_text(text)
        return toml
    toml = write("groups.toml", ("eu", "eu", "us", "us"))
    bench.together("groups-together", toml)
    bench.together("groups-direct", toml, "--set", "net.reduction=direct")
    require(bench.model("groups-direct") != bench.model("groups-together"), "groups change nothing")
    subprocess.run([bench.isthmus, "simulate", str(toml), "--link", "50Mbit/s,20ms", "--progress",
                    "none", "--out", str(bench.folder / "groups-simulated")], check=True,
                   capture_output=True)
    require(bench.model("groups-simulated") == bench.model("groups-together"), "simulated: another")
    bench.apart("groups-apart", toml, 4)
    for name in NAMES:
        require(bench.model(f"groups-apart/{name}") == bench.model("groups-together"),
                f"{name}: another model")
    ports = [int(line.rpartition(":")[2].strip('"')) for line in toml.read_text().splitlines()
             if line.startswith("address")]
    other = write("unlike.toml", ("eu", "us", "us", "us"))
    lines = other.read_text().splitlines()
    for number, port in zip([i for i, line in enumerate(lines) if line.startswith("address")], ports):
        lines[number] = f'address = "127.0.0.1:{port}"'
    other.write_text("\n".join(lines) + "\n")
    running = [bench.start("groups-unlike", other if name == "west" else toml, name)
               for name in NAMES]
    for process in running:
        said = process.communicate(timeout=60)[1]
        require(process.returncode == 3 and "group of site west" in said,
                f"exit {process.returncode}: {said}")


def shares_by_links_find_the_same(bench):
    """A slow site owns nothing of a round, at every site alike, and no bit depends on it."""
    toml = bench.write("shares.toml", "diloco", 4, True)
    links = bench.folder / "links.toml"
    links.write_text("".join(f'[[link]]\nbetween = ["{site}", "*"]\nrate = "{rate}"\nrtt = "20ms"\n'
                             for site, rate in (("*", "40Mbit/s"), ("north", "10Mbit/s"))))
    bench.together("shares-even", toml)
    with_links = ("--links", str(links), "--set", "net.shares=links")
    for how in ("links", "auto"):
        subprocess.run([bench.isthmus, "simulate", str(toml), "--links", str(links), "--progress",
                        "none", "--set", f"net.shares={how}", "--out",
                        str(bench.folder / f"shares-{how}-simulated")], check=True, capture_output=True)
        require(bench.model(f"shares-{how}-simulated") == bench.model("shares-even"),
                f"simulated, {how}: another model")
    bench.apart("shares-apart", toml, 4, *with_links)
    for name in NAMES:
        require(bench.model(f"shares-apart/{name}") == bench.model("shares-even"),
                f"{name}: another model")
    # Of nine tiles the first site sends seven and three times its two, or six and three times three.
    sent = {out: bench.lines(out, ("round",))[-1]["bytes_payload"]
            for out in ("shares-even", *(f"shares-apart/{name}" for name in NAMES))}
    even = sent.pop("shares-even")
    require(all(abs(each / even - 15 / 13) < 0.01 for each in sent.values()), f"{even} and {sent}")
    running = [bench.start("shares-unlike", toml, name, *with_links[:4 if name != "west" else 0])
               for name in NAMES]
    for process in running:
        said = process.communicate(timeout=60)[1]
        require(process.returncode == 3 and "net.shares" in said and "--links" in said,
                f"exit {process.returncode}: {said}")


def recordings_change_nothing(bench):
    """No bit depends on frames that are written down, and none on the shares of an earlier version; what is
    written down tells of every round and of every frame of each link."""
    toml = bench.write("recorded.toml", "diloco", 4, True, net='shares = "measured"')
    bench.together("recorded-together", toml)
    files = {name: bench.folder / f"{name}.frames" for name in NAMES}
    running = [bench.start("recorded", toml, name, "--record", str(files[name])) for name in NAMES]
    for process in running:
        said = process.communicate(timeout=120)[1]
        require(process.returncode == 0, f"exit {process.returncode}: {said}")
        require('net.shares = "measured" of an earlier version is read as "auto"' in said, said)
    shown = {}
    for name in NAMES:
        require(bench.model(f"recorded/{name}") == bench.model("recorded-together"),
                f"{name}: another model")
        out = subprocess.run([bench.isthmus, "frames", str(files[name]), "--rounds", "1000",
                              "--json"], check=True, capture_output=True, text=True).stdout
        shown[name] = json.loads(out)
        require(shown[name]["site"] == name and shown[name]["damaged"] == 0, f"{name}: {out}")
    rounds = {row["step_send"] for row in bench.lines("recorded-together", ("round",))}
    for name, report in shown.items():
        committed = {row["step"] for row in report["rounds"]
                     if row["verdict_s"] is not None and not row["aborted"]}
        require(committed == rounds, f"{name}: rounds {sorted(committed)}, not {sorted(rounds)}")
        for row in report["rounds"]:
            for peer in row["peers"]:
                other = next(each for each in shown[peer["peer"]]["rounds"]
                             if each["step"] == row["step"])
                back = next(each for each in other["peers"] if each["peer"] == name)
                require(peer["bytes_in"] == back["bytes_out"], f"{name} and {peer['peer']}: {row}")


def sockets_within_one_process_find_the_same(bench):
    toml = bench.write("together.toml", "diloco", 3, False)
    bench.together("in-memory", toml)
    bench.together("in-sockets", toml, "--set", "net.transport=zmq")
    require(bench.findings("in-sockets") == bench.findings("in-memory"), "other findings")
    require(bench.model("in-sockets") == bench.model("in-memory"), "another model")


def a_signal_to_one_ends_all_and_they_go_on(bench):
    steps = 800
    bench.together("long", bench.write("together.toml", "diloco", 3, False, steps=steps))
    for number, code in ((signal.SIGTERM, 85), (signal.SIGINT, 130)):
        toml = bench.write("apart.toml", "diloco", 3, True, steps=steps)
        out = f"signal-{code}"
        running = [bench.start(out, toml, name) for name in NAMES[:3]]
        deadline = time.monotonic() + 60
        while len(bench.lines(f"{out}/north", ("train",))) < 5:
            require(time.monotonic() < deadline, "no steps within a minute")
            require(all(process.poll() is None for process in running), "a site has ended")
        running[1].send_signal(number)  # not the first site
        said = [process.communicate(timeout=60)[1] for process in running]
        require([process.returncode for process in running] == [code] * 3,
                f"exits {[process.returncode for process in running]}, not {code}: {said}")
        last = {(bench.folder / out / name / "ckpt/last").resolve().name for name in NAMES[:3]}
        require(len(last) == 1, f"stopped after unlike steps: {last}")
        require(int(last.copy().pop()[5:]) < steps, "took every step")
        bench.apart(out, toml, 3, "--resume", "auto")
        bench.same(out, "long", 3)


def what_one_killed_site_leaves_goes_on(bench):
    toml = bench.write("apart.toml", "diloco", 3, True, steps=800, net="min_sites = 3")
    running = [bench.start("killed", toml, name) for name in NAMES[:3]]
    deadline = time.monotonic() + 60
    while len(bench.lines("killed/east", ("ckpt",))) < 2:
        require(time.monotonic() < deadline, "no checkpoints within a minute")
    running[2].kill()
    begin = time.monotonic()
    while not bench.lines("killed/east", ("event",)):  # from here on the others wait for it
        require(time.monotonic() - begin < 15, "the others took long to notice")
    running[0].terminate()
    said = [process.communicate(timeout=60)[1] for process in running]
    require([process.returncode for process in running] == [85, 85, -9],
            f"exits {[process.returncode for process in running]}: {said}")
    for text in said[:2]:
        require("site north is gone" in text, text)
    # The newest checkpoint of one of them has not reached the others: they go on before it.
    newest = sorted((bench.folder / "killed/west/ckpt").glob("step-*"))[-1]
    shutil.rmtree(newest)
    (bench.folder / "killed/west/ckpt/last").unlink()
    bench.apart("killed", toml, 3, "--resume", "auto")
    bench.same("killed", "long", 3)


def a_first_checkpoint_that_one_lacks_is_no_obstacle(bench):
    """As where all were cut off while they laid it down: there is no other way back than the start."""
    bench.together("short", bench.write("together.toml", "diloco", 2, False))
    toml = bench.write("apart.toml", "diloco", 2, True)
    bench.apart("torn", toml, 2)
    # The first site lacks it: another one would join those that have it.
    for name, first in (("east", None), ("west", "step-0000020")):
        checkpoints = bench.folder / "torn" / name / "ckpt"
        for each in checkpoints.glob("step-*"):
            if each.name != first:
                shutil.rmtree(each)
        for link in [each for each in checkpoints.iterdir() if each.is_symlink()]:
            link.unlink()
            if first and link.name == "last":
                link.symlink_to(first)
    said = bench.apart("torn", toml, 2, "--resume", "auto")
    for site in said:
        require("not all sites have its first checkpoint, of step 20" in site, site)
    bench.same("torn", "short", 2)
    before = bench.folder / "torn/west/before-1"
    require((before / "ckpt/step-0000020").is_dir() and (before / "metrics.jsonl").is_file(),
            "what west had is lost")
    # With a second one of its own a site has more to lose: it is refused.
    shutil.rmtree(bench.folder / "torn/east/ckpt")
    said = bench.apart("torn", toml, 2, "--resume", "auto", code=3)
    require("no checkpoint that all sites have" in said[0], said[0])
    # The same where that cannot be read.
    for each in (bench.folder / "torn/west/ckpt").glob("step-*/state.json"):
        if each.parent.name != "step-0000020":
            each.write_text("")
    said = bench.apart("torn", toml, 2, "--resume", "auto", code=3)
    require("west: steps 20 and some that cannot be read" in said[0], said[0])


def the_folder_of_another_site_is_refused(bench):
    toml = bench.write("apart.toml", "diloco", 2, True)
    bench.apart("swapped", toml, 2)
    folder = bench.folder / "swapped"
    for old, new in (("east", "between"), ("west", "east"), ("between", "west")):
        (folder / old).rename(folder / new)
    said = bench.apart("swapped", toml, 2, "--resume", "auto", code=3)
    require("holds the state of site 2 of 2, west, and this is site 1 of 2, east" in said[0],
            said[0])


def a_full_disk_is_a_lost_site(bench):
    toml = bench.write("apart.toml", "diloco", 2, True, steps=3000, net="min_sites = 2")

    east, west = (bench.start("full", toml, name) for name in NAMES[:2])
    end = time.monotonic() + 60
    while not bench.lines("full/west", ("train",)):
        require(time.monotonic() < end and west.poll() is None, "west takes no step")
    resource.prlimit(west.pid, resource.RLIMIT_FSIZE, (60000, 60000))  # at the start it would be refused
    while not bench.lines("full/east", ("event",)):
        require(time.monotonic() < end, "the other has not noticed")
    east.terminate()
    said = [process.communicate(timeout=60)[1] for process in (east, west)]
    require((east.returncode, west.returncode) == (85, 4),
            f"exits {east.returncode}, {west.returncode}: {said}")
    require("site west is gone" in said[0], said[0])
    require("File too large" in said[1].splitlines()[-1], said[1])


def a_signal_right_after_a_resume_counts(bench):
    toml = bench.write("apart.toml", "diloco", 2, True, steps=2000)
    for attempt in range(3):
        running = [bench.start("early", toml, name, "--resume", "auto") for name in NAMES[:2]]
        deadline = time.monotonic() + 60
        before = len(bench.lines("early/west", ("train",)))
        while len(bench.lines("early/west", ("train",))) < before + 2:
            require(time.monotonic() < deadline, "no steps within a minute")
            require(all(process.poll() is None for process in running), "a site has ended")
        running[attempt % 2].send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=60)[1] for process in running]
        require([process.returncode for process in running] == [85, 85],
                f"exits {[process.returncode for process in running]}: {said}")
    require(len(bench.lines("early/west", ("train",))) < 2000, "took every step")


def sites_with_keys_let_each_other_in_alone(bench):
    said = subprocess.run([bench.isthmus, "keygen", "east", "west", "stranger", "--json", "--out",
                           str(bench.folder / "keys")], check=True, capture_output=True, text=True)
    keys = {site["name"]: site["key"] for site in json.loads(said.stdout)["sites"]}
    toml = bench.write("keyed.toml", "diloco", 2, True)

    def with_keys(name, east, west):
        path = bench.folder / name
        text = toml.read_text().replace('gather = "60s"', 'gather = "5min"')
        for site, key in (("east", east), ("west", west)):
            text = text.replace(f'name = "{site}"', f'name = "{site}"\nkey = "{key}"')
        path.write_text(text)
        return path

    trusted = with_keys("trusted.toml", keys["east"], keys["west"])
    bench.together("unkeyed", bench.write("together.toml", "diloco", 2, False))
    bench.apart("keyed", trusted, 2)
    bench.same("keyed", "unkeyed", 2)
    # East was given another key for west than west has.
    unlike = with_keys("unlike.toml", keys["east"], keys["stranger"])
    begin = time.monotonic()
    running = [bench.start("unlike", unlike, "east"), bench.start("unlike", trusted, "west")]
    for process in running:
        said = process.communicate(timeout=120)[1]
        require(process.returncode == 5 and "key" in said.splitlines()[-1],
                f"exit {process.returncode}: {said}")
    took = time.monotonic() - begin
    require(took < SOON_S, f"sites with a wrong key ended after {took:.1f} s")
    # West's own file is not the key that the configuration has for it.
    for dry in ((), ("--dry-run",)):
        process = bench.start("own", unlike, "west", *dry)
        said = process.communicate(timeout=60)[1]
        require(process.returncode == 3 and "key" in said, f"exit {process.returncode}: {said}")
    os.chmod(bench.folder / "keys/west.key", 0o644)
    for dry in ((), ("--dry-run",)):
        process = bench.start("open", trusted, "west", *dry)
        said = process.communicate(timeout=60)[1]
        require(process.returncode == 4 and "chmod 600" in said, f"exit {process.returncode}: {said}")
    os.chmod(bench.folder / "keys/west.key", 0o600)
    bench.apart("dry", trusted, 2, "--dry-run")
    require(not (bench.folder / "dry").exists(), "a dry run makes a folder")


def what_differs_is_named_at_every_site(bench):
    ports = free_ports(2)
    toml = bench.write("apart.toml", "diloco", 2, True, ports=ports)

    def refuse(expected, code, east=(), west=(), west_toml=toml, east_toml=toml):
        begin = time.monotonic()
        running = [bench.start("refused", east_toml, "east", *east),
                   bench.start("refused", west_toml, "west", *west)]
        said = [process.communicate(timeout=60)[1] for process in running]
        took = time.monotonic() - begin
        require(took < SOON_S, f"{expected!r} was found after {took:.1f} s")
        for process, text in zip(running, said):
            require(process.returncode == code, f"exit {process.returncode}, not {code}: {text}")
            require(any(each in text for each in expected), f"{expected!r} not in {text}")
        require(not (bench.folder / "refused").exists() or
                not list((bench.folder / "refused").rglob("metrics.jsonl")), "something was written")

    refuse(["inner.lr is 0.002 at east and 0.001 at west"], 3, west=("--set", "inner.lr=1e-3"))
    refuse(['net.chunk is "1MiB" at east and "64KiB" at west'], 3, west=("--set", "net.chunk=64KiB"))
    steps = bench.write("commits.toml", "ddp", 2, True, ports=ports)
    refuse(['outer.commit is "every:4" at east and "every:16" at west'], 3, east=("--set", "outer.commit=every:4"),
           east_toml=steps, west_toml=steps)
    other = bench.folder / "other"
    other.mkdir()
    (other / "corpus.txt").write_bytes(bench.corpus.read_bytes() + b"one more line\n")
    moved = other / "apart.toml"
    moved.write_text(toml.read_text().replace(str(bench.corpus), str(other / "corpus.txt")))
    refuse(["data[0] corpus.txt is"], 3, west_toml=moved)
    # What links find before anything else is said.
    refuse(["run id: member"], 3, west=("--set", "run.name=other"))
    refuse(["net.streams: member"], 3, west=("--set", "net.streams=3"))
    fewer, more = other / "fewer.toml", other / "more.toml"
    fewer.write_text(toml.read_text().replace('"256 tok"', '"768 tok"'))  # of two sites, or of three
    more.write_text(fewer.read_text() + '[[site]]\nname = "north"\naddress = "127.0.0.1:1"\n')
    refuse(["number of members: member"], 3, east_toml=fewer, west_toml=more)
    # A folder that cannot be used is found before the sites meet, and spoils no other's.
    used = bench.folder / "used/west"
    used.mkdir(parents=True)
    (used / "notes.txt").write_text("mine")
    process = bench.start("used", toml, "west")
    require("not empty" in process.communicate(timeout=60)[1] and process.returncode == 3, "used")
    impatient = toml.read_text().replace('gather = "60s"', 'gather = "4s"')
    toml.write_text(impatient)
    larger = other / "larger.toml"
    larger.write_text(impatient.replace("d_model = 32", "d_model = 64"))
    refuse(["model.d_model is 32 at east and 64 at west"], 3, west_toml=larger)

    def alone(expected, code, text, *flags):
        path = other / "alone.toml"
        path.write_text(text)
        process = bench.start("alone", path, "east", *flags)
        said = process.communicate(timeout=60)[1]
        require(process.returncode == code and expected in said,
                f"{expected!r}, exit {code}: exit {process.returncode}, {said}")

    text = toml.read_text()
    alone("west", 5, text.replace('gather = "4s"', 'gather = "1s"'))
    alone('address = ""', 3, text.replace(f'address = "127.0.0.1:{ports[1]}"\n', ""))
    alone("plaintext", 3, text.replace(f"127.0.0.1:{ports[1]}", f"192.0.2.7:{ports[1]}"))
    alone("anchors of their own", 3, text.replace('method = "diloco"', 'method = "eager"'))
    alone("inproc", 3, text.replace("[net]\n", '[net]\ntransport = "inproc"\n'))
    process = bench.start("alone", toml, "south")
    require("sites: east, west" in process.communicate(timeout=60)[1] and process.returncode == 3,
            "a site that is not in the file")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", ports[0]))
        taken.listen()
        alone("cannot listen", 4, text)


SCENARIOS = (every_method_finds_the_same, groups_find_the_same, shares_by_links_find_the_same,
             recordings_change_nothing,
             sockets_within_one_process_find_the_same,
             a_signal_to_one_ends_all_and_they_go_on, what_one_killed_site_leaves_goes_on,
             a_first_checkpoint_that_one_lacks_is_no_obstacle,
             the_folder_of_another_site_is_refused, a_full_disk_is_a_lost_site,
             a_signal_right_after_a_resume_counts, sites_with_keys_let_each_other_in_alone,
             what_differs_is_named_at_every_site)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--only", default="", help="a scenario's name, or part of it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.isthmus, pathlib.Path(folder), args.text)
        for scenario in SCENARIOS:
            if args.only not in scenario.__name__:
                continue
            begin = time.monotonic()
            try:
                scenario(bench)
            except Failure as failure:
                sys.exit(f"{scenario.__name__}: {failure}")
            print(f"{scenario.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)


main()
