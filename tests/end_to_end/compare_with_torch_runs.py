#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/compute/compare_with_torch.py understands both programs' lines, on the CPU and on a device.

  python3 tests/end_to_end/compare_with_torch_runs.py --isthmus build/src/app/isthmus \\
      --device-isthmus build/tests/cuda/program/isthmus_emulated

PyTorch is a stub that computes nothing, so that the script's own words are what is tested; the device
is an emulated one.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

STUB = '''
"""Answers whatever a training step asks of PyTorch."""
import sys

class Anything:
    def __init__(self, *_, **__): pass
    def __call__(self, *_, **__): return Anything()
    def __getattr__(self, name): return Anything()
    def __getitem__(self, _): return Anything()
    def __setitem__(self, _, __): pass
    def __enter__(self): return self
    def __exit__(self, *_): return False
    def __neg__(self): return self
    def __truediv__(self, _): return self
    def __rpow__(self, _): return self
    def __iter__(self): return iter(())

class Module:
    def __init__(self): Module.weights = b"x" * (8 << 20)  # memory that can be seen
    def __call__(self, *_): return Anything()
    def parameters(self): return ()

class Package(Anything):
    __path__ = []
    __version__ = "stub"
    Module = Module
    bfloat16 = "bfloat16"
    def get_device_name(self): return "stub"
    def max_memory_allocated(self): return 3 << 20
    def __getattr__(self, name): return Package() if name in ("nn", "cuda") else Anything()

here = Package()
sys.modules["torch"] = here
sys.modules["torch.nn"] = here.nn
sys.modules["torch.nn.functional"] = Anything()
'''


def require(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--device-isthmus", required=True)
    arguments = parser.parse_args()
    script = pathlib.Path(__file__).parents[2] / "bench/compute/compare_with_torch.py"
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "torch.py").write_text(STUB)
        environment = dict(os.environ, PYTHONPATH=folder)

        def compare(program, *flags):
            command = [sys.executable, str(script), "--isthmus", program, "--config", "nano", "--seconds", "0.01",
                       "--batch", "1", *flags]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
            require(done.returncode == 0, f"{' '.join(command)}: {done.stderr}")
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            require([line["bench"] for line in lines[:-1]] == ["pair"] * (len(lines) - 1), done.stdout)
            require(lines[-1]["bench"] == "ratio" and lines[-1]["pairs"] == len(lines) - 1, done.stdout)
            return lines

        for device, program, memory in (("cpu", arguments.isthmus, ("rss_mib", "memory")),
                                        ("cuda", arguments.device_isthmus, ("device_mib",))):
            *pairs, ratio = compare(program, "--device", device, "--pairs", "2", "--precision", "bf16")
            require(len(pairs) == 2, f"{len(pairs)} pairs")
            for key in ("tok_s_best", "tok_s_med", *memory):
                low, high = sorted(pair["isthmus"][key] / max(pair["torch"][key], 1e-9) for pair in pairs)
                require(low * 0.99 - 1e-3 <= ratio[key] <= high * 1.01 + 1e-3, f"{device}: {key} is {ratio[key]}")
        # Rounds of both attentions and PyTorch, which come in turns: a pair and a ratio for each attention.
        command = [sys.executable, str(script), "--isthmus", arguments.device_isthmus, "--config", "nano", "--seconds", "0.01",
                   "--batch", "1", "--device", "cuda", "--precision", "bf16", "--pairs", "2", "--attention", "own", "--attention", "cudnn"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        require(done.returncode == 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        require([line["isthmus"]["attention"] for line in lines[:4]] == ["own", "cudnn"] * 2, done.stdout)
        require([(line["bench"], line["attention"], line["pairs"]) for line in lines[4:]] ==
                [("ratio", "own", 2), ("ratio", "cudnn", 2)], done.stdout)
        require(len(compare(arguments.isthmus, "--pairs", "9", "--limit", "0.001")) == 2, "a limit of no time")
    print("ok")


if __name__ == "__main__":
    main()
