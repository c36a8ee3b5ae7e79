# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer as a site of a run: one more argument, `callbacks`. Needs transformers and accelerate.

  python3 examples/python/hf_trainer.py examples/toy_site.toml east runs/east      and the same with west
"""
import pathlib
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import isthmus.hf

config, name, out = sys.argv[1:4]
data = torch.frombuffer(bytearray((pathlib.Path(__file__).parents[2] / "ARCHITECTURE.md").read_bytes()), dtype=torch.uint8)
place = sum(name.encode())  # each site has samples of its own
samples = [{"input_ids": each, "labels": each}
           for each in (data[(place + 37 * i) % (len(data) - 64):][:64].long() for i in range(400))]

set_seed(7)  # the same initial weights at every site
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4))
callback = isthmus.hf.Callback(config, site=name, out=out, overrides=sys.argv[4:])
args = TrainingArguments(out + ".hf", max_steps=10**6, per_device_train_batch_size=8, learning_rate=1e-3,
                         save_strategy="no", report_to=[], logging_steps=20, use_cpu=True)
Trainer(model, args, train_dataset=samples, callbacks=[callback]).train()
sys.exit(callback.outcome.exit_code)
