#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: the 8-bit blockwise code of bitsandbytes on CPU makes zeros positive numbers and shrinks a negative extreme.
# Guess: -absmax of a block decodes exactly, as +absmax does. No guess was logged about zeros: a run showed them.
# Seen: the block 3, 0, -3, 1, 0, 0, ... decodes to 3, 6.375e-05, -2.97891, 0.996094, 6.375e-05, ...: no zero of 253
#   is left, though the code table has an exact 0. The table ends at +1 and -0.992969, so a block whose
#   extreme is negative loses 0.7 % of it in each pass: 50 passes take N(0, 1) to 0.901 of its norm (0.997 after two).
# Versions: bitsandbytes 0.50.2, torch 2.15.0, CPU, x86-64; Python 3.11.
# Why: 8-bit optimizer states and peers that exchange blockwise 8-bit updates use this code. Sparse updates become
#   dense with a bias of one sign, and a state that is sent on and quantized again each round decays.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6 bitsandbytes==0.50.2
cat > "$work/expected" <<'EOF'
table: -0.992969 to 1.000000, zeros 1
decoded: 3, 6.375e-05, -2.97891, 0.996094
zeros: 253 before, 0 after
pass 1: norm 1.000
pass 2: norm 0.997
pass 50: norm 0.901
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import torch
from bitsandbytes import functional as F

table = F.create_dynamic_map()
print(f"table: {table.min():.6f} to {table.max():.6f}, zeros {(table == 0).sum()}")


def there_and_back(x):
    return F.dequantize_blockwise(*F.quantize_blockwise(x))


block = torch.zeros(256)
block[0], block[2], block[3] = 3.0, -3.0, 1.0
back = there_and_back(block)
print("decoded: " + ", ".join(f"{v:.6g}" for v in back[:4].tolist()))
print(f"zeros: {(block == 0).sum()} before, {(back == 0).sum()} after")
torch.manual_seed(0)
first = torch.randn(1 << 16)
x = first
for i in range(1, 51):
    x = there_and_back(x)
    if i in (1, 2, 50):
        print(f"pass {i}: norm {(x.norm() / first.norm()).item():.3f}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
