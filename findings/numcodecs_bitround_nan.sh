#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: numcodecs BitRound turns CUDA's NaN into -0, and Quantize makes inf of fp16 values of 64 and more.
# Guess: BitRound(keepbits) keeps every NaN a NaN, and Quantize(digits=3) errs by at most 0.0005 in fp16 and fp32.
# Seen: BitRound(10) takes the fp32 NaN 0x7fffffff to -0, 0xffffffff to 0 and 0x7f800001 to inf; NumPy's own NaN,
#   0x7fc00000, stays NaN, so a test on the CPU passes. The codec adds half a step to the bits as an integer: a NaN
#   whose bits are all ones carries into the sign. Each keepbits below the maximum does it, and fp16 too.
#   Quantize(digits=3) multiplies by 1024 in the type of the array, which leaves fp16 at 64; fp32 is right.
# Versions: numcodecs 0.16.6, numpy 2.4.6; Python 3.11.
# Why: 0x7fffffff is the NaN of CUDA's own header (CUDART_NAN_F). Updates from such a device, stored by Zarr with
#   this codec, hold a zero where the training overflowed, and a later search for NaN finds nothing.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numcodecs==0.16.6 numpy==2.4.6
cat > "$work/expected" <<'EOF'
fp32 keepbits 1: 7fc00000 nan, 7fffffff -0, ffffffff 0, 7f800001 inf, 7f800000 inf
fp32 keepbits 10: 7fc00000 nan, 7fffffff -0, ffffffff 0, 7f800001 inf, 7f800000 inf
fp32 keepbits 22: 7fc00000 nan, 7fffffff -0, ffffffff 0, 7f800001 inf, 7f800000 inf
fp32 keepbits 23: 7fc00000 nan, 7fffffff nan, ffffffff nan, 7f800001 nan, 7f800000 inf
fp16 keepbits 7: 7e00 nan, 7fff -0
Quantize float16: 63 to 63, 64 to inf, 100 to inf
Quantize float32: 63 to 63, 64 to 64, 100 to 100
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import numpy as np
from numcodecs import BitRound, Quantize


def rounded(patterns, integer, kind, keepbits):
    codec = BitRound(keepbits)
    values = codec.decode(codec.encode(np.array(patterns, integer).view(kind))).view(kind)
    digits = 2 * np.dtype(kind).itemsize
    return ", ".join(f"{p:0{digits}x} {float(v):g}" for p, v in zip(patterns, values))


for keepbits in (1, 10, 22, 23):
    patterns = (0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F800000)
    print(f"fp32 keepbits {keepbits}: " + rounded(patterns, np.uint32, np.float32, keepbits))
print("fp16 keepbits 7: " + rounded((0x7E00, 0x7FFF), np.uint16, np.float16, 7))
for kind in (np.float16, np.float32):
    codec = Quantize(digits=3, dtype=kind)
    x = np.array([63, 64, 100], kind)
    pairs = zip(x, codec.decode(codec.encode(x)))
    print(f"Quantize {kind.__name__}: " + ", ".join(f"{float(a):g} to {float(b):g}" for a, b in pairs))
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
