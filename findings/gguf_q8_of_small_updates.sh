#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: gguf's 8-bit format is worse than its 4-bit format for values about 1e-6, where 8 bits give almost only zeros.
# Guess: a block has its own scale, so Q8_0 has an error of about 0.5 % and Q4_0 of about 9 % at each magnitude.
# Seen: relative errors for N(0, 1) times s: Q8_0 0.005 and Q4_0 0.086 at s = 1; 0.095 and 0.086 at 1e-5; 0.999 and
#   0.105 at 1e-6, where 99 % or more of Q8_0's values are 0. Ternary TQ1_0 keeps its 0.808. The scale is fp16: the
#   largest value over 127 (Q8_0), 8 (Q4_0) or 1 (TQ1_0), so more bits leave the range of fp16 earlier.
#   A block of 32 values 4e-6 comes back as 7.57e-06, almost double, since its scale rounds to the least fp16 number.
# Versions: gguf 0.19.0, numpy 2.4.6; Python 3.11.
# Why: weights never meet this, but differences of weights and pseudo-gradients at small learning rates do. A site
#   that stores or sends updates in gguf blocks should scale them up first.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check gguf==0.19.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
s = 1: Q8_0 0.005, Q4_0 0.086, TQ1_0 0.808
s = 1e-05: Q8_0 0.095, Q4_0 0.086, TQ1_0 0.808
s = 1e-06: Q8_0 0.999, Q4_0 0.105, TQ1_0 0.808
Q8_0 at 1e-06: 99 % or more zeros: True
32 values 4e-06 come back as 7.57e-06
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" <<'EOF'
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import quants


def back(x, kind):
    return quants.dequantize(quants.quantize(x, kind), kind)


draws = np.random.default_rng(0).standard_normal((1000, 256)).astype(np.float32)
for s in (1, 1e-5, 1e-6):
    x = draws * np.float32(s)
    told = []
    for kind in (Kind.Q8_0, Kind.Q4_0, Kind.TQ1_0):
        told.append(f"{kind.name} {np.linalg.norm(back(x, kind) - x) / np.linalg.norm(x):.3f}")
    print(f"s = {s}: " + ", ".join(told))
zeros = (back(draws * np.float32(1e-6), Kind.Q8_0) == 0).mean()
print(f"Q8_0 at 1e-06: 99 % or more zeros: {zeros >= 0.99}")
print(f"32 values 4e-06 come back as {back(np.full((1, 32), 4e-6, np.float32), Kind.Q8_0)[0, 0]:.3g}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
