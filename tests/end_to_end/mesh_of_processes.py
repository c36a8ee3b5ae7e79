#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A site whose mesh is the processes of an MPI job finds what a site of threads finds, bit for bit.

  python3 tests/end_to_end/mesh_of_processes.py --isthmus build/src/app/isthmus

Alone, and as one of two sites over ZeroMQ whose meshes are unlike. Also: a job of another size is
refused by name; a signal ends the job with a checkpoint and it goes on; a rank that is killed ends
the job, one that is stopped too, by its name, and the run goes on from its checkpoint. Skipped by name (exit 77) without mpirun or in a build without MPI.
"""
import json
import os
import pathlib
import signal
import time

from mesh_bench import children_of, mesh, play, sites_toml
from scenario import Failure, free_ports, require, together


def processes_find_what_threads_find(bench):
    for name, arch, sizes in (("tp2", "gpt2", {"tp": 2}), ("dp2", "llama", {"dp": 2}),
                              ("pp2dp2", "gpt2", {"pp": 2, "dp": 2}), ("tp2pp2", "llama", {"tp": 2, "pp": 2}),
                              ("zero1", "gpt2", {"pp": 2, "dp": 2, "zero": 1}),
                              ("zero2", "llama", {"dp": 2, "zero": 2}),
                              ("zero3", "gpt2", {"tp": 2, "dp": 2, "zero": 3}),
                              ("zero3-pp2", "gpt2", {"pp": 2, "dp": 2, "micro_batches": 2, "zero": 3}),
                              ("split", "gpt2", {"tp": 2, "pp": 2, "sequence_parallel": "true"}),
                              ("zbh1", "llama", {"tp": 2, "pp": 2, "micro_batches": 4, "schedule": '"zb-h1"'}),
                              ("copies", "llama", {"tp": 4, "sequence_parallel": "true"}),
                              ("buckets", "gpt2", {"dp": 2}), ("buckets-zero1", "llama", {"dp": 2, "zero": 1})):
        large = name.startswith("buckets")  # than a bucket of gradients: 3.1 M values and more
        toml = bench.write(name, mesh(**sizes), arch=arch, steps=4 if large else 8)
        if large:
            toml.write_text(toml.read_text().replace("d_model = 32\n", "d_model = 256\n"))
        if name == "copies":  # of the key heads
            toml.write_text(toml.read_text().replace("heads = 4\n", "heads = 4\nkv_heads = 2\n"))
        bench.run(bench.train(toml, f"{name}-threads"))
        ranks = 1
        for key in ("tp", "pp", "dp"):
            ranks *= sizes.get(key, 1)
        bench.run(bench.train(toml, f"{name}-processes", ranks=ranks))
        bench.same(f"{name}-processes", f"{name}-threads")


def table_of(bench, name, ranks, backends=("mpi", "shared-memory")):
    """A table whose fastest back end is another one at each power of two. RETURNS: the key that names it."""
    rows = [{"ranks": group, "operation": operation, "backend": backend, "bytes": 2**power,
             "us": 1 + (power + place + group // 4) % 2}
            for group in sorted({2, ranks})
            for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "message", "barrier")
            for power in range(25) for place, backend in enumerate(backends)]
    path = bench.folder / f"{name}.json"
    path.write_text(json.dumps({"isthmus": "collectives", "version": 2, "ranks": ranks, "measured": rows}))
    return f'communicators = "{path.name}"\n'


def left_in_shared_memory():
    """Names (isthmus-PID-N) whose makers are gone: those of other jobs that run beside this one are not left behind."""
    return {each.name for each in pathlib.Path("/dev/shm").glob("isthmus-*")
            if not pathlib.Path("/proc", each.name.split("-")[1]).exists()}


def require_nothing_new_in_shared_memory(before):
    left = left_in_shared_memory() - before
    require(not left, f"left in /dev/shm: {left}")


def mixed_back_ends_change_no_bit(bench):
    before = left_in_shared_memory()
    for name, arch, sizes in (("mixed-zero1", "gpt2", {"tp": 2, "dp": 2, "zero": 1}),
                              ("mixed-pp2dp2", "llama", {"pp": 2, "dp": 2, "micro_batches": 2}),
                              ("mixed-zero3", "gpt2", {"pp": 2, "dp": 2, "zero": 3, "micro_batches": 2})):
        bench.run(bench.train(bench.write(f"{name}-plain", mesh(**sizes), arch=arch), f"{name}-plain", ranks=4))
        toml = bench.write(name, mesh(**sizes) + table_of(bench, name, 4), arch=arch)
        said = bench.run(bench.train(toml, name, ranks=4))
        require(f"go over mpi, shared-memory, by {name}.json" in said, said)
        bench.same(name, f"{name}-plain")
    require_nothing_new_in_shared_memory(before)
    # Threads do without, a dry run reads it too.
    bench.run(bench.train(toml, "mixed-threads"))
    bench.same("mixed-threads", "mixed-zero3")
    for name, key, words in (("of-two", table_of(bench, "of-two", 2), "no times of groups of 4 ranks"),
                             ("unknown", table_of(bench, "unknown", 4, ("mpi", "threads")), 'has times of "threads"')):
        toml = bench.write(f"mixed-{name}", mesh(tp=2, dp=2) + key)
        for flags in ((), ("--dry-run",)):
            said = bench.run(bench.train(toml, "mixed-refused", *flags, ranks=1 if flags else 4), code=3)
            require("parallel.communicators" in said and words in said and "mpirun -n 4" in said, said)
    require(not (bench.folder / "mixed-refused").exists(), "something was written")


def unlike_tables_are_refused_at_once(bench):
    """By the ranks' numbers, and not by the deadline of back ends that only some of them have made."""
    first = bench.write("unlike-first", mesh(dp=2) + table_of(bench, "unlike-first", 2))
    for name, key in (("other", table_of(bench, "unlike-other", 2, ("mpi",))), ("none", "")):
        words = bench.train(bench.write(f"unlike-{name}", mesh(dp=2) + key), "unlike")
        begin = time.monotonic()
        said = bench.run(["mpirun", "-n", "1", *bench.train(first, "unlike"), ":", "-n", "1", *words], code=3)
        took = time.monotonic() - begin
        require("ranks 0 and 1 have unlike tables" in said and "parallel.communicators" in said, said)
        require(took < 60, f"{name}: refused after {took:.0f} s")
    require(not (bench.folder / "unlike").exists(), "something was written")


