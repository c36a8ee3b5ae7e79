#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: peft's add_weighted_adapter ("linear", weights that sum to 1) multiplies an update by the number of adapters.
# Guess: the mean of n equal LoRA adapters (weights 1/n, any combination type) is that adapter again, a factor of 1.
# Seen: two equal adapters give factor 2 and three give factor 3 under "linear"; "ties" gives 0.5 and 0.3333 in the same
#   call; "svd" and "cat" give 1. Linear takes the root of each weight and applies it to A and to B separately, so the
#   product holds (sum of roots)^2, which is n and not 1. Ties averages the factors that
#   agree, each already times the root of 1/n, so the product holds 1/n.
# Versions: peft 0.21.2, torch 2.15.0 (CPU is enough), transformers 5.24.0, accelerate 1.15.0; Python 3.11.
# Why: sites that train LoRA adapters and merge them get an update that grows or shrinks with the number of sites, and
#   a loss curve alone reads as a wrong learning rate. The factors of agreeing sites are the simplest test.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6 transformers==5.24.0 \
  accelerate==1.15.0 peft==0.21.2
cat > "$work/expected" <<'EOF'
linear 1: 1.0000
linear 2: 2.0000
linear 3: 3.0000
ties 1: 1.0000
ties 2: 0.5000
ties 3: 0.3333
svd 1: 1.0000
svd 2: 1.0000
svd 3: 1.0000
cat 1: 1.0000
cat 2: 1.0000
cat 3: 1.0000
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import torch
from peft import LoraConfig, get_peft_model


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16, bias=False)

    def forward(self, x):
        return self.layer(x)


torch.manual_seed(0)
names = ["site0", "site1", "site2"]
config = LoraConfig(r=8, lora_alpha=8, target_modules=["layer"])
model = get_peft_model(Net(), config, names[0])
for name in names[1:]:
    model.add_adapter(name, config)
layer = model.base_model.model.layer
a, b = torch.randn(8, 16), torch.randn(16, 8)
with torch.no_grad():
    for name in names:
        layer.lora_A[name].weight.copy_(a)
        layer.lora_B[name].weight.copy_(b)
one = layer.get_delta_weight(names[0])
for how in ("linear", "ties", "svd", "cat"):
    for n in (1, 2, 3):
        extra = {"density": 1.0} if how == "ties" else {}
        model.add_weighted_adapter(names[:n], [1 / n] * n, f"{how}{n}", combination_type=how, **extra)
        merged = layer.get_delta_weight(f"{how}{n}")
        print(f"{how} {n}: {((merged * one).sum() / (one * one).sum()).item():.4f}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
