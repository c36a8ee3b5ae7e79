#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: torch.multinomial with replacement hardly ever draws small weights of a long list, even if they add up to 1 %.
# Guess before the run: each index is drawn in proportion to its fp32 weight.
# Seen: of 1048576 weights, 1 and 0.0001 by turns, the small ones are drawn under 0.00001 of the time in place of
#   0.0001. With one weight of 10000 and then 1048575 of 0.0001 (1.04 % in all), 2 million draws all give the first
#   index; with the same weights in reverse order, or in float64, the share is right. The call forms the running sum
#   in fp32, where 10000 + 0.0001 is 10000.
# Versions: torch 2.15.0, numpy 2.4.6, CPU; Python 3.11. Seen on 2026-11-29.
# Why: coordinates of an update drawn in proportion to their magnitude, and examples or documents drawn by weight, have
#   such tails. An estimator that divides by the probability is unbiased on paper, and here never sends the tail.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
by turns, fp32: expected 9.999e-05, under a tenth of it True
by turns, float64: expected 9.999e-05, within a fifth of it True
large first, fp32: expected 1.038e-02, under a tenth of it True
large first, float64: expected 1.038e-02, within a fifth of it True
large last, fp32: expected 1.038e-02, within a fifth of it True
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import torch

SIZE, DRAWS = 1 << 20, 2_000_000
turns = torch.ones(SIZE)
turns[::2] = 1e-4
first = torch.full((SIZE,), 1e-4)
first[0] = 1e4


def told(name, weights, wrong):
    torch.manual_seed(0)
    small = weights < 1e-3
    expected = (weights.double()[small].sum() / weights.double().sum()).item()
    drawn = small[torch.multinomial(weights, DRAWS, replacement=True)].double().mean().item()
    if wrong:
        verdict = f"under a tenth of it {drawn < 0.1 * expected}"
    else:
        verdict = f"within a fifth of it {abs(drawn - expected) < 0.2 * expected}"
    print(f"{name}: expected {expected:.3e}, {verdict}")


told("by turns, fp32", turns, True)
told("by turns, float64", turns.double(), False)
told("large first, fp32", first, True)
told("large first, float64", first.double(), False)
told("large last, fp32", first.flip(0), False)
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
