#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follow PEFT: the same frozen model, adapter, text and order must give the same losses.

  python3 tests/end_to_end/check_with_peft.py --isthmus build/bin/isthmus [--text FILE] [--only NAME]

`transformers` makes a small model and `peft` an adapter whose B is not zero; isthmus goes on from both
([lora] init). A plain torch loop over the sequential order of the data contract is the oracle: AdamW with
clipping over the adapter alone. Then `isthmus export --to peft` is loaded by PEFT, and `--to hf` by
transformers; their logits must be those of PEFT's own adapter after the same steps. Prints one JSON line
a case with the largest relative difference of 30 losses and of logits; exits 1 where a loss differs by
more than 1e-3 or a logit by more than 1e-3 of the largest. Skips (exit 0, says so) where a package is
absent.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
try:
    import peft
    import torch
    import torch.nn.functional as F
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (pip install torch transformers peft)")
    sys.exit(0)

STEPS, BATCH, CONTEXT = 30, 4, 32
TOLERANCE = 1e-3
INNER = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def llama(folder, tied=False):
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=tied, bos_token_id=0,
        eos_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def qwen3(folder):
    config = transformers.Qwen3Config(
        vocab_size=256, hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=64, tie_word_embeddings=True,
        bos_token_id=0, eos_token_id=0)
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)


def of_family(config, causal, **more):
    def make(folder):
        shape = dict(vocab_size=256, hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=3,
                     num_key_value_heads=1, max_position_embeddings=64, bos_token_id=0, eos_token_id=0, pad_token_id=None)
        causal(config(**shape, **more)).save_pretrained(folder)
    return make


def neox(folder, parallel):
    config = transformers.GPTNeoXConfig(
        vocab_size=256, hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=64, rotary_pct=0.25, use_parallel_residual=parallel, bos_token_id=0, eos_token_id=0)
    transformers.GPTNeoXForCausalLM(config).save_pretrained(folder)


