#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning step with low-rank adapters of isthmus against PEFT under PyTorch eager, in turns, on the CPU.

  python3 lora_with_peft.py --isthmus BUILD/src/app/isthmus [--threads 2] [--pairs 3] [--steps 12]
      [--precision bf16] [--shape llama-27m] [--r 16]
  python3 lora_with_peft.py --isthmus BUILD/src/app/isthmus --alone --shape llama-1.1b --base nf4 --batch 1 --steps 3

A Llama of random weights is made once, in a folder of its own (--folder keeps it). Each pair runs
both programs as processes of their own, in alternating order: `isthmus train` with [lora], and a loop
over PEFT's model with transformers' attention (sdpa), fused AdamW and clipping, adapters on all seven products.
In bf16 isthmus has train.precision = bf16 and lora.base = bf16, and PEFT has the base loaded in bfloat16
with its adapters in fp32, as peft makes them. Prints one JSON line a pair and one with the medians of
the ratios: tokens/s (median step against median step), peak memory (rss_mib), and peak memory above what the
process held before it made the model (memory). Above 1 isthmus is faster; below 1 it needs less memory.
--alone runs isthmus once and PEFT not at all.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

#             L  d  heads kv  d_ff  vocab  T  B
SHAPES = {
    "llama-small": (6, 256, 8, 4, 688, 256, 256, 8),
    "llama-27m": (8, 512, 8, 4, 1376, 8192, 256, 8),
    "llama-1.1b": (22, 2048, 32, 4, 5632, 32000, 512, 1),
}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RUN = """[run]
workers = 1
[model]
init = "{folder}"
[lora]
r = {r}
alpha = {alpha}
base = "{base}"
[data]
source = "synth:zipf:vocab={vocab},tokens=200000"
[train]
steps = {steps}
global_batch = "{tokens} tok"
context = {context}
precision = "{precision}"
recompute = "{recompute}"
kernels = "{kernels}"
threads = {threads}
device = "cpu"
[inner]
lr = 3e-4
[eval]
every = "1000000 steps"
tokens = {context}
[ckpt]
every = "0 steps"
"""


def peak_mib(who=resource.RUSAGE_SELF):
    return resource.getrusage(who).ru_maxrss // 1024


def batch_of(arguments):
    """(vocab, tokens of a sequence, sequences of a step)"""
    _, _, _, _, _, vocab, context, batch = SHAPES[arguments.shape]
    return vocab, arguments.context or context, arguments.batch or batch


def config_of(shape):
    layers, d, heads, kv, d_ff, vocab, context, _ = SHAPES[shape]
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": d,
            "intermediate_size": d_ff, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "hidden_act": "silu", "tie_word_embeddings": shape != "llama-1.1b", "bos_token_id": 0, "eos_token_id": 0,
            "torch_dtype": "bfloat16"}


