#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data and models that are something else than they are taken for: read where a header says what they
are, refused by name elsewhere, in every command that reads them.

  python3 tests/end_to_end/unlike_inputs.py --isthmus build/src/app/isthmus
"""
import fcntl
import gzip
import hashlib
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import time

import scenario
from scenario import require, small_run

RUN = """
[run]
name = "unlike"
[model]
%s
[data]
source = "%s"
[train]
steps = 4
global_batch = "256 tok"
context = 64
[outer]
method = "diloco"
H = 2
[[site]]
name = "east"
[[site]]
name = "west"
"""
COMPARE = """
[compare]
baseline = "ddp"
seeds = 2
[variant.ddp]
outer = { method = "ddp" }
[variant.local]
outer = { method = "localsgd", H = 2 }
"""
LLAMA = 'arch = "llama"\nn_layers = 1\nd_model = 16\nn_heads = 2\nvocab = 2000'


def run(isthmus, folder, *arguments):
    return subprocess.run([isthmus, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120)


def passes(isthmus, folder, *arguments):
    done = run(isthmus, folder, *arguments)
    require(done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stderr}")
    return done


def refuses(isthmus, folder, code, words, *arguments):
    done = run(isthmus, folder, *arguments)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    require(done.returncode == code, f"{arguments}: exit {done.returncode} instead of {code}\n{done.stderr}")
    for each in words:
        require(each in last, f"{arguments}: no {each!r} in {last!r}")
    return done


def place(folder, name):
    made = folder / name
    made.mkdir()
    return made


def config(folder, name, model, source):
    (folder / name).write_text(RUN % (model, source))
    return name


def comparison(folder, model, source):
    (folder / "compare.toml").write_text((RUN % (model, source)).replace('[outer]\nmethod = "diloco"\nH = 2\n', "")
                                         + COMPARE)
    return "compare.toml"


def losses(folder, out):
    lines = (folder / out / "metrics.jsonl").read_text().splitlines()
    return [line["loss"] for line in map(json.loads, lines) if line["k"] == "train"]


def npy(ids, descr, form):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (descr, len(ids))
    header += " " * (117 - len(header)) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(
        f"{descr[0]}{len(ids)}{form}", *ids)


def token_files(isthmus, folder, corpus):
    """The same ids in seven forms train the same model; what has no header is refused by name."""
    here = place(folder, "tokens")
    ids = [min(1999, int(random.Random(i).paretovariate(0.5))) for i in range(4000)]
    forms = {"u16.bin": ("H", ""), "u16:": ("H", ":u16"), "u32:": ("I", ":u32"), "i32:": ("i", ":i32"),
             "i64:": ("q", ":i64")}
    sources = {}
    for name, (form, width) in forms.items():
        file = name.replace(":", ".dat")
        (here / file).write_bytes(struct.pack(f"<{len(ids)}{form}", *ids))
        sources[file] = f"tokens:{file}{width}"
    for name, descr, form in [("le.npy", "<i8", "q"), ("be.npy", ">u4", "I")]:
        (here / name).write_bytes(npy(ids, descr, form))
        sources[name] = f"tokens:{name}"
    curves = {}
    for name, source in sources.items():
        passes(isthmus, here, "train", config(here, "run.toml", LLAMA, source), "--out", f"out-{name}", "-q")
        curves[name] = losses(here, f"out-{name}")
    require(len({tuple(curve) for curve in curves.values()}) == 1, f"unlike losses: {curves}")

    words = ["u32.dat", "looks like 32-bit integers", "tokens:FILE:u32"]
    raw = config(here, "raw.toml", LLAMA, "tokens:u32.dat")
    refuses(isthmus, here, 4, words, "train", raw)
    refuses(isthmus, here, 4, words, "train", raw, "--dry-run")
    refuses(isthmus, here, 4, words, "simulate", raw, "--link", "1Gbit/s,1ms")
    refuses(isthmus, here, 4, words, "data", "verify", "tokens:u32.dat")
    refuses(isthmus, here, 4, words, "data", "inspect", "tokens:u32.dat")
    refuses(isthmus, here, 4, words, "compare", comparison(here, LLAMA, "tokens:u32.dat"), "--out", "compared")
    require(json.loads(passes(isthmus, here, "data", "verify", "u32.dat:u32", "--json").stdout)["tokens"] == 4000,
            "data verify counts other tokens")
    require(not [each for each in here.glob("runs/*")], "a refused run left a folder")
    passes(isthmus, here, "train", config(here, "raw.toml", LLAMA, "tokens:u32.dat:u16"), "--out", "raw", "-q")


def as_of_first(run):
    """Takes out of a run's checkpoints what the first versions did not keep: how bytes are read."""
    for state in (run / "ckpt").glob("step-*/state.json"):
        document = json.loads(state.read_text())
        scalars = [each for each in all_objects(document) for key in list(each) if key.endswith("/reading")]
        require(scalars, f"{state}: no reading is kept")
        for each in scalars:
            for key in [key for key in each if key.endswith("/reading")]:
                del each[key]
        del document["sha256"]
        packed = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        document["sha256"] = hashlib.sha256(packed.encode()).hexdigest()
        state.write_text(json.dumps(document))


def all_objects(value):
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from all_objects(each)


