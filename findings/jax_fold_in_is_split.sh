#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: in JAX, jax.random.fold_in(key, i) is the very key jax.random.split(key, n)[i].
# Guess: split and fold_in derive independent keys: a key per site (split) and a key per round (fold_in) never meet.
# Seen: all 8 of 8 keys are equal: 0 1 2 3 4 5 6 7. The noise of round 3 and that of site 3 have a correlation of 1.
#   With JAX's older setting jax_threefry_partitionable=False none of the 8 is equal.
# Versions: jax 0.10.2 and jaxlib 0.10.2 with defaults (threefry2x32, partitionable), CPU; Python 3.11.
# Why: low-bandwidth methods share a key and draw masks, projections, dropout or rounding noise per site and per round.
#   Site k then draws in every round what all sites drew as shared noise of round k, and averages no longer cancel it.
#   One chain of fold_in, with a constant for each purpose before the index, keeps such streams apart.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 \
  numpy==2.4.6 ml_dtypes==0.6.0
cat > "$work/expected" <<'EOF'
partitionable True: equal keys 0 1 2 3 4 5 6 7
correlation of site 3 and round 3: 1.000
partitionable False: equal keys none
EOF
JAX_PLATFORMS=cpu "$work/venv/bin/python" -W ignore - > "$work/seen" <<'EOF'
import jax
import numpy as np


def equal():
    key = jax.random.key(0)
    sites = jax.random.key_data(jax.random.split(key, 8))
    rounds = [jax.random.key_data(jax.random.fold_in(key, i)) for i in range(8)]
    return " ".join(str(i) for i in range(8) if (sites[i] == rounds[i]).all())


print(f"partitionable {jax.config.jax_threefry_partitionable}: equal keys {equal()}")
key = jax.random.key(0)
site = jax.random.normal(jax.random.split(key, 8)[3], (1000,))
shared = jax.random.normal(jax.random.fold_in(key, 3), (1000,))
print(f"correlation of site 3 and round 3: {np.corrcoef(site, shared)[0, 1]:.3f}")
jax.config.update("jax_threefry_partitionable", False)
print(f"partitionable {jax.config.jax_threefry_partitionable}: equal keys {equal() or 'none'}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
