#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: torch's PowerSGD hook passes on no gradient of a layer that is idle in the step in which compression starts.
# Guess: orthogonalization_epsilon=1e-8 takes care of zero gradients, as its documentation says: the next gradients are
#   compressed as before, and a layer that has zero gradients at first trains from its first gradient on.
# Seen: gradients of a layer that is idle in steps 0 to 4 arrive with norm 0 in all later steps, with error feedback and
#   warm start on, as recommended. With error feedback off, one zero gradient in step 5 has the same result. A zero M
#   makes P = M Q zero, which the epsilon keeps zero, and then Q = M^T P. A warm start keeps that Q, so P = M Q stays
#   zero for every M. Error feedback adds what was lost to M, which helps only while Q is not zero.
# Versions: torch 2.15.0, numpy 2.4.6, gloo, CPU, 2 processes; Python 3.11.
# Why: experts without tokens, gates that are closed at first and layers behind a zero-initialized one have such steps.
#   The loss of the other layers still falls, and nothing reports the layer that stands still.
#   warm_start=False draws Q anew in each step and recovers.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
zero in step 5; feedback on, warm start on: 1.00, 1.00, 1.00, 0.00, 1.00, 1.00, 1.00, 1.00
zero in step 5; feedback on, warm start off: 1.00, 1.00, 1.00, 0.00, 1.00, 1.00, 1.00, 1.00
zero in step 5; feedback off, warm start on: 1.00, 1.00, 1.00, 0.00, 0.00, 0.00, 0.00, 0.00
zero in step 5; feedback off, warm start off: 1.00, 1.00, 1.00, 0.00, 1.00, 1.00, 1.00, 1.00
zero in steps 0 to 4; feedback on, warm start on: 0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00
zero in steps 0 to 4; feedback on, warm start off: 0.00, 0.00, 0.00, 1.00, 1.00, 1.00, 1.00, 1.00
zero in steps 0 to 4; feedback off, warm start on: 0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00
zero in steps 0 to 4; feedback off, warm start off: 0.00, 0.00, 0.00, 1.00, 1.00, 1.00, 1.00, 1.00
never zero; feedback on, warm start on: 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00
never zero; feedback on, warm start off: 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00
never zero; feedback off, warm start on: 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00
never zero; feedback off, warm start off: 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00
EOF
cat > "$work/train.py" <<'EOF'
import itertools
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS, START = 2, 10, 2  # PowerSGD starts at step 2, its least value with a warm start


def norms(zero_steps, **options):
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 64, bias=False)
    model = DistributedDataParallel(layer)
    state = PowerSGDState(dist.group.WORLD, matrix_approximation_rank=1, start_powerSGD_iter=START, **options)
    model.register_comm_hook(state, powerSGD_hook)
    inputs = torch.eye(64)
    pattern = torch.outer(torch.arange(1.0, 65), torch.arange(1.0, 65)) / 64  # of rank 1: one power step is exact
    seen = []
    for step in range(STEPS):
        model.zero_grad()
        on = 0.0 if step in zero_steps else 1.0
        (on * model(inputs) * pattern.T).sum().backward()
        seen.append((layer.weight.grad.norm() / pattern.norm()).item())
    return ", ".join(f"{norm:.2f}" for norm in seen[START:])


def main(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    cases = {"zero in step 5": {5}, "zero in steps 0 to 4": set(range(5)), "never zero": set()}
    for case, feedback, warm in itertools.product(cases, (True, False), (True, False)):
        told = norms(cases[case], use_error_feedback=feedback, warm_start=warm, orthogonalization_epsilon=1e-8)
        if rank == 0:
            print(f"{case}; feedback {'on' if feedback else 'off'}, warm start {'on' if warm else 'off'}: {told}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
EOF
export OMP_NUM_THREADS=1
for rank in 0 1; do
  "$work/venv/bin/python" -W ignore "$work/train.py" $rank "$work" > "$work/of$rank" 2> "$work/log$rank" &
done
wait
mv "$work/of0" "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