def readings_are_kept(isthmus, folder, corpus):
    """A run goes on with the ids that it began with, or is refused; one of the first versions goes on as it did."""
    here = place(folder, "readings")
    model = LLAMA
    (here / "wide.dat").write_bytes(struct.pack("<4000I", *(random.Random(i).randrange(300) for i in range(4000))))
    begun = config(here, "begun.toml", model, "tokens:wide.dat:u16")
    passes(isthmus, here, "train", begun, "--out", "begun", "-q", "--set", "ckpt.every=2")
    other = config(here, "other.toml", model, "tokens:wide.dat:u32")
    words = ["wide.dat", "is read as 4,000 ids of u32", "was read as 8,000 ids of u16", "model.init"]
    refuses(isthmus, here, 3, words, "train", other, "--out", "begun", "--resume", "auto")
    # A comparison takes no cell of the other reading.
    cells = []
    for source in ["tokens:wide.dat:u16", "tokens:wide.dat:u16", "tokens:wide.dat:u32"]:
        passes(isthmus, here, "compare", comparison(here, model, source), "--out", "compared", "--resume")
        cells.append((here / "compared/cells.jsonl").read_text())
    require(cells[0] == cells[1], "cells of the same reading are made again")
    require(cells[1] != cells[2], "cells of another reading are taken")

    # Begun by a first version: bytes of a compressed text, and what looks like wider integers.
    text = corpus.read_bytes()[:20000]
    (here / "a.txt").write_bytes(gzip.compress(text, mtime=0))
    nano = 'preset = "nano"'
    for name, source, raw in [("gz", "text:a.txt", "tokens:a.txt:u8"), ("u32", "tokens:wide.dat", "tokens:wide.dat:u16")]:
        first = config(here, f"{name}.toml", nano if name == "gz" else model, raw)
        passes(isthmus, here, "train", first, "--out", name, "-q", "--set", "ckpt.every=2")
        shutil.rmtree(here / name / "ckpt/step-0000004", ignore_errors=True)
        as_of_first(here / name)
        before = losses(here, name)
        run_file = config(here, f"{name}-on.toml", nano if name == "gz" else model, source)
        told = passes(isthmus, here, "train", run_file, "--out", name, "--resume", "auto", "--dry-run").stderr
        told = passes(isthmus, here, "train", run_file, "--out", name, "--resume", "auto").stderr
        require("takes its bytes as they are" in told or "took its bytes as they are" in told, told)
        require(losses(here, name) == before, f"{name}: goes on with other ids: {losses(here, name)}, {before}")
        # And once more, from the checkpoint that the new version wrote.
        told = passes(isthmus, here, "train", run_file, "--out", name, "--resume", "auto").stderr
        require("took its bytes as they are" in told, told)
    refuses(isthmus, here, 3, ["says u32", "leave the width out"], "train",
            config(here, "said.toml", model, "tokens:wide.dat:u32"), "--out", "u32", "--resume", "auto")