def fifty_steps_follow_one_rank(bench):
    """Within 1e-4 of each loss. Eight layers: two virtual stages for each of four ranks."""
    def trained(name, arch, rest, ranks, *flags):
        toml = bench.write(name, rest, arch=arch, steps=50)
        toml.write_text(toml.read_text().replace("layers = 4", "layers = 8"))
        bench.run(bench.train(toml, name, *flags, ranks=ranks))
        return [row["loss"] for row in bench.rows(name, "train")]
    interleaved = {"pp": 4, "schedule": '"interleaved-1f1b"', "virtual_stages": 2, "micro_batches": 4}
    one = {arch: trained(f"one-{arch}", arch, "", 1) for arch in ("gpt2", "llama")}
    for name, arch, sizes, ranks, flags in (
            ("1x4x1", "llama", interleaved, 4, ("--set", "train.recompute=true")),
            ("2x2x2", "gpt2", {"tp": 2, "pp": 2, "dp": 2, "sequence_parallel": "true", "zero": 1}, 8, ()),
            ("4x1x2", "gpt2", {"tp": 4, "dp": 2, "zero": 2}, 8, ()),
            ("2x2x2-zero3", "llama", {"tp": 2, "pp": 2, "dp": 2, "zero": 3}, 8, ()),
            ("2x1x2-offloaded", "llama", {"tp": 2, "dp": 2, "zero": 1}, 4, ("--set", "train.offload=files"))):
        found = trained(name, arch, mesh(**sizes), ranks, *flags)
        require(len(found) == len(one[arch]) == 50, f"{name}: {len(found)} steps")
        worst = max(abs(a - b) / b for a, b in zip(found, one[arch]))
        require(worst <= 1e-4, f"{name}: losses are up to {worst:.2e} from those of one rank")


