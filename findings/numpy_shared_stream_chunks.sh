#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: NumPy's small integers depend on the sizes of the calls, and Philox.advance(1) skips up to four words.
# Guess: two calls of 5 draw what one call of 10 draws, for each dtype, and advance(n) skips n words in each generator.
# Seen: for 5 + 5 against 10, int64 and uint32 agree, and uint16, uint8 and bool do not: a call throws away the unused
#   rest of its last 32-bit word. For 4 + 4 against 8, uint16 agrees, and uint8 (whose range of 100 rejects) and bool
#   do not. advance(1) moves PCG64 by 1 word and Philox by 4; after 1, 2, 3 or 4 words Philox.advance(1) goes to word 8,
#   and after 5 to word 12. A Philox with counter=1 starts at word 4, so counter=0 already starts after the first step.
# Versions: numpy 2.4.6; Python 3.11.
# Why: sites that share a seed draw the same masks or directions in pieces of their own, such as one call per tensor on
#   one site and one call per shard on another. The pieces agree in tests with 64-bit draws and part with 8-bit ones.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6
cat > "$work/expected" <<'EOF'
5 + 5: int64 equal, uint32 equal, uint16 other, uint8 other, bool other
4 + 4: int64 equal, uint32 equal, uint16 equal, uint8 other, bool other
PCG64: advance(1) goes to word 1
Philox: advance(1) goes to word 4
Philox after 1 words: 8
Philox after 4 words: 8
Philox after 5 words: 12
Philox counter=1 starts at word 4
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" <<'EOF'
import numpy as np
from numpy.random import PCG64, Philox

for size in (5, 4):
    told = []
    for kind in (np.int64, np.uint32, np.uint16, np.uint8, bool):
        high = 2 if kind is bool else 100
        one, two = np.random.default_rng(1), np.random.default_rng(1)
        whole = one.integers(0, high, 2 * size, dtype=kind)
        parts = [two.integers(0, high, size, dtype=kind) for _ in range(2)]
        told.append(f"{kind.__name__} {'equal' if (whole == np.concatenate(parts)).all() else 'other'}")
    print(f"{size} + {size}: " + ", ".join(told))
for kind in (PCG64, Philox):
    words = list(kind(7).random_raw(64))
    moved = kind(7)
    moved.advance(1)
    print(f"{kind.__name__}: advance(1) goes to word {words.index(moved.random_raw())}")
words = list(Philox(key=7).random_raw(64))
for n in (1, 4, 5):
    moved = Philox(key=7)
    moved.random_raw(n)
    moved.advance(1)
    print(f"Philox after {n} words: {words.index(moved.random_raw())}")
print(f"Philox counter=1 starts at word {words.index(Philox(key=7, counter=1).random_raw())}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
