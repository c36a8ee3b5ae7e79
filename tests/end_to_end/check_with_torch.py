#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follow PyTorch: the same weights, text and order must give the same losses.

  python3 tests/end_to_end/check_with_torch.py --isthmus build/bin/isthmus [--text FILE] [--only NAME] [--meshes]

Weights are made by `transformers` (random init, saved in HF layout); a plain torch loop over the
sequential order of the data contract is the oracle: AdamW with clipping for one worker and for ddp,
and the same inside the outer methods, each written out below from its formula with torch.optim.SGD as
the outer optimizer. A mesh of ranks inside the one worker (tensor, pipeline and data parallel, all
three with ZeRO 1, a split sequence, ZeRO 2 and 3, interleaved and zb-h1 schedules) follows the same loop as one rank. Prints one JSON line per case: the largest relative difference over 30 losses from torch in
float, from torch in double, and between those two, which is what rounding alone does to the case.
Exits 1 when one of the first two exceeds 1e-3. Skips (exit 0, says so) where torch or transformers is
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
    import torch
    import torch.nn.functional as F
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (pip install torch transformers)")
    sys.exit(0)

STEPS = 30
TOLERANCE = 1e-3


def gpt2(directory, layers=2, d=48, heads=4, context=64):
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=context, n_embd=d, n_layer=layers, n_head=heads,
        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(directory)


def llama(directory, layers=3, d=64, heads=4, kv=2, tied=False, context=64):
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=d, intermediate_size=160, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=context,
        tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(directory)


def qwen3(directory, context=64):
    config = transformers.Qwen3Config(
        vocab_size=256, hidden_size=48, intermediate_size=112, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=1, head_dim=16,
        max_position_embeddings=context, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)
    transformers.Qwen3ForCausalLM(config).save_pretrained(directory)


INNER = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
CASES = {
    "gpt2-ddp-1": dict(make=gpt2, method="ddp", workers=1, B=4, T=32),
    "gpt2-odd-ddp-2": dict(make=lambda p: gpt2(p, 1, 40, 5), method="ddp", workers=2, B=6, T=37),
    "llama-ddp-1": dict(make=llama, method="ddp", workers=1, B=4, T=32),
    "llama-tied-ddp-4": dict(make=lambda p: llama(p, 2, 64, 4, 1, True), method="ddp", workers=4,
                             B=8, T=48),
    "qwen3-ddp-1": dict(make=qwen3, method="ddp", workers=1, B=2, T=33),
    "gpt2-tp-2": dict(make=gpt2, method="ddp", workers=1, B=8, T=32, mesh="tp = 2"),
    "llama-pp-2": dict(make=lambda p: llama(p, 4), method="ddp", workers=1, B=8, T=32,
                       mesh="pp = 2\nmicro_batches = 4"),
    "gpt2-dp-2": dict(make=gpt2, method="ddp", workers=1, B=8, T=32, mesh="dp = 2"),
    "gpt2-2x2x2-zero-1": dict(make=lambda p: gpt2(p, 4), method="ddp", workers=1, B=8, T=32,
                              mesh="tp = 2\npp = 2\ndp = 2\nmicro_batches = 2\nzero = 1"),
    "llama-2x2x2-zero-1": dict(make=lambda p: llama(p, 4), method="ddp", workers=1, B=8, T=32,
                               mesh="tp = 2\npp = 2\ndp = 2\nmicro_batches = 2\nzero = 1"),
    "gpt2-tp-2-split": dict(make=gpt2, method="ddp", workers=1, B=8, T=32,
                            mesh="tp = 2\nsequence_parallel = true"),
    "llama-dp-2-zero-2": dict(make=llama, method="ddp", workers=1, B=8, T=32, mesh="dp = 2\nzero = 2"),
    "gpt2-tp-2-dp-2-zero-3": dict(make=gpt2, method="ddp", workers=1, B=8, T=32,
                                  mesh="tp = 2\ndp = 2\nzero = 3"),
    "llama-pp-2-interleaved": dict(make=lambda p: llama(p, 4), method="ddp", workers=1, B=8, T=32,
                                   mesh='pp = 2\nmicro_batches = 4\nschedule = "interleaved-1f1b"\nvirtual_stages = 2'),
    "gpt2-pp-2-zb-h1": dict(make=lambda p: gpt2(p, 4), method="ddp", workers=1, B=8, T=32,
                            mesh='pp = 2\nmicro_batches = 4\nschedule = "zb-h1"'),
    "gpt2-localsgd-4": dict(make=gpt2, method="localsgd", workers=4, B=8, T=32, H=5),
    "gpt2-diloco-4": dict(make=gpt2, method="diloco", workers=4, B=8, T=32, H=5, lr=0.7,
                          momentum=0.9),
    "gpt2-diloco-paces": dict(make=gpt2, method="diloco", workers=3, B=6, T=32, H=6, lr=0.7,
                              momentum=0.9, paces=[1, 0.5, 0.3]),
    "llama-diloco-4": dict(make=llama, method="diloco", workers=4, B=4, T=32, H=6, lr=0.5,
                           momentum=0.8),
    "llama-streaming-4": dict(make=llama, method="streaming-diloco", workers=4, B=4, T=32, H=8, lr=0.4,
                              momentum=0.9, fragments=3, overlap=2, alpha=0.5),
    "gpt2-streaming-3": dict(make=lambda p: gpt2(p, 3), method="streaming-diloco", workers=3, B=6, T=32,
                             H=5, lr=0.7, momentum=0.9, fragments=3, overlap=2, alpha=0.5),
    "gpt2-delayed-4": dict(make=gpt2, method="delayed", workers=4, B=8, T=32, H=5, lr=0.4, momentum=0.9),
    "llama-eager-3": dict(make=llama, method="eager", workers=3, B=6, T=32, H=5, lr=0.4, momentum=0.9),
    "gpt2-co2-4": dict(make=gpt2, method="co2", workers=4, B=8, T=32, H=5, lr=1.0, momentum=0.5,
                       momentum_clip=0.004),
}


