#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: torch.optim.Muon turns the gradient of one token into an update whose norm is mostly rounding noise.
# Guess: a gradient of rank 1 gives an update of rank 1, with under 1 % of its norm elsewhere, and the same gradient
#   times 1.001 gives the same update to 1 %.
# Seen: of the norm of the update more than 0.7 lies outside the span of a gradient of rank 1, more than 0.3 for rank 8
#   and more than 0.05 for rank 64, with fp32 weights and gradients; the same iteration in float64 leaves 0.00. The
#   gradient times 1.001 gives an update that differs by as large shares of its norm. Muon rounds to bf16 before five
#   Newton-Schulz steps. Each step multiplies small singular values by 3.44, all five by 485, and many small rounding
#   errors become as large as the signal.
# Versions: torch 2.15.0, numpy 2.4.6, CPU; Python 3.11.
# Why: sites with small batches, adapters and the first steps of a layer have such gradients. Replicas whose gradients
#   differ in the last bits, as after another order of summation, take different steps in most directions; a scale that
#   Muon is said to ignore, of a loss or a mean, does the same. Codecs by low rank cannot pack the noise.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
128 x 128, rank 1: outside the span over 0.7 True (in float64 0.00); times 1.001: changed by over 0.7 True
128 x 128, rank 8: outside the span over 0.3 True (in float64 0.00); times 1.001: changed by over 0.3 True
128 x 128, rank 64: outside the span over 0.05 True (in float64 0.00); times 1.001: changed by over 0.05 True
512 x 512, rank 1: outside the span over 0.7 True (in float64 0.00); times 1.001: changed by over 0.7 True
512 x 512, rank 8: outside the span over 0.3 True (in float64 0.00); times 1.001: changed by over 0.3 True
512 x 512, rank 64: outside the span over 0.05 True (in float64 0.00); times 1.001: changed by over 0.05 True
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import torch

COEFFICIENTS = (3.4445, -4.775, 2.0315)  # those of torch.optim.Muon


def update(gradient):
    """The first step, in which the momentum is a multiple of the gradient."""
    parameter = torch.nn.Parameter(torch.zeros_like(gradient))
    optimizer = torch.optim.Muon([parameter], lr=1.0, weight_decay=0.0)
    parameter.grad = gradient.clone()
    optimizer.step()
    return -parameter.detach().double()


def exact(gradient, steps=5):
    """The same iteration in float64, by the singular values: each keeps its vectors."""
    u, s, vh = torch.linalg.svd(gradient.double(), full_matrices=False)
    s = s / s.norm()
    for _ in range(steps):
        a, b, c = COEFFICIENTS
        s = a * s + b * s**3 + c * s**5
    return u @ torch.diag(s) @ vh


def outside(gradient, step, rank):
    u, _, vh = torch.linalg.svd(gradient.double(), full_matrices=False)
    u, vh = u[:, :rank], vh[:rank]
    return ((step - u @ (u.T @ step @ vh.T) @ vh).norm() / step.norm()).item()


torch.manual_seed(0)
for size in (128, 512):
    for rank, bound in ((1, 0.7), (8, 0.3), (64, 0.05)):
        gradient = torch.randn(size, rank) @ torch.randn(rank, size)
        step = update(gradient)
        change = ((update(gradient * 1.001) - step).norm() / step.norm()).item()
        told = f"outside the span over {bound} {outside(gradient, step, rank) > bound}"
        told += f" (in float64 {outside(gradient, exact(gradient), rank):.2f})"
        print(f"{size} x {size}, rank {rank}: {told}; times 1.001: changed by over {bound} {change > bound}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
