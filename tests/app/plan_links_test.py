#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plan sync` and `plan choose` through the real program: answers, refusals, a run afterwards.

plan_links_test.py PROGRAM
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]

LINKS = """[[link]]
between = ["east", "west"]
rate = "1Gbit/s"
rtt = "30ms"
"""
RUN = """[run]
name = "afterwards"
seed = 3
[model]
arch = "gpt2"
layers = 8
d_model = 32
heads = 2
[data]
source = "text:words.txt"
[train]
steps = 60
global_batch = "64 tok"
context = 16
[outer]
method = "diloco"
H = 10
codec = "bf16"
[eval]
tokens = "256"
[surrogate]
params = "1B"
step_time = "1s"
[[site]]
name = "east"
[[site]]
name = "west"
"""


class PlanLinks(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.write("links.toml", LINKS)

    def tearDown(self):
        self.scratch.cleanup()

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def program(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True,
                              text=True, timeout=60, env={**os.environ, "NO_COLOR": "1"})

    def object_of(self, *words):
        done = self.program(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refuses(self, code, words, *arguments):
        done = self.program(*arguments)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}\n{done.stderr}")
        self.assertIn(words, done.stderr, arguments)
        self.assertNotIn("Traceback", done.stderr)

    def choose(self, *more):
        return ["plan", "choose", "--links", "links.toml", "--params", "1B", "--step-time", "1s",
                *more]

    def test_a_sync_is_its_bytes_by_the_rate(self):
        words = ["plan", "sync", "--params", "30.8M", "--sites", "4", "--rate", "200Mbit/s"]
        want = 1.5 * 30.8e6 * 32 / 200e6
        whole = self.object_of(*words)
        self.assertAlmostEqual(whole["sync_s"], want, delta=0.003 * want)
        shared = self.object_of(*words, "--link-share", "0.5", "--step-time", "100ms", "--H", "10",
                                "--steps", "50", "--skip", "10")
        self.assertAlmostEqual(shared["sync_s"], 2 * whole["sync_s"], delta=0.001 * want)
        self.assertEqual((shared["steps"], shared["syncs"]), (40, 4))
        self.assertAlmostEqual(shared["computing"], 4 / (4 + 4 * shared["sync_s"]), places=9)
        two = self.object_of("plan", "sync", "--params", "1M", "--links", "links.toml")
        self.assertEqual(two["sites"], 2)
        self.assertIn("of the time computing", self.program(
            *words, "--step-time", "100ms", "--H", "10").stdout)

    def test_a_processor_bounds_what_the_links_do_not(self):
        words = ["plan", "sync", "--params", "16M", "--way", "reduce", "--processor", "5Gbit/s", "--rate"]
        fast = self.object_of(*words, "10Gbit/s")
        self.assertEqual(fast["bound"], "processor")
        self.assertAlmostEqual(fast["processor_s"], 16e6 * 32 / 5e9, places=9)
        self.assertAlmostEqual(fast["sync_s"], fast["processor_s"], places=6)
        self.assertAlmostEqual(fast["links_s"], 16e6 * 32 / 10e9, delta=0.001)
        slow = self.object_of(*words, "1Gbit/s")
        self.assertEqual((slow["bound"], slow["sync_s"]), ("links", slow["links_s"]))
        self.assertIn("the processor bounds this sync", self.program(*words, "10Gbit/s").stdout)
        self.assertIn("the links bound this sync", self.program(*words, "1Gbit/s").stdout)
        # A choice for fast links is another one where the processor is what is slow.
        self.write("links.toml", LINKS.replace("1Gbit/s", "1000Gbit/s"))
        self.assertEqual(self.object_of(*self.choose())["chosen"]["method"], "ddp")
        bound = self.object_of(*self.choose("--processor", "5Gbit/s"))
        self.assertNotEqual(bound["chosen"]["method"], "ddp")
        # 32 Gbit of gradients a step, of which the backward pass hides a part.
        self.assertGreater(bound["candidates"][0]["step_s"], 32 / 5)

    def test_a_sync_refuses_what_makes_no_sense(self):
        words = ["plan", "sync", "--params", "1M", "--rate", "1Mbit/s"]
        for told, more in [("must be in 2 .. 64", ["--sites", "1"]),
                           ("one of ring, reduce", ["--way", "star"]),
                           ("--codec", ["--codec", "int5"]),
                           ("some of the values", ["--codec", "topk:64:value=2bit:ef"]),
                           ("--link-share 0", ["--link-share", "0"]),
                           ("--link-share 2", ["--link-share", "2"]),
                           ("--step-time too", ["--H", "3"]),
                           ("below --steps", ["--step-time", "1s", "--steps", "3", "--skip", "3"]),
                           ("in 1 ..", ["--step-time", "1s", "--H", "0"]),
                           ("ideal or goodput", ["--link-model", "real"]),
                           ("--way reduce", ["--processor", "5Gbit/s"]),
                           ("--processor fast", ["--way", "reduce", "--processor", "fast"]),
                           ("leave out --sites", ["--links", "links.toml"])]:
            self.refuses(2, told, *words, *more)
        self.refuses(2, "--params", "plan", "sync", "--rate", "1Mbit/s")
        self.refuses(2, "--rate", "plan", "sync", "--params", "1M")
        self.refuses(2, "--rate 0Mbit/s", "plan", "sync", "--params", "1M", "--rate", "0Mbit/s")
        self.refuses(2, "--params many", "plan", "sync", "--params", "many", "--rate", "1Mbit/s")

    def test_a_choice_says_what_for_how_long_and_why(self):
        before = time.monotonic()
        answer = self.object_of(*self.choose("--steps", "1000"))
        self.assertLess(time.monotonic() - before, 20)  # 0.1 s where nothing else runs
        chosen = answer["chosen"]
        self.assertGreaterEqual(chosen["computing"], 0.9)
        self.assertAlmostEqual(answer["run_s"], 1000 * chosen["step_s"], places=6)
        milder = answer["candidates"][:answer["candidates"].index(chosen)]
        self.assertTrue(milder and all(each["computing"] < 0.9 for each in milder))
        for each in answer["candidates"]:
            self.assertTrue(each["evidence"])
            for piece in each["evidence"]:
                if piece["source"].startswith("experiments/"):
                    # What it quotes stands in that experiment's tables or text.
                    readme = (ROOT / piece["source"] / "README.md").read_text()
                    for number in re.findall(r"\d+\.\d+(?!\d|M)", piece["claim"]):
                        self.assertIn(number, readme, piece)
        text = self.program(*self.choose()).stdout
        for word in ["chosen", "What is known of its loss", "--set outer.method=", "east -> west"]:
            self.assertIn(word, text)
        self.write("links.toml", LINKS.replace("1Gbit/s", "1000Gbit/s"))
        self.assertEqual(self.object_of(*self.choose())["chosen"]["method"], "ddp")
        self.write("links.toml", LINKS.replace("1Gbit/s", "100kbit/s"))
        slow = self.object_of(*self.choose())
        self.assertFalse(slow["chosen"]["enough"])
        self.assertEqual(slow["chosen"]["step_s"], min(c["step_s"] for c in slow["candidates"]))

    def test_shares_below_one_are_not_rounded_to_all_of_the_time(self):
        for share, told in (("0.995", "computes 99.5 % of the time"), ("0.99999", "computes 99.999 % of the time"),
                            ("0.9", "computes 90 % of the time")):
            text = " ".join(self.program(*self.choose("--computing", share)).stdout.split())
            self.assertIn(told, text)
            self.assertNotIn("computes 100 % of the time", text)

    def test_a_mesh_that_cannot_be_is_refused_in_seconds(self):
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        for ranks, memory in (("64", "1MiB"), ("64", "16GB")):
            self.refuses(3, "no mesh of " + ranks, "plan", "mesh", "--model", "llama-405b", "--ranks", ranks,
                         "--memory", memory)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin, 30)  # was over a minute each

    def test_what_is_chosen_can_be_run(self):
        self.write("run.toml", RUN)
        self.write("words.txt", "the quick brown fox jumps over the lazy dog. " * 200)
        text = self.program(*self.choose()).stdout
        settings = text[text.rindex("--links links.toml"):].split()
        done = self.program("simulate", "run.toml", "--dry-run", *settings,
                            "--set", "outer.fragments=2" if "outer.fragments" in text else
                            "train.steps=60")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_mesh_gives_the_step_time(self):
        words = ["plan", "choose", "--links", "links.toml", "--params", "8B", "--ranks", "8",
                 "--memory", "80GB", "--batch", "512Ki tok"]
        answer = self.object_of(*words)
        mesh = self.object_of("plan", "mesh", "--model", answer["model"], "--ranks", "8",
                              "--memory", "80GB", "--batch", "512Ki tok")
        self.assertAlmostEqual(answer["step_s"], mesh["meshes"][0]["step_s"], places=9)
        self.assertIn("Mesh of a site", self.program(*words).stdout)
        self.refuses(2, "no mesh of 1 ranks", "plan", "choose", "--links", "links.toml", "--params",
                     "1B", "--ranks", "1", "--memory", "1GB", "--context", "2048", "--batch",
                     "64Ki tok")

    def test_bad_questions_are_refused(self):
        self.refuses(2, "--step-time 1s says so", "plan", "choose", "--links", "links.toml",
                     "--params", "1B")
        self.refuses(2, "--links links.toml --params", "plan", "choose")
        for told, more in [("did you mean 'west'?", ["--sites", "east,wset"]),
                           ("'east' twice", ["--sites", "east,east"]),
                           ("one site", ["--sites", "east"]),
                           ("below 1", ["--computing", "1"]),
                           ("--computing 0", ["--computing", "0"]),
                           ("--layers 0", ["--layers", "0"]),
                           ("--steps 0", ["--steps", "0"]),
                           ("summary.json", ["--after", "."])]:
            self.refuses(2, told, *self.choose(*more))
        for told, word in [("--params lots", "lots"), ("--params 0", "0"), ("--params -1B", "-1B")]:
            self.refuses(2, told, "plan", "choose", "--links", "links.toml", f"--params={word}",
                         "--step-time", "1s")
        self.refuses(4, "absent.toml", "plan", "choose", "--links", "absent.toml", "--params", "1B",
                     "--step-time", "1s")
        self.write("links.toml", LINKS.replace('"1Gbit/s"', '"0Gbit/s"'))
        done = self.program(*self.choose())
        self.assertIn(done.returncode, (2, 3))
        self.assertIn("rate", done.stderr)
        self.write("links.toml", LINKS.replace('"east", "west"', '"*", "*"'))
        self.refuses(2, "--sites east,west", *self.choose())
        self.assertEqual(self.object_of(*self.choose("--sites", "a,b,c"))["sites"], 3)
        self.write("links.toml", "[measured]\nat = \"now\"\n")
        self.refuses(3, "no [[link]]", *self.choose())

    def test_after_a_run_it_says_how_far_off_it_was(self):
        self.write("run.toml", RUN)
        self.write("words.txt", "the quick brown fox jumps over the lazy dog. " * 200)
        done = self.program("simulate", "run.toml", "--links", "links.toml", "--out", "ran")
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = json.loads((self.folder / "ran" / "summary.json").read_text())
        after = self.object_of(*self.choose("--after", "ran"))["after"]
        self.assertAlmostEqual(after["measured_step_s"], summary["simulated_s"] / 60, places=9)
        self.assertEqual((after["method"], after["H"], after["steps"]), ("diloco", 10, 60))
        self.assertLess(abs(after["error"]), 0.03)
        text = self.program(*self.choose("--after", "ran")).stdout
        for word in ["off by", "waiting for exchanges", "another method or setting is chosen here"]:
            self.assertIn(word, text)
        # A wrong idea of the step time shows where it belongs.
        words = [word if word != "1s" else "2s" for word in self.choose("--after", "ran")]
        wrong = self.object_of(*words)["after"]
        self.assertAlmostEqual(wrong["predicted_compute_s"] / wrong["measured_compute_s"], 2,
                               delta=0.01)
        self.three_sites()
        self.refuses(2, "had 2 sites", *self.choose("--after", "ran")[:3], "three.toml",
                     *self.choose("--after", "ran")[4:])
        small = [word if word != "1B" else "100M" for word in self.choose("--after", "ran")]
        self.assertIn("1B parameters", self.program(*small).stderr)

    def three_sites(self):
        self.write("three.toml", "".join(LINKS.replace("east", a).replace("west", b)
                                         for a, b in [("x", "y"), ("y", "z"), ("x", "z")]))


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