def compressed_texts(isthmus, folder, corpus):
    here = place(folder, "texts")
    text = corpus.read_bytes()[:20000].decode(errors="ignore")
    (here / "plain.txt").write_text(text)
    (here / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    (here / "wide.txt").write_text(text, encoding="utf-16")
    (here / "lfs.txt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n")
    model = 'preset = "nano"'
    for name in ["plain.txt", "a.txt.gz"]:
        passes(isthmus, here, "train", config(here, "run.toml", model, f"text:{name}"), "--out", name + ".out", "-q")
    require(losses(here, "plain.txt.out") == losses(here, "a.txt.gz.out"), "inflated text trains otherwise")
    refuses(isthmus, here, 4, ["wide.txt", "UTF-16", "iconv"], "train",
            config(here, "run.toml", model, "text:wide.txt"))
    refuses(isthmus, here, 4, ["lfs.txt", "Git LFS", "git lfs pull"], "train",
            config(here, "run.toml", model, "text:lfs.txt"))
    refuses(isthmus, here, 4, ["plain.txt", "looks like text", "text:FILE"], "train",
            config(here, "run.toml", model, "tokens:plain.txt"))
    few = config(here, "few.toml", model, "text:few.txt")
    (here / "few.txt").write_text(text[:300])
    told = passes(isthmus, here, "train", few, "--out", "few", "--set", "train.steps=80", "--set", "eval.every=0")
    require("76 times" in told.stderr, f"nothing said of 76 passes: {told.stderr}")
    told = passes(isthmus, here, "train", few, "--dry-run", "--set", "train.steps=80")
    require("76 times" in told.stdout, f"nothing said of 76 passes: {told.stdout}")
    told = passes(isthmus, here, "compare", comparison(here, model, "text:few.txt"), "--dry-run",
                  "--set", "train.steps=80", "--set", "train.context=16")  # 30 bytes are left to evaluate on
    require(told.stderr.count("76 times") == 1, f"a comparison says not once of 76 passes: {told.stderr}")


def llama(folder, name, changes=None, tensors=None, vocab=300, files=None):
    """A Llama of transformers' spelling, with values that a seed gives."""
    d, ff, heads, kv, width = 16, 32, 2, 1, 8
    made = place(folder, name)
    settings = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": d,
                "intermediate_size": ff, "num_hidden_layers": 1, "num_attention_heads": heads,
                "num_key_value_heads": kv, "head_dim": width, "max_position_embeddings": 64, "hidden_act": "silu",
                "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1,
                "eos_token_id": 2, "torch_dtype": "float32", **(changes or {})}
    (made / "config.json").write_text(json.dumps(settings))
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [vocab, d], layer + "input_layernorm.weight": [d],
              layer + "self_attn.q_proj.weight": [heads * width, d], layer + "self_attn.k_proj.weight": [kv * width, d],
              layer + "self_attn.v_proj.weight": [kv * width, d], layer + "self_attn.o_proj.weight": [d, heads * width],
              layer + "post_attention_layernorm.weight": [d], layer + "mlp.gate_proj.weight": [ff, d],
              layer + "mlp.up_proj.weight": [ff, d], layer + "mlp.down_proj.weight": [d, ff],
              "model.norm.weight": [d], "lm_head.weight": [vocab, d]}
    if settings["tie_word_embeddings"] and tensors is None:
        del shapes["lm_head.weight"]
    chance = random.Random(5)
    values = {tensor: [chance.gauss(0, 0.02) for _ in range(math.prod(shape))] for tensor, shape in shapes.items()}
    if tensors:
        tensors(values, shapes)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for tensor, shape in shapes.items():
        packed = struct.pack(f"<{len(values[tensor])}f", *values[tensor])
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (made / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    for file, content in (files or {}).items():
        (made / file).write_text(content)
    return made


def bytes_for_a_tokenizer(isthmus, folder, corpus):
    here = place(folder, "tokenizer")
    (here / "words.txt").write_bytes(corpus.read_bytes()[:5000])
    theirs = json.dumps({"model": {"type": "BPE", "vocab": {"th": 5}, "merges": ["t h"]}})
    llama(here, "bpe")
    run_file = config(here, "run.toml", 'init = "bpe"', "text:words.txt")
    passes(isthmus, here, "train", run_file, "--out", "begun", "-q", "--set", "ckpt.every=2")
    (here / "bpe/tokenizer.json").write_text(theirs)
    words = ["text:words.txt", "bpe", "tokenizer.json", ":tokenizer=", "isthmus data tokenize", "tokens:FILE:u8"]
    for command in [["train"], ["train", "--dry-run"], ["simulate", "--link", "1Gbit/s,1ms"]]:
        refuses(isthmus, here, 3, words, *command, run_file)
    refuses(isthmus, here, 3, words, "compare", comparison(here, 'init = "bpe"', "text:words.txt"), "--out", "compared")
    passes(isthmus, here, "train", run_file, "--out", "begun", "--resume", "auto", "--dry-run")
    passes(isthmus, here, "train", run_file, "--out", "begun", "--resume", "auto", "-q")
    sited = (here / "run.toml").read_text()
    for i, name in enumerate(["east", "west"]):  # refused before any is bound
        sited = sited.replace(f'name = "{name}"', f'name = "{name}"\naddress = "127.0.0.1:{48200 + i}"')
    (here / "sited.toml").write_text(sited)
    refuses(isthmus, here, 3, words, "train", "sited.toml", "--site", "east", "--resume", "auto", "--out", "east")
    require(not (here / "east").exists(), "a refused site left a folder")
    passes(isthmus, here, "train", config(here, "u8.toml", 'init = "bpe"', "tokens:words.txt:u8"), "--out", "u8", "-q")
    passes(isthmus, here, "train", config(here, "own8.toml", 'preset = "nano"', "tokens:words.txt:u8"), "--out", "own8",
           "-q")
    require((here / "own8/ckpt/last/tokenizer.json").exists(), "no byte tokenizer for bytes that are said to be u8")
    # A model of ours brings the byte-level tokenizer.
    passes(isthmus, here, "train", config(here, "own.toml", 'preset = "nano"', "text:words.txt"), "--out", "own", "-q")
    passes(isthmus, here, "export", "own", "--to", "hf", "own-hf")
    require((here / "own-hf/tokenizer.json").exists(), "no byte tokenizer in the export")
    passes(isthmus, here, "train", config(here, "on.toml", 'init = "own-hf"', "text:words.txt"), "--out", "on", "-q")


def ids_of_another_tokenizer(isthmus, folder, corpus):
    """Ids that mean other texts than the model's are refused, whatever brings them; a new model keeps its tokenizer."""
    here = place(folder, "unlike-ids")
    text = corpus.read_text(errors="ignore")[:6000]
    (here / "words.txt").write_text(text)
    (here / "back.txt").write_text(text[::-1])
    for name, file in (("a", "words.txt"), ("b", "back.txt")):
        passes(isthmus, here, "data", "train-tokenizer", file, "--vocab", "300", "--out", name)
        passes(isthmus, here, "data", "tokenize", "words.txt", "--tokenizer", name, "--out", f"ids-{name}")
    llama(here, "model")
    for file in (here / "a").iterdir():
        shutil.copy(file, here / "model" / file.name)
    nano = 'preset = "nano"\nvocab = 300'

    # Token files with a record of `data tokenize`, in every command that feeds them to the model.
    words = ["tokens:ids-b/*.bin:u16", 'model.init = "model"', "here and", "isthmus data tokenize FILES --tokenizer"]
    other = config(here, "other.toml", 'init = "model"', "tokens:ids-b/*.bin:u16")
    for command in (["train"], ["train", "--dry-run"], ["simulate", "--link", "1Gbit/s,1ms"]):
        refuses(isthmus, here, 3, words, *command, other)
    refuses(isthmus, here, 3, words, "compare", comparison(here, 'init = "model"', "tokens:ids-b/*.bin:u16"), "--out", "c")
    refuses(isthmus, here, 3, ["ids-b/tokenizer.json", "here and", "isthmus data tokenize FILES --tokenizer"], "eval",
            "model", "tokens:ids-b/shard-00000.bin", "--context", "32")
    for command in (["eval", "model", "words.txt"], ["eval", "model", "tokens:ids-b/shard-00000.bin"],
                    ["generate", "model", "--prompt", "a"]):
        refuses(isthmus, here, 3, ["--tokenizer b", "does not belong to the model of model", "here and"], *command,
                "--tokenizer", "b")
    refuses(isthmus, here, 3, ["--tokenizer bytes", "does not belong"], "eval", "model", "words.txt", "--tokenizer", "bytes")
    passes(isthmus, here, "eval", "model", "words.txt", "--context", "32", "--tokenizer", "a")
    passes(isthmus, here, "eval", "model", "tokens:ids-a/shard-00000.bin", "--context", "32")
    passes(isthmus, here, "train", config(here, "own.toml", 'init = "model"', "tokens:ids-a/*.bin:u16"), "--dry-run")
    (here / "alone").mkdir()
    shutil.copy(here / "ids-b/shard-00000.bin", here / "alone")  # nothing says whose ids they are
    passes(isthmus, here, "train", config(here, "alone.toml", 'init = "model"', "tokens:alone/*.bin:u16"), "--dry-run")

    refuses(isthmus, here, 3, ['data.source = "text:words.txt:tokenizer="', "names no tokenizer"], "train",
            config(here, "none.toml", nano, "text:words.txt:tokenizer="))

    # Sources of one run that mean other texts by the same ids.
    def mixed(name, one, two):
        (here / name).write_text((RUN % (nano, "X")).replace('source = "X"', f'sources = {{ a = "{one}", b = "{two}" }}\nmix = {{ a = 1, b = 1 }}'))
        return name

    for one, two, said in (("tokens:ids-a/*.bin:u16", "text:words.txt", "bytes"),
                           ("text:words.txt", "text:back.txt:tokenizer=a", "bytes"),
                           ("tokens:ids-a/*.bin:u16", "text:words.txt:tokenizer=b", "here and"),
                           ("tokens:ids-a/*.bin:u16", "tokens:ids-b/*.bin:u16", "here and")):
        refuses(isthmus, here, 3, ["data.sources.a", "data.sources.b", said, "one tokenizer"], "train",
                mixed("mixed.toml", one, two), "--dry-run")
    passes(isthmus, here, "train", mixed("mixed.toml", "tokens:ids-a/*.bin:u16", "text:words.txt:tokenizer=a"), "--dry-run")

    # A new model keeps the tokenizer of its data, so that bytes are not fed to it later, and texts are read as they are.
    for name, source in (("of-text", "text:words.txt:tokenizer=a"), ("of-tokens", "tokens:ids-a/*.bin:u16")):
        passes(isthmus, here, "train", config(here, "new.toml", nano, source), "--out", name, "-q")
        kept = (here / name / "ckpt/last/tokenizer.json").read_bytes()
        require(kept == (here / "a/tokenizer.json").read_bytes(), f"{name}: another tokenizer")
        on = config(here, "on.toml", f'init = "{name}/ckpt/last"', "text:words.txt")
        refuses(isthmus, here, 3, ["feeds bytes", "tokenizer.json", f":tokenizer={name}/ckpt/last"], "train", on)
        advised = config(here, "advised.toml", f'init = "{name}/ckpt/last"', f"text:words.txt:tokenizer={name}/ckpt/last")
        passes(isthmus, here, "train", advised, "--out", f"{name}-on", "-q")
        passes(isthmus, here, "export", name, "--to", "hf", f"{name}-hf")
        passes(isthmus, here, "eval", f"{name}-hf", "words.txt", "--context", "32")
    # Tokenizers that are equal but for added tokens: an id that is another token is refused, a further one is told of.
    base = json.loads((here / "a/tokenizer.json").read_text())
    added = base["added_tokens"]
    free = len({*base["model"]["vocab"].values(), *(token["id"] for token in added)})  # the first id that is no token

    def with_added(name, tokens):
        (here / name).mkdir()
        (here / name / "tokenizer.json").write_text(json.dumps({**base, "added_tokens": tokens}))
        return config(here, f"{name}.toml", 'init = "wide"', f"text:words.txt:tokenizer={name}")

    llama(here, "wide", vocab=320)  # with rows to spare, as models have
    shutil.copy(here / "a/tokenizer.json", here / "wide")
    plain = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    further = with_added("further", [*added, {"id": free, "content": "<|new|>", **plain}])
    for arguments in (["--dry-run"], ["--out", "of-further", "-q"]):
        done = passes(isthmus, here, "train", further, *arguments)
        require(f'id {free} ("<|new|>") first' in done.stdout + done.stderr, f"{arguments}: {done}")
    for name, tokens in (("found-otherwise", [{**token, "lstrip": True} for token in added]), ("same", added)):
        done = passes(isthmus, here, "train", with_added(name, tokens), "--dry-run")
        require("lacks" not in done.stdout + done.stderr, f"{name}: {done}")
    shutil.copy(here / "further/tokenizer.json", here / "wide")  # the model has the further token
    refuses(isthmus, here, 3, [f'id {free} is "<|other|>" here and "<|new|>" there', "does not belong to"], "train",
            with_added("renamed", [*added, {"id": free, "content": "<|other|>", **plain}]), "--dry-run")
    done = passes(isthmus, here, "train", "same.toml", "--dry-run")
    require("lacks" not in done.stdout + done.stderr, str(done))
    # Files that are links, as in a cache of downloads.
    linked = place(here, "linked")
    for file in (here / "of-text-hf").iterdir():
        (linked / file.name).symlink_to(file.resolve())
    passes(isthmus, here, "eval", "linked", "words.txt", "--context", "32")
    # A damaged file beside the tokenizer that a new model keeps is left out, with a warning; --dry-run says so too.
    (here / "a/tokenizer.model").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9000\n")
    (here / "a/LICENSE.json").write_text("")
    new = config(here, "new.toml", nano, "text:words.txt:tokenizer=a")
    for arguments in (["--dry-run"], ["--out", "beside-damaged"]):
        done = passes(isthmus, here, "train", new, *arguments)
        require("a/tokenizer.model" in done.stdout + done.stderr, f"{arguments}: {done}")
    require(not (here / "beside-damaged/ckpt/last/tokenizer.model").exists(), "a pointer is kept with the model")
    # Files that other programs write of a tokenizer.
    for file in ("vocab.bpe", "encoder.json", "tokenizer.bin", "source.spm", "bpe.codes", "tokenizer.json.gz"):
        model = llama(here, f"with-{file}")
        (model / file).write_text("{}")
        refuses(isthmus, here, 3, ["feeds bytes", f"of its own ({file})"], "train",
                config(here, "files.toml", f'init = "with-{file}"', "text:words.txt"), "--dry-run")


def settings_are_carried(isthmus, folder, corpus):
    here = place(folder, "settings")
    (here / "words.bin").write_bytes(struct.pack("<3000H", *(random.Random(i).randrange(300) for i in range(3000))))
    files = {"generation_config.json": '{"eos_token_id": [2, 8, 9], "temperature": 0.6, "do_sample": true}',
             "chat_template.json": '{"chat_template": "x"}', "tokenizer.json": "{}", "LICENSE": "free",
             "README.md": "a card", "training_args.bin": "x"}
    changes = {"eos_token_id": [2, 8, 9], "pad_token_id": 0, "initializer_range": 0.01, "use_cache": False}
    llama(here, "theirs", changes, files=files)
    kept = [name for name in files if name not in ("README.md", "training_args.bin")]

    def same(name):
        ours = json.loads((here / name / "config.json").read_text())
        for key, value in changes.items():
            require(ours.get(key) == value, f"{name}: {key} is {ours.get(key)} instead of {value}")
        for file in kept:
            require((here / name / file).read_text() == files[file], f"{name}: {file} is another")

    told = passes(isthmus, here, "import", "theirs", "imported").stdout
    require("left out: README.md, training_args.bin" in told, told)
    same("imported")
    said = json.loads(passes(isthmus, here, "import", "theirs", "again", "--json").stdout)
    require(said["left_out"] == ["README.md", "training_args.bin"], str(said))
    run_file = config(here, "run.toml", 'init = "theirs"', "tokens:words.bin")
    told = passes(isthmus, here, "train", run_file, "--out", "trained").stderr
    require("README.md, training_args.bin" in told, told)
    told = passes(isthmus, here, "train", run_file, "--dry-run").stdout
    require('of model.init = "theirs": README.md, training_args.bin' in told, told)
    said = json.loads(passes(isthmus, here, "train", run_file, "--dry-run", "--json").stdout)
    require(said["left_out"] == ["README.md", "training_args.bin"], str(said))
    same("trained/ckpt/last")
    passes(isthmus, here, "export", "trained", "--to", "hf", "exported")
    same("exported")
    passes(isthmus, here, "merge", "exported", "trained", "theirs", "--out", "merged")
    same("merged")
    (here / "again/generation_config.json").write_text("{}")
    told = passes(isthmus, here, "merge", "exported", "again", "--out", "unlike").stdout
    require("generation_config.json of again" in told, told)


def ids_outside_the_vocabulary(isthmus, folder, corpus):
    """Special tokens that a model does not have are carried, and told by every command that reads them."""
    here = place(folder, "outside")
    (here / "words.bin").write_bytes(struct.pack("<3000H", *(random.Random(i).randrange(300) for i in range(3000))))
    generation = {"eos_token_id": [2, 128001, 300], "suppress_tokens": [299, 50257], "temperature": 0.6}
    llama(here, "theirs", {"eos_token_id": 50256, "pad_token_id": -1, "bos_token_id": 299},
          files={"generation_config.json": json.dumps(generation)})
    llama(here, "sound")
    told = {"config.json: eos_token_id names 50256,": True, "config.json: pad_token_id names -1,": True,
            "generation_config.json: eos_token_id names 128001, 300,": True,
            "generation_config.json: suppress_tokens names 50257,": True, "bos_token_id": False}

    def tells(*command, of=told):
        done = passes(isthmus, here, *command)
        said = done.stdout + done.stderr
        for words, whether in of.items():
            require((words in said) == whether, f"{command}: {words!r}: {said}")
        return done

    for model, of in (("theirs", told), ("sound", {"no_token": False, "vocabulary has": False})):
        run_file = config(here, f"{model}.toml", f'init = "{model}"', "tokens:words.bin")
        tells("import", model, f"imported-{model}", of=of)
        tells("train", run_file, "--dry-run", of=of)
        tells("train", run_file, "--out", f"trained-{model}", of=of)
        tells("simulate", run_file, "--link", "1Gbit/s,1ms", "--out", f"simulated-{model}", of=of)
        tells("export", f"trained-{model}", "--to", "hf", f"exported-{model}", of=of)
        tells("merge", f"exported-{model}", model, "--out", f"merged-{model}", of=of)
        tells("compare", comparison(here, f'init = "{model}"', "tokens:words.bin"), "--dry-run", "--set",
              "train.context=32", of=of)
    for name in ("imported-theirs", "trained-theirs/ckpt/last", "exported-theirs", "merged-theirs"):
        ours = json.loads((here / name / "config.json").read_text())
        require(ours["eos_token_id"] == 50256 and ours["pad_token_id"] == -1, f"{name}: {ours}")
        require(json.loads((here / name / "generation_config.json").read_text()) == generation, name)
    said = json.loads(passes(isthmus, here, "import", "theirs", "again", "--json").stdout)
    require(len(said["notes"]) == 4 and said["left_out"] == [], str(said))
    said = json.loads(passes(isthmus, here, "import", "sound", "again", "--json").stdout)
    require(said["notes"] == [], str(said))
    said = json.loads(passes(isthmus, here, "train", "theirs.toml", "--dry-run", "--json").stdout)
    require(sum("names" in each for each in said["warnings"]) == 4, str(said))
    llama(here, "no-ids", files={"generation_config.json": '{"eos_token_id": "</s>"}'})
    tells("import", "no-ids", "again", of={'eos_token_id names "</s>",': True})
    passes(isthmus, here, "data", "train-tokenizer", corpus, "--vocab", "400", "--out", "larger")
    llama(here, "smaller")
    shutil.copy(here / "larger/tokenizer.json", here / "smaller")
    tells("import", "smaller", "again", of={"smaller/tokenizer.json: has ids up to 399, and the model's": True})
    passes(isthmus, here, "data", "train-tokenizer", corpus, "--vocab", "300", "--out", "tokenizer")
    tells("generate", "theirs", "--tokenizer", "tokenizer", "--prompt", "a", "--max-tokens", "2")


def means_are_summed_in_double(isthmus, folder, corpus):
    """docs/guarantees/numerics-elsewhere.md: a merge rounds once. In fp32 2^24 + 1 is 2^24, so its mean would be less."""
    here = place(folder, "means")
    norm = "model.norm.weight"
    for name, value in (("large", 2.0**24), ("one", 1.0), ("other", 1.0)):
        llama(here, name, tensors=lambda values, shapes, value=value: values.update({norm: [value] * 16}))
    passes(isthmus, here, "merge", "large", "one", "other", "--out", "mean")
    raw = (here / "mean/model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    begin, end = json.loads(raw[8:8 + size])[norm]["data_offsets"]
    found = struct.unpack("<16f", raw[8 + size + begin:8 + size + end])
    require(found == (struct.unpack("<f", struct.pack("<f", (2.0**24 + 2) / 3))[0],) * 16, str(found))


def values_are_checked(isthmus, folder, corpus):
    here = place(folder, "values")
    (here / "words.txt").write_bytes(corpus.read_bytes()[:5000])

    def broken(value):
        def change(values, shapes):
            values["model.layers.0.mlp.up_proj.weight"][37] = value
        return change

    def wrapped(values, shapes):
        for tensor in list(shapes):
            values["_orig_mod." + tensor] = values.pop(tensor)
            shapes["_orig_mod." + tensor] = shapes.pop(tensor)

    def other_head(values, shapes):
        values["lm_head.weight"] = list(values["model.embed_tokens.weight"])
        values["lm_head.weight"][5] += 0.5

    def same_head(values, shapes):
        values["lm_head.weight"] = list(values["model.embed_tokens.weight"])

    llama(here, "sound")
    llama(here, "nan", tensors=broken(math.nan))
    llama(here, "infinite", tensors=broken(-math.inf))
    llama(here, "wrapped", tensors=wrapped)
    llama(here, "other-head", {"tie_word_embeddings": True}, other_head)
    llama(here, "same-head", {"tie_word_embeddings": True}, same_head)
    up = "model.layers.0.mlp.up_proj.weight"
    for model, words in [
            ("nan", ["nan/model.safetensors", up, "NaN at [2, 5]", "1 of its 512"]),
            ("infinite", ["infinite/model.safetensors", up, "infinity at [2, 5]"]),
            ("other-head", ["lm_head.weight", "1 of 4800 values", '"tie_word_embeddings": false', "remove the tensor"])]:
        run_file = config(here, "run.toml", f'init = "{model}"', "text:words.txt")
        refuses(isthmus, here, 4, words, "train", run_file, "--out", "out")
        refuses(isthmus, here, 4, words, "train", run_file, "--dry-run")
        refuses(isthmus, here, 4, words, "simulate", run_file, "--link", "1Gbit/s,1ms", "--out", "out")
        refuses(isthmus, here, 4, words, "import", model, "out")
        refuses(isthmus, here, 4, words, "merge", model, model, "--out", "out")
        require(not (here / "out").exists(), f"{model}: something was written")
    # A clone without its large files: each of them is a short text that says where the file is.
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9000\n"
    for name, code in (("tokenizer.model", 4), ("chat_template.jinja", 4), ("config.json", 3)):
        llama(here, f"pointed-{name}")
        (here / f"pointed-{name}" / name).write_text(pointer)
        run_file = config(here, "run.toml", f'init = "pointed-{name}"', "tokens:words.txt:u8")
        words = [f"pointed-{name}/{name}", "Git LFS pointer", "git lfs pull"]
        refuses(isthmus, here, code, words, "train", run_file, "--out", "out")
        refuses(isthmus, here, code, words, "train", run_file, "--dry-run")
        refuses(isthmus, here, 4, words, "import", f"pointed-{name}", "out")
        refuses(isthmus, here, 4, words, "merge", f"pointed-{name}", "sound", "--out", "out")
    passes(isthmus, here, "import", "sound", "imported")
    passes(isthmus, here, "import", "wrapped", "unwrapped")
    require((here / "imported/model.safetensors").read_bytes() == (here / "unwrapped/model.safetensors").read_bytes(),
            "names of a compiled model give other weights")
    told = passes(isthmus, here, "import", "same-head", "tied").stdout
    require("left out: tensor lm_head.weight" in told, told)
    run_file = config(here, "run.toml", 'init = "same-head"', "text:words.txt")
    for words in (["--dry-run"], ["--out", "tied-run"]):
        done = passes(isthmus, here, "train", run_file, *words)
        require("tensor lm_head.weight" in done.stdout + done.stderr, f"{words}: {done}")


# The peak of a process counts that of the process that started it: here a small one, not this one.
BINARY = """
[model]
arch = "gpt2"
layers = 1
d_model = 16
heads = 1
[data]
source = "text:{name}.txt"
[train]
steps = 2
global_batch = "32 tok"
context = 16
"""
ROUNDS = small_run("rounds", arch="gpt2", d_model=256, heads=8, source="synth:markov1", steps=6,
                   global_batch="64 tok") + """
[outer]
method = "diloco"
H = 2
codec = "fp32"
[ckpt]
every = "2 steps"
[[site]]
name = "east"
address = "127.0.0.1:47001"
[[site]]
name = "west"
address = "127.0.0.1:47002"
"""
PEAK = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_of(isthmus, folder, *arguments):
    """The most bytes that a process had in memory, pages of files included, and what it said on stdout."""
    done = subprocess.run([sys.executable, "-S", "-E", "-c", PEAK, isthmus, *map(str, arguments)], cwd=folder,
                          stdout=subprocess.PIPE, text=True)
    require(done.returncode == 0, f"{arguments} ends with {done.returncode}")
    return int(done.stdout.split()[-1]) * 1024, done.stdout


def anonymous_peak(isthmus, folder, run_file, out, *arguments):
    """The most memory that is no page of a file which a run had. The program keeps what it has freed, so its peak is
    what it holds at its end, where it is made to wait: stdout is a pipe that is full. Pages of files, of which as many
    are mapped as the load of the machine allows, do not count."""
    reading, writing = os.pipe()
    os.write(writing, b" " * fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ))
    with subprocess.Popen([isthmus, "train", run_file, "--out", out, "--json", *arguments], cwd=folder, stdout=writing,
                          stderr=subprocess.DEVNULL) as process:
        os.close(writing)
        while process.poll() is None and not (folder / out / "summary.json").exists():
            time.sleep(0.01)
        require(process.poll() is None, f"{run_file}: ended with {process.returncode} before its last word")
        lines = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        with open(reading, "rb") as rest:
            said = rest.read().strip()
    require(process.returncode == 0 and json.loads(said), f"{run_file}: exit {process.returncode}: {said}")
    return int(next(line for line in lines if line.startswith("Anonymous:")).split()[1]) * 1024


def memory_of_positions(isthmus, folder, corpus):
    """A model of 10 M positions that trains at 64 takes what one of 64 positions does, and what is foretold."""
    here = place(folder, "positions")
    examples = pathlib.Path(__file__).resolve().parent.parent / "inner/hf/data"
    (here / "words.txt").write_bytes(corpus.read_bytes()[:5000])
    llama(here, "long", {"max_position_embeddings": 10_000_000})
    llama(here, "short")
    (here / "ids.bin").write_bytes(struct.pack("<20000H", *(random.Random(i).randrange(11) for i in range(20000))))
    foretold = {}
    for model in [here / "short", here / "long", *sorted(examples.iterdir())]:
        name = model.name
        run_file = config(here, f"{name}.toml", f'init = "{model}"', "tokens:ids.bin:u16")
        sizes = [] if model.parent == here else ["--set", "train.context=4", "--set", "train.global_batch=64 tok"]
        estimate = json.loads(passes(isthmus, here, "train", run_file, "--dry-run", "--json", *sizes).stdout)
        foretold[name] = estimate["memory_bytes"]
        parts = ("memory_bytes", "program_anonymous_bytes", "round_bytes", "checkpoint_copy_bytes")
        whole = sum(estimate[part] for part in parts)
        peak = anonymous_peak(isthmus, here, run_file, f"out-{name}", *sizes)
        print(f"    {name}: {whole} bytes foretold, {peak} at most, {100 * whole / peak - 100:+.1f} %")
        require(abs(whole - peak) <= 0.05 * peak, f"{name}: {whole} bytes foretold, {peak} at most")
        require(estimate["program_anonymous_bytes"] < estimate["program_bytes"], f"{name}: {estimate}")
    require(foretold["long"] == foretold["short"], f"foretold: {foretold}")


def binary_texts(isthmus, folder, corpus):
    """Bytes that are no text train, with a warning; a text in an encoding of one or two bytes has none."""
    here = place(folder, "binary")
    noise = random.Random(5)
    sentence = "Ein Maß für die Länge der Brücke über den Fluß. "
    contents = {"noise": (noise.randbytes(20000), True), "ascii": (corpus.read_bytes()[:20000], False),
                "latin": (sentence.encode("latin-1") * 400, False), "utf8": (sentence.encode() * 400, False)}
    for name, (data, warns) in contents.items():
        (here / f"{name}.txt").write_bytes(data)
        run_file = here / f"{name}.toml"
        run_file.write_text(BINARY.format(name=name))
        said = passes(isthmus, here, "train", run_file, "--dry-run").stdout
        require(("control characters" in said) == warns, f"{name}: {said}")
    trains = passes(isthmus, here, "train", here / "noise.toml", "--out", "out")
    require("control characters" in trains.stderr, f"train: {trains.stderr}")
    # JSON lines are a text, whose brackets and keys nobody wants to train on.
    (here / "lines.jsonl").write_text('{"text": "some words"}\n' * 900)
    (here / "lines.toml").write_text(BINARY.format(name="lines").replace(".txt", ".jsonl"))
    for words in (["--dry-run"], ["--out", "lines"]):
        done = passes(isthmus, here, "train", "lines.toml", *words)
        require("lines.jsonl: holds JSON lines" in done.stdout + done.stderr, f"{words}: {done}")


def nuls_in_texts(isthmus, folder, corpus):
    """A text with NULs is used, with one warning in the same words, whatever reads it."""
    here = place(folder, "nuls")
    text = corpus.read_text(errors="ignore")[:30000]
    sound = {"sound.txt": text.encode(), "sound.jsonl": b"".join(json.dumps({"text": line}).encode() + b"\n"
                                                                 for line in text.splitlines() if line)}
    lines = sound["sound.jsonl"].splitlines(keepends=True)
    lines[4] = json.dumps({"text": "cut\0off\0here"}).encode() + b"\n"
    torn = sound["sound.txt"] + bytes(300)  # as a crash leaves a file
    cases = {"torn.txt": (torn, "torn.txt: byte 30000: a NUL character, the first of 300"),
             "torn.txt.gz": (gzip.compress(torn), "torn.txt.gz: byte 30000: a NUL character, the first of 300"),
             "field.jsonl": (b"".join(lines), "field.jsonl:5: a NUL character, the first of 2")}
    for name, content in sound.items():
        (here / name).write_bytes(content)
    for name, (content, _) in cases.items():
        (here / name).write_bytes(content)
    passes(isthmus, here, "data", "train-tokenizer", "sound.txt", "--vocab", "300", "--out", "tokenizer")
    trained = config(here, "model.toml", 'preset = "nano"\nvocab = 300', "text:sound.txt:tokenizer=tokenizer")
    passes(isthmus, here, "train", trained, "--out", "model", "-q")
    passes(isthmus, here, "export", "model", "--to", "hf", "hf")
    shutil.copy(here / "tokenizer/tokenizer.json", here / "hf/tokenizer.json")
    for name, words in [*((name, "") for name in sound), *((name, said) for name, (_, said) in cases.items())]:
        commands = [["data", "tokenize", name, "--tokenizer", "tokenizer", "--out", f"ids-{name}"],
                    ["data", "train-tokenizer", name, "--vocab", "300", "--out", f"tokenizer-{name}"],
                    ["eval", "hf", name, "--context", "32"]]
        if "jsonl" not in name:
            for source in (f"text:{name}", f"text:{name}:tokenizer=tokenizer"):
                run_file = config(here, "run.toml", 'preset = "nano"\nvocab = 300', source)
                commands += [["train", run_file, "--dry-run"], ["train", run_file, "--out", "out", "--force", "-q"]]
        for command in commands:
            done = passes(isthmus, here, *command)
            said = done.stdout + done.stderr
            require((words in said and "tr -d" in said) if words else "NUL" not in said, f"{command}: {said}")
    for name, words in [*((name, "") for name in sound), *((name, said) for name, (_, said) in cases.items())]:
        if "jsonl" in name:
            continue
        for command in (["data", "inspect", f"text:{name}"], ["data", "verify", f"text:{name}"], ["inspect", name]):
            done = passes(isthmus, here, *command)
            require((words in done.stdout) if words else "NUL" not in done.stdout, f"{command}: {done.stdout}")
            done = json.loads(passes(isthmus, here, *command, "--json").stdout)
            require([words in each for each in done["warnings"]] == ([True] if words else []), f"{command}: {done}")
    compared = comparison(here, 'preset = "nano"', "text:torn.txt")
    told = passes(isthmus, here, "compare", compared, "--dry-run").stderr
    require(told.count("torn.txt: byte 30000: a NUL character") == 1, f"compare: {told}")
    # Data that do not fit in memory are not read as a whole for a note. Pages that are looked at count in the peak.
    with open(here / "large.txt", "wb") as large:
        for at in (0, 1 << 30):
            large.seek(at)
            large.write(text.encode() * 4)
    done = peak_of(isthmus, here, "train", config(here, "large.toml", 'preset = "nano"', "text:large.txt"), "--dry-run")
    require(done[0] < 500 << 20, f"{done[0]} bytes of a text of 1 GiB were read")
    require("a NUL character, the first of" in done[1] and "in what was looked at" in done[1], done[1])
    said = json.loads(passes(isthmus, here, "data", "tokenize", "field.jsonl", "--tokenizer", "tokenizer", "--out", "n",
                             "--json").stdout)
    require(said["nuls"] == 2, str(said))


def memory_of_rounds(isthmus, folder, corpus):
    """What rounds and checkpoints take beside training is foretold, and of one site alone."""
    here = place(folder, "rounds")
    (here / "run.toml").write_text(ROUNDS)
    of_all = json.loads(passes(isthmus, here, "train", "run.toml", "--dry-run", "--json").stdout)
    of_one = json.loads(passes(isthmus, here, "train", "run.toml", "--site", "east", "--dry-run", "--json").stdout)
    values = 4 * of_all["parameters"]  # bytes of one copy of the model
    require(of_all["round_bytes"] == 2 * 3 * values, f"rounds of two workers in fp32: {of_all}")
    require(of_all["checkpoint_copy_bytes"] == values * (1 + 2 * 5), f"a checkpoint of two workers: {of_all}")
    require(of_one["memory_bytes"] * 2 == of_all["memory_bytes"], f"one of two sites: {of_one}, {of_all}")
    require(of_one["round_bytes"] * 2 == of_all["round_bytes"], f"one of two sites: {of_one}, {of_all}")
    parts = ("memory_bytes", "program_bytes", "round_bytes", "checkpoint_copy_bytes")
    whole = sum(of_all[part] for part in parts)
    peak = peak_of(isthmus, here, "train", "run.toml", "--out", "out", "-q")[0]
    require(0.75 * whole <= peak <= 1.5 * whole, f"{whole} bytes foretold, {peak} at most")


if __name__ == "__main__":
    scenario.play(__doc__, [token_files, readings_are_kept, compressed_texts, bytes_for_a_tokenizer, settings_are_carried,
                            ids_outside_the_vocabulary, ids_of_another_tokenizer, values_are_checked,
                            means_are_summed_in_double, binary_texts, nuls_in_texts, memory_of_positions,
                            memory_of_rounds])
