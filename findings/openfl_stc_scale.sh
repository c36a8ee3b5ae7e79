#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: OpenFL's sparse ternary code shrinks an update a second time, by its sparsity, and sends zeros as numbers.
# Guess before the run: the code keeps the share p of largest magnitude with their signs, and zeros stay zeros. No guess
#   was logged about the magnitude; the method (arXiv:1903.02891) sends the mean magnitude of the kept values.
# Seen: for 10000 draws N(0, 1) the kept values have mean magnitude 1.267, 2.061 and 2.863 for p = 0.5, 0.1 and 0.01;
#   they decode to 0.634, 0.206 and 0.0286. The mean is taken over the whole array, with the zeros that the step before
#   put in place of what was dropped, so the update is p times too small. A smaller p sends less of each kept value too.
#   An update with 100 non-zero values at p = 0.1 decodes to 1000 non-zero ones of one magnitude: zeros among the kept
#   become 1e-7, and then the mean. The relative error is 0.994, where 1000 exact values would have given 0.
# Versions: openfl 1.9, numpy 1.26.4, the modules of the pipeline alone; Python 3.11. Seen on 2026-11-29.
# Why: sites that name STCPipeline train with an outer step ten times smaller than the mean of their updates, and read
#   it as a learning rate too low. The scale hides in tests of signs, sparsity and bytes, which are right.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps openfl==1.9 numpy==1.26.4
cat > "$work/expected" <<'EOF'
p = 0.5: 5000 of 5000 kept, mean magnitude 1.267, decoded 0.634
p = 0.1: 1000 of 1000 kept, mean magnitude 2.061, decoded 0.206
p = 0.01: 100 of 100 kept, mean magnitude 2.863, decoded 0.0286
100 non-zero values at p = 0.1: 1000 decoded, magnitudes 1, relative error 0.994
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import importlib.util
import sys
import types

import numpy as np

# The module of the pipeline and its base alone: the packages above them import what a whole federation needs.
folder = importlib.util.find_spec("openfl").submodule_search_locations[0]
for name, path in (("openfl", folder), ("openfl.pipelines", folder + "/pipelines")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from openfl.pipelines.stc_pipeline import STCPipeline  # noqa: E402


def back(x, p):
    pipeline = STCPipeline(p_sparsity=p)
    return np.asarray(pipeline.backward(*pipeline.forward(x.copy())))


draw = np.random.default_rng(0)
x = draw.standard_normal(10000).astype(np.float32)
for p in (0.5, 0.1, 0.01):
    count = round(x.size * p)
    largest = np.argsort(np.abs(x))[-count:]
    y = back(x, p)
    kept = int((np.sign(y[largest]) == np.sign(x[largest])).sum())
    print(f"p = {p}: {kept} of {np.count_nonzero(y)} kept, mean magnitude {np.abs(x[largest]).mean():.3f}, "
          f"decoded {np.abs(y[largest[0]]):.3g}")
x = np.zeros(10000, np.float32)
x[draw.choice(x.size, 100, replace=False)] = draw.standard_normal(100)
y = back(x, 0.1)
told = f"{np.count_nonzero(y)} decoded, magnitudes {np.unique(np.abs(y[y != 0])).size}"
print(f"100 non-zero values at p = 0.1: {told}, relative error {np.linalg.norm(y - x) / np.linalg.norm(x):.3f}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
