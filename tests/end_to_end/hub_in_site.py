#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A site's process is the hub as well ([hub] site); both die together, and come back together.

  python3 tests/end_to_end/hub_in_site.py --isthmus build/src/app/isthmus

The lines are those of a run without a hub, to the bit. The process is killed: the others stand where
they are, and go on from there once it is back, whose site joins. It leaves: its hub serves the others
until they have ended. Its log is not taken for that of another run.
"""
import signal
import subprocess

import hub
from scenario import play, require


class SiteHubRun(hub.HubRun):
    """The hub is in the first site's process."""

    def __init__(self, *how, **more):
        super().__init__(*how, **more)
        require(self.hub is None, "a hub of its own")

    def start_hub(self):
        text = self.toml.read_text()
        if "site =" not in text:
            self.toml.write_text(text.replace("[hub]\n", '[hub]\nsite = "east"\n'))


def joins(run, name):
    """After which steps somebody joined."""
    return [row["step"] for row in run.rows(name, "event") if row["what"] == "site joined"]


def nothing_changes(isthmus, folder, corpus):
    lines = []
    for name, with_hub in (("plain", False), ("hub", True)):
        run = SiteHubRun(isthmus, folder / name, corpus, "diloco", 2, 100, hub=with_hub)
        try:
            run.ends()
            lines.append([hub.losses(run, each) for each in run.names])
        finally:
            run.end()
    require(lines[0] == lines[1], "other lines than without a hub")
    again = subprocess.run([isthmus, "hub", str(run.toml)], capture_output=True, text=True)
    require(again.returncode == 3 and "the process of that site is the hub" in again.stderr,
            again.stderr)


def dies_with_its_site(isthmus, folder, corpus):
    run = SiteHubRun(isthmus, folder / "dies", corpus, "streaming-diloco", 3)
    try:
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)
        run.kill("east")
        run.until("the others wait for it",
                  lambda: all("the hub is gone" in run.said(name) for name in ("west", "north")))
        run.start("east")
        require(run.code_of("east") == 3, run.said("east"))
        require("holds the log of run" in run.said("east"), run.said("east"))
        run.start("east", "--resume", "auto")
        run.until("the hub is back", lambda: "the hub is back" in run.said("west"))
        run.until("it joins", lambda: joins(run, "west"))
        run.until("rounds of three again", lambda: run.members_of_last_round("west") == 3 and
                  run.rows("west", "round")[-1]["step"] > joins(run, "west")[-1])
        require("from the newest checkpoint" not in run.said("west"), run.said("west"))
        run.stop()
        log = (run.folder / "east-hub/hub.log").read_bytes()
        require(log.startswith(b"ISTHHUB\n"), log[:8])
    finally:
        run.end()


def serves_the_others_when_its_site_leaves(isthmus, folder, corpus):
    run = SiteHubRun(isthmus, folder / "leaves", corpus, "diloco", 3)
    try:
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)
        run.sites["east"].send_signal(signal.SIGUSR2)
        run.until("its hub goes on", lambda: "the hub serves the others" in run.said("east"))
        run.goes_on("west")
        require(run.members_of_last_round("west") == 2, "rounds of more than two")
        require(run.sites["east"].poll() is None, run.said("east"))
        run.sites["north"].send_signal(signal.SIGTERM)
        codes = [run.code_of(name) for name in run.names]
        require(codes == [85, 85, 85], f"{codes}: {run.said('east')}")
        require("all sites have left" in run.said("east"), run.said("east"))
    finally:
        run.end()


if __name__ == "__main__":
    play(__doc__, (nothing_changes, dies_with_its_site, serves_the_others_when_its_site_leaves))
