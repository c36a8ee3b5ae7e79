#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model is trained, its texts are evaluated in several ways that must agree, and it goes on from prompts.

  python3 tests/end_to_end/eval_and_generate.py --isthmus build/src/app/isthmus

check_inference_with_transformers.py, run by hand, compares the same commands with transformers.
"""
import gzip
import json
import math
import os
import subprocess

import scenario
from scenario import require

RUN = """
[run]
name = "small"
[model]
arch = "%s"
preset = "nano"
vocab = %d
[data]
source = "text:train.txt%s"
order = "sequential"
[train]
steps = 40
global_batch = "512 tok"
context = 64
[inner]
lr = 1e-2
[eval]
tokens = "all"
"""


def run(isthmus, folder, *arguments, stdin=""):
    return subprocess.run([isthmus, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=240,
                          input=stdin)


def passes(isthmus, folder, *arguments, **more):
    done = run(isthmus, folder, *arguments, **more)
    require(done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def answer(isthmus, folder, *arguments, **more):
    return json.loads(passes(isthmus, folder, *arguments, "--json", **more))


def refuses(isthmus, folder, code, words, *arguments):
    done = run(isthmus, folder, *arguments)
    require(done.returncode == code, f"{arguments}: exit {done.returncode}, not {code}\n{done.stderr}")
    for word in words:
        require(word in done.stderr, f"{arguments}: '{word}' is not in: {done.stderr}")


def near(a, b, what, tolerance=2e-6):
    require(abs(a - b) <= tolerance * max(1, abs(b)), f"{what}: {a} and {b}")


def place(isthmus, folder, corpus, name, arch, vocab, tokenizer=""):
    """A folder with a corpus and a trained model in `model`."""
    here = folder / name
    here.mkdir()
    text = corpus.read_text(errors="replace")
    (here / "train.txt").write_text(text[:60000])
    (here / "held.txt").write_text(text[60000:66000] + "Grüße, 東京! 👋\n")
    if tokenizer:
        passes(isthmus, here, "data", "train-tokenizer", "train.txt", "--vocab", vocab, "--out", "bpe", "-q")
    (here / "run.toml").write_text(RUN % (arch, vocab, tokenizer))
    passes(isthmus, here, "train", "run.toml", "--out", "run", "-q")
    passes(isthmus, here, "export", "run", "--to", "hf", "model", "-q")
    if tokenizer:
        for file in (here / "bpe").iterdir():
            (here / "model" / file.name).write_bytes(file.read_bytes())
    return here


def losses_agree(isthmus, folder, corpus):
    here = place(isthmus, folder, corpus, "losses", "llama", 400, ":tokenizer=bpe")
    whole = answer(isthmus, here, "eval", "model", "held.txt", "--context", 64)
    one = whole["sources"][0]
    require(whole["context"] == 64 and whole["stride"] == 64 and one["documents"] == 1, whole)
    require(one["counted"] == one["tokens"] - 1, one)
    near(one["perplexity"], math.exp(one["loss"]), "perplexity")
    size = len((here / "held.txt").read_bytes())
    require(size - 8 <= one["bytes"] < size, f"{one['bytes']} of {size} bytes: all but the first token's")
    near(one["bits_per_byte"], one["loss"] * one["counted"] / math.log(2) / one["bytes"], "bits a byte")
    # The same text compressed, as a JSON line, and as token files of the same ids.
    (here / "held.txt.gz").write_bytes(gzip.compress((here / "held.txt").read_bytes()))
    (here / "held.jsonl").write_text(json.dumps({"body": (here / "held.txt").read_text()}) + "\n")
    for files in (["held.txt.gz"], ["held.jsonl", "--field", "body"]):
        again = answer(isthmus, here, "eval", "model", *files, "--context", 64)["all"]
        require([again[key] for key in ("loss", "counted", "bytes")] == [one[key] for key in ("loss", "counted", "bytes")],
                f"{files}: {again} and {one}")
    passes(isthmus, here, "data", "tokenize", "held.txt", "--tokenizer", "bpe", "--out", "tokens", "-q")
    tokens = answer(isthmus, here, "eval", "model", "tokens:tokens/*.bin:u16", "--context", 64)["all"]
    require(tokens["counted"] == one["counted"] + 1, "the token file has an end of text behind it")
    near(tokens["loss"] * tokens["counted"], one["loss"] * one["counted"], "of a token file", 0.01)
    near(tokens["bytes"], one["bytes"], "bytes of a token file", 0.001)
    # Every position is counted once, whatever the stride; what a prediction follows differs.
    by_stride = [answer(isthmus, here, "eval", "model", "held.txt", "--context", 64, "--stride", stride)["all"]
                 for stride in (64, 32, 1)]
    require(len({each["counted"] for each in by_stride}) == 1, by_stride)
    require(len({each["loss"] for each in by_stride}) == 3, by_stride)
    # A run and its checkpoint are models too, and two files are two rows and a sum.
    table = passes(isthmus, here, "eval", "model", "held.txt", "train.txt", "--context", 64)
    require("windows    64 tokens, one behind the other" in table and "\nall " in table, table)
    same = answer(isthmus, here, "eval", "run", "held.txt", "--context", 64, "--tokenizer", "bpe")["all"]["loss"]
    near(same, one["loss"], "of the run itself")
    both = answer(isthmus, here, "eval", "model", "held.txt", "train.txt", "--context", 64)
    total = sum(each["loss"] * each["counted"] for each in both["sources"])
    near(both["all"]["loss"], total / both["all"]["counted"], "of both files")


def documents_are_alone(isthmus, folder, corpus):
    here = place(isthmus, folder, corpus, "documents", "gpt2", 257)
    texts = ["int main(void)", "a", "", "struct bpf_insn {\n\t__u8 code;\n};\n" * 20, "ß"]
    (here / "all.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    together = answer(isthmus, here, "eval", "model", "all.jsonl")["all"]
    loss = 0.0
    for text in texts:
        if len(text.encode()) < 2:
            continue
        (here / "one.txt").write_text(text)
        one = answer(isthmus, here, "eval", "model", "one.txt")["all"]
        loss += one["loss"] * one["counted"]
        require(one["bytes"] == one["counted"] == len(text.encode()) - 1, one)
    near(together["loss"] * together["counted"], loss, "documents together and alone", 1e-5)
    # The evaluation of training is the same number: over windows of the validation part.
    evals = [json.loads(line) for line in (here / "run/metrics.jsonl").read_text().splitlines()]
    trained = [each["loss"] for each in evals if each["k"] == "eval"][-1]
    text = (here / "train.txt").read_bytes()
    held = text[len(text) - len(text) // 10:]
    held = held[:(len(held) - 1) // 64 * 64 + 1]
    (here / "validation.txt").write_bytes(held)
    mine = answer(isthmus, here, "eval", "model", "validation.txt", "--context", 64)["all"]["loss"]
    near(mine, trained, "eval and the last line of training", 1e-5)


def text_is_generated(isthmus, folder, corpus):
    here = place(isthmus, folder, corpus, "generated", "llama", 400, ":tokenizer=bpe")
    greedy = ["generate", "model", "--prompt", "struct bpf", "--temperature", "0", "--max-tokens", "40"]
    one = answer(isthmus, here, *greedy)
    require(len(one["ids"]) == 40 and one["end"] == "tokens", one)
    require(answer(isthmus, here, *greedy, "--no-cache")["ids"] == one["ids"], "with and without the cache")
    require(answer(isthmus, here, *greedy, "--threads", "1")["ids"] == one["ids"], "with one thread")
    require(passes(isthmus, here, *greedy) == one["text"] + "\n", "the text as it streams")
    from_stdin = answer(isthmus, here, "generate", "model", "--prompt-file", "-", "--temperature", "0", "--max-tokens",
                        "40", stdin="struct bpf")
    require(from_stdin["ids"] == one["ids"], "a prompt from stdin")
    drawn = ["generate", "model", "--prompt", "struct", "--temperature", "1.2", "--top-p", "0.9", "--top-k", "50"]
    seeds = [answer(isthmus, here, *drawn, "--seed", seed)["ids"] for seed in (1, 1, 2)]
    require(seeds[0] == seeds[1] != seeds[2], "a text is a function of the seed")
    full = answer(isthmus, here, *greedy[:-1], "5000")
    require(full["end"] == "positions" and len(full["ids"]) + len(full["prompt_ids"]) == 65, full["end"])
    # It stops at the end token that the folder names, and goes on with --ignore-eos.
    settings = here / "model/generation_config.json"
    settings.write_text(json.dumps({"eos_token_id": [399, one["ids"][3]], "do_sample": True, "temperature": 0.5,
                                    "top_k": 3}))
    stopped = answer(isthmus, here, *greedy)
    require(stopped["end"] == "end" and stopped["ids"] == one["ids"][:one["ids"].index(one["ids"][3])], stopped)
    require(answer(isthmus, here, *greedy, "--ignore-eos")["ids"] == one["ids"], "--ignore-eos")
    folder_says = answer(isthmus, here, "generate", "model", "--prompt", "a")
    require((folder_says["temperature"], folder_says["top_k"], folder_says["top_p"]) == (0.5, 3, 1), folder_says)


def characters_come_whole(isthmus, folder, corpus):
    here = place(isthmus, folder, corpus, "characters", "gpt2", 257)
    # A model of bytes, drawn at random: parts of characters appear and must not break the stream.
    process = subprocess.Popen([isthmus, "generate", "model", "--prompt", "é", "--temperature", "50", "--max-tokens",
                                "60", "-q"], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    pieces = []
    while piece := os.read(process.stdout.fileno(), 4096):
        pieces.append(piece)
    require(process.wait() == 0 and pieces, "no text came")
    b"".join(pieces).decode()  # valid UTF-8


def chat_is_rendered(isthmus, folder, corpus):
    here = place(isthmus, folder, corpus, "chat", "llama", 400, ":tokenizer=bpe")
    (here / "model/chat_template.jinja").write_text(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant{{ ' thinking' if thinking }}>{% endif %}")
    given = ["--temperature", "0", "--max-tokens", "5"]
    chat = answer(isthmus, here, "generate", "model", "--chat", "--system", "Be brief.", "--prompt", "Hi", *given)
    plain = answer(isthmus, here, "generate", "model", "--prompt", "<system>Be brief.\n<user>Hi\n<assistant>", *given)
    require(chat["prompt_ids"] == plain["prompt_ids"] and chat["ids"] == plain["ids"], (chat, plain))
    more = answer(isthmus, here, "generate", "model", "--chat", "--prompt", "Hi", "--chat-set", "thinking=true", *given)
    plain = answer(isthmus, here, "generate", "model", "--prompt", "<user>Hi\n<assistant thinking>", *given)
    require(more["prompt_ids"] == plain["prompt_ids"], more)
    (here / "model/chat_template.jinja").write_text("\n{% include 'x' %}")
    refuses(isthmus, here, 4, ["chat_template.jinja:2: {% include %} is not supported"], "generate", "model", "--chat",
            "--prompt", "Hi")
    (here / "model/chat_template.jinja").unlink()
    refuses(isthmus, here, 3, ["has no chat template"], "generate", "model", "--chat", "--prompt", "Hi")


def bad_input_is_named(isthmus, folder, corpus):
    here = place(isthmus, folder, corpus, "bad", "llama", 400, ":tokenizer=bpe")
    (here / "bad.jsonl").write_text('{"text": "good one"}\n{"text": 1}\n{"text": "good"}\n')
    (here / "one.txt").write_text("a")
    (here / "wrong.txt").write_bytes(b"abc\xff")
    refuses(isthmus, here, 4, ["bad.jsonl:2:", "--skip-bad"], "eval", "model", "bad.jsonl")
    left_out = answer(isthmus, here, "eval", "model", "bad.jsonl", "--skip-bad")["all"]
    require(left_out["skipped"] == 1 and left_out["documents"] == 2, left_out)
    refuses(isthmus, here, 4, ["wrong.txt: byte 3 is not UTF-8"], "eval", "model", "wrong.txt")
    refuses(isthmus, here, 4, ["none.txt"], "eval", "model", "none.txt")
    refuses(isthmus, here, 3, ["one.txt", "nothing to predict"], "eval", "model", "one.txt")
    refuses(isthmus, here, 2, ["--context 65", "64 positions"], "eval", "model", "held.txt", "--context", "65")
    refuses(isthmus, here, 2, ["--stride 9"], "eval", "model", "held.txt", "--context", "8", "--stride", "9")
    refuses(isthmus, here, 3, ["--device cuda", "on the CPU"], "eval", "model", "held.txt", "--device", "cuda")
    refuses(isthmus, here, 3, ["--device cuda", "on the CPU"], "generate", "model", "--prompt", "a", "--device", "cuda")
    refuses(isthmus, here, 2, ["--top-p 0"], "generate", "model", "--prompt", "a", "--top-p", "0")
    refuses(isthmus, here, 2, ["no token"], "generate", "model")
    refuses(isthmus, here, 3, ["positions"], "generate", "model", "--prompt", "a b c " * 60)
    (here / "bytes.bin").write_bytes(b"\x95\x01" * 100)
    refuses(isthmus, here, 3, ["405", "bytes.bin"], "eval", "model", "tokens:bytes.bin:u16")
    (here / "model/tokenizer.json").unlink()
    refuses(isthmus, here, 3, ["has no tokenizer.json", "--tokenizer"], "eval", "model", "held.txt")
    passes(isthmus, here, "data", "train-tokenizer", "train.txt", "--vocab", "500", "--out", "large", "-q")
    refuses(isthmus, here, 3, ["ids up to 499", "knows 400"], "eval", "model", "held.txt", "--tokenizer", "large")


if __name__ == "__main__":
    scenario.play(__doc__, [losses_agree, documents_are_alone, text_is_generated, characters_come_whole,
                            chat_is_rendered, bad_input_is_named])
