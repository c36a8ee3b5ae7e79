#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run whose inner loops are on a device is the CPU's run but for rounding.

  python3 tests/end_to_end/train_on_device.py --isthmus build/src/app/isthmus \\
      --device-isthmus build/tests/cuda/isthmus_emulated

`--device-isthmus` computes `--device cuda`: on an emulated device, or on a real one where it is the
same program as `--isthmus`. Losses, evaluations and the exported model of both are compared; a run
that is resumed on the device equals the uninterrupted one bit for bit; one goes on from the other's
checkpoint; outer state on the device gives the bits of that on the host; two data-parallel ranks on
two devices give the losses of two on the CPU; methods that write Adam's moments do so there; the run says where it computed; what no device
computes is refused by name and falls back to the CPU with one line under "auto"; attention by cuDNN,
where it is there, gives the losses of the own kernels, else it is refused by name.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from scenario import Failure, require, small_run

STEPS, HALF = 6, 3
CONFIGURATION, ENVIRONMENT = 3, 4  # exit codes
SKIPPED = 77  # for ctest
# fp32 sums in another order: each step's losses differ by some 1e-6, and AdamW turns the differing
# signs of gradients near zero into differing steps of up to the learning rate.
LOSS_TOLERANCE = 2e-3
CUDNN_TOLERANCE = 1e-2  # results of attention in bf16 rounded at other places, by up to 2^-8 of themselves
CONFIG = small_run("device", workers="{workers}", seed=5, arch="{arch}", source="text:corpus.txt", steps="{steps}",
                   global_batch="{batch} tok", context=16, lr="1e-3") + """
[outer]
{outer}
[eval]
every = 3
tokens = "32"
[ckpt]
every = "3 steps"
keep = 9
"""
STREAMING = 'method = "streaming-diloco"\nH = 2\nfragments = 2\noverlap = 1\nalpha = 0.5'


