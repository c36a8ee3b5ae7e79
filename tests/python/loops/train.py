# SPDX-License-Identifier: Apache-2.0
"""A loop of the shape of nanoGPT's train.py, to which tests apply the diff of docs/python-from.md."""
import os
import sys
from contextlib import nullcontext

import torch
from torch.distributed import init_process_group, destroy_process_group

max_iters, eval_interval, gradient_accumulation_steps, batch_size, block_size = 1000, 10, 2, 4, 8
learning_rate, warmup_iters, grad_clip = 1e-2, 5, 1.0
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="gloo")
    seed_offset = int(os.environ["RANK"])
else:
    seed_offset = 0
tokens_per_iter = gradient_accumulation_steps * batch_size * block_size
torch.set_num_threads(1)
torch.manual_seed(1337 + seed_offset)
ctx = nullcontext()
text = torch.arange(2000) * 7 % 31 % 13


def get_batch():
    starts = torch.randint(len(text) - block_size, (batch_size,)).tolist()
    return (torch.stack([text[i : i + block_size] for i in starts]),
            torch.stack([text[i + 1 : i + 1 + block_size] for i in starts]))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(13, 16), torch.nn.Linear(16, 13)

    def forward(self, x, y):
        logits = self.head(torch.nn.functional.dropout(self.embed(x), 0.1, self.training))
        return logits, torch.nn.functional.cross_entropy(logits.view(-1, 13), y.view(-1))


def get_lr(it):
    return learning_rate * min(1.0, (it + 1) / (warmup_iters + 1))


model = Model()
scaler = torch.cuda.amp.GradScaler(enabled=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
iter_num = 0
X, Y = get_batch()
while True:

    for param_group in optimizer.param_groups:
        param_group["lr"] = get_lr(iter_num)
    for micro_step in range(gradient_accumulation_steps):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    # the gradients' memory is not needed any more
    optimizer.zero_grad(set_to_none=True)

    if iter_num % eval_interval == 0:
        print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}")
    iter_num += 1
    if iter_num > max_iters:
        break

if ddp:
    destroy_process_group()
sys.exit(0)
