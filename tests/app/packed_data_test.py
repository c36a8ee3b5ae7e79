#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs with data.pack = "documents" and data.mix: by the program, from text to metrics.jsonl.

packed_data_test.py PROGRAM
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
RUN = """[run]
workers = {workers}
seed = 3
[model]
arch = "{arch}"
n_layers = 2
n_heads = 2
d_model = 32
vocab = 256
[data]
{data}
[train]
steps = 8
global_batch = "512 tok"
context = 32
threads = 1
device = "cpu"
[inner]
lr = 1e-2
[eval]
every = 4
tokens = 512
[outer]
method = "{method}"
"""
PACKED = 'source = "text:words.txt"\npack = "documents"\neos = 10'
MIXED = ('sources = { prose = "text:words.txt", code = "text:code.txt" }\n'
         'mix = { prose = 3, code = 1 }')


class PackedData(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        draw = random.Random(1)
        words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
        lines = [" ".join(draw.choices(words, k=draw.randrange(8))) for _ in range(900)]
        (self.folder / "words.txt").write_text("\n".join(lines) + "\n")
        (self.folder / "code.txt").write_text("for (int i = 0; i < n; ++i) sum += x[i];\n" * 200)

    def tearDown(self):
        self.scratch.cleanup()

    def start(self, name, *arguments, data=PACKED, workers=1, arch="llama", method="ddp"):
        file = self.folder / f"{name}.toml"
        file.write_text(RUN.format(workers=workers, data=data, arch=arch, method=method))
        return subprocess.run([PROGRAM, "train", str(file), "--out", str(self.folder / name),
                               "--progress", "none", *arguments], capture_output=True, text=True,
                              check=False)

    def train(self, name, *arguments, **options):
        done = self.start(name, *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.lines(name)

    def lines(self, name):
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return {kind: [line for line in lines if line["k"] == kind] for kind in ("train", "eval")}

    def losses(self, lines, kind="train"):
        return [line["loss"] for line in lines[kind]]

    def assert_close(self, found, expected, relative):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertLess(abs(a - b), relative * abs(b), (found, expected))

    def test_packed_runs_do_not_depend_on_the_workers(self):
        for arch in ("gpt2", "llama"):
            one = self.train(f"{arch}1", arch=arch)
            for workers in (2, 4):
                lines = self.train(f"{arch}{workers}", arch=arch, workers=workers)
                self.assert_close(self.losses(lines), self.losses(one), 1e-5)
                self.assert_close(self.losses(lines, "eval"), self.losses(one, "eval"), 1e-5)
                self.assertEqual([line["tokens"] for line in lines["train"]],
                                 [line["tokens"] for line in one["train"]])
            stream = self.train(f"{arch}-stream", arch=arch, data='source = "text:words.txt"')
            self.assertLess(one["train"][0]["tokens"], stream["train"][0]["tokens"])
            self.assertGreater(abs(self.losses(one)[0] - self.losses(stream)[0]), 1e-4)

    def test_tokens_of_a_packed_run_are_its_targets(self):
        """The order of windows is the stream's: the targets of an epoch are its tokens less the ends."""
        lines = self.train("counted", data=PACKED + '\norder = "sequential"')
        text = (self.folder / "words.txt").read_bytes()
        n = len(text) - len(text) // 10
        counted = 0
        for step, line in enumerate(lines["train"]):
            for b in range(16):
                begin = (step * 16 + b) * 32 % (n - 33)
                counted += sum(byte != 10 for byte in text[begin:begin + 32])
            self.assertEqual(line["tokens"], counted)

    def test_resuming_a_packed_mix_is_going_on(self):
        data = MIXED + '\npack = "documents"\neos = 10'
        whole = self.train("whole", data=data, workers=2, method="diloco")
        short = ("--set", "train.steps=4")
        self.train("part", *short, data=data, workers=2, method="diloco")
        part = self.train("part", "--resume", "auto", *short, "--change", "train.steps=8", data=data, workers=2,
                          method="diloco")
        self.assertEqual(len(part["train"]), 8)
        self.assertEqual(self.losses(part)[4:], self.losses(whole)[4:])
        self.assertEqual(part["eval"][-1]["sources"], whole["eval"][-1]["sources"])

    def test_evaluations_of_a_mix_name_its_sources(self):
        one = self.train("one", data=MIXED)
        for line in one["eval"]:
            prose, code = line["sources"]["prose"], line["sources"]["code"]
            self.assertEqual((prose["n_tokens"], code["n_tokens"]), (12 * 32, 4 * 32))
            self.assertAlmostEqual(line["loss"], (3 * prose["loss"] + code["loss"]) / 4, 6)
        self.assertNotEqual(prose["loss"], code["loss"])
        two = self.train("two", data=MIXED, workers=2)
        self.assert_close(self.losses(two), self.losses(one), 1e-5)
        # Each source's loss is that of a run evaluated on it alone, from the same weights.
        report = subprocess.run([PROGRAM, "report", str(self.folder / "one"), "--out",
                                 str(self.folder / "r.html")], capture_output=True, text=True, check=False)
        self.assertEqual(report.returncode, 0, report.stderr)
        self.assertIn("Validation loss by source", (self.folder / "r.html").read_text())

    def test_a_dry_run_says_the_passes_over_each_source(self):
        done = self.start("dry", "--dry-run", data=MIXED)
        self.assertEqual(done.returncode, 0, done.stderr)
        size = {name: (self.folder / name).stat().st_size for name in ("words.txt", "code.txt")}
        for name, share, file in (("prose", 75, "words.txt"), ("code", 25, "code.txt")):
            train = size[file] - size[file] // 10
            self.assertIn(f"{name}: {share} % of the samples, {8 * 512 * share / 100 / train:.1f} passes over its "
                          f"{train:,} training tokens", done.stdout)
        told = self.start("dry", "--dry-run", "--json", data=MIXED)
        self.assertAlmostEqual(json.loads(told.stdout)["sources"]["code"]["share"], 0.25)

    def test_a_resumed_run_keeps_its_mix_and_its_packing(self):
        short = ("--set", "train.steps=4")
        self.train("kept", *short, data=MIXED)
        for changes in (["data.mix={prose=1,code=1}"], ["data.pack=documents", "data.eos=10"]):
            words = [word for change in ["train.steps=8", *changes] for word in ("--change", change)]
            done = self.start("kept", "--resume", "auto", *short, *words, data=MIXED)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("--change data.", done.stderr)
            self.assertIn("the samples of a step follow from it", done.stderr)
        done = self.start("kept", "--resume", "auto", *short, "--set", "data.mix={prose=1,code=1}", data=MIXED)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("data.mix", done.stderr)

    def test_tokenized_documents_need_no_further_word(self):
        tokenizer = subprocess.run([PROGRAM, "data", "train-tokenizer", "words.txt", "--vocab", "300", "--out", "bpe"],
                                   cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(tokenizer.returncode, 0, tokenizer.stderr)
        (self.folder / "d.jsonl").write_text("".join(
            json.dumps({"text": line}) + "\n" for line in (self.folder / "words.txt").read_text().splitlines()))
        made = subprocess.run([PROGRAM, "data", "tokenize", "d.jsonl", "--tokenizer", "bpe", "--out", "tokens"],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        vocab = ("--set", "model.vocab=300", "--set", "eval.tokens=128")
        for source in ("tokens:tokens/*.bin:u16", "text:words.txt:tokenizer=bpe"):
            lines = self.train("made", *vocab, "--force", data=f'source = "{source}"\npack = "documents"')
            self.assertLessEqual(lines["train"][-1]["tokens"], 8 * 512)
        done = self.start("wrong", *vocab, data='source = "tokens:tokens/*.bin:u16"\npack = "documents"\neos = 7')
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("data.eos = 7", done.stderr)

    def test_what_has_no_borders_is_refused_with_the_remedy(self):
        done = self.start("bytes", data='source = "text:words.txt"\npack = "documents"')
        self.assertEqual(done.returncode, 3, done.stderr)
        for word in ("data.pack", "text:words.txt", "isthmus data tokenize", "data.eos"):
            self.assertIn(word, done.stderr)
        done = self.start("device", "--set", "train.device=cuda")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn('data.pack = "documents"', done.stderr)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