def a_job_is_one_site_of_two(bench):
    sites = "".join(f'[[site]]\nname = "{name}"\n{size}\naddress = "127.0.0.1:{port}"\n'
                    for name, size, port in zip("ab", ("tp = 2", "pp = 2"), free_ports(2)))
    toml = bench.write("sites", sites, method="streaming-diloco",
                       keys='H = 6\nfragments = 2\noverlap = 2\nalpha = 0.5\ncodec = "int8"', steps=16, batch=256)
    bench.run(bench.train(toml, "sites-one"))
    jobs = [bench.start(bench.train(toml, "sites-a", "--site", "a", ranks=2)),
            bench.start(bench.train(toml, "sites-b", "--site", "b"))]
    for job in jobs:
        said = bench.said(job, 300)
        require(job.returncode == 0, f"exit {job.returncode}: {said}")
    for name in ("a", "b"):
        bench.same(f"sites-{name}", "sites-one")


def anchored_bytes(pid):
    """Private memory of a process, now: its peak would be that of a checkpoint's copy."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    raise Failure(f"no Pss_Anon of process {pid}")


def outer_state_in_lanes_has_the_bits_of_one_process(bench):
    """Sites of unlike meshes, each with its outer state shared out over its ranks; goes on with it whole, and the other way round."""
    meshes = (("a", "tp = 2"), ("b", "pp = 2"))
    toml = sites_toml(bench, "lanes", meshes)
    for codec in ("int8", "int4:ef"):
        keys = ("--set", f'outer.codec="{codec}"')
        name = f"lanes-{codec.replace(':', '-')}"
        bench.run(bench.train(toml, f"{name}-one", "--set", "net.transport=inproc", *keys))
        bench.run(bench.train(toml, name, "--set", 'outer.placement="ranks"', *keys, ranks=4))
        for site, _ in meshes:
            bench.same(f"{name}/{site}", f"{name}-one")
    toml = sites_toml(bench, "lanes-dp", (("a", "dp = 2"), ("b", "")), steps=200, batch=64)
    zero = ("--set", "parallel.zero=2")
    lanes = (*zero, "--set", 'outer.placement="ranks"')
    bench.run(bench.train(toml, "lanes-dp-one", "--set", "net.transport=inproc", *zero))
    for name, before, after in (("out", lanes, zero), ("in", zero, lanes)):
        process = bench.start(bench.train(toml, f"lanes-{name}", *before, ranks=3))
        bench.await_steps(process, f"lanes-{name}/a", 5)
        process.send_signal(signal.SIGUSR1)
        said = bench.said(process, 120)
        require(process.returncode == 85, f"exit {process.returncode}: {said}")
        require(len(bench.rows(f"lanes-{name}/a", "train")) < 200, "it was not stopped")
        bench.run(bench.train(toml, f"lanes-{name}", "--resume", "auto", *after, ranks=3))
        for site in ("a", "b"):
            bench.same(f"lanes-{name}/{site}", "lanes-dp-one")


def lanes_leave_the_first_process_less(bench):
    """3.2 M values, two sites of two ranks each with momentum and residual: 12 bytes a value of outer state at the first process, in lanes 6;
    the allocator keeps some of what was freed. Of one fragment as of several, and where the anchors are evaluated after each outer step:
    the first process has these whole for the evaluation alone."""
    values = 3.2e6
    streaming = sites_toml(bench, "held", (("a", "tp = 2"), ("b", "pp = 2")), steps=100000, batch=64)
    text = streaming.read_text().replace("d_model = 32\n", "d_model = 256\n")
    one = text.replace('method = "streaming-diloco"', 'method = "diloco"').replace("fragments = 2\noverlap = 2\nalpha = 0.5\n", "")
    for name, toml, every, tokens in (("held", text, 100000, "1k"), ("held-evaluated", one, 6, "64")):
        path = bench.folder / f"{name}.toml"
        path.write_text(toml.replace("every = 20\n", f"every = {every}\n").replace('tokens = "128"', f'tokens = "{tokens}"'))
        held = {place: held_by_ranks(bench, path, f"{name}-{place}", f'outer.placement="{place}"') for place in ("host", "ranks")}
        for first in (0, 2):
            saved = held["host"][first] - held["ranks"][first]
            print(f"{name}: first process of a site: {held['host'][first] / 1e6:.1f} MB, in lanes {held['ranks'][first] / 1e6:.1f} MB", flush=True)
            require(saved > 2 * values, f"{name}: only {saved / 1e6:.1f} MB less: {held}")


def held_by_ranks(bench, toml, out, place):
    """Of each rank of a job of four, the median of what it holds at thirteen steps: most are neither an outer step nor followed by an evaluation."""
    process = bench.start(bench.train(toml, out, "--set", place, "--set", 'outer.codec="int8:ef"', ranks=4))
    samples = []
    for step in range(14, 27):
        bench.await_steps(process, f"{out}/a", step)
        samples.append([anchored_bytes(pid) for pid in children_of(process.pid)])
    process.send_signal(signal.SIGUSR1)
    said = bench.said(process, 120)
    require(process.returncode == 85, f"exit {process.returncode}: {said}")
    return [sorted(of_rank)[len(of_rank) // 2] for of_rank in zip(*samples)]


def one_job_is_all_sites(bench):
    """Ranks of all sites in one MPI job: sites one after another, each with its own mesh."""
    for name, meshes, ranks in (("job", (("a", "tp = 2"), ("b", "pp = 2"), ("c", "")), 5),
                                ("zero", (("a", ""), ("b", "dp = 2")), 3)):
        toml = sites_toml(bench, name, meshes)
        flags = ("--set", "parallel.zero=2") if name == "zero" else ()
        bench.run(bench.train(toml, f"{name}-one", "--set", "net.transport=inproc", *flags))
        bench.run(bench.train(toml, f"{name}-ranks", *flags, ranks=ranks))
        bench.run(bench.train(toml, f"{name}-threads", *flags, ranks=len(meshes)))
        for site, _ in meshes:
            bench.same(f"{name}-ranks/{site}", f"{name}-one")
            bench.same(f"{name}-threads/{site}", f"{name}-one")
    said = bench.run(bench.train(toml, "sites-refused", ranks=4), code=3)
    require("mpirun -n 2" in said and "-n 3" in said, said)
    require(not (bench.folder / "sites-refused").exists(), "something was written")


def one_job_of_all_sites_stops_and_goes_on(bench):
    sites = (("a", "tp = 2"), ("b", ""))
    toml = sites_toml(bench, "stop", sites, steps=600, batch=64)  # many steps, but short ones
    bench.run(bench.train(toml, "stop-one", "--set", "net.transport=inproc"))
    process = bench.start(bench.train(toml, "stop", ranks=3))
    bench.await_steps(process, "stop/a", 5)
    process.send_signal(signal.SIGUSR1)
    said = bench.said(process, 120)
    require(process.returncode == 85, f"exit {process.returncode}: {said}")
    require(len(bench.rows("stop/a", "train")) < 600, "it was not stopped")
    bench.run(bench.train(toml, "stop", "--resume", "auto", ranks=3))
    for site in ("a", "b"):
        bench.same(f"stop/{site}", "stop-one")
    # A rank that is killed, of a mesh or alone, ends the job of all sites.
    toml = sites_toml(bench, "killed", sites, steps=100000)
    for victim in (1, 2):
        process = bench.start(bench.train(toml, f"killed-{victim}", ranks=3))
        bench.await_steps(process, f"killed-{victim}/a", 5)
        os.kill(children_of(process.pid)[victim], signal.SIGKILL)
        said = bench.said(process, 120)
        require(process.returncode != 0, f"exit {process.returncode}: {said}")


def a_job_of_another_size_is_refused(bench):
    toml = bench.write("refused", mesh(tp=2))
    said = bench.run(bench.train(toml, "refused", ranks=3), code=3)
    require("mpirun -n 2" in said and "3 processes" in said, said)
    require(not (bench.folder / "refused").exists(), "something was written")


def a_mistake_of_the_first_ends_the_others(bench):
    toml = bench.write("mistake", mesh(tp=2))
    toml.write_text(toml.read_text().replace(str(bench.text), "nowhere.txt"))
    said = bench.run(bench.train(toml, "mistake", ranks=2), code=(4, 5))  # mpirun's is that of whoever ends first
    require("nowhere.txt" in said, said)


def a_signal_ends_with_a_checkpoint_and_it_goes_on(bench):
    toml = bench.write("long", mesh(dp=2), steps=600)
    bench.run(bench.train(toml, "long-threads"))
    process = bench.start(bench.train(toml, "long", ranks=2))
    bench.await_steps(process, "long", 5)
    process.send_signal(signal.SIGUSR1)  # mpirun hands it on to every process
    said = bench.said(process, 120)
    require(process.returncode == 85, f"exit {process.returncode}: {said}")
    require(len(bench.rows("long", "train")) < 600, "it was not stopped")
    bench.run(bench.train(toml, "long", "--resume", "auto", ranks=2))
    bench.same("long", "long-threads")


def a_table_of_back_ends_is_measured_and_tried(bench):
    before = left_in_shared_memory()
    table = bench.folder / "table.json"
    words = ["mpirun", "-n", "4", bench.isthmus, "bench", "collectives", "--inner", "--largest-mib", "1", "--seconds", "0.001",
             "--json"]
    bench.run([*words, "--out", str(table)])
    rows = json.loads(table.read_text())["measured"]
    kinds = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "message", "barrier"}
    found = {(row["ranks"], row["operation"], row["backend"]) for row in rows}
    require(found == {(ranks, kind, backend) for ranks in (2, 4) for kind in kinds for backend in ("mpi", "shared-memory")},
            f"{sorted(found)}")
    tried = [json.loads(line) for line in bench.run([*words, "--mix", str(table)]).splitlines() if line.startswith("{")]
    require({row["ranks"] for row in tried} == {2, 4} and {row["operation"] for row in tried} == kinds, f"{tried}")
    require(all(row["ratio"] > 0 and row["best"] in ("mpi", "shared-memory") for row in tried), f"{tried}")
    require(sum(row["worst"] for row in tried) == 2, "not one worst of each size of group")
    said = bench.run([*words[:2], "3", *words[3:], "--mix", str(table)], code=3)
    require("no times of groups of 3 ranks" in said, said)
    require_nothing_new_in_shared_memory(before)


def a_killed_rank_ends_the_job(bench):
    before = left_in_shared_memory()
    for name, key in (("killed", ""), ("killed-shared", table_of(bench, "shared", 2, ("shared-memory",)))):
        toml = bench.write(name, mesh(dp=2) + key, steps=100000)
        process = bench.start(bench.train(toml, name, ranks=2))
        bench.await_steps(process, name, 5)
        os.kill(children_of(process.pid)[-1], signal.SIGKILL)
        said = bench.said(process, 120)
        require(process.returncode != 0, f"exit {process.returncode}: {said}")
    require_nothing_new_in_shared_memory(before)


def a_stopped_rank_ends_the_job_by_name_and_it_goes_on(bench):
    shared = table_of(bench, "stopped-table", 2, ("shared-memory",))
    together([lambda: stopped_rank(bench, "stopped", ""), lambda: stopped_rank(bench, "stopped-shared", shared)])


def stopped_rank(bench, name, key):
    toml = bench.write(name, mesh(dp=2) + key + 'patience = "3s"\n[ckpt]\nevery = "5 steps"\n', steps=100000)
    process = bench.start(bench.train(toml, name, ranks=2))
    bench.await_steps(process, name, 12)
    stopped = children_of(process.pid)[-1]
    os.kill(stopped, signal.SIGSTOP)
    begin = time.monotonic()
    said = bench.said(process, 120)
    took = time.monotonic() - begin
    require(process.returncode == 5, f"exit {process.returncode}: {said}")
    require("roll call" in said and "for rank 1 (tp 0, pp 0, dp 1)" in said and "--resume auto" in said, said)
    require(took < 30, f"the job ended {took:.0f} s after its rank was stopped")
    before = len(bench.rows(name, "train"))
    process = bench.start(bench.train(toml, name, "--resume", "auto", ranks=2))
    bench.await_steps(process, name, before + 5)
    process.send_signal(signal.SIGUSR1)
    said = bench.said(process, 120)
    require(process.returncode == 85, f"exit {process.returncode}: {said}")


SCENARIOS = (processes_find_what_threads_find, a_table_of_back_ends_is_measured_and_tried,
             mixed_back_ends_change_no_bit, unlike_tables_are_refused_at_once, fifty_steps_follow_one_rank,
             a_job_is_one_site_of_two, outer_state_in_lanes_has_the_bits_of_one_process,
             lanes_leave_the_first_process_less,
             one_job_is_all_sites, one_job_of_all_sites_stops_and_goes_on, a_job_of_another_size_is_refused,
             a_mistake_of_the_first_ends_the_others, a_signal_ends_with_a_checkpoint_and_it_goes_on,
             a_killed_rank_ends_the_job, a_stopped_rank_ends_the_job_by_name_and_it_goes_on)

play(SCENARIOS)
