#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follow a supervised fine-tuning loop written out by hand: the same conversations must give the same losses.

  python3 tests/end_to_end/check_sft_with_transformers.py --isthmus build/bin/isthmus [--only NAME]

`transformers` makes a small model and turns conversations into ids with its own `apply_chat_template`
and mask of the assistant's tokens. The loop passes one conversation at a time, without windows or
padding, sums the cross-entropy of the learnt tokens of a step's conversations and divides by their
number: one mean over all learnt tokens of the step. AdamW with clipping follows. isthmus packs the same
conversations into windows and trains with one and with two workers under `ddp`. Prints one JSON line a case with the largest relative
difference of 30 losses and of the last evaluation; exits 1 where one is above 1e-3. Skips (exit 0, says
so) where a package is absent.
"""
import argparse
import json
import os
import pathlib
import random
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

STEPS, BATCH, CONTEXT, VAL = 30, 4, 96, 0.1
TOLERANCE = 1e-3
INNER = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TEMPLATE = ("{% for m in messages %}{% if m.role == 'assistant' %}<assistant>"
            "{% generation %}{{ m.content }}<|endoftext|>{% endgeneration %}"
            "{% else %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endif %}{% endfor %}")


def llama(folder, vocab):
    config = transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def gpt2(folder, vocab):
    config = transformers.GPT2Config(vocab_size=vocab, n_embd=64, n_layer=2, n_head=4, n_positions=128, resid_pdrop=0,
                                     embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


CASES = {"llama": dict(make=llama), "llama-two-workers": dict(make=llama, workers=2),
         "gpt2-two-workers": dict(make=gpt2, workers=2), "llama-lora": dict(make=llama, lora=True),
         "llama-lora-two-workers": dict(make=llama, lora=True, workers=2)}


def conversations():
    draw = random.Random(5)
    words = "the quick brown fox jumps over a lazy dog Zażółć 蛇 été 12 345 {x[i]}".split()
    say = lambda most: " ".join(draw.choices(words, k=draw.randrange(1, most)))
    for _ in range(250):
        messages = []
        for _ in range(draw.randrange(1, 4)):
            messages += [{"role": "user", "content": say(9)}, {"role": "assistant", "content": say(9)}]
        yield {"messages": messages}


def encoded(tokenizer, chats):
    """(ids, mask) by transformers, cut to the context; without those that have nothing to learn."""
    for chat in chats:
        made = tokenizer.apply_chat_template(chat["messages"], chat_template=TEMPLATE, tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        ids, mask = made["input_ids"][:CONTEXT], made["assistant_masks"][:CONTEXT]
        if any(mask[1:]):
            yield ids, mask


def best_fit(examples):
    """Windows as lists of conversations: each goes to the fullest window with room, the first of equals."""
    rows = []
    for example in examples:
        size = len(example[0])
        fits = [row for row in rows if row["left"] >= size]
        if fits:
            row = min(fits, key=lambda row: (row["left"], row["order"]))
        else:
            row = {"left": CONTEXT, "order": 0, "has": []}
            rows.append(row)
        row["has"].append(example)
        row["left"] -= size
        best_fit.count += 1
        row["order"] = best_fit.count
    return [row["has"] for row in rows]


best_fit.count = 0


def loss_sum(model, examples):
    total, count = 0, 0
    for ids, mask in examples:
        x = torch.tensor([ids])
        labels = torch.tensor([[i if learnt else -100 for i, learnt in zip(ids, mask)]])
        logits = model(input_ids=x).logits[:, :-1]
        total = total + F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), reduction="sum")
        count += int((labels[:, 1:] >= 0).sum())
    return total, count


def by_hand(case, base, adapter, examples):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if case.get("lora"):
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    held = int(len(examples) * VAL)
    rows = best_fit(examples[:len(examples) - held])
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if p.dim() > 1]
    rest = [p for p in trained if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": rest, "weight_decay": 0.0}], **INNER)
    losses = []
    for step in range(STEPS):
        chosen = [e for b in range(BATCH) for e in rows[(step * BATCH + b) % (len(rows) - 1)]]
        total, count = loss_sum(model, chosen)
        loss = total / count
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        total, count = loss_sum(model, examples[len(examples) - held:])
    return losses, (total / count).item()


def with_isthmus(case, base, adapter, isthmus, work):
    toml = work / "run.toml"
    lora = f'[lora]\nr = 8\nalpha = 16\ninit = "{adapter}"' if case.get("lora") else ""
    toml.write_text(f'''
[run]
workers = {case.get("workers", 1)}
[model]
init = "{base}"
{lora}
[data]
source = "text:chats.jsonl"
order = "sequential"
val_fraction = {VAL}
[train]
objective = "sft"
steps = {STEPS}
global_batch = "{BATCH * CONTEXT} tok"
context = {CONTEXT}
device = "cpu"
[inner]
lr = {INNER["lr"]}
betas = {list(INNER["betas"])}
eps = {INNER["eps"]}
weight_decay = {INNER["weight_decay"]}
clip = 1.0
schedule = "constant"
warmup = 0
[eval]
every = {STEPS}
tokens = "all"
[outer]
method = "ddp"
''')
    subprocess.run([isthmus, "train", toml, "--out", work / "run", "--progress", "none"], check=True)
    rows = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()]
    return ([row["loss"] for row in rows if row["k"] == "train"],
            [row["loss"] for row in rows if row["k"] == "eval"][-1])


def case_line(name, case, isthmus, work):
    torch.manual_seed(1)
    base, adapter = work / "base", work / "adapter"
    chats = list(conversations())
    (work / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    (work / "words.txt").write_text("\n".join(m["content"] for c in chats for m in c["messages"]))
    subprocess.run([isthmus, "data", "train-tokenizer", "words.txt", "--vocab", "400", "--out", "bpe"], cwd=work, check=True,
                   stdout=subprocess.DEVNULL)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(work / "bpe/tokenizer.json"),
                                                     eos_token="<|endoftext|>")
    case["make"](base, len(tokenizer))
    for file in (work / "bpe").iterdir():
        (base / file.name).write_bytes(file.read_bytes())
    (base / "chat_template.jinja").write_text(TEMPLATE)
    if case.get("lora"):
        config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=ALL, task_type="CAUSAL_LM")
        made = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), config)
        with torch.no_grad():
            for key, p in made.named_parameters():
                if "lora_B" in key:
                    p.normal_(0, 0.05)
        made.save_pretrained(adapter)
    examples = list(encoded(tokenizer, chats))
    theirs, their_evaluation = by_hand(case, base, adapter, examples)
    ours, our_evaluation = with_isthmus(case, base, adapter, isthmus, work)
    return {"case": name, "steps": len(ours), "conversations": len(examples),
            "loss": max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True)), "first": theirs[0],
            "last": theirs[-1], "evaluation": abs(our_evaluation - their_evaluation) / their_evaluation}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    isthmus = str(pathlib.Path(arguments.isthmus).resolve())
    print(json.dumps({"peft": peft.__version__, "torch": torch.__version__,
                      "transformers": transformers.__version__}))
    worst = 0.0
    for name, case in CASES.items():
        if arguments.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as work:
            line = case_line(name, case, isthmus, pathlib.Path(work))
        print(json.dumps(line), flush=True)
        worst = max(worst, line["loss"], line["evaluation"])
    return 1 if worst > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
