#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: jax.random draws of bf16 have 128 values: rare events come too often and normal noise is cut at 2.9 sigma.
# Guess: jax.random.normal(dtype=bfloat16) is an fp32 draw rounded to bf16 (largest of 1e6 about 4.9, mean 0), and
#   jax.random.bernoulli with a bf16 p = 0.001 gives True in 0.1 % of cases; float16 likewise.
# Seen: bernoulli with a bf16 p = 0.001 gives True in 0.77 % (fp16 0.20 %), with p = 0.0001 in 0.77 % too. One million
#   normal draws take 128 values (fp16 1024), end at -2.89 and 2.52, and have the mean -0.012 (-0.002). The same
#   draws reach bf16 gradients through optax.add_noise. uniform fills only the 7 stored mantissa bits of bf16, so
#   its values are k / 128, with the mean 0.496; bernoulli compares those with p, and normal maps them through erf_inv.
# Versions: jax 0.10.2, jaxlib 0.10.2, optax 0.2.8, numpy 2.4.6, ml_dtypes 0.6.0, CPU; Python 3.11.
# Why: a ternary or random sparse code that keeps an entry of bf16 gradients with the probability |g| / max |g| sends
#   too many small entries, so their mean is off by a factor of 7.7 at 0.001. The noise of private training in
#   bf16 has no tail, and its bias is equal on all sites and steps, so an average keeps the bias.
#   mode="high" repairs bernoulli. Its documentation names p under 1e-7 in float32 only.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 optax==0.2.8 numpy==2.4.6 \
  ml_dtypes==0.6.0
cat > "$work/expected" <<'EOF'
bernoulli, float32 p of 1, 0.1, 0.01 and (mode high) 0.1 %: 0.99 %, 0.10 %, 0.01 %, 0.10 %
bernoulli, float16 p of 1, 0.1, 0.01 and (mode high) 0.1 %: 1.08 %, 0.20 %, 0.10 %, 0.10 %
bernoulli, bfloat16 p of 1, 0.1, 0.01 and (mode high) 0.1 %: 1.54 %, 0.77 %, 0.77 %, 0.10 %
uniform, float32: many values, 0.00 to 1.00, mean 0.500
uniform, float16: 1024 values, 0.00 to 1.00, mean 0.500
uniform, bfloat16: 128 values, 0.00 to 0.99, mean 0.496
normal, float32: many values, -4.65 to 4.52, mean 0.000
normal, float16: 1024 values, -3.49 to 3.18, mean -0.002
normal, bfloat16: 128 values, -2.89 to 2.52, mean -0.012
optax.add_noise, float32 gradient: many values, -4.69 to 5.06, mean 0.001
optax.add_noise, float16 gradient: 1024 values, -3.49 to 3.18, mean -0.002
optax.add_noise, bfloat16 gradient: 128 values, -2.89 to 2.52, mean -0.011
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import jax
import jax.numpy as jnp
import numpy as np
import optax

COUNT = 1_000_000
KEY = jax.random.key(0)
KINDS = ("float32", "float16", "bfloat16")


def float64(x):
    return np.asarray(x).astype(np.float64)


def described(x):
    # The number of distinct float32 values depends on the seed alone, but says nothing.
    values = np.unique(x).size
    return f"{values if values < 100000 else 'many'} values, {x.min():.2f} to {x.max():.2f}, mean {x.mean():.3f}"


for kind in KINDS:
    shares = [
        100 * float64(jax.random.bernoulli(KEY, jnp.asarray(p, kind), (COUNT,), mode=mode)).mean()
        for p, mode in ((0.01, "low"), (0.001, "low"), (0.0001, "low"), (0.001, "high"))
    ]
    told = ", ".join(f"{share:.2f} %" for share in shares)
    print(f"bernoulli, {kind} p of 1, 0.1, 0.01 and (mode high) 0.1 %: {told}")
for kind in KINDS:
    print(f"uniform, {kind}: {described(float64(jax.random.uniform(KEY, (COUNT,), kind)))}")
for kind in KINDS:
    print(f"normal, {kind}: {described(float64(jax.random.normal(KEY, (COUNT,), kind)))}")
noise = optax.add_noise(eta=1.0, gamma=0.0, key=KEY)
for kind in KINDS:
    gradient = jnp.zeros(COUNT, kind)
    noisy, _ = noise.update(gradient, noise.init(gradient))
    print(f"optax.add_noise, {kind} gradient: {described(float64(noisy))}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
