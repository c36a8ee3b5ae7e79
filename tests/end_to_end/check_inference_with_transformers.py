#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`isthmus eval` and `isthmus generate` against transformers: losses within 1e-4, greedy ids, rendered chats.

  python3 tests/end_to_end/check_inference_with_transformers.py --isthmus build/src/app/isthmus [--text FILE]

Models are made here (GPT-2, Llama, Qwen3, and one of each other family, with windows of 24 keys), trained for a few steps so that their texts differ from noise,
with a byte-level BPE of `tokenizers`, one that puts <s> in front of a text and one that does not. The losses of
transformers are computed over the windows that isthmus states: inputs [i, i + context), begun stride apart, of which
the predictions that no window before has made are counted. Prints one JSON line a comparison; exits 1 where one
differs. Skips (exit 77) where torch, transformers or tokenizers is absent.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import tokenizers
    import torch
    import torch.nn.functional as F
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (pip install torch transformers tokenizers)")
    sys.exit(77)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

torch.set_num_threads(1)
LOSS_TOLERANCE = 1e-4
VOCAB, POSITIONS = 600, 256
failures = []
CHAT = """{{ bos_token }}{% for message in messages %}[{{ message.role }}] {{ message.content | trim }}{{ eos_token }}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""

LLAMA = dict(vocab_size=VOCAB, max_position_embeddings=POSITIONS, hidden_size=64, intermediate_size=160,
             num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=1)
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=POSITIONS, n_embd=48, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=1,
        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
    "llama-tied": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **LLAMA, tie_word_embeddings=True, rope_theta=5000.0)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**LLAMA, head_dim=24)),
    "llama-yarn": lambda: of_config(transformers.LlamaConfig(**LLAMA, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64))),
    "llama-llama3": lambda: of_config(transformers.LlamaConfig(**LLAMA, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64))),
    "mistral": lambda: of_config(transformers.MistralConfig(**LLAMA, sliding_window=24)),
    "qwen2": lambda: of_config(transformers.Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=24,
                                                        max_window_layers=1)),
    "smollm3": lambda: of_config(transformers.SmolLM3Config(**LLAMA, no_rope_layer_interval=2, pad_token_id=None)),
    "olmo2": lambda: of_config(transformers.Olmo2Config(**LLAMA)),
    "phi3": lambda: of_config(transformers.Phi3Config(**LLAMA, sliding_window=24, pad_token_id=None)),
    "neox": lambda: of_config(transformers.GPTNeoXConfig(**{k: v for k, v in LLAMA.items() if k != "num_key_value_heads"},
                                                         rotary_pct=0.25)),
    "neox-serial": lambda: of_config(transformers.GPTNeoXConfig(
        **{k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}, use_parallel_residual=False)),
    "gemma": lambda: of_config(transformers.GemmaConfig(**LLAMA, head_dim=16)),
    "gemma2": lambda: of_config(transformers.Gemma2Config(**LLAMA, head_dim=16, query_pre_attn_scalar=20, sliding_window=24,
                                                          attn_logit_softcapping=5.0, final_logit_softcapping=8.0)),
    "gemma3": lambda: of_config(transformers.Gemma3TextConfig(
        **LLAMA, head_dim=16, query_pre_attn_scalar=20, sliding_window=24,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
}


def of_config(config):
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def report(what, good, **more):
    print(json.dumps({"check": what, "ok": bool(good), **more}), flush=True)
    if not good:
        failures.append(what)


def make_tokenizer(text, bos):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator([text], tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    if bos:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                                chat_template=CHAT)


def trained(name, ids):
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(25):
        rows = torch.stack([ids[i:i + 65] for i in torch.randint(0, len(ids) - 65, (8,)).tolist()])
        loss = F.cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def windowed_loss(model, ids, context, stride):
    total, counted = 0.0, 0
    for begin in range(0, len(ids) - 1, stride):
        inputs, targets = ids[begin:begin + context], ids[begin + 1:begin + context + 1]
        inputs = inputs[:len(targets)]
        done = counted - begin  # predictions of this window that were made before
        if done < len(targets):
            losses = F.cross_entropy(model(inputs[None]).logits[0].double(), targets, reduction="none")
            total += losses[done:].sum().item()
            counted += len(targets) - done
    return total, counted


def eval_case(isthmus, folder, model, tokenizer, documents, files, context, stride, what):
    total, counted, tokens = 0.0, 0, 0
    for text in documents:
        ids = torch.tensor(tokenizer(text)["input_ids"])
        loss, count = windowed_loss(model, ids, context, stride)
        total, counted, tokens = total + loss, counted + count, tokens + len(ids)
    done = subprocess.run([isthmus, "eval", folder, *files, "--context", str(context), "--stride", str(stride), "--json"],
                          check=True, capture_output=True, text=True)
    ours = json.loads(done.stdout)["all"]
    difference = abs(ours["loss"] - total / counted)
    report(what, difference <= LOSS_TOLERANCE and (ours["counted"], ours["tokens"]) == (counted, tokens),
           loss=ours["loss"], transformers=total / counted, difference=difference, counted=counted,
           context=context, stride=stride)


@torch.no_grad()
def generate_case(isthmus, folder, model, tokenizer, prompt, what, chat=None):
    more = ["--prompt", prompt]
    ids = tokenizer(prompt)["input_ids"]
    if chat:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        more += ["--chat", "--system", "Be brief."]
    inputs = torch.tensor([ids])
    theirs = model.generate(inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=100,
                            pad_token_id=1)[0][len(ids):].tolist()
    for flags in ([], ["--no-cache"]):
        done = subprocess.run([isthmus, "generate", folder, *more, "--temperature", "0", "--max-tokens", "100", "--json",
                               *flags], check=True, capture_output=True, text=True)
        ours = json.loads(done.stdout)
        ended = [1] if ours["end"] == "end" else []
        report(" ".join([what, *flags]), ours["prompt_ids"] == ids and ours["ids"] + ended == theirs
               and ours["text"] == tokenizer.decode(ours["ids"], skip_special_tokens=True), tokens=len(theirs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, default="/usr/include/linux/bpf.h")
    arguments = parser.parse_args()
    isthmus = arguments.isthmus.resolve()
    text = arguments.text.read_text(errors="replace")
    train, held = text[:100000], text[100000:112000] + "Grüße aus Łódź, 東京! 👋\r\n"
    lines = [held[i:i + n] for i, n in ((0, 40), (500, 3), (900, 1200), (3000, 1), (4000, 700))]
    with tempfile.TemporaryDirectory() as scratch:
        for number, name in enumerate(MODELS):
            tokenizer = make_tokenizer(train, bos=number % 2 == 1)
            model = trained(name, torch.tensor(tokenizer(train)["input_ids"]))
            folder = pathlib.Path(scratch) / name
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            (folder / "held.txt").write_text(held, newline="")
            (folder / "lines.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
            for context, stride in ((256, 256), (100, 100), (128, 32)):
                eval_case(isthmus, folder, model, tokenizer, [held], [folder / "held.txt"], context, stride,
                          f"{name}: eval of a text")
            eval_case(isthmus, folder, model, tokenizer, lines, [folder / "lines.jsonl"], 64, 48,
                      f"{name}: eval of JSON lines")
            generate_case(isthmus, folder, model, tokenizer, "struct bpf_", f"{name}: generate")
            generate_case(isthmus, folder, model, tokenizer, " * @param 東", f"{name}: generate from odd text")
            generate_case(isthmus, folder, model, tokenizer, "What? ", f"{name}: chat", chat=True)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}: {len(failures)} failures")
    sys.exit(1 if failures else 0)


main()
