#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""decoupled between processes: sites over TCP whose offers a hub merges (docs/guarantees/decoupled.md).

  python3 tests/end_to_end/decoupled_sites.py --isthmus build/src/app/isthmus

A run whose sites wait for each merge has the outer parameters of the run in one process, and of
diloco, to the bit. One whose sites wait for nobody ends with one model at all sites and a loss like
the simulation's; each token is merged once. A site is killed: the others go on, and its next process
takes part again. A site is frozen, or the hub is killed: the others go on as if nothing had happened.
All are killed, and go on from a checkpoint. Sites without a hub, and an MPI job, are refused by name.
"""
import hashlib
import signal
import struct
import subprocess

import hub
import sites_come_and_go
from scenario import free_ports, play, require, rows_of

sites_come_and_go.METHODS["decoupled"] = sites_come_and_go.KEYS["decoupled"] = "H = 6\nfragments = 2\nquorum = 2\nlr = 0.5\nmomentum = 0.5\n"
sites_come_and_go.METHODS["decoupled waits"] = sites_come_and_go.KEYS["decoupled waits"] = 'H = 5\nquorum = 3\ngrace = "1h"\ncodec = "int8"\n'


def merges_of(run):
    """The hub's merges: number, step, fragment, and of each offer member, sent step, tokens."""
    data = (run.folder / "hub" / "merges.log").read_bytes()
    require(data[:8] == b"ISTHMRG\n", "merges.log has another head")
    at, merges = 16 + struct.unpack_from("<I", data, 12)[0], []
    while at + 24 <= len(data):
        size, number = struct.unpack_from("<QQ", data, at)
        at += 24
        if at + size > len(data):  # the hub is writing it
            break
        named, step, _, fragment, offers, _ = struct.unpack_from("<QQQIII", data, at)
        require(named == number, "a merge of another number")
        merges.append((number, step, fragment,
                       [struct.unpack_from("<Iqq", data, at + 36 + 28 * k) for k in range(offers)]))
        at += size
    return merges


def model(folder):
    return hashlib.sha256((folder / "ckpt/last/model.safetensors").read_bytes()).hexdigest()


def one_model(run):
    models = {model(run.folder / name) for name in run.names}
    require(len(models) == 1, f"{run.folder.name}: sites hold unlike models")
    return models.pop()


def each_offer_once(run):
    merges = merges_of(run)
    numbers = [number for number, *_ in merges]
    require(numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"merges {numbers}")
    offers = [(fragment, member, sent) for _, _, fragment, of in merges for member, sent, _ in of]
    require(len(set(offers)) == len(offers), "an offer is in two merges")
    return merges


def each_token_once(run):
    """Of a run whose sites all lived: what was trained is merged, of each fragment."""
    merges = each_offer_once(run)
    trained = sum(row["tokens"] for row in run.rows("east", "worker"))
    for fragment in {fragment for _, _, fragment, _ in merges}:
        merged = sum(tokens for _, _, of, offers in merges if of == fragment for _, _, tokens in offers)
        require(merged == trained, f"{run.folder.name}: fragment {fragment}: {trained} tokens trained, {merged} merged")
    lines = [row["merge"] for row in run.rows("east", "round")]
    require(lines == [number for number, *_ in merges], f"{run.folder.name}: lines of merges {lines}")


def in_one_process(isthmus, run, name, command="train", words=()):
    """The same file without sites of their own."""
    done = subprocess.run([isthmus, command, str(run.toml), "--out", str(run.folder / name), "--progress", "none", *words],
                          capture_output=True, text=True)
    require(done.returncode == 0, done.stderr)
    return run.folder / name


def waiting_for_all_is_diloco(isthmus, folder, corpus):
    run = hub.HubRun(isthmus, folder / "waits", corpus, "decoupled waits", 3, 42)
    try:
        run.ends()
        each_token_once(run)
        model_of_sites = one_model(run)
        require(model(in_one_process(isthmus, run, "one")) == model_of_sites, "not the run in one process")
    finally:
        run.end()
    diloco = run.folder / "diloco.toml"
    diloco.write_text(run.toml.read_text().replace('"decoupled"', '"diloco"').replace("quorum = 3\n", "").replace('grace = "1h"\n', ""))
    run.toml = diloco
    require(model(in_one_process(isthmus, run, "diloco")) == model_of_sites, "not diloco")


def nobody_waits(isthmus, folder, corpus):
    run = hub.HubRun(isthmus, folder / "free", corpus, "decoupled", 3, 240)
    try:
        run.ends()
        one_model(run)
        each_token_once(run)
        losses = [row["loss"] for row in run.rows("east", "eval")]
        simulated = rows_of(in_one_process(isthmus, run, "simulated", "simulate", ("--link", "10Gbit/s,1ms", "--set", "sim.step_time=20ms")), "eval")
        require(abs(losses[-1] - simulated[-1]["loss"]) < 0.15 * losses[0],
                f"losses of sites {losses}, of the simulation {[row['loss'] for row in simulated]}")
        print(f"losses of sites {losses[-1]:.3f}, of the simulation {simulated[-1]['loss']:.3f}")
        require(losses[-1] < losses[0] - 0.5, f"{losses}")
    finally:
        run.end()


