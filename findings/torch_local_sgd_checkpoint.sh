#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: torch.distributed.checkpoint saves a mixture of the ranks' replicas, and PeriodicModelAverager averages early.
# Guess: tensors that differ between ranks under equal names are saved from rank 0. PeriodicModelAverager with
#   period=4 averages after steps 4, 8 and 12, so that ranks agree after step 12.
# Seen: two ranks train with PostLocalSGDOptimizer and save after step 12. The checkpoint has weights 0 and 2 and
#   momentum 1 from rank 0, weight 1 and momenta 0 and 2 from rank 1: no weight has its own momentum. The step count
#   is rank 0's. The planner takes equal names for replicas of one value and leaves each to the rank with the fewest
#   bytes so far; with DefaultSavePlanner(dedup_save_to_lowest_rank=True) all are from rank 0.
#   Averages come after steps 1, 5, 9 and 13 (with warmup_steps=2: 3, 7, 11): the step is counted after the test, so
#   step 0 passes it. After step 12 ranks are three local steps apart, just when all three periods are done.
# Versions: torch 2.15.0, numpy 2.4.6, gloo, CPU, 2 processes; Python 3.11.
# Why: replicas of local SGD differ between averages, and their momenta at all times. A run resumes from such
#   a checkpoint with a model that no rank had. The number of ranks and the sizes of tensors decide the mixture.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
period 4, warm-up 0: averaged after steps [1, 5, 9, 13]
period 4, warm-up 2: averaged after steps [3, 7, 11]
ranks saved by default: weight 0: 0, weight 1: 1, weight 2: 0, momentum 0: 1, momentum 1: 0, momentum 2: 1, step: 0
ranks saved by lowest: weight 0: 0, weight 1: 0, weight 2: 0, momentum 0: 0, momentum 1: 0, momentum 2: 0, step: 0
EOF
cat > "$work/train.py" <<'EOF'
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

RANKS, STEPS = 2, 13


def agree(tensor):
    everyone = [torch.empty_like(tensor) for _ in range(RANKS)]
    dist.all_gather(everyone, tensor)
    return all(one.equal(everyone[0]) for one in everyone)


def owners(saved, rank_values):
    return {name: next(r for r in range(RANKS) if saved[name].equal(rank_values[r][name])) for name in saved}


def train(warmup):
    weights = [torch.nn.Parameter(torch.zeros(1000)) for _ in range(3)]
    inner = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    optimizer = PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=4, warmup_steps=warmup))
    averaged, state = [], {}
    for step in range(1, STEPS + 1):
        for weight in weights:
            weight.grad = torch.full((1000,), 1.0 + dist.get_rank())
        optimizer.step()
        if agree(weights[0].detach()):
            averaged.append(step)
        if step == 12:
            state = {f"weight {i}": w.detach().clone() for i, w in enumerate(weights)}
            state |= {f"momentum {i}": inner.state[w]["momentum_buffer"].clone() for i, w in enumerate(weights)}
    return averaged, state


def main(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    for warmup in (0, 2):
        averaged, _ = train(warmup)
        if rank == 0:
            print(f"period 4, warm-up {warmup}: averaged after steps {averaged}")
    _, state = train(0)
    of_ranks = [None] * RANKS
    dist.all_gather_object(of_ranks, state)
    lowest = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)
    for name, planner in (("default", None), ("lowest", lowest)):
        dcp.save(state | {"step": 12 + rank}, checkpoint_id=f"{folder}/{name}", planner=planner)
        loaded = {key: torch.empty_like(value) for key, value in state.items()} | {"step": 0}
        dcp.load(loaded, checkpoint_id=f"{folder}/{name}")
        step = loaded.pop("step")
        if rank == 0:
            told = ", ".join(f"{key}: {owner}" for key, owner in owners(loaded, of_ranks).items())
            print(f"ranks saved by {name}: {told}, step: {step - 12}")
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
