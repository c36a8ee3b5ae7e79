#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `isthmus data tokenize` with PyPI `tokenizers` on large texts, id by id.

check_with_tokenizers.py --isthmus PROGRAM --work DIR [--megabytes N] [--kinds KIND...] [--vocab N] FOLDER...

FOLDERs are searched for text files (.html, .txt, .c, .h, .rst, .py, .S, .sh); of each folder the files are taken, in
sorted order, up to its share of N megabytes. Each file is one document of a .jsonl; odd Unicode (every code point, and
random mixtures) is a further document. Tokenizers of nine kinds are trained on a part of it (make_cases.py). One JSON
line a kind says how many bytes and tokens were compared, the SHA-256 of the documents, and the first difference, if any.
`--train` compares the merges of `isthmus data train-tokenizer` with those of `tokenizers`' trainer instead.
Exit code 1 on any difference. Needs `pip install tokenizers numpy`.
"""
import argparse
import hashlib
import json
import pathlib
import random
import subprocess
import sys

import make_cases
import numpy
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ENDINGS = {".html", ".txt", ".c", ".h", ".rst", ".py", ".S", ".sh"}


def documents(folders, total):
    for folder in folders:
        left = total // len(folders)
        for path in sorted(folder.rglob("*")):
            if left <= 0:
                break
            if path.suffix not in ENDINGS or not path.is_file():
                continue
            try:
                text = path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue
            left -= len(text.encode())
            yield text


def odd_documents():
    everything = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    for begin in range(0, len(everything), 5000):
        yield " ".join(map(chr, everything[begin:begin + 5000]))
        yield "".join(map(chr, everything[begin:begin + 5000]))
    rng = random.Random(3)
    for _ in range(400):
        pool = [rng.choice(everything[:0x3000]) for _ in range(40)] + [0x20, 0x0A, 0x301, 0x323, 0x27, 0x73, 0x0D, 0x09, 0x31]
        yield "".join(chr(rng.choice(pool)) for _ in range(2000))
    yield from make_cases.ODD


def write_documents(folder, folders, total):
    path = folder / "documents.jsonl"
    texts = [*documents(folders, total)]
    plain = len(texts)
    texts += odd_documents()
    with open(path, "w", encoding="ascii") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    return path, texts, plain


def differing(texts, made, found, end):
    """The first document whose ids differ, or None. `found` is the whole shard."""
    place = 0
    for begin in range(0, len(texts), 256):
        some = texts[begin:begin + 256]
        for text, encoding in zip(some, made.encode_batch_fast(some, add_special_tokens=False)):
            expected = [*encoding.ids, end]
            ours = found[place:place + len(expected)].tolist()
            if ours != expected:
                at = next((i for i, pair in enumerate(zip(ours, expected)) if pair[0] != pair[1]), min(len(ours), len(expected)))
                return {"text": text[:60], "at": at, "ours": ours[max(0, at - 3):at + 5],
                        "theirs": expected[max(0, at - 3):at + 5],
                        "around": made.decode(expected[max(0, at - 3):at + 5], skip_special_tokens=False)}
            place += len(expected)
    return None if place == len(found) else {"tokens": place, "ours": len(found)}


def check_kind(arguments, kind, path, texts, digest):
    made = Tokenizer.from_file(str(arguments.work / "tokenizers" / f"{kind}.json"))
    out = arguments.work / "out" / kind
    command = [arguments.isthmus, "data", "tokenize", str(path), "--tokenizer",
               str(arguments.work / "tokenizers" / f"{kind}.json"), "--out", str(out), "--json"]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    width = "<u2" if answer["source"].endswith("u16") else "<u4"
    found = numpy.fromfile(out / "shard-00000.bin", dtype=width)
    wrong = differing(texts, made, found, answer["end"])
    print(json.dumps({"kind": kind, "bytes": sum(len(text.encode()) for text in texts), "documents": len(texts),
                      "tokens": len(found), "vocab": answer["vocab"], "sha256": digest, "equal": wrong is None,
                      "tokenizers": tokenizers.__version__, **({"first": wrong} if wrong else {})}), flush=True)
    return wrong is None


def check_training(arguments, path, texts, digest):
    out = arguments.work / "trained"
    subprocess.run([arguments.isthmus, "data", "train-tokenizer", str(path), "--vocab", str(arguments.vocab), "--out",
                    str(out), "-q"], check=True)
    ours = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=arguments.vocab, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    Tokenizer.from_file(str(out / "tokenizer.json"))  # loads
    theirs = json.loads(theirs.to_str())
    expected = [" ".join(pair) for pair in theirs["model"]["merges"]]
    merges = ours["model"]["merges"]
    first = next((i for i, pair in enumerate(zip(merges, expected)) if pair[0] != pair[1]), None)
    equal = merges == expected and ours["model"]["vocab"] == theirs["model"]["vocab"]
    print(json.dumps({"training": "gpt2", "bytes": sum(len(text.encode()) for text in texts), "sha256": digest,
                      "merges": len(merges), "equal": equal, "first_difference": first}), flush=True)
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=list(make_cases.KINDS))
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    path, texts, plain = write_documents(arguments.work, arguments.folders, arguments.megabytes * 1_000_000)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if arguments.train:
        return 0 if check_training(arguments, path, texts, digest) else 1
    made = arguments.work / "tokenizers"
    made.mkdir(exist_ok=True)
    rng = random.Random(5)
    sample = rng.sample(texts[:plain], min(400, plain)) + make_cases.SENTENCES
    for kind in arguments.kinds:
        file = made / f"{kind}.json"
        if not file.exists():
            file.write_text(make_cases.KINDS[kind]([text[:20000] for text in sample], arguments.vocab).to_str(),
                            encoding="utf-8")
    return 0 if all([check_kind(arguments, kind, path, texts, digest) for kind in arguments.kinds]) else 1


if __name__ == "__main__":
    sys.exit(main())