def a_site_dies_and_comes_back(isthmus, folder, corpus):
    for victim in ("west", "east"):
        run = hub.HubRun(isthmus, folder / f"dies-{victim}", corpus, "decoupled", 3)
        other = "north"
        try:
            run.until("merges", lambda: len(run.rows(other, "round")) > 6)
            run.kill(victim)
            run.goes_on(other)
            run.until("it counts as gone", lambda: f"site {victim} is gone" in run.said("hub"))
            run.goes_on(other)
            run.start(victim, "--resume", "auto")
            member = run.names.index(victim)
            run.until("it joins", lambda: "has joined" in run.said(victim))
            joined = len(merges_of(run))
            run.until("merges with it", lambda: any(
                member in [who for who, *_ in of] for *_, of in merges_of(run)[joined:]))
            run.goes_on(victim)
            stop(run)
            each_offer_once(run)
        finally:
            run.end()


def stop(run):
    """One site is asked to; all end after the same step, perhaps with unlike anchors."""
    run.sites[run.names[-1]].send_signal(signal.SIGINT)
    for name in run.names:
        require(run.code_of(name) == 130, f"{name}: {run.said(name)[-800:]}")
    last = {(run.folder / name / "ckpt/last").resolve().name for name in run.names}
    require(len(last) == 1, f"{run.folder.name}: stopped after unlike steps: {last}")
    require(run.hub.wait(timeout=60) == 0, run.said("hub"))


def a_frozen_site_is_not_waited_for(isthmus, folder, corpus):
    run = hub.HubRun(isthmus, folder / "frozen", corpus, "decoupled", 3, net='dead_after = "10min"')
    try:
        run.until("merges", lambda: len(run.rows("east", "round")) > 6)
        before = len(merges_of(run))
        run.sites["west"].send_signal(signal.SIGSTOP)
        run.until("merges of the others", lambda: len(merges_of(run)) > before + 6)
        run.sites["west"].send_signal(signal.SIGCONT)
        after = len(merges_of(run))
        run.until("merges with it", lambda: any(
            1 in [who for who, *_ in of] for *_, of in merges_of(run)[after:]))
        require("is gone" not in run.said("hub"), run.said("hub"))
        stop(run)
        each_offer_once(run)
    finally:
        run.end()


def a_site_that_is_frozen_for_long_comes_back(isthmus, folder, corpus):
    """For longer than net.dead_after: it is left out, and joins by itself."""
    run = hub.HubRun(isthmus, folder / "left-out", corpus, "decoupled", 3)
    try:
        run.until("merges", lambda: len(run.rows("east", "round")) > 6)
        run.sites["west"].send_signal(signal.SIGSTOP)
        run.until("it counts as gone", lambda: "site west is gone" in run.said("hub"))
        run.goes_on("east")
        run.sites["west"].send_signal(signal.SIGCONT)
        run.until("it joins", lambda: "has joined" in run.said("west"))
        run.goes_on("west")
        stop(run)
        each_offer_once(run)
    finally:
        run.end()


def the_hub_dies_and_nobody_waits(isthmus, folder, corpus):
    run = hub.HubRun(isthmus, folder / "hub-dies", corpus, "decoupled", 3)
    try:
        for deaths in range(2):
            run.goes_on("west", 20)
            run.kill_hub()
            run.until("the sites have noticed", lambda: run.said("east").count("the hub is gone") > deaths)
            run.goes_on("west", 20)
            run.start_hub("--resume", "auto")
            run.until("it is back", lambda: run.said("east").count("the hub is back") > deaths)
        run.goes_on("west", 20)
        stop(run)
        each_offer_once(run)
    finally:
        run.end()


def all_die_and_go_on(isthmus, folder, corpus):
    run = hub.HubRun(isthmus, folder / "all", corpus, "decoupled", 3, 1000)
    try:
        run.until("a checkpoint", lambda: all((run.folder / name / "ckpt/last").exists() for name in run.names))
        run.goes_on("west", 10)
        run.kill_hub()
        for name in run.names:
            run.kill(name)
        run.start_hub("--resume", "auto")
        for name in run.names:
            run.start(name, "--resume", "auto")
        run.ends()
        one_model(run)
        each_offer_once(run)
        trained = sum(row["tokens"] for row in run.rows("east", "worker"))
        for fragment in (0, 1):
            merged = sum(row["tokens"] for row in run.rows("east", "round") if row["frag"] == fragment)
            require(merged == trained, f"fragment {fragment}: {trained} tokens trained, {merged} merged")
    finally:
        run.end()


def refusals(isthmus, folder, corpus):
    def refused(text, words, part):
        file = folder / "refused.toml"
        file.write_text(text)
        done = subprocess.run([isthmus, "train", str(file), "--out", str(folder / "refused"), *words],
                              capture_output=True, text=True, timeout=60)
        require(done.returncode == 3 and part in done.stderr, f"{part!r}: {done.returncode}: {done.stderr}")

    ports = free_ports(3)
    text = sites_come_and_go.TEXT.format(
        method="decoupled", keys=sites_come_and_go.METHODS["decoupled"], batch=256, corpus=corpus, min_sites=1,
        gather="60s", sites="".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
                                    for name, port in zip(("east", "west"), ports)))
    site = ("--site", "east")
    refused(text, site, "has no [hub]: add one with its address")



if __name__ == "__main__":
    play(__doc__, (waiting_for_all_is_diloco, nobody_waits, a_site_dies_and_comes_back,
                   a_frozen_site_is_not_waited_for, a_site_that_is_frozen_for_long_comes_back,
                   the_hub_dies_and_nobody_waits, all_die_and_go_on, refusals), at_once=2)
