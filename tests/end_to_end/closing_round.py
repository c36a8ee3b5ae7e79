#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The last steps of a run reach the model: the closing round of outer.final_sync = "full".

  python3 tests/end_to_end/closing_round.py --isthmus build/src/app/isthmus

A run shorter than outer.H exchanges once, and steps after the last regular round are in the exported
model, with every method that has such steps. What the closing round costs is in metrics.jsonl, in
summary.json and in --dry-run; steps that no round carries are told before a run begins. A run that
began under "drain" ends so. Sites of unlike values do not start together, and a site that is killed
in the closing round costs its own part alone.
"""
import hashlib
import json
import os
import signal
import subprocess

from scenario import free_ports, play, require, small_run

TEXT = small_run("closing", seed=3, arch="llama", steps="{steps}", global_batch="{batch} tok", threads=1, lr="4e-3",
                 schedule="constant", run="{workers}") + """
[eval]
tokens = "1k"
[ckpt]
every = "{ckpt} steps"
[outer]
method = "{method}"
{keys}
{sites}
"""
METHODS = {"localsgd": "H = 5", "diloco": "H = 5", "delayed": "H = 5", "eager": "H = 5", "co2": "H = 5",
           "streaming-diloco": "H = 5\nfragments = 2\noverlap = 2", "sparseloco": "H = 5",
           "01-adam": "var_freeze_step = 1\nlocal_step_scaler = 1\nlocal_step_clipper = 4"}


class Folder:
    """Where a scenario has its files, and how it runs the program there."""

    def __init__(self, isthmus, folder, corpus, name):
        self.isthmus, self.corpus, self.path = isthmus, corpus, folder / name
        self.path.mkdir()

    def file(self, name, method="diloco", keys="H = 5", steps=9, ckpt=1000, sites=()):
        ports = free_ports(len(sites))
        entries = "".join(f'[[site]]\nname = "{site}"\naddress = "127.0.0.1:{port}"\n'
                          for site, port in zip(sites, ports))
        toml = self.path / f"{name}.toml"
        workers = "" if sites else "workers = 2"
        toml.write_text(TEXT.format(method=method, keys=keys, steps=steps, ckpt=ckpt, workers=workers,
                                    sites=entries, corpus=self.corpus, batch=32 * (len(sites) or 2)))
        return toml

    def run(self, verb, toml, out, *flags, code=0):
        done = subprocess.run([self.isthmus, verb, str(toml), "--progress", "none", "--out",
                               str(self.path / out), *flags], capture_output=True, text=True, timeout=120)
        require(done.returncode == code, f"{out}: exit {done.returncode}, not {code}: {done.stderr[-800:]}")
        return done

    def rows(self, out, kind):
        lines = (self.path / out / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["k"] == kind]

    def model(self, out, step="last"):
        return (self.path / out / "ckpt" / step / "model.safetensors").read_bytes()

    def document(self, out, name):
        return json.loads((self.path / out / name).read_text())


LINK = ("--link", "100Mbit/s,10ms", "--set", 'sim.step_time="5ms"')


def last_steps_reach_the_model(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "methods")
    for method, keys in METHODS.items():
        models = {}
        for steps in (5, 9):
            toml = here.file(f"{method}-{steps}", method, keys, steps)
            here.run("train", toml, f"{method}-{steps}")
            models[steps] = here.model(f"{method}-{steps}")
        require(models[5] != models[9], f"{method}: 9 steps end as 5 do")
        closing = [row for row in here.rows(f"{method}-9", "round") if row.get("closing")]
        require(closing and all(row["step_send"] == row["step_apply"] == 9 and row["bytes_payload"] > 0
                                for row in closing), f"{method}: closing rounds: {closing}")
        require(closing == here.rows(f"{method}-9", "round")[-len(closing):], f"{method}: not the last")
        told = here.document(f"{method}-9", "summary.json")["closing_round"]
        require(told["bytes_payload"] == sum(row["bytes_payload"] for row in closing) and
                told["rounds"] == len(closing), f"{method}: summary: {told}")
        done = here.run("simulate", here.path / f"{method}-9.toml", f"{method}-sim", *LINK)
        require(here.model(f"{method}-sim") == models[9], f"{method}: simulate ends otherwise")
        require("the closing round:" in done.stdout, f"{method}: {done.stdout}")


def what_is_lost_is_said_before_a_run(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "said")
    fragments = 'H = 100\nfragments = 2\nfinal_sync = "drain"'
    own = 'H = 10\nfragments = 1\nembeddings = "own"\nfinal_sync = "drain"'
    for name, method, keys, steps, there, not_there in (
            ("eager", "eager", 'H = 5\nfinal_sync = "drain"', 10,
             "of its 5 steps each worker applies its own share alone, one of 2", "no round"),
            ("eager-full", "eager", "H = 5", 10, "", "share alone"),
            ("fragments", "streaming-diloco", fragments, 60, "up to all 60 steps of 3 fragments", "no round at all"),
            ("offsets", "streaming-diloco", own, 20, "the last 5 of 20 steps", "train.steps"),
            ("dropped", "delayed", 'H = 5\nfinal_sync = "none"', 7, "every round is dropped before it is applied",
             "no round at all"),
            ("steps", "diloco", 'H = 5\nfinal_sync = "drain"', 9, "or train.steps = 5 or 10", "up to"),
            ("warmup", "diloco", "H = 5\nlr_warmup = 40", 10, "outer.lr_warmup = 40 and 10 steps: the run ends before "
             "outer.lr has its value, with 0.25 of it at most", "momentum"),
            ("momentum", "muloco", "H = 5\nmomentum_warmup = 20", 10, "outer.momentum_warmup = 20 and 10 steps", "lr_"),
            ("as long", "diloco", 'H = 5\nlr_warmup = "100%"', 10, "", "has its value")):
        toml = here.file(name, method, keys, steps)
        plan = json.loads(here.run("train", toml, name, "--dry-run", "--json").stdout)
        said = " ".join(plan["warnings"])
        require(there in said and not_there not in said, f"{name}: {said}")
    toml = here.file("inner", "diloco", "H = 5", 10)
    for flags, told in (((), False), (("--set", "inner.warmup=11"), True), (("--set", "inner.warmup=10"), False)):
        for words in (("--dry-run",), ("--force",)):
            done = here.run("train", toml, "inner", *words, *flags)
            require(("inner.warmup = 11 and 10 steps" in done.stdout + done.stderr) == told, f"{flags}: {done}")
    for sync in ("full", "drain"):
        here.run("train", here.file("both", "eager", "H = 5", 5), f"eager-{sync}", "--set",
                 f'outer.final_sync="{sync}"')
    require(here.model("eager-full") != here.model("eager-drain"), "eager lost its last round")


def a_model_from_inside_a_window_is_told(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "inside")
    # Steps 6 and 7 follow the round of step 5; delayed applies that one after step 10.
    for method, first in (("diloco", 6), ("delayed", 1), ("ddp", None)):
        here.run("train", here.file(method, method, "" if method == "ddp" else "H = 5", 9, ckpt=7), method)
        for step, missing in (("step-0000007", first), ("last", None)):
            words = [isthmus, "export", str(here.path / method / "ckpt" / step), "--to"]
            text, line = (subprocess.run([*words, "hf", str(here.path / f"{method}-{step}-{i}"), *flags],
                                         capture_output=True, text=True, timeout=60)
                          for i, flags in enumerate(((), ("--json",))))
            require(text.returncode == 0 and line.returncode == 0, text.stderr + line.stderr)
            require((f"steps {missing} to 7 are in no round" in text.stdout) == (missing is not None) and
                    ("in no round" in text.stdout) == (missing is not None), f"{method}: {text.stdout}")
            require(json.loads(line.stdout).get("first_step_missing") == missing, f"{method}: {line.stdout}")
    merged = subprocess.run([isthmus, "merge", str(here.path / "diloco/ckpt/step-0000007"),
                             str(here.path / "diloco/ckpt/last"), "--out", str(here.path / "merged")],
                            capture_output=True, text=True, timeout=60)
    require(merged.returncode == 0 and merged.stderr.count("steps 6 to 7 are in no round") == 1, merged.stderr)
    model = 'arch = "llama"\nlayers = 2\nd_model = 32\nheads = 2'
    for step, told in (("step-0000007", 1), ("last", 0)):
        toml = here.path / "begins.toml"
        toml.write_text((here.path / "diloco.toml").read_text().replace(
            model, f'init = "{here.path / "diloco/ckpt" / step}"'))
        plan = json.loads(here.run("train", toml, f"from-{step}", "--dry-run", "--json").stdout)
        done = here.run("train", toml, f"from-{step}")
        for said in (" ".join(plan["warnings"]), done.stderr):
            require(said.count("steps 6 to 7 are in no round") == told, f"{step}: {said}")


def a_run_shorter_than_a_round_exchanges_once(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "short")
    toml = here.file("short", keys="H = 100", steps=8)
    done = here.run("train", toml, "full")
    require("the closing round is the only one" in done.stderr, done.stderr)
    rounds = here.rows("full", "round")
    require([(row["step_send"], row["closing"]) for row in rounds] == [(8, True)], str(rounds))
    require(here.document("full", "summary.json")["bytes_wire"][0] > 0, "nothing was sent")
    require(here.document("full", "manifest.json")["final_sync"] == "full", "manifest")
    for flags, told in ((("--resume", "auto"), "is complete"), (("--resume", "auto", "--dry-run"), "run is complete")):
        done = here.run("train", toml, "full", *flags)
        require(told in done.stdout and "only one" not in done.stdout + done.stderr, f"complete: {done}")
    done = here.run("train", toml, "full", "--resume", "auto", "--change", "train.steps=9")
    require("the closing round is the only one" in done.stderr, f"made longer: {done.stderr}")
    done = here.run("train", toml, "drain", "--set", 'outer.final_sync="drain"')
    require("the run has no round at all" in done.stderr, done.stderr)
    require(here.document("drain", "summary.json")["bytes_payload"] == [0, 0], "something was sent")
    require(here.model("drain") != here.model("full", "step-0000008"), "the closing round left the model as it was")
    # Before: --dry-run says it too, with what the closing round costs.
    done = here.run("train", toml, "none", "--dry-run")
    require("closing round" in done.stdout and "all 8 steps" in done.stdout, done.stdout)
    plan = json.loads(here.run("simulate", toml, "none", "--dry-run", "--json", *LINK).stdout)
    simulated = here.run("simulate", toml, "sim", *LINK)
    told = here.document("sim", "summary.json")
    require(plan["closing_round"]["bytes_payload"] == told["closing_round"]["bytes_payload"], str(plan))
    require(abs(plan["predicted_s"] / told["simulated_s"] - 1) < 0.01, simulated.stdout)
    plan = json.loads(here.run("train", toml, "none", "--dry-run", "--json", "--set",
                               'outer.final_sync="drain"', "--set", "outer.H=5").stdout)
    require(plan["closing_round"] is None and "the last 3 of 8 steps" in plan["warnings"][0], str(plan))
    require(not (here.path / "none").exists(), "--dry-run wrote something")


def without_words_of_final_sync(checkpoint):
    """The checkpoint as a version of before had it."""
    file = checkpoint / "state.json"
    document = json.loads(file.read_text())
    del document["sha256"]
    require(document.pop("settings")["outer.final_sync"] == "drain", "settings of the checkpoint")
    for state in document["states"].values():
        for name in [name for name in state if name.endswith("final_sync")]:
            del state[name]
    text = json.dumps(document, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(document, indent=1, sort_keys=True))


def a_run_ends_as_it_was_begun(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "begun")
    toml = here.file("run", ckpt=6)
    drain = ("--set", 'outer.final_sync="drain"')
    here.run("train", toml, "drained", *drain)
    here.run("train", toml, "full")
    for name in ("old", "new"):
        here.run("train", toml, name, *drain)
        checkpoint = here.path / name / "ckpt/step-0000006"
        if name == "old":
            without_words_of_final_sync(checkpoint)
        done = here.run("train", toml, name, "--resume", str(checkpoint))
        require('begun with outer.final_sync = "drain"' in done.stderr, done.stderr)
        require("this run keeps the value it was begun with" in done.stderr, done.stderr)
        require(here.model(name) == here.model("drained"), f"{name}: it does not end as it was begun")
        require(here.document(name, "manifest.json")["final_sync"] == "drain", f"{name}: manifest")
    done = here.run("train", toml, "full", "--resume", str(here.path / "full/ckpt/step-0000006"), *drain,
                    code=3)
    require("outer.final_sync" in done.stderr, done.stderr)


class Sites:
    def __init__(self, here, toml, names, faults=None, flags=None, hub=False):
        self.here, self.toml, self.names, self.sites = here, toml, names, {}
        if hub:
            self.sites["hub"] = self.process("hub", str(toml), "--out",
                                             str(here.path / f"{toml.stem}-hub"))
        for name in names:
            environment = dict(os.environ)
            if faults and name in faults:
                environment["ISTHMUS_FAULT"] = f"kill@{faults[name]}"
            self.sites[name] = self.process(
                "train", str(toml), "--site", name, "--progress", "none", "--out",
                str(here.path / f"{toml.stem}-{name}"), *(flags or {}).get(name, ()), env=environment)

    def process(self, *words, env=None):
        return subprocess.Popen([self.here.isthmus, *words], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, env=env)

    def ends(self, codes):
        said = {}
        try:
            for name, site in self.sites.items():
                said[name] = site.communicate(timeout=90)[1]
        finally:
            for site in self.sites.values():
                if site.poll() is None:
                    site.kill()
        for name, code in codes.items():
            require(self.sites[name].returncode == code,
                    f"{name}: exit {self.sites[name].returncode}, not {code}: {said[name][-800:]}")
        return said


def unlike_sites_do_not_start(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "unlike")
    toml = here.file("run", sites=("east", "west"))
    said = Sites(here, toml, ("east", "west"),
                 flags={"west": ("--set", 'outer.final_sync="drain"')}).ends({"east": 3, "west": 3})
    for text in said.values():
        require("outer.final_sync is" in text and '"drain"' in text and '"full"' in text, text)


def a_site_is_killed_in_the_closing_round(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "killed")
    names = ("east", "west", "north")
    for point in ("contributes:1", "answers:1", "said-done:1", "applies:1"):
        toml = here.file(point.split(":")[0], keys="H = 100", steps=8, sites=names)
        Sites(here, toml, names, faults={"north": point}).ends(
            {"east": 0, "west": 0, "north": -signal.SIGKILL})
        east, west = (f"{toml.stem}-{name}" for name in names[:2])
        require(here.model(east) == here.model(west), f"{point}: the survivors hold unlike models")
        rounds = here.rows(east, "round")
        require(len(rounds) == 1 and rounds[0]["closing"] and rounds[0]["members"] in (2, 3),
                f"{point}: {rounds}")
    # Where all are killed, they go on together from a checkpoint of before, and end as undisturbed ones.
    toml = here.file("all", keys="H = 100", steps=8, ckpt=5, sites=names[:2])
    Sites(here, toml, names[:2]).ends({"east": 0, "west": 0})
    whole = here.model("all-east")
    again = here.path / "again.toml"
    again.write_text(toml.read_text())
    Sites(here, again, names[:2], faults={name: "contributes:1" for name in names[:2]}).ends(
        {name: -signal.SIGKILL for name in names[:2]})
    Sites(here, again, names[:2], flags={name: ("--resume", "auto") for name in names[:2]}).ends(
        {"east": 0, "west": 0})
    require(here.model("again-east") == here.model("again-west") == whole, "resumed: another model")


def a_hub_serves_the_closing_round(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "hub")
    names = ("east", "west")
    # A hub's file that leaves the key open leaves it to the sites: a run may have begun under "drain".
    for name, flags in (("full", ()), ("drain", ("--set", 'outer.final_sync="drain"'))):
        here.run("train", here.file(f"alone-{name}", steps=8), f"alone-{name}", *flags)
        toml = here.file(name, steps=8, sites=names)
        port, = free_ports(1)
        toml.write_text(toml.read_text() + f'[hub]\naddress = "127.0.0.1:{port}"\n')
        Sites(here, toml, names, hub=True, flags={site: flags for site in names}).ends(
            {"hub": 0, "east": 0, "west": 0})
        require(here.model(f"{name}-east") == here.model(f"{name}-west") == here.model(f"alone-{name}"),
                f"{name}, with a hub: another model")


def a_comparison_notes_unlike_windows(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "compare")
    toml = here.file("compare", keys="H = 5", steps=9)
    toml.write_text(toml.read_text().replace("seed = 3\n", "") + '[compare]\nseeds = 2\n[variant.full]\n[variant.drain]\n'
                    'outer = { final_sync = "drain" }\n[variant.ddp]\nouter = { method = "ddp" }\n')
    done = here.run("compare", toml, "compare", "--dry-run")
    require("unlike trained windows: the last loss has 5 steps in drain; 9 steps in full, ddp" in done.stdout,
            done.stdout)
    toml.write_text(toml.read_text().replace('final_sync = "drain"', "H = 3"))
    done = here.run("compare", toml, "compare", "--dry-run")
    require("unlike trained windows" not in done.stdout, done.stdout)


def a_comparison_of_another_default_is_told(isthmus, folder, corpus):
    here = Folder(isthmus, folder, corpus, "default")
    toml = here.file("run", keys='H = 5\nfinal_sync = "drain"', steps=6)
    toml.write_text(toml.read_text().replace("seed = 3\n", "") +
                    "[compare]\nseeds = 2\n[variant.five]\n[variant.three]\nouter = { H = 3 }\n")
    done = here.run("compare", toml, "compare")
    require("five: outer.final_sync" in done.stderr and "no round will carry the last 1 of 6" in done.stderr,
            f"not said before the runs: {done.stderr}")
    toml.write_text(toml.read_text().replace('final_sync = "drain"', ""))  # as a file of then had it
    done = subprocess.run([isthmus, "compare", str(toml), "--judge", str(here.path / "compare/cells.jsonl")],
                          capture_output=True, text=True, timeout=60)
    require(done.returncode == 3 and "the default of an earlier version" in done.stderr, done.stderr)
    done = here.run("compare", toml, "compare", "--resume")
    require("so they are run again" in done.stderr, done.stderr)


if __name__ == "__main__":
    play(__doc__, (last_steps_reach_the_model, what_is_lost_is_said_before_a_run,
                   a_model_from_inside_a_window_is_told, a_run_shorter_than_a_round_exchanges_once,
                   a_run_ends_as_it_was_begun, unlike_sites_do_not_start,
                   a_site_is_killed_in_the_closing_round, a_hub_serves_the_closing_round,
                   a_comparison_notes_unlike_windows, a_comparison_of_another_default_is_told))
