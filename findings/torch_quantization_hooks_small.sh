#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: torch's 8-bit DDP hooks return zeros for gradients of 1e-8, and make one number of gradients near 1.
# Guess before the run: the mean that quantization_pertensor_hook and quantization_perchannel_hook return errs by half
#   a step at most, where a step is the range of the gradient over 255, for gradients of any size.
# Seen: relative errors for N(0, 1) times s on two ranks: 0.008 at s = 1e-3, 0.034 at 1e-6 and 0.33 at 1e-7; at 1e-8
#   every value is 0. The step never falls below fp32's epsilon, 1.19e-7, which is the default least scale of the
#   observer that the hooks use. Gradients in [1, 1.004] come back in under 5 distinct values: the range is widened to
#   hold 0, so a step is 0.004.
# Versions: torch 2.15.0, numpy 2.4.6, gloo, CPU, 2 processes; Python 3.11. Seen on 2026-11-29.
# Why: gradients of a mean loss over millions of parameters lie at 1e-6 and below, and pseudo-gradients at small
#   learning rates do too. A model tested with large gradients trains, and the same code on a larger model stands
#   still. Scale the loss up before such a hook and the mean down after it.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
pertensor, s = 0.001: error below 0.01 True, zeros under 1 % True
pertensor, s = 1e-06: error above 0.02 True, all zeros False
pertensor, s = 1e-07: error above 0.2 True, all zeros False
pertensor, s = 1e-08: error above 0.99 True, all zeros True
pertensor, in [1, 1.004]: under 5 values True
perchannel, s = 0.001: error below 0.01 True, zeros under 1 % True
perchannel, s = 1e-06: error above 0.02 True, all zeros False
perchannel, s = 1e-07: error above 0.2 True, all zeros False
perchannel, s = 1e-08: error above 0.99 True, all zeros True
EOF
cat > "$work/ranks.py" <<'EOF'
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks
from torch.nn.parallel import DistributedDataParallel


def mean(hook, values, rank):
    """The gradient that the hook leaves, and the exact mean over the ranks."""
    layer = torch.nn.Linear(values[0].numel(), 1, bias=False)
    model = DistributedDataParallel(layer)
    model.register_comm_hook(dist.group.WORLD, getattr(quantization_hooks, f"quantization_{hook}_hook"))
    model(values[rank][None]).sum().backward()
    return layer.weight.grad[0].double(), torch.stack(values).double().mean(0)


def main(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    draws = [torch.randn(2000, generator=torch.Generator().manual_seed(each)) for each in range(2)]
    for hook in ("pertensor", "perchannel"):
        for s, bound in ((1e-3, 0.01), (1e-6, 0.02), (1e-7, 0.2), (1e-8, 0.99)):
            found, exact = mean(hook, [draw * s for draw in draws], rank)
            error = ((found - exact).norm() / exact.norm()).item()
            zeros = (found == 0).double().mean().item()
            if rank == 0:
                print(f"{hook}, s = {s:g}: error {error:.4f}, zeros {zeros:.3f}", file=sys.stderr)
                if s == 1e-3:
                    print(f"{hook}, s = {s:g}: error below {bound} {error < bound}, zeros under 1 % {zeros < 0.01}")
                else:
                    print(f"{hook}, s = {s:g}: error above {bound} {error > bound}, all zeros {zeros == 1}")
        if hook == "pertensor":
            found, _ = mean(hook, [1 + 0.001 * draw.abs().clamp(max=4) for draw in draws], rank)
            if rank == 0:
                print(f"{hook}, in [1, 1.004]: under 5 values {found.unique().numel() < 5}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(main, (os.path.join(folder, "store"),), nprocs=2)
EOF
"$work/venv/bin/python" -W ignore "$work/ranks.py" > "$work/seen" 2> "$work/log"
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
