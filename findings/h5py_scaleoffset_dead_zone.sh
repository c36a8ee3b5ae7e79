#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: HDF5's scale-offset filter with 3 digits makes 0 of all values below 0.001, not of those below 0.0005.
# Guess before the run: scaleoffset=3 of fp32 rounds to thousandths, so that the error is 0.0005 at most.
# Seen: of 100000 draws N(0, 1) times 0.001 a share of 0.302 errs by more than 0.0005, and errors reach 0.001. The norm
#   of what is read is 0.912 of the written norm; plain rounding to thousandths gives 1.040. The filter takes values
#   closer than 10^-digits to the fill value for the fill value, which is 0 unless told: a dead zone of two steps. With
#   fillvalue=-1e30 the bound of 0.0005 holds, and with fillvalue=0.5 the dead zone lies about 0.5.
# Versions: h5py 3.16.0 (its wheel's HDF5), numpy 2.4.6; Python 3.11. Seen on 2026-11-29.
# Why: updates, momenta and error feedback are centred at 0, where the dead zone is. A site that stores them with this
#   filter loses what is small, always toward 0, so that a mean over many files does not bring it back.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check h5py==3.16.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
fill value not given: errs by over 0.0005 for a share of 0.302, at most 0.0010, norm 0.912, 0.0009 comes back as 0.000
fill value 0.0: errs by over 0.0005 for a share of 0.302, at most 0.0010, norm 0.912, 0.0009 comes back as 0.000
fill value -1e+30: errs by over 0.0005 for a share of 0.000, at most 0.0005, norm 1.040, 0.0009 comes back as 0.001
fill value 0.5: errs by over 0.0005 for a share of 0.000, at most 0.0005, norm 1.040, 0.0009 comes back as 0.001
about 0.5 with fill value 0.5: 0.5009 comes back as 0.500
EOF
"$work/venv/bin/python" -W ignore - "$work" > "$work/seen" 2> "$work/log" <<'EOF'
import sys

import h5py
import numpy as np


def back(values, fill):
    with h5py.File(sys.argv[1] + "/values.h5", "w") as file:
        file.create_dataset("values", data=values, scaleoffset=3, fillvalue=fill)
    with h5py.File(sys.argv[1] + "/values.h5") as file:
        return file["values"][:]


x = (np.random.default_rng(0).standard_normal(100000) * 1e-3).astype(np.float32)
x[0] = 0.0009
for fill in (None, 0.0, -1e30, 0.5):
    y = back(x, fill)
    error = np.abs(y.astype(np.float64) - x)
    told = f"errs by over 0.0005 for a share of {(error > 5.01e-4).mean():.3f}, at most {error.max():.4f}"
    told += f", norm {np.linalg.norm(y) / np.linalg.norm(x):.3f}, 0.0009 comes back as {y[0]:.3f}"
    print(f"fill value {'not given' if fill is None else fill}: {told}")
middle = back(np.array([0.0, 0.5009, 1.0], np.float32), 0.5)[1]
print(f"about 0.5 with fill value 0.5: 0.5009 comes back as {middle:.3f}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
