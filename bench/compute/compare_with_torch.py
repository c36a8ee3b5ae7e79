#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training step of isthmus against PyTorch, run in turns on this machine: eager on the CPU, compiled on a GPU.

  python3 compare_with_torch.py --isthmus BUILD/src/app/isthmus \\
      [--config tiny --config small-10m] [--threads 2] [--pairs 5] [--seconds 4] \\
      [--precision bf16 [--torch-precision fp32]] [--device cuda [--batch 64] [--attention own --attention cudnn]]
      [--limit 500]

Each pair runs both programs for the same time, in alternating order, as processes of their own. With several
--attention each round runs isthmus once with each of them and PyTorch once, and has a pair for each. Prints
one JSON line a pair and one a configuration and attention: median over pairs of the ratio of tokens/s (best step
against best step, and median against median), of peak memory (rss_mib), and of peak memory above what
the process held before it made the model (memory); on a GPU of the device's memory alone (device_mib): what
the loop took, against the most that PyTorch's allocator has given out. PyTorch's bf16 is autocast over fp32 weights. Above
1 isthmus is faster; below 1 it needs less memory. PyTorch runs its fused scaled-dot-product attention and its fused AdamW; it needs
torch, and says so if that is missing. On a GPU it runs under torch.compile, with flash attention and with the vocabulary rounded up to a
multiple of 64, as its users do. With --limit no pair begins that might end after so many seconds, if one has been made.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

#                arch   L  d  heads kv  vocab  T  B  d_ff : as in src/inner/model/presets.cpp
WORKLOADS = {
    "nano": ("gpt2", 4, 64, 4, 4, 256, 64, 32, 256),
    "tiny": ("gpt2", 4, 128, 4, 4, 256, 128, 16, 512),
    "small": ("gpt2", 6, 256, 8, 8, 256, 256, 8, 1024),
    "llama-small": ("llama", 6, 256, 8, 4, 256, 256, 8, 688),
    "small-10m": ("gpt2", 6, 384, 6, 6, 256, 256, 8, 1536),
    "llama-mid": ("llama", 8, 512, 8, 4, 8192, 256, 8, 1376),
    "mid": ("gpt2", 8, 512, 8, 8, 8192, 256, 8, 2048),
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 50257, 256, 4, 3072),
    "gpt2-124m-1k": ("gpt2", 12, 768, 12, 12, 50257, 1024, 1, 3072),
    "llama-134m": ("llama", 30, 576, 9, 3, 49152, 256, 4, 1536),
    "llama-1.3b": ("llama", 24, 2048, 16, 16, 32000, 1024, 8, 5504),
}


