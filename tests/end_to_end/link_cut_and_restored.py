#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two sites whose link is cut, and restored: one goes on alone, the other comes back by itself.

  sudo python3 tests/end_to_end/link_cut_and_restored.py --isthmus build/src/app/isthmus

Each site is in a network namespace of its own, and the wire between them is taken down, so nothing
is told of it by TCP. The first site goes on after net.dead_after; the second trains on alone for
net.max_solo_rounds windows, none, one and three, and waits for the first; it takes part again once
the wire is back, in the middle of its windows alone too, and brings what it has trained on. Both end
with the same outer parameters. Needs root.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from scenario import small_run

SKIPPED = 77  # for ctest
# It has steps until the test has seen what it wants.
TEXT = small_run("cut", seed=3, arch="llama", steps=100000, global_batch="256 tok", threads=1, lr="1e-3",
                 schedule="constant") + """
[net]
dead_after = "3s"
gather = "{gather}"
plaintext = true
{key}
[outer]
method = "diloco"
H = {window}
[[site]]
name = "east"
address = "10.77.0.1:48200"
[[site]]
name = "west"
address = "10.77.0.2:48200"
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


TOKENS = 128  # of a site's step
WINDOW = 20   # outer.H
FOREVER = 500000
# net.max_solo_rounds as the file has it; how many windows that is; whether the wire is back before
# they are over
CUTS = (("", 1, False), ("max_solo_rounds = 0", 0, False), ("max_solo_rounds = 3", 3, False),
        (f"max_solo_rounds = {FOREVER}", FOREVER, True))


class Wire:
    """Two namespaces and the wire between them."""

    def __init__(self):
        self.names = [f"isthmus-{os.getpid()}-{site}" for site in ("east", "west")]
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", "wire", "netns", self.names[0], "type", "veth", "peer", "name", "wire",
           "netns", self.names[1])
        for number, name in enumerate(self.names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "wire")
            ip("-n", name, "link", "set", "wire", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def set(self, state):
        ip("-n", self.names[0], "link", "set", "wire", state)

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def rows(folder, kind):
    path = folder / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [row for row in map(json.loads, whole) if row["k"] == kind]


def rounds(folder):
    return [row["members"] for row in rows(folder, "round")]


def until(what, condition, sites, patience=60):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > patience or any(s.poll() is not None for s in sites):
            raise RuntimeError(f"not within {patience} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - begin


def require(condition, what):
    if not condition:
        raise RuntimeError(what)


def came_back(west):
    return [row for row in rows(west, "event") if row["what"] == "site came back"]


def back_in_rounds(west):
    back, last = came_back(west), rows(west, "round")[-1]
    return back and last["members"] == 2 and last["step_send"] > back[-1]["step"]


def check_work(west, said, windows, early):
    """What the site that was cut off has brought back, and that no line of the run tells of steps
    that it took alone."""
    back = came_back(west)
    require(len(back) == 1, f"{windows}: events {back}")
    back = back[0]
    steps = windows * WINDOW
    alone = back["steps_alone"]
    require(0 < alone < steps if early else alone == steps, f"{windows} windows: {back}")
    require(back["tokens_alone"] == alone * TOKENS, f"{back}")
    # A window was open, or its round had failed and is in doubt.
    require(0 <= back["tokens_kept"] - back["tokens_alone"] < WINDOW * TOKENS, f"{back}")
    require(back["tokens_lost"] in (0, WINDOW * TOKENS), f"{back}")
    told = re.findall(r"trained on alone for (\d+) steps, on (\d+) tokens: (.*)", said)
    expected = [(str(alone), str(alone * TOKENS),
                 "the others are found" if early else "waiting for the others")]
    require(told == (expected if windows else []), f"{windows} windows: {told}")
    took = [row["step"] for row in rows(west, "train")]
    require(took == sorted(set(took)), "lines out of order, or twice")
    require(back["step"] + 1 in took and back["step"] not in took, "it takes part from elsewhere")
    return alone, back["tokens_kept"]


def cut_and_restore(isthmus, text, folder, key, windows, early, sites):
    folder.mkdir()
    toml = folder / "run.toml"
    toml.write_text(TEXT.format(corpus=text, key=key, window=WINDOW,
                                gather="15s" if early else "60s"))
    wire = Wire()
    try:
        for name, space in zip(("east", "west"), wire.names):
            sites.append(subprocess.Popen(
                ["ip", "netns", "exec", space, isthmus, "train", str(toml), "--site", name,
                 "--progress", "none", "--out", str(folder / name)],
                stdout=subprocess.DEVNULL, stderr=open(folder / f"{name}.err", "w")))
        east, west = folder / "east", folder / "west"
        said = lambda: (folder / "west.err").read_text()
        until("rounds of two", lambda: min(len(rounds(west)), len(rounds(east))) > 3, sites)
        wire.set("down")
        alone = until("east goes on alone", lambda: rounds(east)[-1] == 1, sites)
        until("west waits", lambda: "come back" in said(), sites)
        if windows and not early:
            until("it has trained alone", lambda: "trained on alone" in said(), sites)
        if early:  # it says so every ten seconds: longer than net.gather
            until("it looks on", lambda: said().count("waiting for the other sites") > 1, sites)
        wire.set("up")
        back = until("rounds of two again", lambda: rounds(east)[-1] == 2, sites)
        until("at west, too", lambda: back_in_rounds(west), sites)
        steps, kept = check_work(west, said(), windows, early)
        sites[1].send_signal(signal.SIGINT)
        codes = [site.wait(timeout=60) for site in sites]
        models = {(each / "ckpt/last/model.safetensors").read_bytes() for each in (east, west)}
        require(codes == [130, 130] and len(models) == 1, f"exits {codes}, {len(models)} models")
        print(f"{key or 'by default'}: east went on alone {alone:.1f} s after the cut "
              f"(net.dead_after = 3 s), west for {steps} steps and brought {kept} tokens back, "
              f"rounds of two again {back:.1f} s after the wire was back", flush=True)
    finally:
        wire.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/include/linux/bpf.h")
    arguments = parser.parse_args()
    isthmus = str(pathlib.Path(arguments.isthmus).resolve())
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("skipped: needs root and iproute2, for network namespaces")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        for number, (key, windows, early) in enumerate(CUTS):
            run, sites = pathlib.Path(folder) / str(number), []
            try:
                cut_and_restore(isthmus, arguments.text, run, key, windows, early, sites)
            except subprocess.CalledProcessError as error:
                print(f"skipped: no network namespaces here: {error.stderr.decode().strip()}")
                return SKIPPED
            except RuntimeError as error:
                said = "\n".join(f"{path.name}: {path.read_text()[-1500:]}"
                                 for path in run.glob("*.err"))
                print(f"FAILED: {key}: {error}\n{said}")
                return 1
            finally:
                for site in sites:
                    if site.poll() is None:
                        site.kill()
                        site.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
