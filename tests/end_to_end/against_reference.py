#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`compare --against ref:nano`: this build trains as the reference did; one that is made to train
otherwise is told so; what cannot be is refused by name.

  python3 tests/end_to_end/against_reference.py --isthmus build/bin/isthmus
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", required=True)
    program = parser.parse_args().isthmus

    def run(code, *words):
        done = subprocess.run([program, "compare", "--progress", "none", *words],
                              capture_output=True, text=True, check=False)
        if done.returncode != code:
            sys.exit(f"{words}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
        return done

    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        against = ["--against", "ref:nano"]
        done = run(0, *against, "--seeds", "1", "--json", "--out", str(folder / "whole"))
        result = json.loads(done.stdout)
        assert result["normal"] and all(v["normal"] for v in result["variants"]), done.stdout
        names = {v["name"] for v in result["variants"]}
        assert {"ddp", "llama", "muon", "streaming-diloco", "onebit-adam"} <= names, names

        few = [*against, "--seeds", "2", "--only", "ddp,diloco", "--out"]
        done = run(0, *few, str(folder / "few"))
        assert "trains as the reference did" in done.stdout, done.stdout
        # A rate of a quarter, and decay that pulls as hard as the gradient: both are other trainings.
        for name, override in (("rate", "inner.lr=2e-3"), ("decay", "inner.weight_decay=20.0")):
            done = run(1, *few, str(folder / name), "--set", override)
            assert "does not train as the reference did: ddp" in done.stdout, done.stdout
        done = run(1, *few, str(folder / "outer"), "--set", "variant.diloco.outer.H=50")
        assert "reference did: diloco" in done.stdout, done.stdout

    assert "ref:nano" in run(2, "--against", "ref:nan").stderr
    assert "--against" in run(2).stderr
    run(2, "some.toml", "--against", "ref:nano")
    print("normal, three ways of not being so, and what is refused")


main()
