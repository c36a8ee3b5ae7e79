#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: FedJAX's TernGrad never sends a parameter of one element, and its DRIVE makes NaN of an update of zeros.
# Guess: the ternary code is unbiased (arXiv:1705.07878) but for a clip of tails beyond 2.5 sigma, so the mean over many
#   keys is the update; zeros stay zeros in each quantizer.
# Seen: the mean over 32 rounds, as a share of the update: 0 for one element or equal elements, 0.05 for 0.5 +- 0.01,
#   0.08 for one non-zero in 1000, about 1 for N(0, 1). Sigma is the standard deviation about the array's own mean,
#   and is 0 for equal elements. A leaf of zeros gives NaN under DRIVE (arXiv:2105.08339), whose scale is the sum of
#   squares over the sum of magnitudes, and one such client makes NaN of any mean. The uniform quantizer is right.
# Versions: fedjax 0.0.17, jax and jaxlib 0.4.23 (newer JAX lacks jax.tree_map), numpy 1.26.4, CPU; Python 3.11.
# Why: scalar parameters (temperatures, gates) stop training without an error, and embedding updates, where most rows
#   are 0, shrink more than tenfold. Frozen layers and unused experts are leaves of zeros.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check fedjax==0.0.17 jax==0.4.23 jaxlib==0.4.23 \
  numpy==1.26.4 scipy==1.12.0 ml_dtypes==0.3.2 dm-haiku==0.0.11 optax==0.1.7 chex==0.1.85
cat > "$work/expected" <<'EOF'
one element 0.5: ternary 0.00, drive 1.00, uniform 1.00
8 equal elements: ternary 0.00, drive 1.00, uniform 1.00
0.5 +- 0.01: ternary 0.05, drive 1.00, uniform 1.00
one of 1000: ternary 0.08, drive 1.00, uniform 1.00
N(0, 1): ternary 1.00, drive 1.00, uniform 1.00
8 zeros: ternary 0, drive nan, uniform 0
mean of zeros and ones: ternary 0, drive nan, uniform 0.5
EOF
JAX_PLATFORMS=cpu "$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import jax
import numpy as np
from fedjax.aggregators import compression

key = jax.random.PRNGKey(0)
quantizers = {
    "ternary": compression.terngrad_quantizer(key),
    "drive": compression.structured_drive_quantizer(key),
    "uniform": compression.uniform_stochastic_quantizer(16, key),
}


def mean(quantizer, updates, rounds):
    state, total = quantizer.init(), 0.0
    for _ in range(rounds):
        clients = [(f"{i}".encode(), {"w": u}, 1.0) for i, u in enumerate(updates)]
        average, state = quantizer.apply(clients, state)
        total = total + np.asarray(average["w"], np.float64)
    return total / rounds


draw = np.random.default_rng(0)
single = np.zeros(1000, np.float32)
single[3] = 1
leaves = {
    "one element 0.5": np.full(1, 0.5, np.float32),
    "8 equal elements": np.full(8, 0.5, np.float32),
    "0.5 +- 0.01": (0.5 + 0.01 * draw.standard_normal(1000)).astype(np.float32),
    "one of 1000": single,
    "N(0, 1)": draw.standard_normal(1000).astype(np.float32),
}
for name, u in leaves.items():
    shares = {n: (mean(q, [u], 32) * u).sum() / (u * u).sum() for n, q in quantizers.items()}
    print(f"{name}: " + ", ".join(f"{n} {s:.2f}" for n, s in shares.items()))
zeros, ones = np.zeros(8, np.float32), np.ones(8, np.float32)
print("8 zeros: " + ", ".join(f"{n} {mean(q, [zeros], 1).mean():g}" for n, q in quantizers.items()))
both = {n: mean(q, [zeros, ones], 1).mean() for n, q in quantizers.items()}
print("mean of zeros and ones: " + ", ".join(f"{n} {v:g}" for n, v in both.items()))
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
