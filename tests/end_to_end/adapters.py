#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters from the file to the folder that PEFT loads.

  python3 tests/end_to_end/adapters.py --isthmus build/src/app/isthmus

A model made here is fine-tuned with [lora]: by one process, by two sites over TCP, simulated, killed and
resumed, with every kind of method; adapters alone are exchanged and saved. The exported adapter goes on,
the merged model says what the adapted one says, and another base is refused wherever it could come in.
"""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess

from scenario import free_ports, play, require

RUN = '''
[run]
name = "tuned"
{workers}
[model]
init = "{init}"
[lora]
r = 4
alpha = 8
{lora}
[data]
source = "text:{corpus}"
[train]
steps = {steps}
global_batch = "256 tok"
context = 32
device = "cpu"
threads = 1
[inner]
lr = 3e-3
[outer]
{outer}
[eval]
tokens = "2k"
[ckpt]
every = "5 steps"
{more}
'''
BASE = '''
[run]
name = "base"
workers = 1
[model]
arch = "llama"
layers = 2
d_model = 32
heads = 4
kv_heads = 2
[data]
source = "text:{corpus}"
[train]
steps = 20
global_batch = "256 tok"
context = 32
device = "cpu"
threads = 1
'''
DILOCO = 'method = "diloco"\nH = 5'
METHODS = ('method = "ddp"', 'method = "localsgd"\nH = 5', DILOCO,
           'method = "streaming-diloco"\nH = 4\nfragments = 2\noverlap = 1\ncodec = "int8"',
           'method = "spsa"', 'method = "1bit-adam"\nfreeze = 4')


def call(isthmus, *words, code=0):
    done = subprocess.run([isthmus, *map(str, words)], capture_output=True, text=True, timeout=300)
    require(done.returncode == code, f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


def base(isthmus, folder, corpus, name="base", seed=1):
    model = folder / name
    if not model.exists():
        (folder / f"{name}.toml").write_text(BASE.format(corpus=corpus))
        run = folder / f"{name}-run"
        call(isthmus, "train", folder / f"{name}.toml", "--out", run, "--set", f"run.seed={seed}", "--progress", "none")
        call(isthmus, "export", run, "--to", "hf", model)
    return model


def write(folder, name, init, corpus, outer=DILOCO, steps=10, workers="workers = 2", lora="", more=""):
    path = folder / f"{name}.toml"
    path.write_text(RUN.format(workers=workers, init=init, corpus=corpus, outer=outer, steps=steps, lora=lora,
                               more=more))
    return path


def rows(run, kind):
    return [row for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if row["k"] == kind]


def tensors(path):
    """Shapes and bytes of a .safetensors file, by name."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    begin = 8 + length
    return {name: (entry["shape"], data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


def with_tensor(data, name, values):
    """The bytes of a .safetensors file with one more tensor."""
    (length,) = struct.unpack("<Q", data[:8])
    header, behind = json.loads(data[8:8 + length]), data[8 + length:]
    packed = struct.pack(f"<{len(values)}f", *values)
    header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(behind), len(behind) + len(packed)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + behind + packed


def with_tensors_of(data, part):
    """The bytes of a .safetensors file with those of its tensors alone whose names hold `part`."""
    (length,) = struct.unpack("<Q", data[:8])
    header, values = json.loads(data[8:8 + length]), data[8 + length:]
    kept = {name: entry for name, entry in header.items() if part in name}
    behind = b""
    for entry in kept.values():
        first, end = entry["data_offsets"]
        entry["data_offsets"] = [len(behind), len(behind) + end - first]
        behind += values[first:end]
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + behind


def without_metadata(data):
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    require("isthmus.base_digest" in header.pop("__metadata__"), "an adapter does not say which base it is of")
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size:]


def evaluated(run):
    return rows(run, "eval")[-1]["loss"]


def every_method_trains_adapters_alone(isthmus, folder, corpus):
    model = base(isthmus, folder, corpus)
    for i, outer in enumerate(METHODS):
        toml = write(folder, f"method-{i}", model, corpus, outer)
        run = folder / f"method-{i}"
        call(isthmus, "train", toml, "--out", run, "--progress", "none")
        held = tensors(run / "ckpt/last/model.safetensors")
        require(len(held) == 2 * 2 * 7 and all(".lora_" in name for name in held), f"{outer}: {sorted(held)}")
        moved = [name for name, (_, data) in held.items() if "lora_B" in name and any(data)]
        require(len(moved) == 14, f"{outer}: only {moved} have left zero")
        first, last = rows(run, "train")[0]["loss"], rows(run, "train")[-1]["loss"]
        require("spsa" in outer or "1bit" in outer or last < first, f"{outer}: {first} to {last}")
    whole = 4 * sum(len(data) // 4 for _, data in tensors(model / "model.safetensors").values())
    sent = sum(row["bytes_payload"] for row in rows(folder / "method-2", "round"))
    require(0 < sent < whole / 2, f"rounds have sent {sent} bytes, where the model has {whole}")


def sites_and_virtual_time_find_the_same(isthmus, folder, corpus):
    model = base(isthmus, folder, corpus)
    toml = write(folder, "together", model, corpus)
    call(isthmus, "train", toml, "--out", folder / "together", "--progress", "none")
    wanted = (folder / "together/ckpt/last/model.safetensors").read_bytes()
    call(isthmus, "simulate", toml, "--link", "10Mbit/s,20ms", "--out", folder / "simulated", "--progress", "none")
    require((folder / "simulated/ckpt/last/model.safetensors").read_bytes() == wanted, "simulate has other adapters")
    sites = "".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
                    for name, port in zip(("east", "west"), free_ports(2)))
    toml = write(folder, "apart", model, corpus, workers="", more=sites)
    running = [subprocess.Popen([isthmus, "train", toml, "--site", name, "--out", folder / "apart" / name,
                                 "--progress", "none"], stderr=subprocess.PIPE, text=True) for name in ("east", "west")]
    for process in running:
        said = process.communicate(timeout=120)[1]
        require(process.returncode == 0, said)
    for name in ("east", "west"):
        require((folder / "apart" / name / "ckpt/last/model.safetensors").read_bytes() == wanted, f"{name} differs")
    # A site with another base: the same shapes, other weights.
    other = base(isthmus, folder, corpus, "other", 2)
    unlike = write(folder, "unlike", other, corpus, workers="", more=sites)
    running = [subprocess.Popen([isthmus, "train", each, "--site", name, "--out", folder / "unlike" / name,
                                 "--progress", "none"], stderr=subprocess.PIPE, text=True)
               for each, name in ((toml, "east"), (unlike, "west"))]
    for process in running:
        said = process.communicate(timeout=120)[1]
        require(process.returncode == 3 and "frozen weights of model.init" in said, f"{process.returncode}: {said}")


def a_killed_run_goes_on(isthmus, folder, corpus):
    model = base(isthmus, folder, corpus)
    toml = write(folder, "whole", model, corpus, steps=20)
    call(isthmus, "train", toml, "--out", folder / "whole", "--progress", "none")
    sites = "".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
                    for name, port in zip(("east", "west"), free_ports(2)))

    def both(init, *flags, **environment):
        toml = write(folder, "killed", init, corpus, steps=20, workers="", more=sites)
        running = [subprocess.Popen([isthmus, "train", toml, "--site", name, "--out", folder / "killed" / name,
                                     "--progress", "none", *flags], stderr=subprocess.PIPE, text=True,
                                    env=os.environ | environment) for name in ("east", "west")]
        if environment:  # one ends itself; the other would wait for it
            running[0].wait(timeout=120)
            running[1].kill()
        said = [process.communicate(timeout=120)[1] for process in running]
        return [process.returncode for process in running], said

    codes, said = both(model, ISTHMUS_FAULT="kill@applies:3")
    require(codes == [-signal.SIGKILL] * 2, f"{codes}: {said}")
    codes, said = both(base(isthmus, folder, corpus, "other", 2), "--resume", "auto")
    require(codes == [3, 3] and "frozen weights of model.init" in said[0], f"{codes}: {said}")
    codes, said = both(model, "--resume", "auto")
    require(codes == [0, 0], f"{codes}: {said}")
    for name in ("east", "west"):
        require((folder / "killed" / name / "ckpt/last/model.safetensors").read_bytes()
                == (folder / "whole/ckpt/last/model.safetensors").read_bytes(), f"{name} has other adapters")


