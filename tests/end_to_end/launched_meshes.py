#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`launch --restart --ranks processes`: a rank that dies or hangs costs the steps since the last checkpoint and nothing else.

  python3 tests/end_to_end/launched_meshes.py --isthmus build/src/app/isthmus

A rank of one site, and of the first of two, is killed in the middle; another is stopped, which its mesh finds and names. `launch` starts
the site again, of two both, and every line and every checkpointed value is that of the same launch undisturbed. Skipped by name (exit 77) without mpirun or in a build without MPI.
"""
import os
import pathlib
import signal

from mesh_bench import children_of, play
from scenario import require

LANES = 'H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\ncodec = "int4:ef"\nplacement = "ranks"'
STEPS = 72
EACH_WINDOW = '[ckpt]\nevery = "6 steps"\n'


def launch(bench, toml, out, *flags):
    return [bench.isthmus, "launch", str(toml), "--out", str(bench.folder / out), "--ranks", "processes", *flags]


def ranks_of(launcher, site):
    """Processes of the site's job, in the order of ranks; none while it is not there."""
    for job in children_of(launcher.pid):
        words = pathlib.Path(f"/proc/{job}/cmdline").read_bytes().split(b"\0")
        if site.encode() in words:
            return children_of(job)
    return []


def saved(bench, out):
    """Of the last checkpoint: weights, moments, anchors and what else the method keeps."""
    return {path.name: path.read_bytes() for path in (bench.folder / out / "ckpt/last").glob("*.safetensors")}


def harmed(bench, toml, out, site, harm, steps):
    """Launched, and once so many steps are done its second rank is harmed. RETURNS: what was said."""
    process = bench.start(launch(bench, toml, out, "--restart", "2"))
    bench.await_steps(process, f"{out}/{site}", steps)
    os.kill(ranks_of(process, site)[1], harm)
    reached = len(bench.rows(f"{out}/{site}", "train"))
    said = bench.said(process, 300)
    require(process.returncode == 0, f"{out}: exit {process.returncode}: {said}")
    require(reached < STEPS, f"{out}: nothing was in its middle: {reached} of {STEPS} steps were done")
    return said


def equal_to_undisturbed(bench, toml, out, sites):
    bench.run(launch(bench, toml, f"{out}-whole"))
    for site in sites:
        bench.same(f"{out}/{site}", f"{out}-whole/{site}")
        steps = [row["step"] for row in bench.rows(f"{out}/{site}", "train")]
        require(steps == list(range(1, STEPS + 1)), f"{out}/{site}: other steps: {steps}")
        after = bench.rows(f"{out}/{site}", "meta")[-1]["resumed_after"]
        require(after >= 12, f"{out}/{site}: it went on after step {after}, and had checkpoints of later ones")
        found = saved(bench, f"{out}/{site}")
        require(len(found) > 1 and found == saved(bench, f"{out}-whole/{site}"),
                f"{out}/{site}: another checkpoint, of {sorted(found)}")


def a_rank_that_is_killed_comes_back_with_its_site(bench):
    for sites in ("a",), ("a", "b"):
        out = f"killed-{len(sites)}"
        toml = bench.write(out, "".join(f'[[site]]\nname = "{site}"\n{size} = 2\n' for site, size in zip(sites, ("dp", "tp"))) + EACH_WINDOW,
                           method="streaming-diloco", keys=LANES, steps=STEPS, batch=128 * len(sites))
        said = harmed(bench, toml, out, "a", signal.SIGKILL, 20)
        # Site b ends too: a site that is a mesh of processes does not come back by itself.
        require("a | ended by signal 9; starting it again in 1 s (restart 1 of 2)" in said, said)
        require(all(said.count(f"{site} | ended by") == 1 for site in sites), said)
        require(said.count("exit code 5; starting it again") == len(sites) - 1, said)
        equal_to_undisturbed(bench, toml, out, sites)


def a_rank_that_hangs_is_named_and_comes_back_with_its_site(bench):
    toml = bench.write("hung", '[[site]]\nname = "a"\ndp = 2\n[parallel]\npatience = "3s"\n' + EACH_WINDOW, method="streaming-diloco",
                       keys=LANES, steps=STEPS, batch=128)
    said = harmed(bench, toml, "hung", "a", signal.SIGSTOP, 20)
    require("roll call" in said and "for rank 1 (tp 0, pp 0, dp 1)" in said, said)
    require("ended by exit code 5; starting it again in 1 s (restart 1 of 2)" in said, said)
    require(said.count("starting it again") == 1, said)
    equal_to_undisturbed(bench, toml, "hung", ("a",))


play((a_rank_that_is_killed_comes_back_with_its_site, a_rank_that_hangs_is_named_and_comes_back_with_its_site))