NEOX = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
CASES = {
    "phi3-all-linear": dict(make=of_family(transformers.Phi3Config, transformers.Phi3ForCausalLM), r=8, alpha=16,
                            targets=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "phi3-fused-alone": dict(make=of_family(transformers.Phi3Config, transformers.Phi3ForCausalLM), r=4, alpha=8,
                             targets=["qkv_proj", "gate_up_proj"]),
    "neox-all-linear": dict(make=lambda f: neox(f, True), r=8, alpha=16, targets=NEOX),
    "neox-serial-some": dict(make=lambda f: neox(f, False), r=8, alpha=16, targets=NEOX[:1] + NEOX[3:]),
    "qwen2-all-linear": dict(make=of_family(transformers.Qwen2Config, transformers.Qwen2ForCausalLM), r=8, alpha=16,
                             targets=ALL),
    "olmo2-all-linear": dict(make=of_family(transformers.Olmo2Config, transformers.Olmo2ForCausalLM), r=8, alpha=16,
                             targets=ALL),
    "gemma2-all-linear": dict(make=of_family(transformers.Gemma2Config, transformers.Gemma2ForCausalLM, head_dim=16,
                                             query_pre_attn_scalar=16, sliding_window=16), r=8, alpha=16, targets=ALL),
    "llama-all-linear": dict(make=llama, r=8, alpha=16, targets=ALL),
    "llama-tied-query-value": dict(make=lambda f: llama(f, True), r=4, alpha=4, targets=["q_proj", "v_proj"]),
    "qwen3-all-linear": dict(make=qwen3, r=16, alpha=32, targets=ALL),
    "llama-bf16-base": dict(make=llama, r=8, alpha=16, targets=ALL, base="bf16"),
}


def batch(tokens, step):
    n = len(tokens)
    rows = [tokens[(((step * BATCH + b) * CONTEXT) % (n - CONTEXT - 1)):][:CONTEXT + 1] for b in range(BATCH)]
    ids = torch.stack(rows).long()
    return ids[:, :-1], ids[:, 1:]


def load_base(folder, case):
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if case.get("base") == "bf16":
        with torch.no_grad():
            for p in base.parameters():
                if p.dim() > 1:
                    p.copy_(p.to(torch.bfloat16).float())
    return base


def with_peft(case, base, adapter, text):
    """RETURNS: losses, and the adapted model after them."""
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    tokens = data[:len(data) - int(len(data) * 0.1)]
    model = peft.PeftModel.from_pretrained(load_base(base, case), adapter, is_trainable=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, **INNER)
    losses = []
    for step in range(STEPS):
        x, y = batch(tokens, step)
        logits = model(input_ids=x).logits
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def with_isthmus(case, base, adapter, text_file, isthmus, work):
    toml = work / "run.toml"
    toml.write_text(f'''
[run]
name = "parity"
workers = 1
[model]
init = "{base}"
[lora]
r = {case["r"]}
alpha = {case["alpha"]}
targets = {json.dumps(case["targets"])}
base = "{case.get("base", "fp32")}"
init = "{adapter}"
[data]
source = "text:{text_file}"
order = "sequential"
[train]
steps = {STEPS}
global_batch = "{BATCH * CONTEXT} tok"
context = {CONTEXT}
device = "cpu"
[inner]
optimizer = "adamw"
lr = {INNER["lr"]}
betas = {list(INNER["betas"])}
eps = {INNER["eps"]}
weight_decay = {INNER["weight_decay"]}
clip = 1.0
schedule = "constant"
warmup = 0
[outer]
method = "ddp"
''')
    run = work / "run"
    subprocess.run([isthmus, "train", toml, "--out", run, "--progress", "none"], check=True)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for to in ("peft", "hf"):
        subprocess.run([isthmus, "export", run, "--to", to, work / to], check=True, stdout=subprocess.DEVNULL)
    return [row["loss"] for row in rows if row["k"] == "train"]


def case_line(name, case, text_file, isthmus, work):
    torch.manual_seed(1)
    base, adapter = work / "base", work / "adapter"
    case["make"](base)
    config = peft.LoraConfig(r=case["r"], lora_alpha=case["alpha"], target_modules=case["targets"],
                             task_type="CAUSAL_LM")
    made = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), config)
    with torch.no_grad():
        for key, p in made.named_parameters():
            if "lora_B" in key:
                p.normal_(0, 0.05)
    made.save_pretrained(adapter)
    theirs, model = with_peft(case, base, adapter, pathlib.Path(text_file).read_bytes())
    ours = with_isthmus(case, base, adapter, text_file, isthmus, work)
    ids = torch.arange(CONTEXT).reshape(1, -1)
    with torch.no_grad():
        wanted = model(input_ids=ids).logits
        exported = peft.PeftModel.from_pretrained(load_base(base, case), work / "peft")(input_ids=ids).logits
        merged = transformers.AutoModelForCausalLM.from_pretrained(work / "hf")(input_ids=ids).logits
    apart = lambda logits: ((logits - wanted).abs().max() / wanted.abs().max()).item()
    line = {"case": name, "steps": len(ours),
            "loss": max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True)),
            "first": theirs[0], "last": theirs[-1], "logits_peft": apart(exported)}
    if case.get("base", "fp32") == "fp32":
        line["logits_merged"] = apart(merged)
    return line


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default=__file__)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    print(json.dumps({"peft": peft.__version__, "torch": torch.__version__,
                      "transformers": transformers.__version__}))
    worst = 0.0
    for name, case in CASES.items():
        if arguments.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as work:
            line = case_line(name, case, os.path.abspath(arguments.text), arguments.isthmus, pathlib.Path(work))
        print(json.dumps(line), flush=True)
        worst = max(worst, line["loss"], line["logits_peft"], line.get("logits_merged", 0.0))
    return 1 if worst > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
