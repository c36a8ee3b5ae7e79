#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bits of a site's memory flip while a run goes on.

  python3 tests/end_to_end/healing.py --isthmus build/src/app/isthmus

The test changes the anchor, or the momentum, that a running process holds, as a cosmic ray would:
it finds the bytes that the newest checkpoint has in the memory of the stopped process. At the next
checkpoint the site that is wrong is found, and goes on from its own replay; all are told, and hold
the same outer parameters to the end. By ZeroMQ with the first site and with a hub, and by MPI.
Where nothing is retained the run ends with exit 5, naming both builds and processors.
"""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time

from scenario import Failure, free_ports, play, require, small_run

# It has steps until the test has seen what it wants.
TEXT = small_run("healing", seed=3, arch="llama", steps=1000000, global_batch="{batch} tok", threads=1, lr="1e-3",
                 schedule="constant") + """
[eval]
tokens = "1k"
[ckpt]
every = "{every} steps"
[net]
dead_after = "120s"
streams = 2
heal = "{heal}"
[outer]
method = "{method}"
{keys}
"""
EVERY = 100  # steps between checkpoints
# Mostly a checkpoint is newer than the last round, which then is what the memory has.
DILOCO = "H = 150\n"
STREAMING = 'H = 150\nfragments = 2\noverlap = 20\nalpha = 0.5\ncodec = "int8"\n'
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
SKIPPED = 77


def saved_bytes(path, name):
    """Of a tensor, from 64 bytes in its middle whose values are not all zero."""
    raw = path.read_bytes()
    head, = struct.unpack("<Q", raw[:8])
    begin, end = json.loads(raw[8:8 + head])[name]["data_offsets"]
    values = raw[8 + head + begin:8 + head + end]
    for at in range(len(values) // 2 // 64 * 64, len(values) - 64, 64):
        if values[at:at + 64].count(0) < 16:
            return values[at:at + 64]
    raise Failure(f"{name} in {path} is nearly all zero")


def flip_in_memory(pid, wanted):
    """The sign of a value wherever the process has these bytes. RETURNS: at how many places."""
    places = 0
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    try:
        memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
    except PermissionError:
        print("SKIPPED: another process's memory may not be written here")
        sys.exit(SKIPPED)
    with memory:
        for line in maps:
            span, mode = line.split()[:2]
            if not mode.startswith("rw"):
                continue
            begin, end = (int(each, 16) for each in span.split("-"))
            try:
                memory.seek(begin)
                held = memory.read(end - begin)
            except (OSError, ValueError, OverflowError):
                continue  # of no use to a program either
            at = held.find(wanted)
            while at >= 0:
                memory.seek(begin + at + 3)
                memory.write(bytes([wanted[3] ^ 0x80]))
                places += 1
                at = held.find(wanted, at + 1)
    return places


class Run:
    may_end = False

    def __init__(self, folder, names):
        self.folder, self.names = folder, names
        self.pids, self.read = {}, {}

    def said(self):
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("*.err")))

    def rows(self, name, kind):
        """Of the kinds that are looked at here, since the run is long."""
        path = self.folder / name / "metrics.jsonl"
        at, held = self.read.setdefault(name, (0, []))
        if path.exists():
            with open(path, "rb") as lines:
                lines.seek(at)
                whole = lines.read().rpartition(b"\n")
            held += [json.loads(line) for line in whole[0].splitlines()
                     if b'"k":"ckpt"' in line or b'"k":"event"' in line]
            self.read[name] = (at + len(whole[0]) + len(whole[1]), held)
        return [row for row in held if row["k"] == kind]

    def laid_down(self, name):
        """The step of its newest checkpoint."""
        return max([row["step"] for row in self.rows(name, "ckpt")], default=0)

    def until(self, what, condition, patience=180):
        begin = time.monotonic()
        while not condition():
            if self.ended():  # asked once: it may end between two questions
                require(self.may_end or condition(), f"it has ended: {what}\n{self.said()}")
                return
            require(time.monotonic() - begin < patience, f"not within {patience} s: {what}\n{self.said()}")
            time.sleep(0.02)

    def signal(self, what):
        for pid in self.pids.values():
            try:
                os.kill(pid, what)
            except ProcessLookupError:
                require(self.may_end, f"process {pid} has ended")

    def damage(self, name, tensor):
        """The site's state since its newest checkpoint, once that is what its memory has."""
        place = self.names.index(name)
        for _ in range(200):
            checkpoints = len(self.rows(name, "ckpt"))
            self.until("a checkpoint", lambda: len(self.rows(name, "ckpt")) > checkpoints)
            if self.may_end and self.ended():
                return 0
            self.signal(signal.SIGSTOP)
            try:
                newest = (self.folder / name / "ckpt/last").resolve()
                wanted = saved_bytes(newest / f"worker-{place}.safetensors", f"outer/{tensor}")
                if flip_in_memory(self.pids[name], wanted) > 0:
                    return int(newest.name.removeprefix("step-"))
            finally:
                self.signal(signal.SIGCONT)
        raise Failure(f"the memory of {name} has never been what its checkpoint says")

    def healed(self, name):
        return [row for row in self.rows(name, "event") if row["what"] == "site healed"]

    def damage_that_is_found(self, name, tensor, found):
        """Until `found()`: what is damaged may be a copy that nobody needs any more. RETURNS: the
        step after which it was."""
        for _ in range(40):
            step = self.damage(name, tensor)
            self.until("two more checkpoints", lambda: found() or all(
                self.laid_down(each) >= step + 2 * EVERY for each in self.names))
            if found():
                return step
        raise Failure(f"nobody finds that {tensor} of {name} is another\n{self.said()}")

    def is_healed_and_goes_on(self, name, tensor):
        before = len(self.healed(self.names[0]))
        step = self.damage_that_is_found(
            name, tensor, lambda: all(len(self.healed(each)) > before for each in self.names))
        for each in self.names:
            row = self.healed(each)[-1]
            require(len(self.healed(each)) == before + 1 and row["site"] == name and row["step"] > step,
                    f"{each} was told {self.healed(each)}")
            require("its own replay" in row["why"] and "in doubt" in row["why"], row["why"])
        self.until("all have laid down that step", lambda: all(
            self.laid_down(each) > row["step"] for each in self.names))
        self.signal(signal.SIGSTOP)  # while files are looked at
        for later in {path.name for path in (self.folder / name / "ckpt").glob("step-*")}:
            models = [self.folder / each / "ckpt" / later / "model.safetensors" for each in self.names]
            held = {path.read_bytes() for path in models if path.exists()}
            require(len(held) == 1, f"unlike models after {later}")
        self.signal(signal.SIGCONT)