def make_optimizer(model):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    kw = dict(INNER)
    wd = kw.pop("weight_decay")
    return torch.optim.AdamW([dict(params=decay, weight_decay=wd),
                              dict(params=plain, weight_decay=0.0)], **kw)


def batch(tokens, n, s, B, T, m, M):
    rows = [tokens[(((s * B + b) * T) % (n - T - 1)):][:T + 1] for b in range(m, B, M)]
    ids = torch.stack(rows).long()
    return ids[:, :-1], ids[:, 1:]


def loss_of(model, x, y):
    logits = model(input_ids=x).logits
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def outer_sgd(parameters, case):
    momentum = case.get("momentum", 0.0)
    return torch.optim.SGD(parameters, lr=case.get("lr", 1.0), momentum=momentum, nesterov=momentum > 0)


def values(model):
    return [p for p in model.parameters()]


def mean_of(lists, weights=None):
    weights = weights or [1] * len(lists)
    return [sum(w * x for w, x in zip(weights, each)) / sum(weights) for each in zip(*lists)]


def takes_step(pace, t):
    return int(t * pace + 1e-9) > int((t - 1) * pace + 1e-9)


def differences(anchor, worker):
    return [a - p for a, p in zip(values(anchor), values(worker))]


def outer_step(optimizer, model, gradient):
    for a, g in zip(values(model), gradient):
        a.grad = g
    optimizer.step()


def adopt(worker, anchor):
    for a, p in zip(values(anchor), values(worker)):
        p.copy_(a)


def diloco(case, load, workers):
    """localsgd too: outer SGD of rate 1 without momentum."""
    anchor = load()
    optimizer = outer_sgd(anchor.parameters(), case)
    H, paces = case["H"], case.get("paces", [1] * len(workers))

    def after_step(t):
        if t % H == 0:
            steps = [sum(takes_step(pace, s) for s in range(t - H + 1, t + 1)) for pace in paces]
            outer_step(optimizer, anchor, mean_of([differences(anchor, w) for w in workers], steps))
            for w in workers:
                adopt(w, anchor)
    return after_step


def streaming(case, load, workers):
    """arXiv:2501.18512 Alg. 2: layer l in fragment l mod P, the rest in one of its own, sent in turn."""
    anchor = load()
    P, H = case["fragments"], case["H"]
    fragment_of = []
    for name, _ in anchor.named_parameters():
        layer = [part for part in name.split(".") if part.isdigit()]
        fragment_of.append(int(layer[0]) % P if layer else P)
    parts = [[i for i, f in enumerate(fragment_of) if f == p] for p in range(P + 1)]
    optimizers = [outer_sgd([values(anchor)[i] for i in part], case) for part in parts]
    sent = {}

    def after_step(t):
        for p, part in enumerate(parts):
            if t % H == p * H // (P + 1):
                sent[p, t] = [sum(values(anchor)[i] - values(w)[i] for w in workers) / len(workers)
                              for i in part]
            mean = sent.pop((p, t - case["overlap"]), None)
            if mean is None:
                continue
            for i, g in zip(part, mean):
                values(anchor)[i].grad = g
            optimizers[p].step()
            for w in workers:
                for i in part:
                    mixed = case["alpha"] * values(w)[i] + (1 - case["alpha"]) * values(anchor)[i]
                    values(w)[i].copy_(mixed)
    return after_step


def delayed(case, load, workers):
    """arXiv:2502.12996: each round applies the mean of the round before."""
    anchor = load()
    optimizer = outer_sgd(anchor.parameters(), case)
    before = []

    def after_step(t):
        if t % case["H"] != 0:
            return
        before.append(mean_of([differences(anchor, w) for w in workers]))
        if len(before) > 1:
            outer_step(optimizer, anchor, before[-2])
        for w in workers:
            adopt(w, anchor)
    return after_step


