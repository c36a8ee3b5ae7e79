# SPDX-License-Identifier: Apache-2.0
"""What the scripts beside this one share: how scenarios are played and fail, where they may listen."""
import argparse
import concurrent.futures
import contextlib
import errno
import functools
import json
import pathlib
import random
import socket
import sys
import tempfile


# Sections that every file of a small run has, and their keys.
SMALL_RUN = {"run": ("name", "workers", "seed"), "model": ("arch", "layers", "d_model", "heads"), "data": ("source",),
             "train": ("steps", "global_batch", "context", "threads"), "inner": ("lr", "schedule", "warmup")}
TEXTS = ("name", "arch", "source", "global_batch", "schedule")


class Failure(Exception):
    pass


def small_run(name, run="", **keys):
    """The beginning of a run's TOML file: a model that trains in seconds, on the corpus of `stage`. keys: of the
    sections in SMALL_RUN. run: a further line of [run]. What stands in braces is left to str.format."""
    values = {"name": name, "layers": 2, "d_model": 32, "heads": 2, "source": "text:{corpus}", "context": 32, **keys}
    text = ""
    for section, names in SMALL_RUN.items():
        lines = [f'{key} = "{values.pop(key)}"' if key in TEXTS else f"{key} = {values.pop(key)}"
                 for key in names if key in values]
        lines += [run] if section == "run" and run else []
        text += f"[{section}]\n" + "".join(line + "\n" for line in lines) if lines else ""
    assert not values, f"no key of a small run: {', '.join(values)}"
    return text


def require(condition, text):
    if not condition:
        raise Failure(text)


def free_ports(count):
    """Ports that were free a moment ago; all held at once, so they differ. None is of those that the
    kernel gives to connections: they might be gone again before a site listens."""
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    quiet = [port for port in range(10000, 65536) if not low <= port <= high] or [0]
    held = []
    for _ in range(1000):
        if len(held) == count:
            break
        end = socket.socket()
        try:
            end.bind(("127.0.0.1", random.choice(quiet)))
            held.append(end)
        except OSError as error:
            end.close()
            require(error.errno == errno.EADDRINUSE, str(error))
    require(len(held) == count, "no free ports on loopback")
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def together(tests, at_once=3):
    """Plays tests that mostly wait, so many at a time; the first failure is raised once all have ended."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for each in [pool.submit(test) for test in tests]:
            each.result()


def rows_of(folder, *kinds):
    """The whole lines of these kinds in a folder's metrics.jsonl, which may still be written; none without the file."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    words = [f'"k":"{kind}"' for kind in kinds]  # parsing all lines at each look would take longer than the run
    whole = path.read_text().rpartition("\n")[0].splitlines()
    rows = map(json.loads, (line for line in whole if any(word in line for word in words)))
    return [row for row in rows if row["k"] in kinds]


@contextlib.contextmanager
def stage(doc):
    """The arguments of a script, the program, a temporary folder and a corpus in it."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/include/linux/bpf.h")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        corpus = folder / "corpus.txt"
        corpus.write_bytes(pathlib.Path(arguments.text).read_bytes())
        yield arguments, str(pathlib.Path(arguments.isthmus).resolve()), folder, corpus


def play_runs(doc, make, scenarios):
    """The main of a script whose scenarios start sites. scenarios(run_of): the functions that are played first, one at
    a time, and those that are played together. run_of(name, ...): make(isthmus, folder, corpus, ...), whose `end` is
    called at the end of the script. `--only`: a part of a scenario's name. RETURNS: the exit code."""
    with stage(doc) as (arguments, isthmus, folder, corpus):
        runs = []

        def run_of(name, *how, **more):
            runs.append(make(isthmus, folder / name, corpus, *how, **more))
            return runs[-1]

        def played(test):
            if not arguments.only or arguments.only in test.__name__:
                test()
                print(f"{test.__name__}: ok", flush=True)

        first, others = scenarios(run_of)
        try:
            for test in first:
                played(test)
            together([functools.partial(played, test) for test in others])
        except Failure as failure:
            print(f"FAILED: {failure}")
            return 1
        finally:
            for run in runs:
                run.end()
    return 0


def play(doc, scenarios, at_once=1):
    """The main of a script: each scenario gets the program, a folder and a corpus. `--only`: one."""
    with stage(doc) as (arguments, isthmus, folder, corpus):
        def played(scenario):
            try:
                scenario(isthmus, folder, corpus)
            except Failure as failure:
                raise Failure(f"{scenario.__name__}: {failure}") from None
            print(f"ok: {scenario.__name__}", flush=True)

        try:
            together([functools.partial(played, scenario) for scenario in scenarios
                      if arguments.only in (None, scenario.__name__)], at_once)
        except Failure as failure:
            sys.exit(str(failure))
