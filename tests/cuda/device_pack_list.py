#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `scripts/device-pack` would build are targets, and the programs of all tests of the label gpu are among them.

  python3 tests/cuda/device_pack_list.py --build build/release
"""
import argparse
import json
import pathlib
import subprocess
import sys


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    script = pathlib.Path(__file__).parents[2] / "scripts/device-pack"
    listed = output_of("bash", str(script), "--list", "--build", build).split()
    targets = {line.split(":")[0] for line in output_of("ninja", "-C", build, "-t", "targets", "all").splitlines()}
    unknown = [name for name in listed if name not in targets]
    entries = json.loads(output_of("ctest", "--test-dir", build, "-L", "^gpu$", "--show-only=json-v1"))["tests"]
    named = {entry["name"] for entry in entries} - {"end_to_end_train_on_real_device"}
    program_of = {}
    for line in (pathlib.Path(build) / "tests/entries.txt").read_text().splitlines():
        name, _, program, _ = line.split()
        program_of[name] = program
    programs = {program_of.get(name, f"no program of {name}") for name in named}
    missing = programs - set(listed)
    if unknown or missing or "isthmus" not in listed or "bench_cuda_ops" not in listed or not programs:
        sys.exit(f"FAILED: no targets: {unknown}; left out: {sorted(missing)}; listed: {listed}")
    print("ok")


if __name__ == "__main__":
    main()