def eager(case, load, workers):
    """arXiv:2502.12996: the own stale part gives way to the own fresh one; anchors differ."""
    anchors = [load() for _ in workers]
    optimizers = [outer_sgd(a.parameters(), case) for a in anchors]
    rounds = []

    def after_step(t):
        if t % case["H"] != 0:
            return
        rounds.append([differences(a, w) for a, w in zip(anchors, workers)])
        M = len(workers)
        for m in range(M):
            g = [fresh / M for fresh in rounds[-1][m]]
            if len(rounds) > 1:
                mean = mean_of(rounds[-2])
                g = [x + y - stale / M for x, y, stale in zip(g, mean, rounds[-2][m])]
            outer_step(optimizers[m], anchors[m], g)
            adopt(workers[m], anchors[m])
    return after_step


def co2(case, load, workers):
    """arXiv:2401.16265: heavy ball on a mean one round old, the momentum clipped where it is used."""
    anchor = load()
    momentum = [torch.zeros_like(p) for p in anchor.parameters()]
    before = []

    def after_step(t):
        if t % case["H"] != 0:
            return
        before.append(mean_of([differences(anchor, w) for w in workers]))
        if len(before) > 1:
            for x, m, g in zip(values(anchor), momentum, before[-2]):
                m.mul_(case["momentum"]).add_(g)
                x.sub_(case["lr"] * m.clamp(-case["momentum_clip"], case["momentum_clip"]))
        for w in workers:
            adopt(w, anchor)
    return after_step


OUTER = {"localsgd": diloco, "diloco": diloco, "streaming-diloco": streaming, "delayed": delayed,
         "eager": eager, "co2": co2}


def torch_losses(case, directory, text, dtype=torch.float32):
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    n = len(data) - int(len(data) * 0.1)
    tokens, B, T, M = data[:n], case["B"], case["T"], case["workers"]
    load = lambda: transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    losses = []
    if case["method"] == "ddp":
        model = load()
        optimizer = make_optimizer(model)
        for s in range(STEPS):
            loss = loss_of(model, *batch(tokens, n, s, B, T, 0, 1))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses
    workers = [load() for _ in range(M)]
    optimizers = [make_optimizer(w) for w in workers]
    after_step = OUTER[case["method"]](case, load, workers)
    for s in range(STEPS):
        each = []
        for m in range(M):
            if not takes_step(case.get("paces", [1] * M)[m], s + 1):
                continue
            loss = loss_of(workers[m], *batch(tokens, n, s, B, T, m, M))
            optimizers[m].zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(workers[m].parameters(), 1.0)
            optimizers[m].step()
            each.append(loss.item())
        losses.append(sum(each) / len(each))
        with torch.no_grad():
            after_step(s + 1)
    return losses


def our_losses(case, directory, text_file, isthmus, work):
    toml = work / "run.toml"
    outer = [f'method = "{case["method"]}"']
    if "H" in case:
        outer.append(f'H = {case["H"]}')
    for key in ("lr", "momentum", "fragments", "overlap", "alpha", "momentum_clip"):
        if key in case:
            outer.append(f"{key} = {case[key]}")
    toml.write_text(f'''
[run]
name = "parity"
{"" if "paces" in case else f'workers = {case["workers"]}'}
[model]
init = "{directory}"
[data]
source = "text:{text_file}"
order = "sequential"
[train]
steps = {STEPS}
global_batch = "{case["B"] * case["T"]} tok"
context = {case["T"]}
precision = "fp32"
[inner]
optimizer = "adamw"
lr = {INNER["lr"]}
betas = [{INNER["betas"][0]}, {INNER["betas"][1]}]
eps = {INNER["eps"]}
weight_decay = {INNER["weight_decay"]}
clip = 1.0
schedule = "constant"
warmup = 0
[parallel]
{case.get("mesh", "")}
[outer]
''' + "\n".join(outer) + "\n" + "".join(
        f'[[site]]\nname = "w{m}"\npace = {pace}\n' for m, pace in enumerate(case.get("paces", []))))
    out = work / "out"
    subprocess.run([isthmus, "train", str(toml), "--out", str(out), "--progress", "none"],
                   check=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["k"] == "train"]


def worst(got, want):
    return max(abs(a - b) / abs(b) for a, b in zip(got, want))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--only", default="")
    parser.add_argument("--meshes", action="store_true", help="the cases of meshes alone")
    args = parser.parse_args()
    torch.manual_seed(1)
    text_file = pathlib.Path(args.text).resolve()
    failed = False
    for name, case in CASES.items():
        if args.only and args.only not in name or args.meshes and "mesh" not in case:
            continue
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            case["make"](work / "weights")
            want = torch_losses(case, work / "weights", text_file.read_bytes())
            got = our_losses(case, work / "weights", text_file, args.isthmus, work)
            exact = torch_losses(case, work / "weights", text_file.read_bytes(), torch.float64)
            good = len(got) == STEPS and max(worst(got, want), worst(got, exact)) <= TOLERANCE
            failed |= not good
            print(json.dumps(dict(case=name, steps=len(got), worst_relative=worst(got, want),
                                  from_double=worst(got, exact), torch_from_double=worst(want, exact),
                                  first=want[0], last=want[-1], ok=good)), flush=True)
    sys.exit(1 if failed else 0)


main()