class Sites(Run):
    def __init__(self, isthmus, folder, corpus, method, keys, heal="1GiB", hub=""):
        super().__init__(folder, ["east", "west"])
        folder.mkdir()
        text = TEXT.format(every=EVERY, corpus=corpus, batch=128, method=method, keys=keys, heal=heal) + hub
        for name, port in zip(self.names, free_ports(2)):
            text += f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
        toml = folder / "run.toml"
        toml.write_text(text)
        self.processes = {}
        for name in self.names:
            said = open(folder / f"{name}.err", "w")
            self.processes[name] = subprocess.Popen(
                [isthmus, "train", str(toml), "--site", name, "--progress", "none", "--out",
                 str(folder / name)], stdout=subprocess.DEVNULL, stderr=said)
            self.pids[name] = self.processes[name].pid

    def ended(self):
        return any(each.poll() is not None for each in self.processes.values())

    def stop(self, signal_first=True):
        """RETURNS: exit codes."""
        if signal_first:
            self.processes["west"].send_signal(signal.SIGINT)
        return [each.wait(timeout=120) for each in self.processes.values()]

    def kill(self):
        for each in self.processes.values():
            each.kill()


class Job(Run):
    """The same under MPI."""

    def __init__(self, isthmus, folder, corpus, method, keys):
        super().__init__(folder, ["w0", "w1"])
        folder.mkdir()
        toml = folder / "run.toml"
        text = TEXT.format(every=EVERY, corpus=corpus, batch=128, method=method, keys=keys, heal="1GiB")
        toml.write_text(text.replace("seed = 3", "seed = 3\nworkers = 2"))
        self.launcher = subprocess.Popen(
            ["mpirun", "-n", "2", isthmus, "train", str(toml), "--progress", "none", "--out",
             str(folder)], stdout=subprocess.DEVNULL, stderr=open(folder / "job.err", "w"),
            env={**os.environ, **ENVIRONMENT})
        self.until("both have begun", lambda: len(list(folder.glob("*/metrics.jsonl"))) == 2)
        self.names = sorted(path.parent.name for path in folder.glob("*/metrics.jsonl"))
        for process in pathlib.Path("/proc").iterdir():
            try:
                if process.name.isdigit() and str(toml) in (process / "cmdline").read_text() and \
                        "isthmus" in os.readlink(process / "exe"):
                    held = dict(pair.split("=", 1) for pair in
                                (process / "environ").read_text().split("\0") if "=" in pair)
                    rank = int(held["OMPI_COMM_WORLD_RANK"])
                    self.pids[self.names[rank]] = int(process.name)
            except OSError:
                continue  # somebody else's, or gone
        require(len(self.pids) == 2, f"processes {self.pids}")

    def ended(self):
        return self.launcher.poll() is not None

    def stop(self):
        os.kill(self.pids[self.names[0]], signal.SIGINT)
        self.launcher.wait(timeout=120)

    def kill(self):
        self.launcher.terminate()
        self.launcher.wait(timeout=120)


