#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sites that nobody can dial, joined by way of relays.

  python3 tests/end_to_end/behind_nat.py --isthmus build/src/app/isthmus

Three sites, two without an address: the run's lines and parameters are, to the bit, those of the
run in which all have one, in plain text and with keys. A relay's process is killed: with another
relay the others go on, without they wait for it; either way it comes back. Strangers at a relay
change nothing. doctor and bench link find the same ways. The same with no address at all, where a
hub relays, which dies and comes back, or stands still. As root also between network namespaces of which two, or with
a hub none, share a network, as behind so many NATs.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from scenario import Failure, free_ports, play_runs, require, rows_of, small_run

NAMES = ("east", "west", "north")
TEXT = small_run("behind-nat", seed=3, arch="llama", steps="{steps}", global_batch="384 tok", threads=1, lr="1e-3",
                 schedule="constant") + """
[eval]
every = 50
tokens = "1k"
[ckpt]
every = "20 steps"
keep = 500
[net]
dead_after = "{dead_after}"
gather = "60s"
streams = 2
[outer]
method = "diloco"
H = 5
codec = "int8"
{sites}
"""
FOREVER = 100000  # steps, until the test has seen what it wants


class Run:
    """Sites of one run, each a process. `addressed`, `relays`: names of the sites that have one; with
    a hub: of "hub" too."""

    def __init__(self, isthmus, folder, corpus, addressed, relays=(), steps=60, keys=False,
                 host="127.0.0.1", spaces=None, dead_after="5s"):
        self.isthmus, self.folder = isthmus, folder
        self.spaces = spaces or {}  # network namespaces, by site
        folder.mkdir()
        ports = iter(free_ports(2 * len(NAMES) + 2))
        self.ports = {}
        said = {}
        everybody = (["hub"] if "hub" in addressed else []) + list(NAMES)
        if keys:
            done = subprocess.run([isthmus, "keygen", *everybody, "--json"], cwd=folder, text=True,
                                  capture_output=True, check=True)
            said = {each["name"]: each["key"] for each in json.loads(done.stdout)["sites"]}
        sites = ""
        for name in everybody:
            sites += "[hub]\n" if name == "hub" else f'[[site]]\nname = "{name}"\n'
            for key, having in (("address", addressed), ("relay", relays)):
                if name in having:
                    self.ports[name, key] = next(ports)
                    where = host if isinstance(host, str) else host[name]
                    sites += f'{key} = "{where}:{self.ports[name, key]}"\n'
            if keys:
                sites += f'key = "{said[name]}"\n'
        self.toml = folder / "run.toml"
        self.toml.write_text(TEXT.format(steps=steps, corpus=corpus, sites=sites,
                                         dead_after=dead_after))
        self.sites = {}

    def start(self, name, *flags):
        said = open(self.folder / f"{name}.err", "a")
        there = ["ip", "netns", "exec", self.spaces[name]] if name in self.spaces else []
        does = ["hub", str(self.toml)] if name == "hub" else [
            "train", str(self.toml), "--site", name, "--progress", "none"]
        self.sites[name] = subprocess.Popen(
            [*there, self.isthmus, *does, "--out", str(self.folder / name), *flags],
            stdout=subprocess.DEVNULL, stderr=said)

    def start_all(self):
        for name in NAMES:
            self.start(name)
        if ("hub", "address") in self.ports:
            self.start("hub")

    def said(self, name):
        path = self.folder / f"{name}.err"
        return path.read_text() if path.exists() else ""

    def rows(self, name, *kinds):
        return rows_of(self.folder / name, *kinds)

    def step(self, name):
        """Where its rounds have come to; lines are taken back where the run goes back."""
        rounds = self.rows(name, "round")
        return rounds[-1]["step"] if rounds else 0

    def members(self, name):
        rounds = self.rows(name, "round")
        return rounds[-1]["members"] if rounds else 0

    def until(self, what, condition, patience=120):
        begin = time.monotonic()
        while not condition():
            require(time.monotonic() - begin < patience,
                    f"{self.folder.name}: not within {patience} s: {what}\n" +
                    "\n".join(f"{name}: {self.said(name)[-1500:]}" for name in self.sites))
            time.sleep(0.05)

    def kill(self, name):
        self.sites[name].kill()
        self.sites[name].wait()

    def ends(self, code):
        """The sites with `code`; a hub when they have, with 0."""
        for name, site in self.sites.items():
            try:
                got = site.wait(timeout=120)
            except subprocess.TimeoutExpired:
                raise Failure(f"{self.folder.name}: {name} does not end: {self.said(name)[-1500:]}")
            require(got == (0 if name == "hub" else code),
                    f"{self.folder.name}: {name}: exit {got}: {self.said(name)}")
        models = {self.model(name) for name in NAMES}
        require(len(models) == 1, f"{self.folder.name}: sites hold unlike models")

    def stop(self):
        self.sites[NAMES[-1]].terminate()
        self.ends(85)

    def model(self, name):
        return (self.folder / name / "ckpt/last/model.safetensors").read_bytes()

    def findings(self, name):
        """What does not depend on clocks, nor on how bytes travel."""
        drop = {"t", "ts", "tok_s", "wait_s", "bytes_wire", "bytes_payload", "s"}
        rows = [{key: value for key, value in row.items() if key not in drop}
                for row in self.rows(name, "train", "worker", "round", "eval")]
        return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))

    def end(self):
        for site in self.sites.values():
            if site.poll() is None:
                site.kill()
                site.wait()


