#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares isthmus' tokenizers with PyPI `tokenizers` on large texts: the ids of each document, and its decoded text.

check_with_tokenizers.py --isthmus PROGRAM --work DIR [--decode decode_ids] [--megabytes N] [--kinds KIND...]
                         [--vocab N] FOLDER...

FOLDERs are searched for text files (.html, .txt, .c, .h, .rst, .py, .S, .sh); of each folder the files are taken, in
sorted order, up to its share of N megabytes; what a folder lacks, the next ones may add. Each file is one document of
a .jsonl; odd Unicode (every code point, and random mixtures) makes further documents. Tokenizers of fifteen kinds are
trained on a part of it (make_cases.py). Ids are those of `isthmus data tokenize`. With --decode, the program of that
name (target decode_ids) turns the ids of each document into text again, with and without special tokens.
The first JSON line has the bytes of each folder and the SHA-256 of the documents; one line a kind says how many bytes,
tokens and decoded bytes were compared, and the first difference, if any.
`--train` compares the merges of `isthmus data train-tokenizer` with those of `tokenizers`' trainer instead.
One core: TOKENIZERS_PARALLELISM=false is set. 200 MB take about half an hour.
Exit code 1 on any difference. Needs `pip install tokenizers numpy`.

The texts of the committed results (docs/measured.md), on Debian 12:
  apt-get download libreoffice-help-{de,fr,hi,ja,ko,ru,zh-cn} linux-source-6.1     # dpkg-deb -x FILE FOLDER for each
  FOLDERs: the libreoffice folders in this order, then Documentation, fs, kernel, lib, mm and net of the Linux sources
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import threading

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import make_cases  # noqa: E402
import numpy  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

ENDINGS = {".html", ".txt", ".c", ".h", ".rst", ".py", ".S", ".sh"}


def documents(folders, total, taken):
    """Texts of the folders; `taken` gets the bytes of each."""
    for number, folder in enumerate(folders):
        share = (total - sum(taken.values())) // (len(folders) - number)
        name = folder.name
        taken[name] = 0
        for path in sorted(folder.rglob("*")):
            if taken[name] >= share:
                break
            if path.suffix not in ENDINGS or path.is_symlink() or not path.is_file():
                continue
            try:
                text = path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue
            taken[name] += len(text.encode())
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
    yield from make_cases.ODD + make_cases.CLUSTERS


def write_documents(folder, folders, total):
    path = folder / "documents.jsonl"
    taken = {}
    texts = [*documents(folders, total, taken)]
    plain = len(texts)
    texts += odd_documents()
    taken["odd"] = sum(len(text.encode()) for text in texts[plain:])
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for text in texts:
            line = json.dumps({"text": text}).encode() + b"\n"
            digest.update(line)
            file.write(line)
    facts = {"documents": len(texts), "bytes": sum(taken.values()), "by_folder": taken, "sha256": digest.hexdigest()}
    return path, texts, plain, facts


def first_difference(ours, theirs):
    return next((i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))


def differing(texts, made, found, end, lengths):
    """The first document whose ids differ, or None. `found` is the whole shard; `lengths` gets each document's ids."""
    place = 0
    for begin in range(0, len(texts), 256):
        some = texts[begin:begin + 256]
        for text, encoding in zip(some, made.encode_batch_fast(some, add_special_tokens=False)):
            expected = [*encoding.ids, end]
            ours = found[place:place + len(expected)].tolist()
            if ours != expected:
                at = first_difference(ours, expected)
                return {"text": text[:60], "at": at, "ours": ours[max(0, at - 3):at + 5],
                        "theirs": expected[max(0, at - 3):at + 5],
                        "around": made.decode(expected[max(0, at - 3):at + 5], skip_special_tokens=False)}
            place += len(expected)
            lengths.append(len(encoding.ids))
    return None if place == len(found) else {"tokens": place, "ours": len(found)}


def decoded_by(program, tokenizer, documents, skip):
    """Our text of each list of ids, as bytes, in order."""
    command = [program, tokenizer] + (["--skip-special"] if skip else [])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        def write():
            with process.stdin as pipe:
                for ids in documents:
                    pipe.write(struct.pack("<I", len(ids)) + ids.astype("<u4").tobytes())
        writer = threading.Thread(target=write)
        writer.start()
        for _ in documents:
            size, = struct.unpack("<I", process.stdout.read(4))
            yield process.stdout.read(size)
        writer.join()
    if process.returncode != 0:
        sys.exit(f"{program} ended with {process.returncode}")


def decoding_differs(program, tokenizer, made, documents):
    """Bytes that were compared, and the first document whose decoded text differs, or None."""
    size = 0
    for skip in (False, True):
        for ids, ours in zip(documents, decoded_by(program, tokenizer, documents, skip)):
            theirs = made.decode(ids.tolist(), skip_special_tokens=skip).encode()
            if ours != theirs:
                at = first_difference(ours, theirs)
                return size, {"decoded_at": at, "skip_special": skip, "ours": repr(ours[max(0, at - 20):at + 20]),
                              "theirs": repr(theirs[max(0, at - 20):at + 20])}
            size += len(theirs)
    return size, None


def check_kind(arguments, kind, path, texts, facts):
    tokenizer = str(arguments.work / "tokenizers" / f"{kind}.json")
    made = Tokenizer.from_file(tokenizer)
    out = arguments.work / "out" / kind
    command = [arguments.isthmus, "data", "tokenize", str(path), "--tokenizer", tokenizer, "--jobs", "1", "--out",
               str(out), "--json"]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    width = "<u2" if answer["source"].endswith("u16") else "<u4"
    found = numpy.fromfile(out / "shard-00000.bin", dtype=width)
    lengths, decoded = [], None
    wrong = differing(texts, made, found, answer["end"], lengths)
    if wrong is None and arguments.decode:
        places = numpy.cumsum([0, *(length + 1 for length in lengths)])
        decoded, wrong = decoding_differs(arguments.decode, tokenizer, made,
                                          [found[at:at + length] for at, length in zip(places, lengths)])
    print(json.dumps({"kind": kind, "bytes": facts["bytes"], "documents": len(texts), "tokens": len(found),
                      "vocab": answer["vocab"], "decoded_bytes": decoded, "sha256": facts["sha256"],
                      "equal": wrong is None, "tokenizers": tokenizers.__version__,
                      **({"first": wrong} if wrong else {})}), flush=True)
    return wrong is None


def check_training(arguments, path, texts, facts):
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
    print(json.dumps({"training": "gpt2", "bytes": facts["bytes"], "sha256": facts["sha256"],
                      "merges": len(merges), "equal": equal, "first_difference": first}), flush=True)
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--decode", help="path of decode_ids: compare decoded texts, too")
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=list(make_cases.KINDS))
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    path, texts, plain, facts = write_documents(arguments.work, arguments.folders, arguments.megabytes * 1_000_000)
    print(json.dumps(facts), flush=True)
    if arguments.train:
        return 0 if check_training(arguments, path, texts, facts) else 1
    made = arguments.work / "tokenizers"
    made.mkdir(exist_ok=True)
    rng = random.Random(5)
    sample = rng.sample(texts[:plain], min(400, plain)) + make_cases.SENTENCES
    for kind in arguments.kinds:
        file = made / f"{kind}.json"
        if not file.exists():
            file.write_text(make_cases.KINDS[kind]([text[:20000] for text in sample], arguments.vocab).to_str(),
                            encoding="utf-8")
    return 0 if all([check_kind(arguments, kind, path, texts, facts) for kind in arguments.kinds]) else 1


if __name__ == "__main__":
    sys.exit(main())