def whoever_is_damaged_is_healed(isthmus, folder, corpus):
    run = Sites(isthmus, folder / "first", corpus, "diloco", DILOCO)
    try:
        run.is_healed_and_goes_on("west", "anchor/0")
        run.is_healed_and_goes_on("east", "momentum/0")
        require(run.stop() == [130, 130], run.said())
    finally:
        run.kill()
    require("site west is healed: after step" in run.said(), run.said())
    last = [(run.folder / name / "ckpt/last/model.safetensors").read_bytes() for name in run.names]
    require(last[0] == last[1], "they end with unlike models")
    for name in run.names:
        require(not (run.folder / name / "retained.results").exists(), f"{name} leaves its results")
        page = run.folder / f"{name}.html"
        subprocess.run([isthmus, "report", str(run.folder / name), "--out", str(page)], check=True,
                       capture_output=True)
        require(page.read_text().count("site healed: after step") == 2, "the report does not tell")


def with_a_hub_too(isthmus, folder, corpus):
    hub = f'[hub]\naddress = "127.0.0.1:{free_ports(1)[0]}"\nsite = "east"\n'
    run = Sites(isthmus, folder / "hub", corpus, "streaming-diloco", STREAMING, hub=hub)
    try:
        run.is_healed_and_goes_on("east", "anchor/1")
        run.is_healed_and_goes_on("west", "momentum/0")
        require(run.stop() == [130, 130], run.said())
    finally:
        run.kill()


def over_mpi_too(isthmus, folder, corpus):
    if shutil.which("mpirun") is None:
        print("no mpirun here: left out")
        return
    run = Job(isthmus, folder / "job", corpus, "diloco", DILOCO)
    try:
        run.is_healed_and_goes_on(run.names[1], "anchor/0")
        run.stop()
    finally:
        run.kill()


def without_results_nobody_can_say(isthmus, folder, corpus):
    run = Sites(isthmus, folder / "none", corpus, "diloco", DILOCO, heal="0B")
    try:
        run.may_end = True
        run.damage_that_is_found("west", "anchor/0", run.ended)
        codes = run.stop(signal_first=False)
    finally:
        run.kill()
    require(codes == [5, 5], f"exit {codes}: {run.said()}")
    for name in run.names:
        last = (run.folder / f"{name}.err").read_text().splitlines()[-1]
        require(all(each in last for each in ("the outer parameters of sites east (", "and west (",
                                              "net.heal", " on ", "--resume")), last)
        steps = {each: (run.folder / each / "ckpt/last").resolve().name for each in run.names}
        require(len(set(steps.values())) == 1, f"a checkpoint of what differs was written: {steps}")


if __name__ == "__main__":
    play(__doc__, (whoever_is_damaged_is_healed, with_a_hub_too, over_mpi_too,
                   without_results_nobody_can_say))