def write_folder(folder, shape):
    """A Llama of random bfloat16 values, tensor after tensor, so that no model is in memory."""
    import numpy
    layers, d, heads, kv, d_ff, vocab, _, _ = SHAPES[shape]
    config = config_of(shape)
    names = {"model.embed_tokens.weight": (vocab, d)}
    for i in range(layers):
        at = f"model.layers.{i}."
        names |= {at + "input_layernorm.weight": (d,), at + "post_attention_layernorm.weight": (d,),
                  at + "self_attn.q_proj.weight": (d, d), at + "self_attn.k_proj.weight": (d // heads * kv, d),
                  at + "self_attn.v_proj.weight": (d // heads * kv, d), at + "self_attn.o_proj.weight": (d, d),
                  at + "mlp.gate_proj.weight": (d_ff, d), at + "mlp.up_proj.weight": (d_ff, d),
                  at + "mlp.down_proj.weight": (d, d_ff)}
    names["model.norm.weight"] = (d,)
    if not config["tie_word_embeddings"]:
        names["lm_head.weight"] = (vocab, d)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, offset = {}, 0
    for name, dims in names.items():
        size = 2 * int(numpy.prod(dims))
        header[name] = {"dtype": "BF16", "shape": list(dims), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = numpy.random.default_rng(1)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for dims in names.values():
            values = numpy.ones(dims, numpy.float32) if len(dims) == 1 else draw.standard_normal(
                dims, numpy.float32) * numpy.float32(0.02)
            file.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())


def run_isthmus(arguments, folder):
    vocab, context, batch = batch_of(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        (work / "run.toml").write_text(RUN.format(
            folder=folder, r=arguments.r, alpha=2 * arguments.r, base=arguments.base or arguments.precision,
            vocab=vocab, steps=arguments.steps, tokens=batch * context, context=context,
            precision=arguments.precision, recompute=arguments.recompute, kernels=arguments.kernels,
            threads=arguments.threads))
        begin = time.monotonic()
        process = subprocess.Popen([arguments.isthmus, "train", work / "run.toml", "--out", work / "run", "--progress",
                                    "none"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"lora_with_peft: isthmus ended with {status}\n{said}")
        lines = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()]
        speeds = [line["tok_s"] for line in lines if line["k"] == "train"]
    return {"bench": "isthmus", "shape": arguments.shape, "dtype": arguments.precision,
            "base": arguments.base or arguments.precision, "r": arguments.r, "threads": arguments.threads,
            "B": batch, "T": context, "steps": len(speeds), "tok_s_med": round(statistics.median(speeds[1:]), 1),
            "tok_s_best": round(max(speeds[1:]), 1), "rss_mib": usage.ru_maxrss // 1024, "base_mib": program_mib(arguments),
            "wall_s": round(time.monotonic() - begin, 1)}


def program_mib(arguments):
    """What the program holds without a model."""
    process = subprocess.Popen([arguments.isthmus, "--version"], stdout=subprocess.DEVNULL)
    return os.wait4(process.pid, 0)[2].ru_maxrss // 1024


def run_peft(arguments, folder):
    from time import perf_counter as now

    import peft
    import torch
    import transformers
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    base = peak_mib()
    vocab, context, batch = batch_of(arguments)
    dtype = torch.bfloat16 if arguments.precision == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=arguments.r, lora_alpha=2 * arguments.r, target_modules=TARGETS, lora_dropout=0.0, task_type="CAUSAL_LM"))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.randint(0, vocab, (batch, context))
    model.train()
    times = []
    for _ in range(arguments.steps):
        begin = now()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(now() - begin)
    tokens = batch * context
    print(json.dumps({"bench": "peft", "peft": peft.__version__, "torch": torch.__version__,
                      "transformers": transformers.__version__, "shape": arguments.shape, "dtype": arguments.precision,
                      "r": arguments.r, "threads": arguments.threads, "B": batch, "T": context, "steps": len(times),
                      "tok_s_med": round(tokens / statistics.median(times[1:]), 1),
                      "tok_s_best": round(tokens / min(times[1:]), 1), "rss_mib": peak_mib(), "base_mib": base}))


def child_of_peft(arguments, folder):
    same = ["--shape", arguments.shape, "--precision", arguments.precision, "--threads", str(arguments.threads),
            "--steps", str(arguments.steps), "--r", str(arguments.r)]
    for name in ("batch", "context"):
        if getattr(arguments, name):
            same += ["--" + name, str(getattr(arguments, name))]
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--peft-only", folder, *same],
                          stdout=subprocess.PIPE, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""), check=False)
    if done.returncode != 0:
        sys.exit(f"lora_with_peft: PEFT ended with {done.returncode}")
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def compare(arguments, folder):
    ratios = {key: [] for key in ("tok_s_med", "tok_s_best", "rss_mib", "memory")}
    for pair in range(arguments.pairs):
        both = [run_isthmus, child_of_peft]
        results = [each(arguments, folder) for each in (both if pair % 2 == 0 else both[::-1])]
        ours, theirs = results if pair % 2 == 0 else results[::-1]
        for each in (ours, theirs):
            each["memory"] = each["rss_mib"] - each["base_mib"]
        for key, values in ratios.items():
            values.append(ours[key] / theirs[key])
        print(json.dumps({"bench": "pair", "pair": pair, "isthmus": ours, "peft": theirs}), flush=True)
    print(json.dumps({"bench": "ratio", "shape": arguments.shape, "dtype": arguments.precision, "r": arguments.r,
                      "threads": arguments.threads, "pairs": arguments.pairs,
                      **{key: round(statistics.median(values), 3) for key, values in ratios.items()},
                      "tok_s_med_low": round(min(ratios["tok_s_med"]), 3),
                      "tok_s_med_high": round(max(ratios["tok_s_med"]), 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", help="path of the program")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="llama-27m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, help="sequences in a step; default: the shape's")
    parser.add_argument("--context", type=int, help="tokens of a sequence; default: the shape's")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--base", choices=("fp32", "bf16", "nf4"), help="lora.base; default: the precision")
    parser.add_argument("--recompute", choices=("none", "selective", "full"), default="none")
    parser.add_argument("--kernels", default="auto", help="train.kernels of isthmus")
    parser.add_argument("--r", type=int, default=16)
    parser.add_argument("--folder", help="where the model is made, or lies from before")
    parser.add_argument("--alone", action="store_true", help="isthmus alone")
    parser.add_argument("--peft-only", metavar="FOLDER")
    parser.add_argument("--write-only", metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.write_only:
        write_folder(pathlib.Path(arguments.write_only), arguments.shape)
        return
    if arguments.peft_only:
        run_peft(arguments, arguments.peft_only)
        return
    if not arguments.isthmus:
        sys.exit("lora_with_peft: --isthmus PATH of the program is needed")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(arguments.folder or scratch) / arguments.shape
        if not (folder / "model.safetensors").exists():  # in a process of its own: children inherit its peak
            subprocess.run([sys.executable, os.path.abspath(__file__), "--write-only", folder, "--shape",
                            arguments.shape], check=True)
        if arguments.alone:
            print(json.dumps(run_isthmus(arguments, folder)), flush=True)
        else:
            compare(arguments, folder)


if __name__ == "__main__":
    main()