def exported_adapters_go_on_and_merge(isthmus, folder, corpus):
    model = base(isthmus, folder, corpus)
    toml = write(folder, "first", model, corpus, lora='base = "nf4"\ntargets = ["q_proj", "v_proj", "down_proj"]')
    call(isthmus, "train", toml, "--out", folder / "narrow", "--progress", "none")
    toml = write(folder, "first", model, corpus, lora='targets = "all-linear"')
    run = folder / "first"
    call(isthmus, "train", toml, "--out", run, "--progress", "none")
    told = json.loads(call(isthmus, "export", run, "--to", "peft", folder / "adapter", "--json").stdout)
    require(told["folder"] == str(folder / "adapter") and told["parameters"] == sum(
        len(data) // 4 for _, data in tensors(run / "ckpt/last/model.safetensors").values()), str(told))
    config = json.loads((folder / "adapter/adapter_config.json").read_text())
    require(config["r"] == 4 and config["lora_alpha"] == 8 and config["peft_type"] == "LORA"
            and config["base_model_name_or_path"] == str(model), str(config))
    require(tensors(folder / "adapter/adapter_model.safetensors") == tensors(run / "ckpt/last/model.safetensors"),
            "other values are exported")
    call(isthmus, "export", run, "--to", "hf", folder / "merged")
    still = ("--set", "inner.lr=1e-30", "--set", "train.steps=1", "--set", 'ckpt.every="0 steps"')
    plain = folder / "plain.toml"
    lora = '[lora]\nr = 4\nalpha = 8\ntargets = "all-linear"\n'
    plain.write_text(toml.read_text().replace(lora, "").replace(str(model), str(folder / "merged")))
    call(isthmus, "train", plain, "--out", folder / "plain", *still, "--progress", "none")
    require(abs(evaluated(folder / "plain") - evaluated(run)) < 1e-5,
            f"merged {evaluated(folder / 'plain')}, adapted {evaluated(run)}")
    again = write(folder, "again", model, corpus, lora=f'init = "{folder / "adapter"}"')
    call(isthmus, "train", again, "--out", folder / "again", *still, "--progress", "none")
    require(abs(evaluated(folder / "again") - evaluated(run)) < 1e-6, "another adapter goes on")
    # Beside another model of the same shape, or merged into it, it would be another model, without a word.
    other = base(isthmus, folder, corpus, "other", 2)
    beside = write(folder, "beside", other, corpus, lora=f'init = "{folder / "adapter"}"')
    for dry in ((), ("--dry-run",)):
        said = call(isthmus, "train", beside, "--out", folder / "beside", *dry, code=3).stderr
        require("lora.init" in said and "name the adapter's own base" in said, said)
    require(not (folder / "beside").exists(), "a refused run has made its folder")
    for dry in ((), ("--dry-run",)):  # nor does a run go on beside it
        said = call(isthmus, "train", toml, "--out", run, "--set", f'model.init="{other}"', "--resume", "auto",
                    "--change", "train.steps=400", *dry, code=3).stderr
        require("(trainer.frozen weights of model.init was " in said and "resume with those" in said, said)
    weights = folder / "adapter/adapter_model.safetensors"
    whole = weights.read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    for data, word in ((whole[:-4], "truncated file?"),
                       (whole[:start] + b"\xff\xff\xff\x7f" + whole[start + 4:], "holds NaN")):
        weights.write_bytes(data)  # said before anything is made, by a dry run too
        require(word in call(isthmus, "train", again, "--dry-run", code=4).stderr, word)
    weights.write_bytes(without_metadata(whole))  # as PEFT writes it
    call(isthmus, "train", beside, "--dry-run")
    said = call(isthmus, "export", run, "--to", "hf", folder / "wrong", "--base", other, code=4).stderr
    require("--base" in said and not (folder / "wrong").exists(), said)
    said = call(isthmus, "export", folder / "base-run", "--to", "peft", folder / "wrong", code=2).stderr
    require("--to hf" in said, said)
    # A folder of the other kind, a file and the base itself are refused before a weight is read or a file is made.
    damaged = shutil.copytree(model, folder / "damaged")
    (damaged / "model.safetensors").write_bytes(whole[:40])
    wanted = (model / "model.safetensors").read_bytes()
    there = sorted(folder.iterdir())
    for words, code, word in ((["import", damaged, folder / "adapter"], 4, "holds adapter_config.json"),
                              (["export", run, "--to", "hf", folder / "adapter", "--base", damaged], 4,
                               "holds adapter_config.json"),
                              (["export", run, "--to", "peft", folder / "merged"], 4, "is no part of an adapter"),
                              (["import", damaged, corpus], 2, "is a file"),
                              (["export", run, "--to", "hf", corpus, "--base", damaged], 2, "is a file"),
                              (["export", run, "--to", "peft", corpus], 2, "is a file"),
                              (["export", run, "--to", "hf", model], 2, "is also where it comes from")):
        require(word in (said := call(isthmus, *words, code=code).stderr), f"{words}: {said}")
    require(sorted(folder.iterdir()) == there, "a refused call has made a file")
    require((model / "model.safetensors").read_bytes() == wanted, "the base was written over")
    for words in (["generate", run, "--prompt", "a"], ["eval", run, corpus], ["merge", run, run, "--out", folder / "no"]):
        require("holds adapters" in call(isthmus, *words, code=3).stderr, str(words))


def a_base_is_read_in_parts(isthmus, folder, corpus):
    """A run with a frozen base takes what is foretold: neither its file nor a table of it is in memory as a whole."""
    (folder / "deep.toml").write_text(BASE.format(corpus=corpus))
    shapes = {"deep": ["model.layers=24", "model.d_model=256"], "wide": ["model.vocab=131072", "model.d_model=256"]}
    for name, shape in shapes.items():
        sizes = [*shape, "train.steps=1", "train.global_batch=32 tok"]
        call(isthmus, "train", folder / "deep.toml", "--out", folder / f"{name}-run", "--progress", "none",
             *(word for size in sizes for word in ("--set", size)))
        call(isthmus, "export", folder / f"{name}-run", "--to", "hf", folder / name)
    for name, storage in (("deep", "nf4"), ("wide", "fp32"), ("wide", "bf16")):
        toml = write(folder, "frozen-base", folder / name, corpus, outer='method = "ddp"', workers="workers = 1",
                     lora=f'base = "{storage}"', steps=2)
        told = json.loads(call(isthmus, "train", toml, "--dry-run", "--json").stdout)
        whole = sum(told[part] for part in ("memory_bytes", "program_bytes", "round_bytes", "checkpoint_copy_bytes"))
        file = (folder / name / "model.safetensors").stat().st_size
        for words in (["--dry-run"], ["--out", folder / "frozen-base", "--progress", "none", "--force"]):
            process = subprocess.Popen([isthmus, "train", *map(str, [toml, *words])], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            peak = 1024 * usage.ru_maxrss
            require(status == 0 and peak <= 1.2 * whole,
                    f"{name}, {storage}, {words}: {whole} bytes foretold, {peak} at most, a file of {file}")
        require(peak >= 0.8 * whole and told["program_bytes"] < file,
                f"{told}: {whole} bytes foretold, {peak} at most, a file of {file}")


def what_does_not_fit_is_refused(isthmus, folder, corpus):
    model = base(isthmus, folder, corpus)

    def refused(words, code=3, **given):
        toml = write(folder, "refused", given.pop("init", model), corpus, **given)
        for dry in ((), ("--dry-run",)):
            said = call(isthmus, "train", toml, "--out", folder / "refused", *dry, code=code).stderr
            require(all(word in said for word in words), f"{words}: {said}")
        require(not (folder / "refused").exists(), "a refused run has made its folder")

    refused(["lora.dropout", "0.1"], lora="dropout = 0.1")
    refused(["lora.targets", "all-linear"], lora='targets = ["all-linear", "q_proj"]')
    refused(["lora.targets", "w_pack"], lora='targets = ["w_pack"]')
    refused(["lora.targets", "w_pack"], lora='targets = "w_pack"')
    refused(["lora.base", "int3"], lora='base = "int3"')
    refused(["lora.r", "tp, pp and dp"], more='[parallel]\ndp = 2')
    refused(["adapter_config.json"], code=4, lora=f'init = "{model}"')
    toml = write(folder, "small", model, corpus, workers="workers = 1", outer='method = "ddp"', lora="")
    call(isthmus, "train", toml, "--out", folder / "small", "--set", "lora.r=2", "--progress", "none")
    call(isthmus, "export", folder / "small", "--to", "peft", folder / "rank-2")
    refused(["lora.r = 4", "has 2"], lora=f'init = "{folder / "rank-2"}"')
    config = folder / "rank-2/adapter_config.json"
    settings = json.loads(config.read_text())
    for key, value in (("use_dora", True), ("peft_type", "IA3"), ("modules_to_save", ["lm_head"]),
                       ("target_modules", ["c_attn"]), ("use_qalora", True), ("init_lora_weights", "pissa_niter_4"),
                       ("init_lora_weights", "loftq"), ("init_lora_weights", "PiSSA"), ("alora_invocation_tokens", [1, 2])):
        config.write_text(json.dumps(settings | {key: value}))
        refused([key], lora=f'init = "{folder / "rank-2"}"')
    # PEFT also keeps ends of names, and regular expressions as they were written.
    ends = ["self_attn." + name for name in ("q_proj", "k_proj", "v_proj", "o_proj")] + ["mlp.up_proj", "gate_proj",
                                                                                        "layers.0.mlp.down_proj"]
    for more in ({"init_lora_weights": "gaussian"}, {"target_modules": ends},
                 {"target_modules": r".*\.(self_attn|mlp)\.[a-z]+_proj"}):
        config.write_text(json.dumps(settings | more))
        fits = write(folder, "fits", model, corpus, lora=f'init = "{folder / "rank-2"}"')
        call(isthmus, "train", fits, "--dry-run", "--set", "lora.r=2")
    with_all = (folder / "rank-2/adapter_model.safetensors").read_bytes()
    for layers in (["layers.0.self_attn.q_proj"], r".*\.0\..*\.q_proj"):
        config.write_text(json.dumps(settings | {"target_modules": layers}))
        (folder / "rank-2/adapter_model.safetensors").write_bytes(with_tensors_of(with_all, ".layers.0.self_attn.q_proj."))
        said = call(isthmus, "train", fits, "--dry-run", "--set", "lora.r=2", "--set", 'lora.targets=["q_proj"]', code=4)
        require("target_modules names layers" in said.stderr and "missing" in said.stderr, said.stderr)
    (folder / "rank-2/adapter_model.safetensors").write_bytes(with_all)
    config.write_text(json.dumps(settings))
    said = call(isthmus, "train", fits, "--dry-run", "--set", "lora.r=2", "--set", 'lora.targets=["q_proj"]', code=3)
    require("lora.targets" in said.stderr and "all-linear" in said.stderr, said.stderr)
    # What an adapter trained whole beside its low ranks, and values that broke, are not dropped: --dry-run says so too.
    call(isthmus, "train", toml, "--out", folder / "rank-4-run", "--progress", "none")
    call(isthmus, "export", folder / "rank-4-run", "--to", "peft", folder / "rank-4")
    weights = folder / "rank-4/adapter_model.safetensors"
    sound = weights.read_bytes()
    for name in ("base_model.model.lm_head.weight", "base_model.model.model.layers.0.self_attn.q_proj.bias",
                 "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
                 "base_model.model.model.embed_tokens.lora_embedding_A"):
        weights.write_bytes(with_tensor(sound, name, [0.5] * 8))
        refused([name, "1 unknown"], code=4, lora=f'init = "{folder / "rank-4"}"')
    weights.write_bytes(sound[:-4] + struct.pack("<f", float("nan")))
    refused(["adapter_model.safetensors", "NaN"], code=4, lora=f'init = "{folder / "rank-4"}"')


if __name__ == "__main__":
    play(__doc__, (every_method_trains_adapters_alone, sites_and_virtual_time_find_the_same, a_killed_run_goes_on,
                   exported_adapters_go_on_and_merge, a_base_is_read_in_parts, what_does_not_fit_is_refused))
