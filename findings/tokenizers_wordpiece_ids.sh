#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: tokenizers' WordPiece trainer gives the pieces other ids in each process, for the same text and options.
# Guess before the run: BPE, Unigram and WordPiece give the same tokenizer in each process, to the byte of its file.
# Seen: three processes train with 500 pieces from the same 3000 lines. BPE gives one file. WordPiece gives the same
#   pieces but for a few, and 60 to 150 of 500 have other ids: the continuing letters, as ##s, are numbered in another
#   order each time, and pieces of equal count trade places. A handful of the 3000 lines become the same ids.
#   Unigram gives the same pieces, and files that differ in the last digits of scores.
# Versions: tokenizers 0.23.3, CPU; Python 3.11. Seen on 2026-11-29.
# Why: sites that train the tokenizer themselves have vocabularies that look equal as sets and in size, and embeddings
#   whose rows mean other pieces: their mean is nonsense. A site that loses its file cannot make it again.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3
cat > "$work/expected" <<'EOF'
BPE: nearly all pieces common True, files equal True, more than 10 ids differ False, lines equal 3000
WordPiece: nearly all pieces common True, files equal False, more than 10 ids differ True, lines equal under 300
Unigram: nearly all pieces common True, files equal False
EOF
cat > "$work/train.py" <<'EOF'
import json
import random
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

draw = random.Random(0)
words = ["".join(draw.choices("abcdefghijklmnoprstu", k=draw.randint(2, 7))) for _ in range(5000)]
zipf = [1 / (rank + 1) for rank in range(len(words))]
lines = [" ".join(draw.choices(words, weights=zipf, k=20)) for _ in range(3000)]
kind = sys.argv[1]
options = {"unk_token": "[UNK]"} if kind == "Unigram" else {}
trainer = getattr(trainers, "BpeTrainer" if kind == "BPE" else kind + "Trainer")
tokenizer = Tokenizer(getattr(models, kind)())
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
special = ["[PAD]", "[UNK]", "[CLS]"]
tokenizer.train_from_iterator(lines, trainer(vocab_size=500, special_tokens=special, show_progress=False, **options))
told = {"vocab": tokenizer.get_vocab(), "file": tokenizer.to_str()}
told["lines"] = [each.ids for each in tokenizer.encode_batch(lines)]
print(json.dumps(told))
EOF
"$work/venv/bin/python" -W ignore - "$work/train.py" > "$work/seen" 2> "$work/log" <<'EOF'
import json
import subprocess
import sys

for kind in ("BPE", "WordPiece", "Unigram"):
    command = [sys.executable, sys.argv[1], kind]
    runs = [json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    first = runs[0]["vocab"]
    pieces = all(len(set(first) & set(each["vocab"])) >= 480 for each in runs)
    ids = max(sum(first[piece] == each["vocab"].get(piece) for piece in first) for each in runs[1:])
    lines = max(sum(a == b for a, b in zip(runs[0]["lines"], each["lines"])) for each in runs[1:])
    files = all(runs[0]["file"] == each["file"] for each in runs[1:])
    told = f"{kind}: nearly all pieces common {pieces}, files equal {files}"
    if kind != "Unigram":
        told += f", more than 10 ids differ {ids < 490}, lines equal {lines if lines >= 300 else 'under 300'}"
    print(told)
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
