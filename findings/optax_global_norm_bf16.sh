#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: optax.global_norm of bf16 gradients stops growing at 256 equal leaves, and clipping then clips too little.
# Guess: the norm of 1000 bf16 leaves [1] is 31.6 rounded to bf16, as XLA sums bf16 in fp32.
# Seen: 16 in bf16, 31.625 in fp16, 31.6228 in fp32. The sum within a leaf is good, but the sums of the leaves are
#   added one by one in bf16, where 256 + 1 is 256. clip_by_global_norm(1) leaves a norm of 1.976. One leaf [16] more
#   gives 16 when it is the first and 22.625 when it is the last, so the names of parameters decide the norm.
#   400 leaves of 4096 values N(0, 1) have 1216 in place of 1280: 5 % too small.
# Versions: optax 0.2.8, jax 0.10.2, CPU; Python 3.11.
# Why: the clip of gradients or of pseudo-gradients is the guard between a bad site and the mean. The same model with
#   its layers stacked in one array (scan) and with one array for each layer is clipped at different norms.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 \
  numpy==2.4.6 ml_dtypes==0.6.0
cat > "$work/expected" <<'EOF'
float32: 31.6228
float16: 31.625
bfloat16: 16
after clipping to 1: 1.976
large leaf first: 16
large leaf last: 22.625
400 leaves of 4096: bf16 1216, fp32 1280
EOF
JAX_PLATFORMS=cpu "$work/venv/bin/python" -W ignore - > "$work/seen" <<'EOF'
import jax.numpy as jnp
import numpy as np
import optax

for kind in (jnp.float32, jnp.float16, jnp.bfloat16):
    print(f"{kind.__name__}: {float(optax.global_norm([jnp.ones(1, kind)] * 1000)):.6g}")
ones = [jnp.ones(1, jnp.bfloat16)] * 1000
clipped, _ = optax.clip_by_global_norm(1.0).update(ones, optax.EmptyState())
print(f"after clipping to 1: {sum(float(x[0]) ** 2 for x in clipped) ** 0.5:.3f}")
large = [jnp.full(1, 16, jnp.bfloat16)]
print(f"large leaf first: {float(optax.global_norm(large + ones)):.6g}")
print(f"large leaf last: {float(optax.global_norm(ones + large)):.6g}")
draw = np.random.default_rng(0)
layers = [jnp.asarray(draw.standard_normal(4096), jnp.bfloat16) for _ in range(400)]
wide = [x.astype(jnp.float32) for x in layers]
print(f"400 leaves of 4096: bf16 {float(optax.global_norm(layers)):.0f}, fp32 {float(optax.global_norm(wide)):.0f}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
