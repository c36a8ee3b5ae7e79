#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs with train.objective = "sft": from conversations to metrics.jsonl, by the program.

conversations_test.py PROGRAM
"""
import gzip
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
TEMPLATE = ("{% for m in messages %}{% if m.role not in ['user', 'assistant', 'system'] %}"
            "{{ raise_exception('no role ' + m.role) }}{% endif %}"
            "<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
BASE = """[run]
name = "base"
[model]
arch = "{arch}"
n_layers = 2
n_heads = 2
d_model = 32
vocab = 320
context = 64
[data]
source = "text:words.txt:tokenizer=bpe"
[train]
steps = 4
global_batch = "256 tok"
context = 32
threads = 1
device = "cpu"
[inner]
lr = 3e-3
"""
RUN = """[run]
workers = {workers}
seed = 3
[model]
init = "{init}"
{lora}
[data]
{data}
[train]
objective = "sft"
steps = 8
global_batch = "512 tok"
context = 64
threads = 1
[inner]
lr = 3e-3
[eval]
every = 4
[outer]
{outer}
"""
LORA = "[lora]\nr = 4\nalpha = 8"
CHATS = 'source = "text:chats.jsonl"'
METHODS = ('method = "ddp"', 'method = "diloco"\nH = 4',
           'method = "streaming-diloco"\nH = 4\nfragments = 2\noverlap = 1', 'method = "spsa"')
SHARED = tempfile.TemporaryDirectory()


def call(*words, folder=SHARED.name):
    return subprocess.run([PROGRAM, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False)


def setUpModule():
    """Conversations, a tokenizer and a base model of each kind, once for all tests."""
    folder = pathlib.Path(SHARED.name)
    draw = random.Random(1)
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    say = lambda most: " ".join(draw.choices(words, k=draw.randrange(1, most)))
    chats = []
    for _ in range(300):
        messages = [{"role": "system", "content": "be brief"}] if draw.random() < 0.3 else []
        for _ in range(draw.randrange(1, 3)):
            question = say(6)
            messages += [{"role": "user", "content": question},
                         {"role": "assistant", "content": question[::-1]}]
        chats.append({"messages": messages})
    text = "".join(json.dumps(chat) + "\n" for chat in chats)
    (folder / "chats.jsonl").write_text(text)
    with gzip.open(folder / "packed.jsonl.gz", "wt") as file:
        file.write(text)
    (folder / "words.txt").write_text("\n".join(m["content"] for c in chats for m in c["messages"]) * 3)
    made = call("data", "train-tokenizer", "words.txt", "--vocab", 320, "--out", "bpe")
    assert made.returncode == 0, made.stderr
    for arch in ("llama", "gpt2"):
        (folder / f"{arch}.toml").write_text(BASE.format(arch=arch))
        for words in (("train", f"{arch}.toml", "--out", f"{arch}-run", "--progress", "none"),
                      ("export", f"{arch}-run", "--to", "hf", arch)):
            made = call(*words)
            assert made.returncode == 0, made.stderr
        for file in (folder / "bpe").iterdir():
            shutil.copy(file, folder / arch)
        (folder / arch / "chat_template.jinja").write_text(TEMPLATE)


def tearDownModule():
    SHARED.cleanup()


class Conversations(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        for each in pathlib.Path(SHARED.name).iterdir():
            if each.name in ("llama", "gpt2", "chats.jsonl", "packed.jsonl.gz"):
                (shutil.copytree if each.is_dir() else shutil.copy)(each, self.folder / each.name)

    def tearDown(self):
        self.scratch.cleanup()

    def start(self, name, *arguments, data=CHATS, workers=1, init="llama", outer=METHODS[0], lora=""):
        (self.folder / f"{name}.toml").write_text(
            RUN.format(workers=workers, data=data, init=init, outer=outer, lora=lora))
        return call("train", f"{name}.toml", "--out", name, "--progress", "none", *arguments, folder=self.folder)

    def train(self, name, *arguments, **options):
        done = self.start(name, *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return {kind: [line for line in lines if line["k"] == kind] for kind in ("train", "eval")}

    def losses(self, lines, kind="train"):
        return [line["loss"] for line in lines[kind]]

    def assert_close(self, found, expected, relative):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertLess(abs(a - b), relative * abs(b), (found, expected))

    def refused(self, code, *words, arguments=(), **options):
        for dry in ((), ("--dry-run",)):
            done = self.start("refused", *arguments, *dry, **options)
            self.assertEqual(done.returncode, code, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)
        self.assertFalse((self.folder / "refused").exists())

    def test_every_method_learns_replies_with_and_without_adapters(self):
        for k, outer in enumerate(METHODS):
            for j, lora in enumerate(("", LORA)):
                lines = self.train(f"m{k}{j}", workers=2, outer=outer, lora=lora)
                losses = self.losses(lines, "eval")
                self.assertEqual(len(lines["train"]), 8)
                if "spsa" not in outer:
                    self.assertLess(losses[-1], losses[0], (outer, lora))

    def test_gradients_are_of_one_mean_whatever_the_workers(self):
        for lora in ("", LORA):
            one = self.train("one", "--force", lora=lora)
            for workers in (2, 4):
                more = self.train("more", "--force", workers=workers, lora=lora)
                for kind in ("train", "eval"):
                    self.assert_close(self.losses(more, kind), self.losses(one, kind), 2e-5)
                self.assertEqual([line["tokens"] for line in more["train"]],
                                 [line["tokens"] for line in one["train"]])

    def test_learned_positions_begin_in_each_conversation(self):
        one = self.train("one", init="gpt2")
        two = self.train("two", init="gpt2", workers=2)
        self.assert_close(self.losses(two), self.losses(one), 2e-5)

    def test_it_is_said_before_the_run_what_is_learnt(self):
        told = self.start("dry", "--dry-run", "--json", "--set", "train.context=32")
        self.assertEqual(told.returncode, 0, told.stderr)
        counts = json.loads(told.stdout)["conversations"]["data"]
        self.assertGreater(counts["cut"], 0)
        self.assertEqual(counts["conversations"] + counts["nothing_to_learn"], 300)
        self.assertGreater(counts["tokens"], counts["learnt"])
        drop = json.loads(self.start("dry", "--dry-run", "--json", "--set", "train.context=32", "--set",
                                     "data.over_long=drop").stdout)["conversations"]["data"]
        self.assertEqual(drop["too_long"], counts["cut"] + counts["nothing_to_learn"])
        dry = self.start("dry", "--dry-run", "--set", "train.context=32").stdout
        self.assertIn(f"{counts['cut']} were cut to train.context = 32 tokens", dry.replace("\n", " "))
        self.train("said", "--set", "train.context=32")
        self.assertIn(f"{counts['cut']} were cut to train.context = 32 tokens", self.said)
        self.assertIn("300 conversations" if not counts["nothing_to_learn"] else "conversations of", self.said)

    def test_compressed_files_are_the_same_conversations(self):
        plain = self.train("plain")
        packed = self.train("packed", data='source = "text:packed.jsonl.gz"')
        self.assertEqual(self.losses(packed), self.losses(plain))

    def test_several_sources_are_mixed(self):
        (self.folder / "more.jsonl").write_text((self.folder / "chats.jsonl").read_text()[:20000].rsplit("\n", 1)[0])
        mixed = 'sources = { a = "text:chats.jsonl", b = "text:more.jsonl" }\nmix = { a = 3, b = 1 }'
        lines = self.train("mixed", data=mixed)
        self.assertEqual(set(lines["eval"][-1]["sources"]), {"a", "b"})

    def test_resuming_goes_on_and_other_conversations_are_refused(self):
        for lora in ("", LORA):
            whole = self.train("whole", "--force", workers=2, outer=METHODS[1], lora=lora)
            short = ("--set", "train.steps=4")
            self.train("part", "--force", *short, workers=2, outer=METHODS[1], lora=lora)
            part = self.train("part", "--resume", "auto", *short, "--change", "train.steps=8", workers=2,
                              outer=METHODS[1], lora=lora)
            self.assertEqual(self.losses(part)[4:], self.losses(whole)[4:])
        (self.folder / "llama/chat_template.jinja").write_text(
            TEMPLATE.replace("<{{", "[{{").replace("<assistant>", "[assistant>"))
        done = self.start("part", "--resume", "auto", "--change", "train.steps=12", workers=2, outer=METHODS[1],
                          lora=LORA)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("ids and marks", done.stderr)

    def test_what_is_no_conversation_is_refused_with_its_place(self):
        good = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bcd"}]}\n'
        bad = {"{\n": "chats.jsonl:2:", '{"text": "a"}\n': 'has no list "messages"',
               '{"messages": [{"role": "user", "content": "a"}]}\n': 'no message of the role "assistant"',
               '{"messages": [{"role": "judge", "content": "a"}, {"role": "assistant", "content": "b"}]}\n':
               "the chat template refuses: no role judge"}
        for line, word in bad.items():
            (self.folder / "chats.jsonl").write_text(good + line + good * 40)
            self.refused(4, "chats.jsonl:2:", word, "data.skip_bad = true")
            done = self.start("skipped", "--dry-run", "--json", data=CHATS + "\nskip_bad = true")
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(done.stdout)
            self.assertEqual(told["conversations"]["data"]["malformed"], 1)
            self.assertIn("chats.jsonl:2:", " ".join(told["warnings"]))
        (self.folder / "chats.jsonl").write_text("\n")
        self.refused(3, "no conversation is left to learn from")
        (self.folder / "chats.jsonl").write_text(good * 9)
        self.refused(3, "no conversation is left to learn from", "9 have no token to learn within 4 tokens",
                     arguments=("--set", "train.context=4"))

    def test_a_template_that_hides_earlier_replies_is_at_fault_and_no_line(self):
        # Without generation blocks, and another text of a reply that is not the last one.
        (self.folder / "llama/chat_template.jinja").write_text(
            TEMPLATE.replace("{{ m.content }}", "{% if loop.last or m.role != 'assistant' %}{{ m.content }}{% endif %}"))
        turns = [{"role": "user", "content": "the"}, {"role": "assistant", "content": "fox"}] * 2
        (self.folder / "chats.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 9)
        self.refused(4, "chats.jsonl:1: ", "no {% generation %} blocks", "give a template with such blocks")
        self.assertNotIn("skip_bad", self.start("refused").stderr)

    def test_nuls_are_told_wherever_a_conversation_has_them(self):
        good = json.dumps({"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "fox"}]})
        broken = good.replace("fox", "f\\u0000o\\u0000x")
        nested = good.replace('"the"', '[{"type": "text", "text": "t\\u0000"}]')
        for lines, told in (((broken, good), "chats.jsonl:2: a NUL character, the first of 2:"),
                            ((good, nested), "chats.jsonl:3: a NUL character, the first of 1:"),
                            ((good, good.replace("fox", "f\\\\u0000ox")), "")):  # the text \u0000
            text = good + "\n" + "\n".join(lines) + "\n"
            (self.folder / "chats.jsonl").write_text(text + (good + "\n") * 30)
            for words in (("--dry-run",), ("--force",)):
                done = self.start("nuls", *words)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = done.stdout + done.stderr
                self.assertIn(told, said)
                self.assertEqual("NUL" in said, bool(told), said)
                self.assertEqual("sed 's/" in said, bool(told), said)

    def test_the_template_of_init_works_as_it_is(self):
        made = call("init", "mine", "--template", "finetune", folder=self.folder)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("train", made.stdout)
        (self.folder / "llama").rename(self.folder / "mine/base")
        (self.folder / "chats.jsonl").rename(self.folder / "mine/conversations.jsonl")
        sizes = ("--set", "train.steps=4", "--set", "train.context=64", "--set", "train.global_batch=256 tok")
        small = (*sizes, "--set", "inner.lr=1e-2", "--set", "train.threads=1", "--progress", "none")
        dry = call("train", "mine/run.toml", "--dry-run", *sizes, folder=self.folder)
        self.assertEqual(dry.returncode, 0, dry.stderr)
        self.assertIn("300 conversations", dry.stdout)
        for words in (("train", "mine/run.toml", "--out", "mine/run", *small),
                      ("export", "mine/run", "--to", "peft", "mine/adapter"),
                      ("export", "mine/run", "--to", "hf", "mine/merged"),
                      ("generate", "mine/merged", "--chat", "--prompt", "the fox", "--max-tokens", 8),
                      ("train", "mine/run.toml", "--out", "mine/more", *small, "--set", "lora.init=adapter")):
            done = call(*words, folder=self.folder)
            self.assertEqual(done.returncode, 0, (words, done.stderr))
        # Every line that is shown as a comment is one that the file takes.
        text = (self.folder / "mine/run.toml").read_text()
        keys = [line[2:] for line in text.splitlines() if line.startswith("# ") and " = " in line and
                line.split()[1] in ("seed", "targets", "base", "init", "over_long", "skip_bad", "precision", "codec")]
        self.assertEqual(len(keys), 8)
        for line in keys:
            text = text.replace("# " + line, line)
        (self.folder / "mine/run.toml").write_text(text)
        dry = call("train", "mine/run.toml", "--dry-run", *sizes, "--set", 'lora.targets=["q_proj"]', "--set",
                   "lora.init=", folder=self.folder)
        self.assertEqual(dry.returncode, 0, dry.stderr)

    def test_a_source_or_model_that_does_not_fit_is_refused(self):
        self.refused(3, "train.objective", "text:FILE.jsonl", data='source = "synth:markov1"')
        self.refused(3, "those of model.init", data='source = "text:chats.jsonl:tokenizer=llama"')
        (self.folder / "a.txt").write_text("a")
        self.refused(3, "a.txt", ".jsonl", data='source = "text:a.txt"')
        self.refused(4, "no file matches", data='source = "text:none.jsonl"')
        template = self.folder / "llama/chat_template.jinja"
        template.write_text("{% macro %}")
        self.refused(4, "chat_template.jinja:1:")
        template.unlink()
        self.refused(3, 'model.init = "llama" has no chat template', "chat_template.jinja")
        template.write_text(TEMPLATE)
        (self.folder / "llama/tokenizer.json").unlink()
        self.refused(3, 'model.init = "llama" has no tokenizer.json')


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
