#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process a run folder, and disks and outputs that are full.

  python3 tests/end_to_end/run_folder.py --isthmus build/src/app/isthmus

A second process in a folder that another one writes into ends with exit code 4 and names its pid,
host and start, with every flag and command; the first goes on untouched, readers work. What a killed
process held is taken over at once. A checkpoint's size is told beforehand; a disk that cannot hold
the checkpoints is refused at the start, and one that fills up is waited for. A full stdout does not
make a saved run a failed one.
"""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

from scenario import Failure, free_ports, play, require, small_run

RUN = small_run("lock", arch="llama", steps="{steps}", global_batch="512 tok", context=64, lr="4e-3") + """
[outer]
method = "diloco"
H = 5
{sites}
[ckpt]
every = "20 steps"
"""
SITES = '[[site]]\nname = "east"\n[[site]]\nname = "west"\n'
COMPARISON = """
[compare]
seeds = 1
[compare.tune]
space = {{ "inner.lr" = [4e-3] }}
trials = 1
follow_ups = 0
seeds = 1
[variant.ddp]
outer = {{ method = "ddp" }}
[variant.local]
outer = {{ method = "localsgd", H = 5 }}
"""


def write(folder, name, corpus, steps=200, sites=SITES, more=""):
    path = folder / f"{name}.toml"
    path.write_text(RUN.format(corpus=corpus, steps=steps, sites=sites) + more)
    return path


def until(what, condition, patience=120):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"not within {patience} s: {what}")
        time.sleep(0.02)


def call(isthmus, *words, code=0, **more):
    done = subprocess.run([isthmus, *map(str, words)], capture_output=True, text=True, timeout=300, **more)
    require(done.returncode == code, f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


class Held:
    """A process that is stopped in the middle of its work, with its folder held; killed at the end."""

    def __init__(self, isthmus, *words, ready):
        self.process = subprocess.Popen([isthmus, *map(str, words), "--progress", "none"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(f"{words} at work", lambda: ready() or self.process.poll() is not None)
        require(self.process.poll() is None, f"{words} has ended: {self.process.returncode}")
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)  # other threads may write until then

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def refuses(self, isthmus, *words, also=(), **more):
        """`words` end with exit code 4 and say who holds the folder."""
        host = os.uname().nodename
        said = call(isthmus, *words, code=4, **more).stderr.strip().splitlines()[-1]
        for part in (f"process {self.process.pid} on host {host}, since 20", " UTC; ", *also):
            require(part in said, f"{words}: {said!r} lacks {part!r}")


def lines_of(file):
    return file.read_text().count("\n") if file.exists() else 0


def bytes_in(file):
    return file.stat().st_size if file.exists() else 0


def bytes_of(folder):
    return {str(each.relative_to(folder)): each.read_bytes()
            for each in sorted(folder.rglob("*")) if each.is_file() and not each.is_symlink()}


def one_process_a_folder(isthmus, folder, corpus):
    toml, out = write(folder, "one", corpus), folder / "one"
    with Held(isthmus, "train", toml, "--out", out,
              ready=lambda: (out / "ckpt/last").exists()) as first:
        before = bytes_of(out)
        for verb, *flags in (["train"], ["train", "--force"], ["train", "--resume", "auto"],
                             ["train", "--resume", out / "ckpt/last"],
                             ["simulate", "--link", "1Gbit/s,1ms", "--force"],
                             ["simulate", "--link", "1Gbit/s,1ms", "--emulate", "--force"]):
            first.refuses(isthmus, verb, toml, "--out", out, *flags, also=("give another --out",))
        for flags in ([], ["--force"], ["--resume", "auto"]):
            first.refuses(isthmus, "launch", toml, "--out", out, *flags, also=("give another --out",))
        slurm = {**os.environ, "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
        first.refuses(isthmus, "train", toml, "--out", out, env=slurm,
                      also=("Slurm has started 2 processes of this command", "--site auto"))
        first.refuses(isthmus, "runs", "rm", out, "--force")
        first.refuses(isthmus, "export", out, "--to", "hf", out)
        first.refuses(isthmus, "import", out / "ckpt/last", out)
        call(isthmus, "train", toml, "--out", folder / "other", "--progress", "none", "--set", "train.steps=2")
        first.refuses(isthmus, "init", out)
        for to in ("tb", "csv", "chrome", "mlperf"):
            first.refuses(isthmus, "export", folder / "other", "--to", to, out)
            first.refuses(isthmus, "export", folder / "other", "--to", to, out / "below")
        first.refuses(isthmus, "data", "synth", "zipf:tokens=1k", out / "tokens.bin")
        first.refuses(isthmus, "data", "tokenize", corpus, "--tokenizer", folder / "none", "--out", out)
        first.refuses(isthmus, "data", "train-tokenizer", corpus, "--out", out)
        first.refuses(isthmus, "keygen", "east", "--out", out)
        first.refuses(isthmus, "bench", "link", "--to", "127.0.0.1:1", "--plaintext", "--out", out / "links.toml")
        first.refuses(isthmus, "report", folder / "other", "--csv", out)
        call(isthmus, "status", out, code=0)
        call(isthmus, "report", out, "--out", folder / "report.html")
        call(isthmus, "export", out, "--to", "csv", folder / "csv")
        require(bytes_of(out) == before, "a refused process has changed the folder")
        require((out / "run.lock").exists(), "no lock")
    said = call(isthmus, "train", toml, "--out", out, "--resume", "auto", "--progress", "none").stderr
    require("in use" not in said, f"a dead owner's lock was not taken over at once: {said}")
    require(not (out / "run.lock").exists(), "a run that has ended leaves its lock")
    call(isthmus, "train", toml, "--out", folder / "whole", "--progress", "none")
    losses = [[json.loads(line)["loss"] for line in (each / "metrics.jsonl").read_text().splitlines()
               if '"k":"train"' in line] for each in (out, folder / "whole")]
    require(losses[0] == losses[1], "the run that was killed is not the uninterrupted one")


def sites_hold_their_folders(isthmus, folder, corpus):
    toml, out = write(folder, "sites", corpus), folder / "sites"
    ports = free_ports(2)
    at = [word for name, port in zip(("east", "west"), ports)
          for word in ("--address", f"{name}=127.0.0.1:{port}")]
    east = ["train", toml, "--site", "east", *at]
    # It waits for west, and writes nothing yet.
    with Held(isthmus, *east, "--out", out / "east",
              ready=lambda: bytes_in(out / "east/run.lock") > 0) as first:  # written once it is locked
        first.refuses(isthmus, *east, "--out", out / "east")
        first.refuses(isthmus, *east, "--out", out / "east", "--force")
        first.refuses(isthmus, *east, "--out", out / "east", "--resume", "auto", "--set", 'net.gather="2s"')
        first.refuses(isthmus, "train", toml, "--out", out / "east")
    launch = ["launch", toml, "--out", out, "--progress", "none"]
    call(isthmus, *launch)
    before = {each: bytes_of(out / each) for each in ("east", "west")}
    said = call(isthmus, *launch, "--resume", "auto").stderr
    for each in before:
        require(bytes_of(out / each) == before[each], f"{each}: a complete run was changed\n{said}")


def a_launch_into_a_running_launch_is_refused(isthmus, folder, corpus):
    toml, out = write(folder, "launch", corpus, steps=4000), folder / "launch"
    first = subprocess.Popen([isthmus, "launch", str(toml), "--out", str(out), "--progress", "none"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until("lines of both", lambda: all(lines_of(out / each / "metrics.jsonl") > 3
                                           for each in ("east", "west")))
        for flags in ([], ["--force"]):
            said = call(isthmus, "launch", toml, "--out", out, *flags, code=4).stderr
            require("is in use: process" in said, said)
        said = call(isthmus, "train", toml, "--out", out, "--force", code=4).stderr
        require(f"'{out / 'east'}' is in use: process" in said, said)
        require(first.poll() is None, "the first launch has ended")
    finally:
        first.send_signal(signal.SIGINT)
        require(first.wait(120) == 130, f"exit {first.returncode} after SIGINT")


def comparisons_hold_their_cells(isthmus, folder, corpus):
    more = COMPARISON.format()
    toml, out = write(folder, "cmp", corpus, steps=60, sites="", more="[eval]\ntokens = \"256\"\n" + more), folder / "cmp"
    single = write(folder, "single", corpus, sites="")
    with Held(isthmus, "compare", toml, "--out", out, "--jobs", 1,
              ready=lambda: any(lines_of(each) > 3 for each in out.glob("*/*/metrics.jsonl"))) as first:
        cell = next(out.glob("*/*/metrics.jsonl")).parent
        for flags in ([], ["--force"], ["--resume"]):
            first.refuses(isthmus, "compare", toml, "--out", out, *flags)
        first.refuses(isthmus, "train", single, "--out", out, "--force")
        first.refuses(isthmus, "train", single, "--out", cell, "--force")  # held itself, or one that has ended
        first.refuses(isthmus, "train", single, "--out", out / "local/seed-9", also=("lies in",))
    call(isthmus, "compare", toml, "--out", out, "--resume", "--progress", "none")
    with Held(isthmus, "train", single, "--out", cell, "--force",
              ready=lambda: (cell / "ckpt/last").exists()) as first:
        first.refuses(isthmus, "compare", toml, "--out", out, "--force", also=(str(cell),))
        require((out / "summary.json").exists(), "a refused --force has removed the comparison")


def a_full_stdout_is_no_failed_run(isthmus, folder, corpus):
    if not pathlib.Path("/dev/full").exists():
        print("skipped: no /dev/full")
        return
    toml = write(folder, "stdout", corpus, steps=5)
    with open("/dev/full", "w") as full:
        for name, flags, code in (("text", [], 0), ("json", ["--json"], 4)):
            done = subprocess.run([isthmus, "train", str(toml), "--out", str(folder / f"out-{name}"),
                                   "--progress", "none", *flags], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=120)
            last = done.stderr.strip().splitlines()[-1]
            require(done.returncode == code, f"{flags}: exit {done.returncode}: {last}")
            require("stdout: No space left" in last and f"is saved in '{folder}/out-{name}'" in last, last)
            manifest = json.loads((folder / f"out-{name}/manifest.json").read_text())
            require(manifest["status"] == "ok", manifest["status"])
        # Nor is what another command has written whole.
        run, hf = folder / "out-text", folder / "stdout-hf"
        for words, made in ((["export", run, "--to", "hf", hf], hf), (["import", hf, folder / "again"], folder / "again"),
                            (["merge", hf, hf, "--out", folder / "mean"], folder / "mean"),
                            (["report", run], run / "report.html"),
                            (["data", "train-tokenizer", corpus, "--vocab", "300", "--out", folder / "words"],
                             folder / "words"),
                            (["data", "tokenize", corpus, "--tokenizer", folder / "words", "--out", folder / "ids"],
                             folder / "ids")):
            for flags, code in (([], 0), (["--json"], 4)):
                if made.is_dir():
                    shutil.rmtree(made)
                done = subprocess.run([isthmus, *map(str, words), *flags], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=120)
                last = done.stderr.strip().splitlines()[-1]
                require(done.returncode == code and "stdout: No space left" in last and f"'{made}'" in last and
                        "written whole" in last and made.exists(), f"{words} {flags}: {done.returncode}: {last}")


def checkpoints_are_as_large_as_said(isthmus, folder, corpus):
    for name, keys in (("diloco", []), ("ddp", ['outer.method="ddp"']),
                       ("muon", ['inner.optimizer="muon"']), ("eager", ['outer.method="eager"']),
                       ("spsa", ['outer.method="spsa"'])):
        toml = write(folder, f"size-{name}", corpus, steps=2)
        text = toml.read_text().replace("d_model = 32", "d_model = 64")
        toml.write_text(text.replace("H = 5", "" if name in ("ddp", "spsa") else "H = 2"))
        sets = [word for key in keys for word in ("--set", key)]
        out = folder / f"size-{name}"
        said = json.loads(call(isthmus, "train", toml, *sets, "--out", out, "--dry-run", "--json").stdout)
        require(not out.exists(), "--dry-run has made the folder")
        call(isthmus, "train", toml, *sets, "--out", out, "--progress", "none")
        real = sum(each.stat().st_size for each in (out / "ckpt/last/").iterdir())
        require(abs(real / said["checkpoint_bytes"] - 1) < 0.05,
                f"{name}: {said['checkpoint_bytes']} bytes said, {real} written")
        require(said["checkpoints_at_once"] == 1 and said["disk_free_bytes"] > 0, str(said))


def fill(file):
    with open(file, "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            pass


def a_full_disk_is_waited_for(isthmus, folder, corpus):
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "isthmus-test", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        print("skipped: a disk of 4 MiB (no root, or no mounts here)")
        return
    try:
        large = write(folder, "large", corpus)
        large.write_text(large.read_text().replace("d_model = 32", "d_model = 128"))
        for flags in ([], ["--dry-run"]):
            said = call(isthmus, "train", large, "--out", disk / "run", *flags, code=4).stderr
            require("ckpt.keep = 3" in said and "are free there" in said, said)
        require(not (disk / "run").exists(), "a refused run has made its folder")
        pair = write(folder, "pair", corpus)
        said = call(isthmus, "launch", pair, "--out", disk / "pair", code=4).stderr  # one of them alone would fit
        require("the checkpoints of 2 sites take" in said and "are free there" in said, said)
        require(not (disk / "pair").exists(), "a refused launch has made its folder")
        for starter in (("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
                        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_NODES")):
            together = os.environ | dict(zip(starter, ("1", "2", "1" if "SLURM_PROCID" in starter else "2")))
            said = call(isthmus, "train", pair, "--site", "auto", "--out", disk / "pair", code=4, env=together).stderr
            require("the checkpoints of 2 sites take" in said and "are free there" in said, said)
        require(not (disk / "pair").exists(), "a refused site has made its folder")
        small = write(folder, "small", corpus, steps=40, sites="")
        filler = disk / "filler"
        errors = folder / "full.err"
        with open(errors, "w") as log:
            run = subprocess.Popen([isthmus, "train", str(small), "--out", str(disk / "run"),
                                    "--set", 'ckpt.every="0 steps"', "--progress", "none"], stdout=log, stderr=log)
            until("lines", lambda: lines_of(disk / "run/metrics.jsonl") > 1)
            fill(filler)
            until("the run waits for room", lambda: "is tried again for" in errors.read_text())
            filler.unlink()
            require(run.wait(120) == 0, f"exit {run.returncode}: {errors.read_text()}")
        metrics = (disk / "run/metrics.jsonl").read_text().splitlines()
        require([json.loads(line)["step"] for line in metrics if '"k":"train"' in line] == list(range(1, 41)),
                "lines are missing or torn")
        require(json.loads((disk / "run/ckpt/last/state.json").read_text())["step"] == 40, "no checkpoint")
        # The lock has no room for its words either: what the run lacks room for is said by its checks.
        fill(filler)
        done = call(isthmus, "train", small, "--out", disk / "run", "--set", 'ckpt.every="0 steps"', "--resume", "auto")
        require("is complete" in done.stdout and "run.lock: cannot write" in done.stderr, f"complete: {done}")
        said = call(isthmus, "train", small, "--out", disk / "run", "--set", 'ckpt.every="0 steps"', "--resume", "auto",
                    "--change", "train.steps=4000", code=4).stderr.strip().splitlines()[-1]
        require("are free there" in said, said)
        require(not (disk / "run/run.lock").exists(), "a lock without words stays")
        filler.unlink()
        # A person's signal ends the tries at once, whatever else cannot be written.
        errors = folder / "interrupted.err"
        with open(errors, "w") as log:
            run = subprocess.Popen([isthmus, "train", str(small), "--out", str(disk / "second"),
                                    "--set", "train.steps=4000", "--set", "ckpt.keep=1",
                                    "--set", 'ckpt.every="0 steps"', "--progress", "none"], stdout=log, stderr=log)
            until("lines", lambda: lines_of(disk / "second/metrics.jsonl") > 1)
            fill(filler)
            until("the run waits for room", lambda: "is tried again for" in errors.read_text())
            run.send_signal(signal.SIGINT)
            begin = time.monotonic()
            require(run.wait(60) == 4, f"exit {run.returncode}: {errors.read_text()}")
        require(time.monotonic() - begin < 10, f"it tries on after SIGINT: {errors.read_text()}")
        require("could not be written, tried for" in errors.read_text().splitlines()[-1], errors.read_text())
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def a_limit_of_file_sizes_is_told(isthmus, folder, corpus):
    """ulimit -f: at the start where no checkpoint can be written, else as an error; not by SIGXFSZ, without a word."""
    toml = write(folder, "limited", corpus, steps=20)
    whole = folder / "limited-whole"
    call(isthmus, "train", toml, "--out", whole, "--progress", "none")
    sizes = [file.stat().st_size for file in (whole / "ckpt/last").iterdir()]

    def limited(out, most, *words):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        done = subprocess.run([isthmus, "train", str(toml), "--out", str(folder / out), "--progress", "none", *words],
                              capture_output=True, text=True, timeout=120, preexec_fn=limit)
        require(done.returncode == 4, f"{most} bytes: exit {done.returncode}: {done.stderr}")
        return done.stderr

    for words in ((), ("--dry-run",)):
        said = limited("limited-start", sum(sizes) // 10, *words)
        require("a file may have" in said and "ulimit -f" in said, said)
        require(not (folder / "limited-start").exists(), "a refused run left its folder")
    said = limited("limited-end", max(sizes) - 1)  # seen where the largest file is written
    require("File too large" in said and "ulimit -f" in said, said)


def a_complete_run_on_a_read_only_disk(isthmus, folder, corpus):
    """Nothing has to be written: the run is complete. Whatever would write is refused with the cause."""
    disk = folder / "read-only"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "isthmus-test", str(disk)],
                                           capture_output=True).returncode != 0:
        print("skipped: a read-only disk (no root, or no mounts here)")
        return
    one, pair = write(folder, "archived", corpus, steps=10, sites=""), write(folder, "archived-pair", corpus, steps=10)
    quiet = ("--progress", "none")
    try:
        for command in (["train", one], ["simulate", pair, "--link", "1Gbit/s,1ms"], ["launch", pair]):
            out = disk / command[0]
            call(isthmus, *command, "--out", out, *quiet)
            before = bytes_of(out)
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            done = call(isthmus, *command, "--out", out, "--resume", "auto", *quiet)
            require("is complete: all of its 10 steps" in done.stdout + done.stderr, f"{command}: {done}")
            require(bytes_of(out) == before, f"{command}: something was written")
            if command[0] != "launch":
                for more in (["--resume", "auto", "--change", "train.steps=20"], ["--force"], []):
                    refused = call(isthmus, *command, "--out", out, *more, code=4).stderr
                    require("Read-only file system; mount that disk for writing" in refused, refused)
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        # A run that another process writes into is not complete, whatever this process may do there.
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        refused = call(isthmus, "train", one, "--out", disk / "new", code=4).stderr
        require("Read-only file system" in refused, refused)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def a_file_that_shrinks_is_named(isthmus, folder, corpus):
    text = folder / "shrinks.txt"
    text.write_bytes(corpus.read_bytes() * 4)
    toml = write(folder, "shrinks", text, steps=1000000, sites="")
    out = folder / "shrinks"
    run = subprocess.Popen([isthmus, "train", str(toml), "--out", str(out), "--progress", "none"],
                           stderr=subprocess.PIPE, text=True)
    until("a checkpoint", lambda: (out / "ckpt/last").exists() or run.poll() is not None)
    os.truncate(text, 0)
    said = run.communicate(timeout=120)[1]
    require(run.returncode == 4 and str(text) in said and "has become shorter" in said, f"{run.returncode}: {said}")
    text.write_bytes(corpus.read_bytes() * 4)
    done = call(isthmus, "train", toml, "--out", out, "--resume", "auto", "--change", "train.steps=" + str(
        json.loads((out / "ckpt/last/state.json").read_text())["step"] + 1))
    require("ok after" in done.stdout, done.stdout)


def models_replace_no_checkpoint(isthmus, folder, corpus):
    toml = write(folder, "kept", corpus, steps=10, sites="")
    run = folder / "kept"
    call(isthmus, "train", toml, "--out", run, "--progress", "none")
    call(isthmus, "export", run, "--to", "hf", folder / "model")
    before = (run / "ckpt/last/model.safetensors").read_bytes()
    last = (run / "ckpt/last").resolve()
    for words in (["import", folder / "model", run / "ckpt/last"], ["import", folder / "model", last],
                  ["export", run, "--to", "hf", run / "ckpt/hf"],
                  ["merge", folder / "model", folder / "model", "--out", run / "ckpt/step-0000001"],
                  ["train", toml, "--out", run / "ckpt/last", "--force"], ["train", toml, "--out", last / "x"]):
        said = call(isthmus, *words, code=4).stderr
        require("checkpoint" in said and "name a folder outside" in said, said)
    require((run / "ckpt/last/model.safetensors").read_bytes() == before, "the checkpoint is another")
    call(isthmus, "export", run, "--to", "hf", run / "hf")  # a folder of the run's, but no checkpoint's
    for words in (["init", last], ["keygen", "a", "--out", last], ["data", "synth", "synth:zipf", last / "t.bin"],
                  ["report", run, "--csv", last]):
        said = call(isthmus, *words, code=4).stderr
        require("lies among the checkpoints of" in said, said)
    other = folder / "of-another-program"  # a state.json alone makes no checkpoint
    other.mkdir()
    (other / "state.json").write_text("{}")
    for words in (["init", other], ["keygen", "a", "--out", other], ["data", "synth", "synth:zipf", other / "t.bin"],
                  ["report", run, "--csv", other]):
        call(isthmus, *words)
    require((other / "state.json").read_text() == "{}", "another program's state.json is another")


def one_process_a_model(isthmus, folder, corpus):
    models = []
    for seed in (1, 2):
        toml = write(folder, f"seed-{seed}", corpus, steps=2, sites="")
        call(isthmus, "train", toml, "--out", folder / f"seed-{seed}", "--set", f"run.seed={seed}", "--progress", "none")
        call(isthmus, "export", folder / f"seed-{seed}", "--to", "hf", folder / f"model-{seed}")
        models.append(folder / f"model-{seed}")
        settings = json.loads((models[-1] / "config.json").read_text()) | {"origin": seed}
        (models[-1] / "config.json").write_text(json.dumps(settings))
    for attempt in range(6):
        to = folder / f"both-{attempt % 2}"
        running = [subprocess.Popen([isthmus, "import", str(model), str(to)], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True) for model in models]
        said = [process.communicate(timeout=60)[1] for process in running]
        codes = [process.returncode for process in running]
        require(set(codes) <= {0, 4} and 0 in codes, f"{codes}: {said}")
        for code, text in zip(codes, said):
            require(code == 0 or "one process at a time" in text, text)
        whose = json.loads((to / "config.json").read_text())["origin"]
        require((to / "model.safetensors").read_bytes() == (models[whose - 1] / "model.safetensors").read_bytes(),
                "a folder holds one model's weights and the other's config.json")
        require(not [*folder.glob(".both*")], "a lock or a temporary folder stays")


def a_rehearsal_says_that_the_links_were_not_there(isthmus, folder, corpus):
    link = SITES + '[[link]]\nbetween = ["east", "west"]\nrate = "2Mbps"\nrtt = "80ms"\n'
    toml, out = write(folder, "rehearsed", corpus, steps=20, sites=link), folder / "rehearsed"
    said = call(isthmus, "launch", toml, "--out", out, "--progress", "none").stderr
    require("the declared links were not there" in said and "all sites are on loopback" in said, said)
    require("is off by" not in said, said)
    prediction = json.loads((out / "east/summary.json").read_text())["prediction"]
    require("were not there" in prediction["links_absent"], str(prediction)[:300])


def a_name_without_an_address_is_told_of_at_once(isthmus, folder, corpus):
    toml = write(folder, "names", corpus, more="[net]\nplaintext = true\n")
    port = free_ports(1)[0]
    errors = folder / "names.err"
    with open(errors, "w") as log:
        site = subprocess.Popen([isthmus, "train", str(toml), "--site", "east", "--out", str(folder / "names"),
                                 "--address", f"east=127.0.0.1:{port}", "--address", "west=west.invalid:48200"],
                                stdout=log, stderr=log)
        try:
            until("who is unknown", lambda: "west cannot be dialled: west.invalid: " in errors.read_text(), 60)
            require(site.poll() is None, "it does not try on")
        finally:
            site.kill()
            site.wait()


play(__doc__, (one_process_a_folder, sites_hold_their_folders, a_launch_into_a_running_launch_is_refused,
               comparisons_hold_their_cells, a_full_stdout_is_no_failed_run, checkpoints_are_as_large_as_said,
               a_full_disk_is_waited_for, a_limit_of_file_sizes_is_told, a_complete_run_on_a_read_only_disk, a_rehearsal_says_that_the_links_were_not_there,
               a_name_without_an_address_is_told_of_at_once, a_file_that_shrinks_is_named,
               models_replace_no_checkpoint, one_process_a_model))
