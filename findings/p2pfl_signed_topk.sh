#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: p2pfl's top-k keeps the largest signed values, and its asymmetric integers make 0.2 of gains near 1.
# Guess: top-k with k = 0.1 keeps the tenth of largest magnitude, about half of it negative. Asymmetric int8 of values
#   in [0.9, 1.1] errs by at most half a step, 0.0004.
# Seen: of 10000 draws N(0, 1) none of the 1000 kept values is negative, and the mean of the array becomes 0.175.
#   At k = 0.9 the kept part has 0.821 of the norm (0.9997 by magnitude). Of negative values only, those nearest 0
#   are kept. The 1000 gains in [0.9, 1.1] all come back as one value, 0.200, in int8, uint8 and int16, with a
#   relative error of 0.80; the symmetric scheme errs by 0.003. Top-k sorts values without their magnitude. The zero
#   point is clamped to the integer range, which holds it only where the values span 0; all codes then saturate.
# Versions: p2pfl 0.4.4, numpy 1.26.4; Python 3.11. p2pfl's other requirements are not needed here and not installed.
# Why: sites that gossip weights with p2pfl name these schemes in the settings. A small k drops all negative weights,
#   and the scheme said to use the full range spoils norm layers and variances, which lie on one side of 0.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps p2pfl==0.4.4 numpy==1.26.4 opendp==0.16.0 \
  Deprecated==1.3.1 wrapt==2.5.2
cat > "$work/expected" <<'EOF'
top-k 0.1: 0 negative, 1000 positive, norm 0.567 (by magnitude 0.663), mean 0.175
top-k 0.9: 4026 negative, 4974 positive, norm 0.821 (by magnitude 1.000), mean 0.181
top-k 0.1 of -|x|: largest magnitude kept 0.13 of 3.90
symmetric int8: 0.902 to 1.091, relative error 0.003
asymmetric int8: 0.200 to 0.200, relative error 0.801
asymmetric uint8: 0.200 to 0.200, relative error 0.801
asymmetric int16: 0.200 to 0.200, relative error 0.801
asymmetric int8 of N(0, 1): relative error 0.008
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import numpy as np
from p2pfl.learning.compression.quantization_strategy import PTQuantization
from p2pfl.learning.compression.topk_strategy import TopKSparsification


def back(codec, x, **options):
    return codec.reverse_strategy(*codec.apply_strategy([x], **options))[0]


def share(x, part):
    return np.linalg.norm(part) / np.linalg.norm(x)


draw = np.random.default_rng(0)
x = draw.standard_normal(10000).astype(np.float32)
for k in (0.1, 0.9):
    kept = back(TopKSparsification(), x, k=k)
    best = np.sort(np.abs(x))[-int(k * x.size) :]
    told = f"{(kept < 0).sum()} negative, {(kept > 0).sum()} positive, norm {share(x, kept):.3f}"
    print(f"top-k {k}: {told} (by magnitude {share(x, best):.3f}), mean {kept.mean():.3f}")
kept = back(TopKSparsification(), -np.abs(x), k=0.1)
print(f"top-k 0.1 of -|x|: largest magnitude kept {np.abs(kept).max():.2f} of {np.abs(x).max():.2f}")
gains = draw.uniform(0.9, 1.1, 1000).astype(np.float32)
for scheme, kind in (("symmetric", "int8"), ("asymmetric", "int8"), ("asymmetric", "uint8"), ("asymmetric", "int16")):
    y = back(PTQuantization(), gains, dtype=kind, scheme=scheme)
    print(f"{scheme} {kind}: {y.min():.3f} to {y.max():.3f}, relative error {share(gains, y - gains):.3f}")
y = back(PTQuantization(), x, dtype="int8", scheme="asymmetric")
print(f"asymmetric int8 of N(0, 1): relative error {share(x, y - x):.3f}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
