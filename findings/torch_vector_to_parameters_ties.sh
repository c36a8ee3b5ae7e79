#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: torch.nn.utils.vector_to_parameters makes the parameters views of the vector, in the vector's dtype.
# Guess: the values are copied, as the documentation says ("Copy slices of a vector into an iterable of parameters"):
#   two models given one vector stay apart, the vector stays as it was, and a bf16 vector leaves an fp32 model fp32.
# Seen: two workers are set to one vector theta, and worker 0 trains for 20 steps. Worker 1 and theta move with it,
#   and the outer gradient theta - parameters_to_vector(worker 0) is exactly 0. With load_state_dict, or with a clone
#   of theta for each worker, the outer gradient has norm 6.94. A bf16 vector turns the fp32 parameters into bf16 ones.
#   The function assigns a slice of the vector to param.data; nothing is copied or converted.
# Versions: torch 2.15.0, numpy 2.4.6, CPU; Python 3.11.
# Why: local SGD, federated averaging and evolution strategies on one machine set all workers from one vector. The
#   workers then train as one model, and an outer step sees no movement. A vector received in bf16 makes
#   the later training bf16 as well. torch.save of one small parameter writes the whole vector.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
vector_to_parameters: outer gradient 0.000, theta moved 6.940, worker 1 moved 6.940
of a clone: outer gradient 6.940, theta moved 0.000, worker 1 moved 0.000
load_state_dict: outer gradient 6.940, theta moved 0.000, worker 1 moved 0.000
vector_to_parameters of a bf16 vector: parameters bfloat16
vector_to_parameters: torch.save of the bias writes over 4 kB: True
load_state_dict of a bf16 vector: parameters float32
load_state_dict: torch.save of the bias writes over 4 kB: False
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import io

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def models(count=2):
    return [torch.nn.Linear(300, 4) for _ in range(count)]


def set_views(model, theta):
    vector_to_parameters(theta, model.parameters())


def set_clones(model, theta):
    vector_to_parameters(theta.clone(), model.parameters())


def set_state(model, theta):
    source = torch.nn.Linear(300, 4)
    vector_to_parameters(theta.clone(), source.parameters())
    model.load_state_dict(source.state_dict())


def train(model, steps=20):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 300)).sum().backward()
        optimizer.step()


def saved(tensor):
    file = io.BytesIO()
    torch.save(tensor, file)
    return file.tell()


for name, put in {"vector_to_parameters": set_views, "of a clone": set_clones, "load_state_dict": set_state}.items():
    theta = torch.zeros(1204)
    workers = models()
    for worker in workers:
        put(worker, theta)
    train(workers[0])
    outer = (theta - parameters_to_vector(workers[0].parameters())).norm().item()
    other = parameters_to_vector(workers[1].parameters()).norm().item()
    print(f"{name}: outer gradient {outer:.3f}, theta moved {theta.norm():.3f}, worker 1 moved {other:.3f}")
for name, put in {"vector_to_parameters": set_views, "load_state_dict": set_state}.items():
    model = models(1)[0]
    put(model, torch.zeros(1204, dtype=torch.bfloat16))
    kinds = {str(p.dtype).removeprefix("torch.") for p in model.parameters()}
    print(f"{name} of a bf16 vector: parameters {', '.join(kinds)}")
    put(model, torch.zeros(1204))
    print(f"{name}: torch.save of the bias writes over 4 kB: {saved(model.bias) > 4000}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