class Spaces:
    """A network namespace each; the middle one has a wire to each other, which have none in common."""

    HOST = "10.78.1.1"

    def __init__(self, middle, others):
        self.of = {name: f"isthmus-{os.getpid()}-{name}" for name in (middle, *others)}
        centre = self.of[middle]
        try:
            for space in self.of.values():
                self.ip("netns", "add", space)
                self.ip("-n", space, "link", "set", "lo", "up")
            for number, name in enumerate(others, 1):
                space, wire = self.of[name], f"wire{number}"
                self.ip("link", "add", wire, "netns", centre, "type", "veth", "peer", "name", wire,
                        "netns", space)
                self.ip("-n", centre, "addr", "add", f"10.78.{number}.1/24", "dev", wire)
                self.ip("-n", space, "addr", "add", f"10.78.{number}.2/24", "dev", wire)
                self.ip("-n", centre, "link", "set", wire, "up")
                self.ip("-n", space, "link", "set", wire, "up")
                if number > 1:
                    self.ip("-n", space, "route", "add", f"{self.HOST}/32", "via",
                            f"10.78.{number}.1")
        except subprocess.CalledProcessError:
            self.remove()
            raise

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def remove(self):
        for space in self.of.values():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def scenarios(run_of):
    def the_same_bits_as_with_addresses():
        plain = run_of("addresses", NAMES)
        plain.start_all()
        plain.ends(0)
        for name, at, how in (("relayed", "east", {}), ("keys", "east", {"keys": True}),
                              ("hub", "hub", {"keys": True})):
            run = run_of(name, [at], [at], **how)
            run.start_all()
            run.ends(0)
            for site in NAMES:
                require(run.findings(site) == plain.findings(site),
                        f"{name}: {site}: other lines than with addresses")
            require(run.model("west") == plain.model("west"), f"{name}: another model")
            payload = {row["bytes_payload"] for row in run.rows("west", "round")}
            print(f"{name}: bytes of a round: {payload}, with addresses "
                  f"{({row['bytes_payload'] for row in plain.rows('west', 'round')})}")

    def one_of_two_relays_dies():
        run = run_of("two", ["east", "west"], ["east", "west"], steps=FOREVER)
        run.start_all()
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        run.kill("west")
        run.until("rounds of two", lambda: run.members("east") == 2)
        run.start("west", "--resume", "auto")
        run.until("rounds of all again", lambda: run.members("east") == 3)
        run.stop()

    def the_only_relay_dies():
        run = run_of("only", ["east"], ["east"], steps=FOREVER)
        run.start_all()
        run.until("checkpoints", lambda: all(len(run.rows(name, "ckpt")) > 1 for name in NAMES))
        run.kill("east")
        run.until("they wait", lambda: "come back" in run.said("west") and
                  "come back" in run.said("north"))
        before = len(run.rows("west", "round"))
        run.start("east", "--resume", "auto")
        run.until("they go on", lambda: len(run.rows("west", "round")) > before + 3)
        # A site that is not back yet is not there to say that all stop.
        run.until("they are all back", lambda: run.members("west") == 3)
        run.stop()

    def the_hub_that_relays_dies():
        run = run_of("star", ["hub"], ["hub"], steps=FOREVER)
        run.start_all()
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        run.kill("hub")
        run.until("each is alone",
                  lambda: all("cut off from the hub" in run.said(name) for name in NAMES))
        before = run.step("west")
        run.start("hub", "--resume", "auto")
        run.until("they go on", lambda: run.step("west") > before + 30)
        run.until("they are all back", lambda: run.members("west") == 3)
        run.kill("north")
        run.until("rounds of two", lambda: run.members("west") == 2)
        run.start("north", "--resume", "auto")
        run.until("rounds of all again", lambda: run.members("west") == 3)
        measured = subprocess.run([run.isthmus, "doctor", str(run.toml), "--site", "east"], text=True,
                                  capture_output=True, timeout=60)
        require(measured.returncode == 3 and "hub.relay" in measured.stderr, measured.stderr)
        run.stop()

    def the_hub_that_relays_stands_still():
        run = run_of("still", ["hub"], ["hub"], steps=FOREVER, keys=True, dead_after="20s")
        run.start_all()
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        begin = time.monotonic()
        run.sites["hub"].send_signal(signal.SIGSTOP)
        run.until("longer than it takes to begin anew", lambda: time.monotonic() - begin > 11)
        run.sites["hub"].send_signal(signal.SIGCONT)
        run.until("it begins anew", lambda: "beginning anew from the log" in run.said("hub"))
        before = run.step("west")
        run.until("they go on", lambda: run.step("west") > before + 30)
        for name in NAMES:
            require(not run.rows(name, "event"), f"{name}: somebody came or went")
            require({row["members"] for row in run.rows(name, "round")} == {3},
                    f"{name}: a round without somebody")
            broken = [line for line in run.said(name).splitlines() if "disconnected" in line and
                      any(f"({other})" in line for other in NAMES)]
            require(not broken, f"{name}: links between sites broke: {broken}")
        run.stop()

    def a_hidden_site_dies():
        run = run_of("hidden", ["east"], ["east"], steps=FOREVER, keys=True)
        run.start_all()
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        run.kill("north")
        run.until("rounds of two", lambda: run.members("east") == 2, 30)
        run.start("north", "--resume", "auto")
        run.until("rounds of all again", lambda: run.members("east") == 3)
        run.stop()

    def strangers_change_nothing():
        run = run_of("strangers", ["east"], ["east"], steps=FOREVER, keys=True)
        run.start_all()
        run.until("rounds of all", lambda: len(run.rows("east", "round")) > 3)
        place = ("127.0.0.1", run.ports["east", "relay"])
        held = [socket.create_connection(place, 10) for _ in range(300)]
        for number, each in enumerate(held):
            try:
                each.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 200 if number % 2 else b"ISRL")
            except OSError:
                pass  # hung up on
        before = len(run.rows("east", "round"))
        run.until("rounds of all go on", lambda: len(run.rows("east", "round")) > before + 3)
        require({row["members"] for row in run.rows("east", "round")} == {3},
                "a site was lost to strangers")
        run.until("it is said", lambda: "relay: refused" in run.said("east"))
        for each in held:
            each.close()
        run.stop()

    def doctor_and_bench_link_take_the_same_ways():
        run = run_of("measured", ["east"], ["east"], keys=True)
        for flags, lines in ((["doctor", "--seconds", "60"], 2),
                             (["bench", "link", "--json", "--seconds", "0.5", "--streams", "2"],
                              6)):
            command = flags[:2] if flags[0] == "bench" else flags[:1]
            all_of_them = [subprocess.Popen(
                [run.isthmus, *command, str(run.toml), "--site", name, *flags[len(command):]],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for name in NAMES]
            for name, each in zip(NAMES, all_of_them):
                out, err = each.communicate(timeout=180)
                require(each.returncode == 0, f"{command} at {name}: {out}\n{err}")
                require(len(out.splitlines()) >= lines, f"{command} at {name}: {out}")
                if command == ["doctor"] and name != "east":
                    require(out.count("by way of") == 1, f"doctor at {name}: {out}")

    def two_sites_without_a_network_in_common():
        if os.geteuid() != 0 or shutil.which("ip") is None:
            print("left out: needs root and iproute2, for network namespaces")
            return
        for middle, others in (("east", NAMES[1:]), ("hub", NAMES)):
            try:
                spaces = Spaces(middle, others)
            except subprocess.CalledProcessError as error:
                print(f"left out: no network namespaces here: {error.stderr.decode().strip()}")
                return
            try:
                run = run_of(f"spaces-{middle}", [middle], [middle], keys=True, host=Spaces.HOST,
                             spaces=spaces.of)
                run.start_all()
                run.ends(0)
                rounds = run.rows("west", "round")
                require({row["members"] for row in rounds} == {3}, f"{middle}: {rounds}")
            finally:
                spaces.remove()

    return [the_same_bits_as_with_addresses, a_hidden_site_dies, one_of_two_relays_dies,
             the_only_relay_dies, the_hub_that_relays_dies, the_hub_that_relays_stands_still,
             strangers_change_nothing, doctor_and_bench_link_take_the_same_ways,
             two_sites_without_a_network_in_common], []


if __name__ == "__main__":
    sys.exit(play_runs(__doc__, Run, scenarios))
