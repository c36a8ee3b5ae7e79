#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run that goes on under another configuration (--change): one that was made longer has the bits of one that was as
long from the beginning, where no closing round lies between them; rates, H and clipping change from the resumed step on
and not before; the manifest tells each change once, however often the command is given; a run goes on from a closing
round inside a window; what would mean something else is refused, and nothing is written; --dry-run says and refuses the
same. Data that were appended to are read on in the order that docs/how-to/resume-and-change.md states, at workers of one process and at
sites alike, with the bits of the run after a kill.

  python3 tests/end_to_end/changed_runs.py --isthmus build/bin/isthmus
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

from scenario import free_ports, small_run

CONFIG = small_run("changed", workers=2, seed=3, layers=1, source="text:{text}", steps="{steps}",
                   global_batch="128 tok", context=16, lr="2e-3") + """
[outer]
method = "{method}"
{outer}
[eval]
every = {every}
tokens = "256"
[ckpt]
every = 10
keep = 9
"""
OUTERS = {"ddp": "", "localsgd": "H = 5", "diloco": "H = 5", "streaming-diloco": "H = 5\nfragments = 1\noverlap = 2"}
CONFIGURATION = 3


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def numbers(count):
    return " ".join(f"{n} {n * n % 97}" for n in range(count))


class Bench:
    def __init__(self, isthmus, folder):
        self.isthmus, self.folder = isthmus, folder
        (folder / "text.txt").write_text(numbers(4000))

    def config(self, name, method, steps, outer=None, every=0, more=""):
        text = CONFIG.format(text=self.folder / "text.txt", method=method, steps=steps, outer=outer or OUTERS[method],
                             every=every)
        (self.folder / name).write_text(text.replace("workers = 2\n", "") + more if more else text)
        return self.folder / name

    def files(self, out):
        return {path: path.stat().st_mtime_ns for path in (self.folder / out).rglob("*")}

    def train(self, config, out, *flags, code=0):
        command = [self.isthmus, "train", config, "--out", self.folder / out, "--progress", "none", *flags]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        require(done.returncode == code, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def launch(self, config, out, *flags, code=0):
        command = [self.isthmus, "launch", config, "--out", self.folder / out, "--via", "local", "--progress", "none",
                   *flags]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        require(done.returncode == code, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def model(self, out, step):
        file = self.folder / out / "ckpt" / f"step-{step:07d}" / "model.safetensors"
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def lines(self, out):
        return [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]

    def losses(self, out, kind="train"):
        return {line["step"]: line["loss"] for line in self.lines(out) if line["k"] == kind}

    def changes(self, out):
        return json.loads((self.folder / out / "manifest.json").read_text())["changes"]


def made_longer(bench):
    for method in OUTERS:
        short, long = bench.config("short.toml", method, 20), bench.config("long.toml", method, 40)
        bench.train(short, f"{method}-changed")
        bench.train(long, f"{method}-long")
        # From before the last step, at which a closing round may have come.
        from_step = bench.folder / f"{method}-changed" / "ckpt" / "step-0000010"
        said = bench.train(short, f"{method}-changed", "--resume", from_step, "--change", "train.steps=40")
        require("train.steps = 40 (20 before)" in said, said)
        require(bench.model(f"{method}-changed", 40) == bench.model(f"{method}-long", 40), f"{method}: another model")
        told = [{"after_step": 10, "change": "train.steps = 40 (20 before)"}]
        require(bench.changes(f"{method}-changed") == told, bench.changes(f"{method}-changed"))
        # From the same step again, as after a kill before the first checkpoint: told once; without the flag not at all.
        bench.train(short, f"{method}-changed", "--resume", from_step, "--change", "train.steps=40")
        require(bench.changes(f"{method}-changed") == told, bench.changes(f"{method}-changed"))
        bench.train(short, f"{method}-changed", "--resume", from_step)
        require(bench.changes(f"{method}-changed") == [], bench.changes(f"{method}-changed"))
        bench.train(short, f"{method}-changed", "--resume", from_step, "--change", "train.steps=40")
        # A run that has ended goes on, too, and the same command once more has nothing left to do.
        bench.train(short, f"{method}-changed", "--resume", "auto", "--change", "train.steps=40", "--change",
                    "train.steps=50")
        require(max(bench.losses(f"{method}-changed")) == 50, f"{method}: not 50 steps")
        require(len(bench.changes(f"{method}-changed")) == 2, bench.changes(f"{method}-changed"))
        said = bench.train(short, f"{method}-changed", "--resume", "auto", "--change", "train.steps=40", "--change",
                           "train.steps=50")
        require("is complete" in said, said)


def from_inside_a_window(bench):
    """18 steps at H = 5: the closing round is of three steps, and the next window of two."""
    config = bench.config("run.toml", "diloco", 18)
    bench.train(config, "closed")
    bench.train(config, "closed", "--resume", "auto", "--change", "train.steps=30", "--change", "ckpt.keep=4")
    lines = [json.loads(line) for line in (bench.folder / "closed/metrics.jsonl").read_text().splitlines()]
    rounds = [line["step"] for line in lines if line["k"] == "round"]
    require(rounds == [5, 10, 15, 18, 20, 25, 30], rounds)
    told = {each["change"] for each in bench.changes("closed")}
    require(told == {"train.steps = 30 (18 before)", "ckpt.keep = 4 (9 before)"}, told)


def from_here_on(bench):
    config = bench.config("run.toml", "diloco", 20)
    bench.train(config, "plain")
    plain = bench.losses("plain")
    for change in ("inner.lr=1e-3", "inner.clip=0.01", "outer.lr=0.1", "outer.H=10"):
        out = change.split("=")[0]
        bench.train(config, out)
        bench.train(config, out, "--resume", bench.folder / out / "ckpt/step-0000010", "--change", change)
        changed = bench.losses(out)
        require(all(changed[step] == plain[step] for step in range(1, 11)), f"{change}: it changes the past")
        require(any(changed[step] != plain[step] for step in range(11, 21)), f"{change}: it changes nothing")
        told = bench.changes(out)
        require(len(told) == 1 and told[0]["after_step"] == 10 and told[0]["change"].startswith(f"{out} = "), told)


def refused(bench):
    config = bench.config("run.toml", "diloco", 20)
    bench.train(config, "kept")
    before = {path: path.stat().st_mtime_ns for path in (bench.folder / "kept").rglob("*") if path.name != "run.lock"}
    for change, words in (
        ("inner.optimizer=sgd", "optimizer's state"),
        ("model.d_model=64", "shapes"),
        ("train.steps=10", "no step left"),
        ("outer.H=7", "inside a window of 7"),
        ("train.step=40", "did you mean"),
    ):
        said = bench.train(config, "kept", "--resume", "auto", "--change", change, code=CONFIGURATION)
        require(words in said and change.split("=")[0] in said, f"{change}: {said}")
    said = bench.train(config, "kept", "--change", "train.steps=40", code=2)
    require("--resume" in said, said)
    after = {path: path.stat().st_mtime_ns for path in (bench.folder / "kept").rglob("*") if path.name != "run.lock"}
    require(before == after, "a refused change leaves the folder alone")


def checked_before(bench):
    """--dry-run of a change: the texts and exit codes of the run, and nothing is touched."""
    config = bench.config("run.toml", "diloco", 20)
    bench.train(config, "dry")
    before = bench.files("dry")
    to = ("--resume", "auto", "--change")
    for change in ("inner.optimizer=sgd", "train.steps=10", "outer.H=7", "train.step=40", "outer.H=often", "nonsense"):
        real = bench.train(config, "dry", *to, change, code=CONFIGURATION)
        dry = bench.train(config, "dry", *to, change, "--dry-run", code=CONFIGURATION)
        require(real == dry, f"{change}:\n{real}\n{dry}")
        require("--change " + change.split("=")[0] in dry and "--set" not in dry, dry)
    said = bench.train(config, "dry", *to, "train.steps=30", "--change", "inner.lr=1e-3", "--dry-run")
    for words in ("after step 20 of 30", "train.steps = 30 (20 before)", "inner.lr = 0.001 (0.002 before)"):
        require(words in said, said)
    said = json.loads(bench.train(config, "dry", *to, "train.steps=30", "--dry-run", "--json"))
    require(said["resumes_after_step"] == 20 and said["changes"] == ["train.steps = 30 (20 before)"], said)
    require("the run is complete" in bench.train(config, "dry", "--resume", "auto", "--dry-run"), "complete")
    # What only this machine cannot do is no refusal of an estimate, which may be meant for another one.
    absent = (*to, "train.steps=30", "--change", "train.device=cuda:99")
    bench.train(config, "dry", *absent, code=CONFIGURATION)
    said = json.loads(bench.train(config, "dry", *absent, "--dry-run", "--json"))["warnings"]
    require(any('run is refused: train.device = "cuda:99"' in each for each in said), said)
    require("no checkpoint" in bench.train(config, "none", *to, "train.steps=30", "--dry-run"), "none")
    require(not (bench.folder / "none").exists(), "a dry run makes a folder")
    other = bench.config("other.toml", "diloco", 30)  # without --change the same refusal, too
    real = bench.train(other, "dry", "--resume", "auto", code=CONFIGURATION)
    require(real == bench.train(other, "dry", "--resume", "auto", "--dry-run", code=CONFIGURATION), real)
    after = {path: time for path, time in bench.files("dry").items() if path.name != "run.lock"}
    require({path: time for path, time in before.items() if path.name != "run.lock"} == after, "a dry run writes")


SITES = """
[[site]]
name = "east"
address = "127.0.0.1:0"
[[site]]
name = "west"
address = "127.0.0.1:0"
"""


def appended(bench):
    for method in ("diloco", "streaming-diloco"):
        (bench.folder / "text.txt").write_text(numbers(4000))
        config = bench.config("run.toml", method, 20, every=10)
        out = f"{method}-grown"
        bench.train(config, out)
        plain = bench.losses(out)
        source = f"data.source=text:{bench.folder / 'text.txt'}"
        flags = ("--resume", bench.folder / out / "ckpt/step-0000010", "--change", source, "--change", "train.steps=40")
        (bench.folder / "text.txt").write_text(numbers(6000))
        said = bench.train(config, out, "--resume", "auto", code=CONFIGURATION)
        require("they are the beginning of these" in said and "--change data.source" in said, said)
        dry = bench.train(config, out, *flags, "--dry-run")
        bench.train(config, out, *flags)
        told = [each["change"] for each in bench.changes(out)]
        (line,) = [each for each in told if each.startswith("data.source")]
        for size, count in ((numbers(6000), 6000), (numbers(4000), 4000)):
            digest = hashlib.sha256(numbers(count).encode()).hexdigest()
            require(f"{len(size):,} bytes of SHA-256 {digest}" in line, line)
        require(line in dry and len(told) == 2 and bench.changes(out)[0]["after_step"] == 10, f"{told}\n{dry}")
        grown = bench.losses(out)
        require(all(grown[step] == plain[step] for step in range(1, 11)), "it changes the past")
        require(any(grown[step] != plain[step] for step in range(11, 21)), "nothing new is read")
        evals = bench.losses(out, "eval")
        require(sorted(evals) == [10, 20, 30, 40], evals)
        # The run goes on without the flag, from a checkpoint that has the grown data: the same bits.
        model = bench.model(out, 40)
        longer = bench.config("longer.toml", method, 40, every=10)
        for from_step in (20, 30):
            bench.train(longer, out, "--resume", bench.folder / out / f"ckpt/step-{from_step:07d}")
            require(bench.model(out, 40) == model, f"{method}: another model from step {from_step} on")
            require(bench.losses(out) == grown and bench.losses(out, "eval") == evals, f"{method}: other losses")
            require([each["change"] for each in bench.changes(out)] == told, bench.changes(out))
        # And the command once more, as a requeued job has it.
        bench.train(config, out, *flags[2:], "--change", "train.steps=50", "--resume",
                    bench.folder / out / "ckpt/step-0000030")
        require(bench.losses(out)[40] == grown[40], "the second time")
        # Sites that are processes of their own find the same, together.
        (bench.folder / "text.txt").write_text(numbers(4000))
        apart = bench.config("apart.toml", method, 20, every=10, more=SITES)
        bench.launch(apart, f"{out}-apart")
        (bench.folder / "text.txt").write_text(numbers(6000))
        bench.launch(apart, f"{out}-apart", "--resume", "auto", "--change", source, "--change", "train.steps=40")
        (bench.folder / "text.txt").write_text(numbers(4000))
        bench.train(bench.config("run.toml", method, 20, every=10), f"{out}-beside")
        (bench.folder / "text.txt").write_text(numbers(6000))
        bench.train(config, f"{out}-beside", "--resume", "auto", "--change", source, "--change", "train.steps=40")
        for site in ("east", "west"):
            require(bench.model(f"{out}-apart/{site}", 40) == bench.model(f"{out}-beside", 40), f"{site}: other bits")
            require(len(bench.changes(f"{out}-apart/{site}")) == 2, bench.changes(f"{out}-apart/{site}"))


def appended_refused(bench):
    text = bench.folder / "text.txt"
    config = bench.config("run.toml", "diloco", 20)
    bench.train(config, "kept")
    before = bench.files("kept")
    (bench.folder / "other.txt").write_text("X" + numbers(6000)[1:])
    (bench.folder / "short.txt").write_text(numbers(3000))
    for source, words in (("text:other.txt", "the first"), ("text:short.txt", "shorter")):
        change = f"data.source={source}"
        for dry in ((), ("--dry-run",)):
            said = bench.train(config, "kept", "--resume", "auto", "--change", change, *dry, code=CONFIGURATION)
            require(f"--change data.source = \"{source}\"" in said and words in said, said)
    text.write_text(numbers(4000)[:-1] + "!" + " and more")
    said = bench.train(config, "kept", "--resume", "auto", code=CONFIGURATION)
    require("bring the data back" in said and "--change data.source" not in said, said)
    after = {path: time for path, time in bench.files("kept").items() if path.name != "run.lock"}
    require({path: time for path, time in before.items() if path.name != "run.lock"} == after, "nothing is written")


def workers_of_one_process(bench):
    """One more, one less, at the end of a window and inside of one: recorded, and with the methods' own rules."""
    batch = ("--set", "train.global_batch=192 tok")  # of 1, 2, 3 and 4 workers
    for method, outer in (("diloco", 'H = 5\ncodec = "int8:ef"'), ("diloco", "H = 7"), ("ddp", None), ("localsgd", None),
                          ("streaming-diloco", None)):
        config = bench.config("run.toml", method, 20, outer)
        out = f"{method}-{'inside' if outer == 'H = 7' else 'between'}"
        bench.train(config, out, *batch)
        plain = bench.losses(out)
        for workers in (3, 1):
            flags = ("--resume", bench.folder / out / "ckpt/step-0000010")
            changed = ("--change", f"run.workers={workers}")
            dry = bench.train(config, out, *batch, *flags, *changed, "--dry-run")
            bench.train(config, out, *batch, *flags, *changed)
            model = bench.model(out, 20)
            (told,) = bench.changes(out)
            require(told["after_step"] == 10 and told["change"].startswith(f"run.workers = {workers} (2 before)"), told)
            require(told["change"] in dry, dry)
            require(("w2 new" if workers == 3 else "w1 left out") in told["change"], told)
            if workers == 1:
                require(("residuals" in told["change"]) == (outer is not None and ":ef" in outer), told)
                require(("steps 8 to 10" in told["change"]) == (outer == "H = 7"), told)
            if workers == 3 and outer == "H = 7":  # the first one's open window is not given once more
                members = {line["step"]: line["members"] for line in bench.lines(out) if line["k"] == "round"}
                require(members == {7: 2, 14: 2, 20: 3}, members)
            losses = bench.losses(out)
            require(all(losses[step] == plain[step] for step in range(1, 11)), f"{out}: it changes the past")
            # By the file, without the flag, it is the same, and noted as well.
            bench.train(config, out, *batch, *flags, "--set", f"run.workers={workers}")
            require(bench.model(out, 20) == model and bench.changes(out) == [told], f"{out}: by the file")
            # From a checkpoint of the changed run on nothing is left to change.
            bench.train(config, out, *batch, *changed, "--change", "train.steps=30", "--resume", "auto")
            require([each["change"] for each in bench.changes(out)][1:] == ["train.steps = 30 (20 before)"], out)
            bench.train(config, out, *batch, *flags)  # as it was


def workers_refused(bench):
    batch = ("--set", "train.global_batch=192 tok")
    shards = ("--set", "data.partition=shards")
    for method, more, words in (("eager", (), "anchors of their own"), ("co2", (), "is in flight"),
                                ("diloco", shards, "cut the data anew")):
        config = bench.config("run.toml", method, 20, "H = 5")
        bench.train(config, f"{method}-kept", *batch, *more)
        flags = (*batch, *more, "--resume", bench.folder / f"{method}-kept/ckpt/step-0000010")
        for change in ("--change", "--set"):
            for dry in ((), ("--dry-run",)):
                said = bench.train(config, f"{method}-kept", *flags, change, "run.workers=3", *dry, code=CONFIGURATION)
                require("run.workers = 3" in said and words in said, said)
    # What has ended in a closing round has none in flight.
    config = bench.config("run.toml", "co2", 20, "H = 5")
    bench.train(config, "co2-kept", *batch, "--resume", "auto", "--change", "run.workers=3", "--change", "train.steps=30")
    require(max(bench.losses("co2-kept")) == 30, "co2 does not go on")


NORTH = """
[[site]]
name = "north"
address = "127.0.0.1:0"
"""


def sites_of_several_processes(bench):
    net = '[net]\nmin_sites = 2\ngather = "60s"\n'
    two = bench.config("two.toml", "diloco", 20, more=SITES + net)
    three = bench.config("three.toml", "diloco", 40, more=SITES + NORTH + net)
    less = bench.config("less.toml", "diloco", 60, more=SITES.replace("east", "north") + net)
    for path in (two, three, less):
        path.write_text(path.read_text().replace("128 tok", "192 tok"))
    bench.launch(two, "sites")
    # A new site has an empty folder, and is given the state of the others, which train for seconds meanwhile.
    bench.launch(two, "sites", "--resume", "auto", "--change", "train.steps=40", "--dry-run", code=2)
    bench.launch(three, "sites", "--resume", "auto", "--set", "train.steps=20", "--change", "train.steps=800",
                 "--change", "ckpt.every=100 steps")
    for site in ("east", "west"):
        told = [each["change"] for each in bench.changes(f"sites/{site}")]
        require(len(told) == 3 and any("north new" in line for line in told), told)
    models = {site: bench.model(f"sites/{site}", 800) for site in ("east", "west", "north")}
    require(len(set(models.values())) == 1, models)
    # The first site is taken out: the others go on from their own states, known by their names.
    bench.launch(less, "sites", "--resume", "auto", "--set", "train.steps=800", "--change", "train.steps=830")
    for site in ("north", "west"):
        told = [each["change"] for each in bench.changes(f"sites/{site}")]
        require(any("run.workers = 2 (3 before): east left out" in line for line in told), told)
    require(bench.model("sites/north", 830) == bench.model("sites/west", 830), "without the first site")


def sites_of_unlike_changes(bench):
    toml = bench.config("unlike.toml", "diloco", 20, more=SITES + '[net]\ngather = "60s"\n')
    bench.launch(toml, "sites")
    at = [word for site, port in zip(("east", "west"), free_ports(2))
          for word in ("--address", f"{site}=127.0.0.1:{port}")]
    begun = [subprocess.Popen([bench.isthmus, "train", str(toml), "--site", site, "--out", str(bench.folder / "sites" / site),
                               "--resume", "auto", "--change", f"train.steps={steps}", "--progress", "none", *at],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
             for site, steps in (("east", 30), ("west", 40))]
    for each in begun:
        said = each.communicate(timeout=120)[1]
        require(each.returncode == 3 and "train.steps is 30 at east and 40 at west" in said, f"{each.returncode}: {said}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    for scenario in (made_longer, from_inside_a_window, from_here_on, refused, checked_before, appended,
                     appended_refused, workers_of_one_process, workers_refused, sites_of_several_processes,
                     sites_of_unlike_changes):
        if arguments.only not in (None, scenario.__name__):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                scenario(Bench(arguments.isthmus, pathlib.Path(folder)))
            except AssertionError as error:
                print(f"FAILED: {scenario.__name__}: {error}")
                return 1
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
