#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: NumPy's mean is right in fp16 and wrong in bf16, and NumPy's norm is right in bf16 and wrong in fp16.
# Guess: mean and norm widen every small type: mean 1 and norm 316.2 (to the precision of the type) for 100000 ones.
# Seen: mean 1 (fp16), 0.00256348 (bf16) and 7.62939e-05 (fp8 e5m2); norm inf (fp16) and 316 (bf16). The mean widens
#   fp16 by name only, so a bf16 sum stays at 256 and an e5m2 sum at 8. The norm of fp16 is the root of a dot product
#   whose result is cast to fp16 (overflow above a norm of 256), whereas bf16 is cast to fp64 first.
#   The sum of 20 int4 ones is 4 in int4, whereas int8 sums are widened to int64.
# Versions: numpy 2.4.6, ml_dtypes 0.6.0; Python 3.11.
# Why: ml_dtypes are the arrays that JAX and safetensors readers hand to NumPy. Means over sites and norms of updates on
#   such arrays fail without an exception, and each of the two small floats hides the fault of the other.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
cat > "$work/expected" <<'EOF'
float16: mean 1, norm inf
bfloat16: mean 0.00256348, norm 316
float8_e5m2: mean 7.62939e-05, norm 320
int8: sum 20 int64
int4: sum 4 int4
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" <<'EOF'
import ml_dtypes
import numpy as np

for kind in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
    ones = np.ones(100000, kind)
    mean, norm = float(ones.mean()), float(kind(np.linalg.norm(ones)))
    print(f"{kind.__name__}: mean {mean:.6g}, norm {norm:.6g}")
for kind in (np.int8, ml_dtypes.int4):
    total = np.ones(20, kind).sum()
    print(f"{kind.__name__}: sum {int(total)} {total.dtype}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
