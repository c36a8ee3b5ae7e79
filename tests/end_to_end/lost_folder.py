#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that was taken for dead, and whose successor has ended, changes nothing in the folder.

  python3 tests/end_to_end/lost_folder.py --isthmus build/src/app/isthmus

One machine plays two: the first process is stopped, and the file of its lock is removed, as its
successor on another machine would have done at its end.
"""
import json
import signal
import subprocess
import time

from scenario import Failure, play, require, small_run

RUN = small_run("lost", arch="llama", steps=100000, global_batch="512 tok", context=64, lr="4e-3") + """
[outer]
method = "diloco"
H = 5
[ckpt]
every = "20 steps"
"""
BEATS = 10  # seconds without a beat after which a process looks before it writes


def until(what, condition, patience=120):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"not within {patience} s: {what}")
        time.sleep(0.02)


def bytes_of(folder):
    return {str(each.relative_to(folder)): each.read_bytes()
            for each in sorted(folder.rglob("*")) if each.is_file() and not each.is_symlink()}


def a_lost_folder_is_left_alone(isthmus, folder, corpus):
    toml, out = folder / "lost.toml", folder / "lost"
    toml.write_text(RUN.format(corpus=corpus))
    words = [isthmus, "train", str(toml), "--out", str(out), "--progress", "none"]
    errors = folder / "first.err"
    with open(errors, "w") as log:
        first = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            until("the first checkpoint", lambda: (out / "ckpt/last").exists())
            first.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            (out / "run.lock").unlink()
            second = subprocess.run([*words, "--force", "--set", "train.steps=5"], capture_output=True, text=True,
                                    timeout=120)
            require(second.returncode == 0, second.stderr)
            before = bytes_of(out)
            until("its beat is old", lambda: time.monotonic() - stopped > BEATS)
            first.send_signal(signal.SIGCONT)
            require(first.wait(120) == 4, f"exit {first.returncode}: {errors.read_text()}")
        finally:
            first.kill()
            first.wait()
    said = errors.read_text()
    require("is not held any more: run.lock is gone" in said, said)
    changed = [name for name, content in bytes_of(out).items() if before.get(name) != content]
    require(not changed and before.keys() == bytes_of(out).keys(), f"changed: {changed}\n{said}")
    require(json.loads((out / "manifest.json").read_text())["status"] == "ok", "not the second's manifest")


play(__doc__, (a_lost_folder_is_left_alone,))
