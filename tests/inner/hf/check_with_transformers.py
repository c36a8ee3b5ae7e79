#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders against the real packages, both ways.

  check_with_transformers.py --tool build/tests/inner/hf/hf_folders     checks; prints one line a case
  check_with_transformers.py --golden tests/inner/hf/data               writes the unit tests' files

Ours must load in `transformers` without a missing or unexpected tensor, with equal values, and give
the logits of a forward pass; `tokenizers` must map bytes to ids and back. What `transformers` saves
(whole, sharded, half precision, without the head) must load here. Exit 77 (skipped) where torch,
transformers or safetensors is absent.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (pip install torch transformers)")
    sys.exit(77)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import make_family_losses

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

GPT2 = dict(vocab_size=11, n_positions=4, n_embd=4, n_layer=1, n_head=2)
LLAMA = dict(vocab_size=11, max_position_embeddings=4, hidden_size=4, intermediate_size=6,
             num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
MODELS = {
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT2)),
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA)),
    "llama-tied": (transformers.LlamaForCausalLM,
                   transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True, head_dim=6)),
    "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**LLAMA, head_dim=6)),
}
failures = []


def check(condition, what):
    print(("ok   " if condition else "FAIL ") + what)
    if not condition:
        failures.append(what)


def new_model(name):
    torch.manual_seed(0)
    cls, config = MODELS[name]
    return cls(config)


def floats(path):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)


def check_ours(tool, folder):
    subprocess.run([tool, "write", folder], check=True)
    for path in sorted(p for p in folder.iterdir() if p.is_dir()):
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            path, output_loading_info=True, attn_implementation="eager")
        problems = {k: v for k, v in info.items() if v and k != "tied_weights_keys"}
        check(not problems, f"{path.name}: loads as {type(model).__name__}, nothing missing or left {problems or ''}")
        stored = safetensors.torch.load_file(path / "model.safetensors")
        state = model.state_dict()
        check(all(torch.equal(state[k], v) for k, v in stored.items()), f"{path.name}: equal values")
        check(sum(v.numel() for v in stored.values()) == floats(path / "values.f32").numel(),
              f"{path.name}: every value once")
        check(model.dtype == torch.float32, f"{path.name}: float32")
        ids = torch.arange(20).reshape(2, 10)
        check(bool(torch.isfinite(model(ids).logits).all()), f"{path.name}: forward")
        check(model.config.max_position_embeddings == 32, f"{path.name}: positions")
        if hasattr(model.config, "rope_parameters"):
            check(model.config.rope_parameters["rope_theta"] == 5000, f"{path.name}: rope_theta")
        check_tokenizer(path)


def check_tokenizer(path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    text = "To be, or not\n\tto be: naïve 東京 \u00a0 '"
    check(tokenizer.encode(text) == list(text.encode()), f"{path.name}: ids are the bytes")
    check(tokenizer.decode(list(text.encode())) == text, f"{path.name}: bytes come back as text")
    every = [i for i in range(256)]
    tokens = tokenizer.convert_ids_to_tokens(every)
    check(len(set(tokens)) == 256 and tokenizer.convert_tokens_to_ids(tokens) == every,
          f"{path.name}: 256 different bytes")
    wanted = "<|endoftext|>" if path.name == "gpt2" else None
    check(tokenizer.eos_token == wanted and (wanted is None or tokenizer.eos_token_id == 256),
          f"{path.name}: end of text is {wanted}")


def read_back(tool, path, scratch):
    out = scratch / "out.f32"
    done = subprocess.run([tool, "read", path, out], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    return floats(out), done.stdout.split()


def check_theirs(tool, folder):
    for name in MODELS:
        model = new_model(name)
        saves = {"whole": lambda p: model.save_pretrained(p),
                 "sharded": lambda p: model.save_pretrained(p, max_shard_size=400),
                 "bfloat16": lambda p: new_model(name).bfloat16().save_pretrained(p),
                 "float16": lambda p: new_model(name).half().save_pretrained(p)}
        if model.config.tie_word_embeddings:
            saves["bare"] = lambda p: model.base_model.save_pretrained(p)
        for how, save in saves.items():
            path = folder / f"{name}-{how}"
            save(path)
            if how == "sharded":
                check((path / "model.safetensors.index.json").exists(), f"{name} {how}: has an index")
            values, names = read_back(tool, path, folder)
            if values is None:
                check(False, f"{name} {how}: {names}")
                continue
            state = model.state_dict()
            if how in ("bfloat16", "float16"):
                state = {k: v.to(getattr(torch, how)).float() for k, v in state.items()}
            wanted = torch.cat([state[k].flatten() for k in names])
            check(torch.equal(values, wanted), f"{name} {how}: equal values")


def check_families(tool, folder):
    """Each family of make_family_losses.py: read here as saved, and written again for transformers."""
    for name, config in make_family_losses.configs():
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        make_family_losses.fill(model)
        model.eval()
        theirs, ours = folder / name, folder / f"{name}-ours"
        model.save_pretrained(theirs, max_shard_size=20000)
        done = subprocess.run([tool, "copy", theirs, ours], capture_output=True, text=True)
        check(done.returncode == 0, f"{name}: is read and written {done.stderr.strip()}")
        if done.returncode:
            continue
        again, info = transformers.AutoModelForCausalLM.from_pretrained(
            ours, output_loading_info=True, attn_implementation="eager")
        problems = {k: v for k, v in info.items() if v and k != "tied_weights_keys"}
        check(not problems, f"{name}: loads as {type(again).__name__}, nothing missing {problems or ''}")
        ids = make_family_losses.tokens(1)[:, :-1]
        with torch.no_grad():
            check(torch.equal(model(ids).logits, again(ids).logits), f"{name}: equal logits")
        before, after = model.config.to_dict(), again.config.to_dict()
        lost = {k: (v, after.get(k)) for k, v in before.items()
                if v != after.get(k) and k not in ("dtype", "architectures", "_name_or_path",
                                                   "transformers_version")}
        check(not lost, f"{name}: every setting is kept {lost or ''}")


def write_golden(folder):
    for name in ("gpt2", "llama"):
        new_model(name).save_pretrained(folder / name)
        (folder / name / "generation_config.json").unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.golden:
        write_golden(arguments.golden)
        return
    with tempfile.TemporaryDirectory() as scratch:
        for part in (check_ours, check_theirs, check_families):
            folder = pathlib.Path(scratch) / part.__name__
            folder.mkdir()
            part(arguments.tool, folder)
    print(f"transformers {transformers.__version__}: {len(failures)} failures")
    sys.exit(1 if failures else 0)


main()