def torch_model(workload, device):
    """The plain PyTorch model a user would write."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    arch, layers, d, heads, kv, vocab, context, _, d_ff = workload
    hd = d // heads

    class Gpt2Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, d_ff), nn.Linear(d_ff, d)

        def forward(self, x, _):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, heads, hd).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    def rotate(x, table):
        cosine, sine = table
        low, high = x.chunk(2, -1)
        return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1)

    class LlamaLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
            self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, kv * hd, bias=False)
            self.v, self.out = nn.Linear(d, kv * hd, bias=False), nn.Linear(d, d, bias=False)
            self.gate, self.up = nn.Linear(d, d_ff, bias=False), nn.Linear(d, d_ff, bias=False)
            self.down = nn.Linear(d_ff, d, bias=False)

        def forward(self, x, table):
            b, t, _ = x.shape
            h = self.norm1(x)
            q = rotate(self.q(h).view(b, t, heads, hd).transpose(1, 2), table)
            k = rotate(self.k(h).view(b, t, kv, hd).transpose(1, 2), table)
            v = self.v(h).view(b, t, kv, hd).transpose(1, 2)
            k, v = (y.repeat_interleave(heads // kv, 1) for y in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            gpt2 = arch == "gpt2"
            self.tokens = nn.Embedding(vocab, d)
            self.positions = nn.Embedding(context, d) if gpt2 else None
            layer = Gpt2Layer if gpt2 else LlamaLayer
            self.layers = nn.ModuleList([layer() for _ in range(layers)])
            self.norm = nn.LayerNorm(d) if gpt2 else nn.RMSNorm(d, eps=1e-5)
            self.head = nn.Linear(d, vocab, bias=False)
            self.head.weight = self.tokens.weight
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)
            angles = torch.outer(torch.arange(context).float(),
                                 10000.0 ** (-torch.arange(0, hd, 2).float() / hd))
            self.table = (angles.cos().to(device), angles.sin().to(device))

        def forward(self, ids, targets):
            x = self.tokens(ids)
            if self.positions is not None:
                x = x + self.positions.weight[:ids.shape[1]]
            for layer in self.layers:
                x = layer(x, self.table)
            return F.cross_entropy(self.head(self.norm(x)).view(-1, vocab), targets.view(-1))

    with torch.device(device):
        model = Model()
    return model if device == "cpu" else torch.compile(model)


def peak_mib():
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def run_torch(name, arguments):
    from time import perf_counter as now

    import torch
    precision, device = arguments.precision, arguments.device
    gpu = device != "cpu"
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    base = peak_mib()
    workload = list(WORKLOADS[name])
    if gpu:
        workload[5] = -(-workload[5] // 64) * 64
    vocab, context, batch = workload[5:8]
    batch = arguments.batch or batch
    model = torch_model(workload, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    ids = torch.randint(0, vocab, (batch, context + 1), device=device)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def wait():
        if gpu:
            torch.cuda.synchronize()

    def step():
        wait()
        begin = now()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        return now() - begin

    for _ in range(4 if gpu else 1):  # compiling and choosing algorithms
        step()
    steps = min(400, max(3, int(arguments.seconds / step())))
    times = [step() for _ in range(steps)]
    tokens = batch * context
    if gpu:
        memory = {"device_mib": torch.cuda.max_memory_allocated() / 2**20}
    else:
        memory = {"rss_mib": peak_mib(), "base_mib": base}
    print(json.dumps({
        "bench": "torch", "torch": torch.__version__, "config": name, "dtype": precision,
        "device": torch.cuda.get_device_name() if gpu else "cpu", "threads": arguments.threads,
        "B": batch, "T": context, "steps": steps, "ms_best": round(min(times) * 1e3, 3),
        "ms_med": round(statistics.median(times) * 1e3, 3),
        "tok_s_best": round(tokens / min(times), 1),
        "tok_s_med": round(tokens / statistics.median(times), 1),
        **memory}))


def run_child(command, device):
    environment = dict(os.environ)
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"compare_with_torch: {' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def compare(name, arguments):
    same = ["--threads", str(arguments.threads), "--seconds", str(arguments.seconds), "--device",
            arguments.device]
    if arguments.batch:
        same += ["--batch", str(arguments.batch)]
    ours = [arguments.isthmus, "bench", "compute", "--config", name, "--precision",
            arguments.precision, *same]
    theirs = [sys.executable, os.path.abspath(__file__), "--torch-only", name, "--precision",
              arguments.torch_precision or arguments.precision, *same]
    attentions = arguments.attention or [None]
    commands = {each: ours + (["--attention", each] if each else []) for each in attentions}
    commands["torch"] = theirs
    memory = ("rss_mib", "memory") if arguments.device == "cpu" else ("device_mib",)
    ratios = {each: {key: [] for key in ("tok_s_best", "tok_s_med", *memory)} for each in attentions}
    begin, longest = time.monotonic(), 0.0
    for pair in range(arguments.pairs):
        began = time.monotonic()
        if pair > 0 and arguments.limit and began + longest > begin + arguments.limit:
            break
        order = list(commands) if pair % 2 == 0 else list(commands)[::-1]
        results = {each: run_child(commands[each], arguments.device) for each in order}
        if arguments.device == "cpu":
            for run in results.values():
                run["memory"] = run["rss_mib"] - run["base_mib"]
        other = results["torch"]
        for each in attentions:
            for key, values in ratios[each].items():
                values.append(results[each][key] / other[key])
            print(json.dumps({"bench": "pair", "config": name, "pair": pair, "isthmus": results[each],
                              "torch": other}), flush=True)
        longest = max(longest, time.monotonic() - began)
    for each in attentions:
        mine = results[each]
        median = {key: round(statistics.median(values), 3) for key, values in ratios[each].items()}
        print(json.dumps({"bench": "ratio", "config": name, **({"attention": each} if each else {}),
                          "dtype": mine["dtype"], "torch_dtype": other["dtype"], "threads": arguments.threads,
                          "pairs": len(ratios[each]["tok_s_med"]), **median,
                          "tok_s_med_low": round(min(ratios[each]["tok_s_med"]), 3),
                          "tok_s_med_high": round(max(ratios[each]["tok_s_med"]), 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", help="path of the program")
    parser.add_argument("--config", action="append", choices=sorted(WORKLOADS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--torch-precision", choices=("fp32", "bf16"), help="default: the same")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch", type=int, help="sequences in a step; default: the configuration's")
    parser.add_argument("--attention", action="append", choices=("own", "cudnn"), help="of isthmus on a GPU")
    parser.add_argument("--limit", type=float, help="seconds for a configuration's pairs")
    parser.add_argument("--torch-only", metavar="CONFIG", choices=sorted(WORKLOADS))
    arguments = parser.parse_args()
    try:
        import torch  # noqa: F401  (fails early, with one line)
    except ImportError:
        sys.exit("compare_with_torch: PyTorch is not installed for this Python: pip install torch")
    if arguments.torch_only:
        run_torch(arguments.torch_only, arguments)
        return
    if not arguments.isthmus:
        sys.exit("compare_with_torch: --isthmus PATH of the program is needed")
    for name in arguments.config or ["tiny", "small-10m"]:
        compare(name, arguments)


if __name__ == "__main__":
    main()
