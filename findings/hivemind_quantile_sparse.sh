#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: hivemind's Quantile8BitQuantization loses every negative value of a sparse update and leaves no zero.
# Guess: a code by quantiles keeps zeros at 0 and both signs of a sparse update; in Uniform8BitQuantization two
#   outliers keep their own values to half a step, or clamp to the end of the range.
# Seen: of 100000 values with 47 negative and 53 positive ones, all 99900 zeros and all 47 negative values decode to
#   -0.000357, and the positive ones to one value. Nearly all quantiles are 0, so one bucket takes what is at most 0,
#   one takes the rest, and a bucket decodes to its mean. With 1 % non-zero both codecs err by half of the norm:
#   uniform codes end at 3 sigma of the whole tensor, and what lies beyond decodes to one mean.
#   In 100000 draws N(0, 1) with 100 and 1000 put in, both decode to 550 (uniform) or to 5.76 (quantile).
# Versions: hivemind 1.1.12, torch 2.15.0, numpy 2.2.6 (with 2.4.6 decoding ends in a TypeError), CPU; Python 3.11.
# Why: peers name these codecs for gradients and state averaging, and gradients of embeddings and experts are
#   sparse. The mean of a tensor is kept, so sums agree where single values do not.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check hivemind==1.1.12 torch==2.15.0 numpy==2.2.6
cat > "$work/expected" <<'EOF'
quantile, 100 non-zero: zeros kept 0 of 99900, negative 0 of 47, positive 53 of 53, relative error 0.782
quantile, 100 non-zero: zeros become -0.000357, values decoded: 2
uniform, 100 non-zero: zeros kept 99900 of 99900, negative 46 of 47, positive 53 of 53, relative error 0.541
quantile, 1000 non-zero: relative error 0.502
uniform, 1000 non-zero: relative error 0.483
quantile: 100 to 5.76, 1000 to 5.76
uniform: 100 to 550.00, 1000 to 550.00
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import numpy as np
import torch
from hivemind.compression import (
    Quantile8BitQuantization,
    Uniform8BitQuantization,
    deserialize_torch_tensor,
    serialize_torch_tensor,
)

CODECS = {"quantile": Quantile8BitQuantization, "uniform": Uniform8BitQuantization}


def back(name, x):
    message = serialize_torch_tensor(torch.tensor(x), CODECS[name].compression_type)
    return deserialize_torch_tensor(message).numpy()


def sparse(draw, count):
    x = np.zeros(100000, np.float32)
    x[draw.choice(x.size, count, replace=False)] = draw.standard_normal(count)
    return x


def error(x, y):
    return f"relative error {np.linalg.norm(y - x) / np.linalg.norm(x):.3f}"


x = sparse(np.random.default_rng(0), 100)
low, zero, high = x < 0, x == 0, x > 0
for name in CODECS:
    y = back(name, x)
    told = f"zeros kept {(y[zero] == 0).sum()} of {zero.sum()}, negative {(y[low] < -0.01).sum()} of {low.sum()}"
    print(f"{name}, 100 non-zero: {told}, positive {(y[high] > 0.01).sum()} of {high.sum()}, {error(x, y)}")
    if name == "quantile":
        print(f"{name}, 100 non-zero: zeros become {y[zero].mean():.6f}, values decoded: {np.unique(y).size}")
x = sparse(np.random.default_rng(1), 1000)
for name in CODECS:
    print(f"{name}, 1000 non-zero: {error(x, back(name, x))}")
x = np.random.default_rng(2).standard_normal(100000).astype(np.float32)
x[7], x[8] = 100, 1000
for name in CODECS:
    y = back(name, x)
    print(f"{name}: 100 to {y[7]:.2f}, 1000 to {y[8]:.2f}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
