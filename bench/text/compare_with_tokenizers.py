#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoding speed of one core, ours and that of PyPI `tokenizers`, in turns.

compare_with_tokenizers.py --bench PROGRAM DOCUMENTS.jsonl TOKENIZER... [--repetitions N]

For each tokenizer.json one JSON line: bytes, tokens, the median over the repetitions of both in MB a processor-second,
their ratio, and the smallest and largest ratio of one turn. `tokenizers` encodes with encode_batch_fast, threads off,
the documents in one batch; both begin with an empty cache. A processor-second does not count time for which another
process had the core, though the caches are shared with it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402


def theirs(path, texts):
    made = tokenizers.Tokenizer.from_file(path)
    begin = time.process_time()
    encodings = made.encode_batch_fast(texts, add_special_tokens=False)
    seconds = time.process_time() - begin
    return seconds, sum(len(encoding.ids) for encoding in encodings)


def ours(program, path, documents):
    answer = subprocess.run([program, path, documents], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("documents")
    parser.add_argument("tokenizers", nargs="+")
    arguments = parser.parse_args()
    with open(arguments.documents, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    for path in arguments.tokenizers:
        turns = []
        for _ in range(arguments.repetitions):
            mine = ours(arguments.bench, path, arguments.documents)
            seconds, tokens = theirs(path, texts)
            if tokens != mine["tokens"]:
                sys.exit(f"{path}: {mine['tokens']} tokens, tokenizers has {tokens}")
            turns.append((mine["cpu_s"], seconds))
        ratios = [b / a for a, b in turns]
        megabytes = mine["bytes"] / 1e6
        print(json.dumps({
            "tokenizer": os.path.basename(path), "bytes": mine["bytes"], "documents": mine["documents"],
            "tokens": mine["tokens"], "ours_mb_s": round(megabytes / statistics.median(a for a, _ in turns), 2),
            "tokenizers_mb_s": round(megabytes / statistics.median(b for _, b in turns), 2),
            "ratio": round(statistics.median(ratios), 2), "least": round(min(ratios), 2), "most": round(max(ratios), 2),
            "repetitions": arguments.repetitions, "version": tokenizers.__version__}), flush=True)


if __name__ == "__main__":
    main()
