#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From documents to a training run: a tokenizer is learnt, token files are made, killed and gone on with, and a run
trains on them and on the text itself with the same losses.

  python3 tests/end_to_end/tokenized_data.py --isthmus build/src/app/isthmus
"""
import gzip
import hashlib
import json
import signal
import struct
import subprocess
import tarfile
import time

import scenario
from scenario import require

RUN = """
[run]
name = "tokenized"
[model]
arch = "gpt2"
preset = "nano"
vocab = %d
[data]
source = "%s"
[train]
steps = 3
global_batch = "128 tok"
context = 32
[outer]
method = "ddp"
"""


def run(isthmus, folder, *arguments):
    return subprocess.run([isthmus, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=240)


def passes(isthmus, folder, *arguments):
    done = run(isthmus, folder, *arguments)
    require(done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stderr}")
    return done


def refuses(isthmus, folder, code, words, *arguments):
    done = run(isthmus, folder, *arguments)
    require(done.returncode == code, f"{arguments}: exit {done.returncode}, not {code}\n{done.stderr}")
    for word in words:
        require(word in done.stderr, f"{arguments}: '{word}' is not in: {done.stderr}")


def place(folder, name):
    here = folder / name
    here.mkdir()
    return here


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]


def learn_tokenize_train(isthmus, folder, corpus):
    here = place(folder, "whole")
    (here / "a.txt").write_bytes(corpus.read_bytes()[:60000])
    passes(isthmus, here, "data", "train-tokenizer", "a.txt", "--vocab", "500", "--out", "bpe", "-q")
    answer = json.loads(passes(isthmus, here, "data", "tokenize", "a.txt", "--tokenizer", "bpe", "--out", "tokens",
                               "--json").stdout)
    require(answer["vocab"] == 500 and answer["documents"] == 1, answer)
    raw = (here / "tokens/shard-00000.bin").read_bytes()
    ids = struct.unpack(f"<{len(raw) // 2}H", raw)
    require(len(ids) == answer["tokens"] and max(ids) < 500 and ids[-1] == answer["end"], ids[-5:])
    require(ids.count(answer["end"]) == 1, "one end of text for one document")
    census = json.loads(passes(isthmus, here, "data", "verify", answer["source"], "--json").stdout)
    require(census["tokens"] == answer["tokens"], census)
    for name, source in [("files", answer["source"]), ("text", "text:a.txt:tokenizer=bpe")]:
        (here / f"{name}.toml").write_text(RUN % (500, source))
        passes(isthmus, here, "train", f"{name}.toml", "--out", name, "-q")
    require(losses(here / "files") == losses(here / "text") and len(losses(here / "text")) >= 3,
            "unlike losses on token files and on the text")
    passes(isthmus, here, "train", "text.toml", "--out", "text", "--resume", "auto", "-q")
    (here / "small.toml").write_text(RUN % (499, "text:a.txt:tokenizer=bpe"))
    refuses(isthmus, here, 3, ["model.vocab = 499", "at least 500"], "train", "small.toml", "--out", "small")
    (here / "resolved.toml").write_text(passes(isthmus, here, "inspect", "text.toml").stdout)
    require(f":tokenizer={here / 'bpe'}" in (here / "resolved.toml").read_text(), "the tokenizer's path is not absolute")


def killed_and_gone_on_with(isthmus, folder, corpus):
    here = place(folder, "killed")
    (here / "a.txt").write_bytes(corpus.read_bytes()[:60000])
    passes(isthmus, here, "data", "train-tokenizer", "a.txt", "--vocab", "400", "--out", "bpe", "-q")
    lines = corpus.read_text(errors="replace").splitlines()
    for i in range(12):
        text = "".join(json.dumps({"text": f"{i} {line}"}) + "\n" for line in lines * 3)
        (here / f"{i:02}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 1))
    command = ["data", "tokenize", "*.jsonl.gz", "--tokenizer", "bpe", "-q"]
    passes(isthmus, here, *command, "--out", "whole")
    for shard in ("shard-00001.json", "shard-00006.json"):
        process = subprocess.Popen([isthmus, *command, "--out", "killed"], cwd=here, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while not (here / "killed" / shard).exists() and process.poll() is None and time.monotonic() < end:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        require((here / "killed" / shard).exists(), "no shard was made")
    require(not (here / "killed/manifest.json").exists(), "it was not killed early enough")
    answer = json.loads(passes(isthmus, here, *command, "--out", "killed", "--json").stdout)
    require(answer["kept"] >= 7, answer)
    for name in ["manifest.json", *(f"shard-{i:05}.bin" for i in range(12))]:
        require((here / "whole" / name).read_bytes() == (here / "killed" / name).read_bytes(), f"{name} differs")
    manifest = json.loads((here / "killed/manifest.json").read_text())
    first = hashlib.sha256((here / "killed/shard-00000.bin").read_bytes()).hexdigest()
    require(manifest["shards"][0]["sha256"] == first, "a wrong digest")
    refuses(isthmus, here, 3, ["was made with", "--out"], *command, "--out", "killed", "--eos", "a")


def bad_input_is_named(isthmus, folder, corpus):
    here = place(folder, "bad")
    (here / "a.txt").write_bytes(corpus.read_bytes()[:20000])
    passes(isthmus, here, "data", "train-tokenizer", "a.txt", "--vocab", "300", "--out", "bpe", "-q")
    (here / "b.jsonl").write_text('{"text": "good"}\n{"text": 1}\n{"no": 1\n{"text": "good"}\n')
    (here / "c.parquet").write_bytes(b"PAR1" + bytes(64) + b"\x20\0\0\0PAR1")
    (here / "d.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 5000)[:-20])
    tail = ["--tokenizer", "bpe", "--out", "out"]
    refuses(isthmus, here, 4, ["b.jsonl:2:", "--skip-bad"], "data", "tokenize", "b.jsonl", *tail)
    refuses(isthmus, here, 4, ["python -m isthmus data tokenize"], "data", "tokenize", "c.parquet", *tail)
    refuses(isthmus, here, 4, ["d.jsonl.gz", "ends in the middle"], "data", "tokenize", "d.jsonl.gz", *tail)
    refuses(isthmus, here, 4, ["none.txt"], "data", "tokenize", "none.txt", *tail)
    require(not [*(here / "out").glob("*.bin")] and not [*(here / "out").glob(".*")], "something half was written")
    answer = json.loads(passes(isthmus, here, "data", "tokenize", "b.jsonl", "--skip-bad", "--json", *tail).stdout)
    require(answer["skipped"] == 2 and answer["documents"] == 2, answer)
    (here / "e.jsonl").write_text("what\nis\nthis\n")
    said = passes(isthmus, here, "data", "tokenize", "e.jsonl", "--skip-bad", "--tokenizer", "bpe", "--out", "o4").stderr
    require("3 malformed lines" in said and "e.jsonl:1:" in said and "no document" in said, said)
    (here / "bpe/tokenizer.json").write_text('{"model": {"type": "WordPiece", "vocab": {}}}')
    refuses(isthmus, here, 4, ["the model WordPiece"], "data", "tokenize", "a.txt", "--tokenizer", "bpe", "--out", "o2")
    refuses(isthmus, here, 2, ["--vocab"], "data", "train-tokenizer", "a.txt", "--vocab", "many", "--out", "o3")


def packed_files_hold_texts_alone(isthmus, folder, corpus):
    here = place(folder, "packed")
    text = corpus.read_bytes()[:20000]
    (here / "a.txt").write_bytes(text)
    passes(isthmus, here, "data", "train-tokenizer", "a.txt", "--vocab", "300", "--out", "bpe", "-q")
    with tarfile.open(here / "x.tgz", "w:gz") as archive:
        archive.add(here / "a.txt", "a.txt")
    (here / "wide.txt.gz").write_bytes(gzip.compress(text.decode(errors="replace").encode("utf-16-le")))
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 1\n"
    (here / "pointer.txt.gz").write_bytes(gzip.compress(pointer))
    for name, what in (("x.tgz", "tar"), ("wide.txt.gz", "UTF-16"), ("pointer.txt.gz", "Git LFS")):
        refuses(isthmus, here, 4, ["unpacked it is", what], "data", "tokenize", name, "--tokenizer", "bpe", "--out",
                "out")
        refuses(isthmus, here, 4, ["unpacked it is", what], "data", "train-tokenizer", name, "--vocab", "300",
                "--out", "o2")
    require(not [*(here / "out").glob("*.bin")], "a refused file has a shard")


def shards_are_of_the_files_that_are_named(isthmus, folder, corpus):
    here = place(folder, "stale")
    for i, name in enumerate("abc"):
        (here / f"{name}.txt").write_bytes(corpus.read_bytes()[i * 4000:i * 4000 + 4000])
    passes(isthmus, here, "data", "train-tokenizer", "a.txt", "--vocab", "300", "--out", "bpe", "-q")
    command = ["--tokenizer", "bpe", "--out", "out", "-q"]
    passes(isthmus, here, "data", "tokenize", "a.txt", "b.txt", "c.txt", *command)
    refuses(isthmus, here, 3, ["shard-00002.bin", "no shard of the 2 named files"], "data", "tokenize", "a.txt", "b.txt",
            *command)
    passes(isthmus, here, "data", "tokenize", "a.txt", "b.txt", "c.txt", *command)
    (here / "b.txt").write_bytes(bytes(reversed((here / "b.txt").read_bytes())))  # of the same size
    refuses(isthmus, here, 3, ["b.txt had another content"], "data", "tokenize", "a.txt", "b.txt", "c.txt", *command)
    refuses(isthmus, here, 3, ["named twice"], "data", "tokenize", "a.txt", "./a.txt", "--tokenizer", "bpe", "--out",
            "twice")


if __name__ == "__main__":
    scenario.play(__doc__, [learn_tokenize_train, killed_and_gone_on_with, bad_input_is_named,
                            packed_files_hold_texts_alone, shards_are_of_the_files_that_are_named])
