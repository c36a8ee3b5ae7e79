#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs whose state lies in files (train.offload), held against the same in memory.

offload_test.py PROGRAM
"""
import hashlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
MIB = 1 << 20
# 12.3 M parameters: 16 bytes each inside, 8 outside.
RUN = """[run]
workers = {workers}
[model]
arch = "gpt2"
n_layers = 6
n_heads = 6
d_model = 384
vocab = 4096
[data]
source = "text:words.txt"
[train]
steps = 3
global_batch = "{batch} tok"
context = 32
recompute = true
threads = 2
[eval]
every = 2
[outer]
method = "streaming-diloco"
H = 2
fragments = 3
codec = "int4"
"""


def on_tmpfs(folder):
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True,
                          check=True)
    return done.stdout.strip() == "tmpfs"


class Offload(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        (self.folder / "words.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)

    def tearDown(self):
        self.scratch.cleanup()

    def run_program(self, *arguments, limit=None):
        def set_limit():
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            # Room of threads' stacks counts too, and a shell's limit would be it.
            resource.setrlimit(resource.RLIMIT_STACK, (8 * MIB, 8 * MIB))
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, capture_output=True,
                              text=True, timeout=240, env={**os.environ, "NO_COLOR": "1"},
                              preexec_fn=set_limit if limit else None)

    def train(self, out, *arguments, workers=1, limit=None, command="train"):
        (self.folder / "run.toml").write_text(RUN.format(workers=workers, batch=64 * workers))
        done = self.run_program(command, "run.toml", "--out", out, "--progress", "none", *arguments,
                                limit=limit)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def result(self, out):
        """Digests of the checkpoint; losses of the steps and evaluations."""
        folder = self.folder / out
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                 for path in (folder / "ckpt" / "last").glob("*.safetensors")
                 if path.name != "shared.safetensors"}
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        kept = [(line["k"], line["step"], line["loss"]) for line in lines
                if line["k"] in ("train", "eval")]
        return files, kept

    def test_files_give_the_same_bits(self):
        self.train("memory", workers=2)
        self.train("files", "--set", "train.offload=state", workers=2)
        memory, files = self.result("memory"), self.result("files")
        self.assertEqual(files[0], memory[0])
        self.assertEqual(files[1], memory[1])
        self.assertEqual(len(files[0]), 3)
        self.assertEqual(list((self.folder / "state").iterdir()), [])
        events = [json.loads(line)
                  for line in (self.folder / "files" / "events.jsonl").read_text().splitlines()]
        compute = [(e["t0"], e["t1"], e["w"]) for e in events if e["k"] == "compute"]
        if on_tmpfs(self.folder):
            self.skipTest("tmpfs keeps its pages: nothing is read again")
        self.assertEqual({(e["k"], e["w"], e["step"]) for e in events
                          if e["k"] in ("read", "write") and e["step"] > 0},
                         {(k, w, s) for k in ("read", "write") for w in (0, 1) for s in (1, 2, 3)})
        beside = [e for e in events if e["k"] in ("read", "write") and
                  any(t0 < e["t1"] and e["t0"] < t1 and w == e["w"] for t0, t1, w in compute)]
        self.assertGreater(len(beside), 10)

    def test_a_run_goes_on_between_memory_and_files(self):
        self.train("whole")
        self.train("cut", "--set", "train.offload=state", "--set", "ckpt.every=1 steps")
        (self.folder / "cut/ckpt/last").unlink()
        (self.folder / "cut/ckpt/last").symlink_to("step-0000001")
        done = self.run_program("train", "run.toml", "--out", "again", "--resume", "cut/ckpt/last",
                                "--set", "train.offload=other", "--progress", "none")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.result("again")[0], self.result("whole")[0])

    def test_trains_within_less_memory_than_its_state(self):
        limit = 244 * MIB  # of 282 MiB of state; each thread's stack takes 8 MiB
        self.train("free")
        self.train("bound", "--set", "train.offload=state", limit=limit)
        self.assertEqual(self.result("bound")[0], self.result("free")[0])
        done = self.run_program("train", "run.toml", "--out", "no", "--progress", "none",
                                limit=limit)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("train.offload", done.stderr)

    def test_ranks_of_a_mesh_keep_their_shares_in_files(self):
        mesh = ["--set", "parallel.dp=2", "--set", "parallel.zero=3"]
        self.train("memory", *mesh)
        self.train("files", *mesh, "--set", "train.offload=state")
        self.assertEqual(self.result("files"), self.result("memory"))
        self.assertEqual(list((self.folder / "state").iterdir()), [])
        (self.folder / "run.toml").write_text(RUN.format(workers=1, batch=64))
        sums = [json.loads(self.run_program("train", "run.toml", "--dry-run", "--json", *mesh,
                                            *more).stdout)
                for more in ([], ["--set", "train.offload=state"])]
        # Values and what evaluations read of others, gradients, two moments and their copies for a
        # checkpoint; anchors and momenta. Threads have all weights in place.
        self.assertEqual(sums[1]["offload_bytes"], 4 * (2 + 1 + 4 + 2) * sums[1]["parameters"])
        self.assertLess(sums[1]["memory_bytes"], sums[0]["memory_bytes"])

    def test_a_simulation_may_have_its_state_in_files(self):
        links = ["--set", "sim.step_time=1 s"]
        text = RUN.format(workers=2, batch=128) + """
[[link]]
between = ["*", "*"]
rate = "100 Mbit/s"
rtt = "10 ms"
"""
        results = []
        for out, more in (("memory", []), ("files", ["--set", "train.offload=state"])):
            (self.folder / "run.toml").write_text(text)
            done = self.run_program("simulate", "run.toml", "--out", out, "--progress", "none",
                                    *links, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            results.append(self.result(out))
        self.assertEqual(results[0], results[1])

    def test_what_cannot_be_is_refused(self):
        (self.folder / "run.toml").write_text(RUN.format(workers=1, batch=64))
        done = self.run_program("train", "run.toml", "--dry-run", "--set", "train.offload=state",
                                "--set", "model.d_model=65536", "--set", "model.n_heads=64",
                                "--set", "model.n_layers=900")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("train.offload", done.stderr)
        self.assertIn("bytes) are free there", done.stderr)
        self.assertFalse((self.folder / "state").exists())
        done = self.run_program("train", "run.toml", "--dry-run", "--set",
                                "train.offload=words.txt")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("is not a folder", done.stderr)
        (self.folder / "spsa.toml").write_text(RUN.split("[outer]")[0].format(workers=1, batch=64)
                                               + '[outer]\nmethod = "spsa"\n')
        done = self.run_program("train", "spsa.toml", "--dry-run", "--set", "train.offload=state")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("spsa", done.stderr)

    def test_a_dry_run_tells_of_files_and_of_the_memory_beside_them(self):
        (self.folder / "run.toml").write_text(RUN.format(workers=1, batch=64))
        memory = json.loads(self.run_program("train", "run.toml", "--dry-run", "--json").stdout)
        files = json.loads(self.run_program("train", "run.toml", "--dry-run", "--json", "--set",
                                            "train.offload=state").stdout)
        self.assertEqual(memory["offload_bytes"], 0)
        self.assertEqual(files["offload_bytes"], 24 * files["parameters"])
        self.assertLess(files["memory_bytes"], memory["memory_bytes"])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