class Bench:
    def __init__(self, isthmus, on_device, folder):
        self.isthmus, self.on_device, self.folder = isthmus, on_device, folder
        text = " ".join(f"the {n} of {n * n % 97} sites" for n in range(600))
        (folder / "corpus.txt").write_text(text)

    def write(self, name, arch="gpt2", workers=2, outer=STREAMING, extra="", batch=32):
        path = self.folder / f"{name}.toml"
        path.write_text(CONFIG.format(arch=arch, workers=workers, outer=outer, steps=STEPS, batch=batch) + extra)
        return path

    def run(self, program, toml, out, *flags, code=0):
        command = [program, "train", str(toml), "--progress", "none", "--out",
                   str(self.folder / out), *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        require(done.returncode == code, f"{out}: exit {done.returncode}, not {code}: {done.stderr}")
        return done.stderr

    def lines(self, out, kind):
        rows = map(json.loads, (self.folder / out / "metrics.jsonl").read_text().splitlines())
        return [row for row in rows if row["k"] == kind]

    def losses(self, out, kind="train"):
        return [(row["step"], row["loss"]) for row in self.lines(out, kind)]

    def device(self, out):
        return json.loads((self.folder / out / "manifest.json").read_text())["device"]

    def model(self, out):
        return (self.folder / out / "ckpt/last/model.safetensors").read_bytes()


def floats_of(safetensors):
    header = struct.unpack("<Q", safetensors[:8])[0]
    return [each[0] for each in struct.iter_unpack("<f", safetensors[8 + header:])]


def close(bench, one, other):
    for kind in ("train", "eval"):
        a, b = bench.losses(one, kind), bench.losses(other, kind)
        require([step for step, _ in a] == [step for step, _ in b], f"{other}: other {kind} steps")
        for (step, x), (_, y) in zip(a, b):
            require(abs(x - y) <= LOSS_TOLERANCE * abs(x),
                    f"{other}: {kind} loss of step {step} is {y}, on the CPU {x}")
    a, b = floats_of(bench.model(one)), floats_of(bench.model(other))
    require(len(a) == len(b), f"{other}: another model")
    moved = max(abs(x - y) for x, y in zip(a, b))
    # A share of what AdamW could have moved a weight in all steps.
    require(moved <= 0.2 * STEPS * 1e-3, f"{other}: weights differ by up to {moved}")
    require(a != b, f"{other}: the same bits as on the CPU: was it on the device?")


def equals_the_cpu_but_for_rounding(bench, arch, outer, name=None, flags=()):
    name = name or arch
    toml = bench.write(name, arch=arch, outer=outer)
    cpu, device = f"{name}-cpu", f"{name}-device"
    stderr = bench.run(bench.isthmus, toml, cpu, "--device", "cpu", *flags)
    require("computes on cpu" in stderr, stderr)
    stderr = bench.run(bench.on_device, toml, device, "--device", "cuda", *flags)
    require("computes on cuda:0" in stderr, stderr)
    require(bench.device(cpu) == "cpu", bench.device(cpu))
    require(bench.device(device).startswith("cuda:0 "), bench.device(device))
    require(", products by cuBLASLt " in bench.device(device), bench.device(device))
    require(bench.lines(device, "meta")[0]["device"] == bench.device(device), "metrics: device")
    close(bench, cpu, device)


def resumed_equals_uninterrupted(bench):
    toml = bench.folder / "gpt2.toml"
    from_step = str(bench.folder / f"gpt2-device/ckpt/step-{HALF:07d}")
    bench.run(bench.on_device, toml, "resumed", "--device", "cuda", "--resume", from_step)
    require(bench.losses("resumed") == bench.losses("gpt2-device")[HALF:], "resumed: other losses")
    require(bench.model("resumed") == bench.model("gpt2-device"), "resumed: another model")
    # The CPU goes on from the device's state, and the other way round.
    bench.run(bench.isthmus, toml, "to-cpu", "--device", "cpu", "--resume", from_step)
    from_step = str(bench.folder / f"gpt2-cpu/ckpt/step-{HALF:07d}")
    bench.run(bench.on_device, toml, "to-device", "--device", "cuda", "--resume", from_step)
    for out in ("to-cpu", "to-device"):
        for (_, x), (_, y) in zip(bench.losses("gpt2-cpu")[HALF:], bench.losses(out)):
            require(abs(x - y) <= LOSS_TOLERANCE * abs(x), f"{out}: {y}, not {x}")


def muon_is_there_too(bench):
    flags = ("--set", 'inner.optimizer="muon"')
    equals_the_cpu_but_for_rounding(bench, "llama", STREAMING, "muon", flags)
    toml = bench.folder / "muon.toml"
    for source, program, out, device in (("muon-device", bench.on_device, "muon-resumed", "cuda"),
                                         ("muon-device", bench.isthmus, "muon-to-cpu", "cpu"),
                                         ("muon-cpu", bench.on_device, "muon-to-device", "auto")):
        from_step = str(bench.folder / source / f"ckpt/step-{HALF:07d}")
        stderr = bench.run(program, toml, out, "--device", device, *flags, "--resume", from_step)
        require(f"computes on {'cpu' if device == 'cpu' else 'cuda:0'}" in stderr, stderr)
        for (_, x), (_, y) in zip(bench.losses("muon-cpu")[HALF:], bench.losses(out)):
            require(abs(x - y) <= LOSS_TOLERANCE * abs(x), f"{out}: {y}, not {x}")
    require(bench.model("muon-resumed") == bench.model("muon-device"), "muon-resumed: another model")


def outer_state_is_the_same_on_the_device(bench):
    """Runs, their rounds and their checkpoints."""
    toml = bench.folder / "gpt2.toml"
    placed = ("--device", "cuda", "--set", 'outer.placement="device"')
    bench.run(bench.on_device, toml, "placed", *placed)

    def equal(out, since):
        for kind in ("train", "eval"):
            host = [row for row in bench.losses("gpt2-device", kind) if row[0] > since]
            require(bench.losses(out, kind) == host, f"{out}: other {kind} losses")
        rounds = [[{key: row[key] for key in row if key not in ("t", "wait_s", "bytes_wire")}
                   for row in bench.lines(each, "round") if row["step_send"] > since]
                  for each in (out, "gpt2-device")]
        require(rounds[0] == rounds[1] and rounds[0], f"{out}: other rounds")
        require(bench.model(out) == bench.model("gpt2-device"), f"{out}: another model")

    equal("placed", 0)
    for source, out, flags in (("gpt2-device", "onto-device", placed),
                               ("placed", "onto-host", ("--device", "cuda"))):
        from_step = str(bench.folder / source / f"ckpt/step-{HALF:07d}")
        bench.run(bench.on_device, toml, out, *flags, "--resume", from_step)
        equal(out, HALF)


def ranks_have_a_device_each(bench):
    """Two ranks of one worker; where there is but one device they share it."""
    toml = bench.write("mesh", workers=1, extra="[parallel]\ndp = 2\n")
    several = "cuda:1" in findings_of(bench.on_device)
    device = "cuda" if several else "cuda:0"
    bench.run(bench.isthmus, toml, "mesh-cpu", "--device", "cpu")
    stderr = bench.run(bench.on_device, toml, "mesh-device", "--device", device)
    line = next(line for line in stderr.splitlines() if "computes on cuda:0 " in line)
    require("sums over ranks" in line and (not several or "cuda:1 " in line), line)
    require("cuda:1 " in bench.device("mesh-device") or not several, bench.device("mesh-device"))
    close(bench, "mesh-cpu", "mesh-device")
    from_step = str(bench.folder / f"mesh-device/ckpt/step-{HALF:07d}")
    bench.run(bench.on_device, toml, "mesh-resumed", "--device", device, "--resume", from_step)
    require(bench.losses("mesh-resumed") == bench.losses("mesh-device")[HALF:], "mesh-resumed: other losses")
    require(bench.model("mesh-resumed") == bench.model("mesh-device"), "mesh-resumed: another model")
    placed = ("--set", 'outer.placement="device"')
    bench.run(bench.on_device, toml, "mesh-placed", "--device", device, *placed)
    require(bench.model("mesh-placed") == bench.model("mesh-device"), "mesh-placed: another model")
    ddp = bench.write("mesh-ddp", workers=2, outer='method = "ddp"', extra="[parallel]\ndp = 2\n", batch=64)
    bench.run(bench.isthmus, ddp, "ddp-cpu", "--device", "cpu")
    bench.run(bench.on_device, ddp, "ddp-device", "--device", device)
    close(bench, "ddp-cpu", "ddp-device")


def ranks_have_shares_of_the_layers(bench):
    """Tensor- and pipeline-parallel ranks, two at a time."""
    device = "cuda" if "cuda:1" in findings_of(bench.on_device) else "cuda:0"
    for arch, shares in (("gpt2", "pp"), ("llama", "tp")):
        out = f"mesh-{shares}"
        toml = bench.write(out, arch=arch, workers=1, extra=f"[parallel]\n{shares} = 2\nmicro_batches = 2\n")
        bench.run(bench.isthmus, toml, f"{out}-cpu", "--device", "cpu")
        stderr = bench.run(bench.on_device, toml, f"{out}-device", "--device", device)
        line = next(line for line in stderr.splitlines() if "computes on cuda:0 " in line)
        require("sums over ranks" in line, line)
        close(bench, f"{out}-cpu", f"{out}-device")
        from_step = str(bench.folder / f"{out}-device/ckpt/step-{HALF:07d}")
        bench.run(bench.on_device, toml, f"{out}-resumed", "--device", device, "--resume", from_step)
        require(bench.model(f"{out}-resumed") == bench.model(f"{out}-device"), f"{out}-resumed: another model")


def adams_moments_are_written(bench):
    """Stopped and resumed before the freeze of one method, after that of the other. Signs are left out where the CPU is
    compared: one that differs for rounding is a step of its own."""
    for method, keys in (("1bit-adam", f"freeze = {HALF + 1}"),
                         ("01-adam", "var_freeze_step = 2\nvar_update_scaler = 2\nlocal_step_scaler = 2\nlocal_step_clipper = 2")):
        outer = f'method = "{method}"\n{keys}\n'
        whole = bench.write(f"{method}-whole", outer=outer + 'codec = "fp32"\nvariance_floor = 0.1\n')
        cpu, device, resumed = f"{method}-cpu", f"{method}-device", f"{method}-resumed"
        bench.run(bench.isthmus, whole, cpu, "--device", "cpu")
        bench.run(bench.on_device, whole, f"{method}-whole", "--device", "cuda")
        close(bench, cpu, f"{method}-whole")
        toml = bench.write(method, outer=outer)
        bench.run(bench.on_device, toml, device, "--device", "cuda")
        from_step = str(bench.folder / device / f"ckpt/step-{HALF:07d}")
        bench.run(bench.on_device, toml, resumed, "--device", "cuda", "--resume", from_step)
        require(bench.losses(resumed) == bench.losses(device)[HALF:], f"{resumed}: other losses")
        require(bench.model(resumed) == bench.model(device), f"{resumed}: another model")


def ranks_without_a_device(bench):
    toml = bench.folder / "mesh.toml"
    many = ("--set", "parallel.dp=8", "--set", 'train.global_batch="128 tok"')
    if "cuda:7" not in findings_of(bench.on_device):
        stderr = bench.run(bench.on_device, toml, "many", "--device", "cuda", *many, code=CONFIGURATION)
        require("a mesh of 1 x 1 x 8 ranks" in stderr and "each rank needs one device" in stderr, stderr)
        stderr = bench.run(bench.on_device, toml, "many", "--device", "auto", *many)
        lines = [line for line in stderr.splitlines() if "computes on" in line]
        require(len(lines) == 1 and "on cpu: " in lines[0] and "1 x 1 x 8" in lines[0], stderr)
    named = ("--set", 'parallel.communicators="nccl"')
    stderr = bench.run(bench.on_device, toml, "shared", "--device", "cuda:0", *named, code=CONFIGURATION)
    require("several ranks of this process are on cuda:0" in stderr, stderr)
    stderr = bench.run(bench.isthmus, toml, "named", "--device", "cpu", *named, code=CONFIGURATION)
    require("parallel.communicators" in stderr and "on the CPU" in stderr, stderr)
    zero = ("--set", "parallel.zero=1")
    stderr = bench.run(bench.on_device, toml, "zero", "--device", "cuda:0", *zero, code=CONFIGURATION)
    require("parallel.zero = 1" in stderr, stderr)


def the_device_is_found(bench):
    toml = bench.folder / "gpt2.toml"
    from_step = str(bench.folder / f"gpt2-device/ckpt/step-{HALF:07d}")
    stderr = bench.run(bench.on_device, toml, "auto", "--device", "auto", "--resume", from_step)
    require("computes on cuda:0" in stderr, stderr)
    require(bench.model("auto") == bench.model("gpt2-device"), "auto: another model")


def attention_by_cudnn(bench):
    toml, own = bench.folder / "gpt2.toml", ("--device", "cuda", "--set", 'train.precision="bf16"')
    cudnn = (*own, "--set", 'train.attention="cudnn"')
    if not findings_of(bench.on_device)["cuDNN"].endswith(" found"):
        stderr = bench.run(bench.on_device, toml, "cudnn", *cudnn, code=ENVIRONMENT)
        require("train.attention" in stderr and '"own"' in stderr, stderr)
        return
    stderr = bench.run(bench.on_device, toml, "auto-attention", *own)
    require("attention by cuDNN" in stderr, stderr)
    bench.run(bench.on_device, toml, "own", *own, "--set", 'train.attention="own"')
    bench.run(bench.on_device, toml, "cudnn", *cudnn)
    require(bench.model("auto-attention") == bench.model("cudnn"), "attention \"auto\" is not cuDNN's")
    a, b = bench.losses("own"), bench.losses("cudnn")
    require(len(a) == len(b) == STEPS, f"cudnn: {len(a)} and {len(b)} losses")
    for (step, x), (_, y) in zip(a, b):
        require(abs(x - y) <= CUDNN_TOLERANCE * x, f"cudnn: loss of step {step} is {y}, by the own kernels {x}")
    require(bench.model("own") != bench.model("cudnn"), "cudnn: the same bits as the own kernels': was it used?")
    command = [bench.on_device, "bench", "compute", "--device", "cuda", "--config", "tiny", "--batch", "1", "--seconds", "0.01",
               "--precision", "bf16", "--attention", "cudnn"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    require(done.returncode == 0 and json.loads(done.stdout)["attention"] == "cudnn", done.stdout + done.stderr)


def refusals(bench):
    plain = bench.folder / "gpt2.toml"
    kept = 'train.recompute="selective"'
    stderr = bench.run(bench.on_device, plain, "kept", "--device", "cuda", "--set", kept, code=CONFIGURATION)
    require("train.recompute = \"selective\"" in stderr and "train.device" in stderr, stderr)
    mesh = ("--set", "parallel.tp=2", "--set", "parallel.sequence_parallel=true")
    stderr = bench.run(bench.on_device, plain, "mesh", "--device", "cuda", *mesh, code=CONFIGURATION)
    require("parallel.sequence_parallel" in stderr and "a mesh of 2 x 1 x 1 ranks" in stderr, stderr)
    stderr = bench.run(bench.on_device, plain, "mesh", "--device", "auto", *mesh)
    lines = [line for line in stderr.splitlines() if "computes on" in line]
    require(len(lines) == 1 and "on cpu: " in lines[0] and "a mesh of" in lines[0], stderr)
    require(bench.device("mesh") == "cpu", bench.device("mesh"))
    placed = ("--set", 'outer.placement="device"')
    stderr = bench.run(bench.on_device, plain, "placed-cpu", "--device", "cpu", *placed, code=CONFIGURATION)
    require("outer.placement" in stderr and "train.device" in stderr, stderr)
    stderr = bench.run(bench.on_device, plain, "placed-mesh", "--device", "auto", *mesh, *placed, code=CONFIGURATION)
    require("outer.placement" in stderr and "a mesh of" in stderr, stderr)
    stderr = bench.run(bench.on_device, bench.folder / "llama.toml", "placed-ddp", "--device", "cuda", *placed,
                       code=CONFIGURATION)
    require("outer.placement" in stderr and '"ddp"' in stderr, stderr)
    stderr = bench.run(bench.on_device, plain, "one", "--device", "cuda:99", code=CONFIGURATION)
    require("cuda:99" in stderr, stderr)
    stderr = bench.run(bench.on_device, plain, "gpu", "--set", 'train.device="gpu"', code=CONFIGURATION)
    require("no such device" in stderr, stderr)


def the_device_is_measured_and_told_of(bench):
    command = [bench.on_device, "bench", "compute", "--device", "cuda", "--config", "tiny",
               "--batch", "1", "--seconds", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    require(done.returncode == 0, done.stderr)
    line = json.loads(done.stdout)
    require(line["bench"] == "compute" and line["device"] == "cuda:0" and line["dtype"] == "fp32",
            done.stdout)
    for key in ("ms_med", "tok_s_med", "gflops_med", "product_gflops", "device_mib", "loss"):
        require(line[key] > 0, f"{key}: {done.stdout}")
    rate = line["B"] * line["T"] / line["ms_med"] * 1e3
    require(abs(line["tok_s_med"] - rate) < 1e-2 * rate, done.stdout)
    findings = findings_of(bench.on_device)
    require("compute capability" in findings["cuda:0"], findings)
    several = "cuda:1" in findings
    require(findings["runs compute"].startswith("on these devices" if several else "on cuda:0"), findings)


def findings_of(program):
    done = subprocess.run([program, "doctor", "--json"], capture_output=True, text=True)
    return {each["name"]: each["value"] for each in json.loads(done.stdout)["findings"]}


def without_a_device(bench):
    """Where this machine or this build has none."""
    findings = findings_of(bench.isthmus)
    if findings["runs compute"] != "on the CPU":
        return
    bench.run(bench.isthmus, bench.folder / "gpt2.toml", "none", "--device", "cuda", code=CONFIGURATION)
    require(not (bench.folder / "none").exists(), "a refused run has written")
    stderr = bench.run(bench.isthmus, bench.folder / "gpt2.toml", "none", "--device", "auto", "--set",
                       'outer.placement="device"', code=CONFIGURATION)
    require("outer.placement" in stderr and findings["CUDA"] in stderr, stderr)
    command = [bench.isthmus, "bench", "compute", "--device", "cuda", "--config", "tiny"]
    done = subprocess.run(command, capture_output=True, text=True)
    require(done.returncode == CONFIGURATION and "--device cuda" in done.stderr and findings["CUDA"] in
            done.stderr, done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--device-isthmus", required=True)
    arguments = parser.parse_args()
    if arguments.device_isthmus == arguments.isthmus and "cuda:0" not in findings_of(arguments.isthmus):
        print("skipped: needs a CUDA device")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.isthmus, arguments.device_isthmus, pathlib.Path(folder))
        try:
            equals_the_cpu_but_for_rounding(bench, "gpt2", STREAMING)
            resumed_equals_uninterrupted(bench)
            muon_is_there_too(bench)
            outer_state_is_the_same_on_the_device(bench)
            the_device_is_found(bench)
            ranks_have_a_device_each(bench)
            ranks_have_shares_of_the_layers(bench)
            adams_moments_are_written(bench)
            ranks_without_a_device(bench)
            equals_the_cpu_but_for_rounding(bench, "llama", 'method = "ddp"')
            attention_by_cudnn(bench)
            refusals(bench)
            the_device_is_measured_and_told_of(bench)
            without_a_device(bench)
        except Failure as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
