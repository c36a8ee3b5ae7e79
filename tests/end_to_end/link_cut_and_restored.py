#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two sites whose link is cut, and restored: one goes on alone, the other comes back by itself.

  sudo python3 tests/end_to_end/link_cut_and_restored.py --isthmus build/src/app/isthmus

Each site is in a network namespace of its own, and the wire between them is taken down, so nothing
is told of it by TCP. The first site goes on after net.dead_after; the second waits for the first, and
takes part again once the wire is back; both end with the same outer parameters. Needs root.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77  # for ctest
TEXT = """
[run]
name = "cut"
seed = 3
[model]
arch = "llama"
layers = 2
d_model = 32
heads = 2
[data]
source = "text:{corpus}"
[train]
steps = 100000                  # until the test has seen what it wants
global_batch = "256 tok"
context = 32
threads = 1
[inner]
lr = 1e-3
schedule = "constant"
[net]
dead_after = "3s"
gather = "60s"
plaintext = true
[outer]
method = "diloco"
H = 20
[[site]]
name = "east"
address = "10.77.0.1:48200"
[[site]]
name = "west"
address = "10.77.0.2:48200"
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


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


def rounds(folder):
    path = folder / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [row["members"] for row in map(json.loads, whole) if row["k"] == "round"]


def until(what, condition, sites, patience=60):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > patience or any(s.poll() is not None for s in sites):
            raise RuntimeError(f"not within {patience} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/include/linux/bpf.h")
    arguments = parser.parse_args()
    isthmus = str(pathlib.Path(arguments.isthmus).resolve())
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("skipped: needs root and iproute2, for network namespaces")
        return SKIPPED
    sites = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        toml = folder / "run.toml"
        toml.write_text(TEXT.format(corpus=arguments.text))
        wire = None
        try:
            try:
                wire = Wire()
            except subprocess.CalledProcessError as error:
                print(f"skipped: no network namespaces here: {error.stderr.decode().strip()}")
                return SKIPPED
            for name, space in zip(("east", "west"), wire.names):
                sites.append(subprocess.Popen(
                    ["ip", "netns", "exec", space, isthmus, "train", str(toml), "--site", name,
                     "--progress", "none", "--out", str(folder / name)],
                    stdout=subprocess.DEVNULL, stderr=open(folder / f"{name}.err", "w")))
            east, west = folder / "east", folder / "west"
            until("rounds of two", lambda: min(len(rounds(west)), len(rounds(east))) > 3, sites)
            wire.set("down")
            alone = until("east goes on alone", lambda: rounds(east)[-1] == 1, sites)
            until("west waits", lambda: "come back" in (folder / "west.err").read_text(), sites)
            wire.set("up")
            back = until("rounds of two again", lambda: rounds(east)[-1] == 2, sites)
            until("at west, too", lambda: rounds(west)[-1] == 2, sites)
            sites[1].send_signal(signal.SIGINT)
            codes = [site.wait(timeout=60) for site in sites]
            models = {(each / "ckpt/last/model.safetensors").read_bytes() for each in (east, west)}
            if codes != [130, 130] or len(models) != 1:
                raise RuntimeError(f"exits {codes}, {len(models)} models")
            print(f"east went on alone {alone:.1f} s after the cut (net.dead_after = 3 s), "
                  f"rounds of two again {back:.1f} s after the wire was back")
        except RuntimeError as error:
            said = "\n".join(f"{path.name}: {path.read_text()[-800:]}"
                             for path in folder.glob("*.err"))
            print(f"FAILED: {error}\n{said}")
            return 1
        finally:
            for site in sites:
                if site.poll() is None:
                    site.kill()
                    site.wait()
            if wire:
                wire.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
