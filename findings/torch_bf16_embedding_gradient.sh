#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: on CPU the bf16 gradient of an embedding row stops at 256 equal tokens, and layer norm's at 256 for each thread.
# Guess before the run: gradients of embedding, layer norm and index_select are summed in fp32 and rounded once, so that
#   4096 rows of ones give 4096; of index_add and scatter_add, 256 in bf16.
# Seen: embedding (dense and sparse), embedding_bag and W[tokens] give 256 in bf16 and 2048 in fp16; index_select and
#   gather, the same gradient by other calls, give 4096, and so does scatter_add. The bias of layer_norm gets 256 times
#   the number of threads: 256, 512, 1024. The bias of a linear layer and the weight of rms_norm are right. The sums
#   are kept in the type of the gradient, row by row, and 256 + 1 is 256 in bf16.
#   With positive draws, uniform in [0, 1), the gradient of one token in 65536 rows is 256 or 512 in place of 32768.
# Versions: torch 2.15.0, numpy 2.4.6, CPU, 4096 rows of 8 columns; Python 3.11. Seen on 2026-11-29.
# Why: a run with bf16 weights on CPUs trains its most frequent tokens and its norms with gradients cut off at a count,
#   and the cut depends on the batch of a site and on its threads, so that sites of unequal machines disagree. A test
#   with few rows, or with autocast over fp32 weights, is right.
# Cost: PyPI's torch and its CUDA libraries take about 3 GB to download and 6 GB of temporary disk.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
bfloat16: embedding 256, sparse embedding 256, embedding_bag 256, W[tokens] 256, index_select 4096, gather 4096
bfloat16: bias of layer_norm with 1, 2, 4 threads 256, 512, 1024; bias of linear 4096; rms_norm right to 1 % True
float16: embedding 2048, sparse embedding 2048, embedding_bag 2048, W[tokens] 2048, index_select 4096, gather 4096
float16: bias of layer_norm with 1, 2, 4 threads 2048, 4096, 4096; bias of linear 4096; rms_norm right to 1 % True
float32: embedding 4096, sparse embedding 4096, embedding_bag 4096, W[tokens] 4096, index_select 4096, gather 4096
float32: bias of layer_norm with 1, 2, 4 threads 4096, 4096, 4096; bias of linear 4096; rms_norm right to 1 % True
bfloat16, 65536 draws in [0, 1): under 600 in place of 32768 True
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import torch
import torch.nn.functional as F

ROWS = 4096
TOKENS = torch.full((ROWS,), 3)
CALLS = {
    "embedding": lambda w: F.embedding(TOKENS, w),
    "sparse embedding": lambda w: F.embedding(TOKENS, w, sparse=True),
    "embedding_bag": lambda w: F.embedding_bag(TOKENS[:, None], w, mode="sum"),
    "W[tokens]": lambda w: w[TOKENS],
    "index_select": lambda w: w.index_select(0, TOKENS),
    "gather": lambda w: w.gather(0, TOKENS[:, None].expand(-1, 8)),
}


def gradient(call, kind):
    weight = torch.zeros(16, 8, dtype=kind, requires_grad=True)
    call(weight).sum().backward()
    found = weight.grad.coalesce().values()[0, 0] if weight.grad.is_sparse else weight.grad[3, 0]
    return f"{found.item():g}"


def bias(kind, threads):
    torch.set_num_threads(threads)
    b = torch.zeros(8, dtype=kind, requires_grad=True)
    F.layer_norm(torch.randn(ROWS, 8).to(kind), (8,), torch.ones(8, dtype=kind), b).sum().backward()
    return f"{b.grad[0].item():g}"


def linear(kind):
    b = torch.zeros(8, dtype=kind, requires_grad=True)
    F.linear(torch.zeros(ROWS, 4, dtype=kind), torch.zeros(8, 4, dtype=kind), b).sum().backward()
    return f"{b.grad[0].item():g}"


def rms(kind):
    x = torch.rand(ROWS, 8, generator=torch.Generator().manual_seed(0)).to(kind)
    found = []
    for each in (kind, torch.float64):
        w = torch.ones(8, dtype=each, requires_grad=True)
        F.rms_norm(x.to(each), (8,), w).sum().backward()
        found.append(w.grad.double())
    return bool((found[0] - found[1]).norm() < 0.01 * found[1].norm())


for kind in (torch.bfloat16, torch.float16, torch.float32):
    name = str(kind).removeprefix("torch.")
    print(f"{name}: " + ", ".join(f"{call} {gradient(CALLS[call], kind)}" for call in CALLS))
    biases = ", ".join(bias(kind, threads) for threads in (1, 2, 4))
    print(f"{name}: bias of layer_norm with 1, 2, 4 threads {biases}; bias of linear {linear(kind)}; "
          f"rms_norm right to 1 % {rms(kind)}")
weight = torch.zeros(16, 1, dtype=torch.bfloat16, requires_grad=True)
rows = torch.rand(65536, 1, generator=torch.Generator().manual_seed(0)).bfloat16()
F.embedding(torch.full((65536,), 3), weight).backward(rows)
print(f"bfloat16, 65536 draws in [0, 1): under 600 in place of 32768 {weight.grad[3, 0].item() < 600}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
