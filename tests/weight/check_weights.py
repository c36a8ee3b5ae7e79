#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The weights of the tests, from ctest's list of a build folder.

  python3 tests/weight/check_weights.py --build build/release [--table] [--write]

Checks that
- each entry has one weight: full (quick ones have it too), nightly, or it needs a GPU or PyTorch, or replays a corpus;
- each nightly entry runs what an entry with the label full runs, with ISTHMUS_NIGHTLY=1 or further words;
- each test of each program belongs to an entry that is not nightly;
- each test that docs/guarantees/faults.md names is an entry, and no row rests on nightly entries alone;
- quick tests name no sockets and start no processes.
--table prints the table of tests/README.md, with the seconds of the last runs in the build folder; --write puts it there.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIGHTS = ("full", "nightly", "gpu", "torch", "fuzz")
NOT_QUICK = re.compile(r"\bfork\(|_EXIT\(|_DEATH\(|\bpopen\(|\bsocket\(|make_zmq_|TcpListener|[\"/]zmq_\w+\.h\"")
NIGHT = "ISTHMUS_NIGHTLY=1"
# What the nightly entry of a test has more of, for the table: by day, at night.
MORE = {
    "end_to_end_killed_at_points": "a few points; each point with each method",
    "inner_zero_test": "a covering set of model, mesh and level; their product",
    "mesh_emulated_test": "12 steps; 50",
    "mesh_of_shares_emulated_test": "10 steps; 30",
    "sim_hostile_sweep_test": "30 and 10 seeds; 300 and 100",
    "training_muon_emulated_test": "12 steps; 50",
    "training_steps_emulated_test": "12 steps; 50",
    "transport_exchange_epochs_test": "20 seeds of a kind; 150",
    "transport_standing_in_test": "20 seeds of a kind; 150",
    "transport_taking_back_test": "20 seeds of a kind; 150",
}


class Entry:
    def __init__(self, test):
        properties = {each["name"]: each["value"] for each in test.get("properties", [])}
        self.name = test["name"]
        self.command = test.get("command", [])
        self.labels = properties.get("LABELS", [])
        self.environment = properties.get("ENVIRONMENT", [])
        self.disabled = properties.get("DISABLED", False)
        of_program = [word for word in self.command if word.startswith("--sources=")]
        self.sources = of_program[0].removeprefix("--sources=").split(",") if of_program else []
        self.program = self.command[self.command.index(of_program[0]) - 1] if of_program else ""


def entries_of(build):
    listed = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], check=True, capture_output=True,
                            text=True).stdout
    return {test["name"]: Entry(test) for test in json.loads(listed)["tests"]}


def weights_of(entries):
    for entry in entries.values():
        weights = [label for label in entry.labels if label in WEIGHTS]
        if len(weights) != 1 and not entry.disabled:
            yield f"{entry.name}: has the weights {weights or 'of none'}, not one of {', '.join(WEIGHTS)}"
        if "quick" in entry.labels and "full" not in entry.labels:
            yield f"{entry.name}: quick, but not full"


def nightly_of(entries):
    for entry in entries.values():
        if "nightly" not in entry.labels:
            continue
        twin = entries.get(entry.name.removesuffix("_nightly"))
        if twin is None or twin is entry or "full" not in twin.labels:
            yield f"{entry.name}: no entry of the label full runs it"
        elif entry.command[:len(twin.command)] != twin.command:
            yield f"{entry.name}: another command than that of {twin.name}"
        elif sorted(entry.environment) != sorted([*twin.environment, NIGHT]):
            yield f"{entry.name}: another environment than that of {twin.name} and {NIGHT}"
        elif twin.name not in MORE:
            yield f"{twin.name}: MORE does not say what the nightly entry has more of"


def tests_of(program):
    """RETURNS: the names of all tests of a program, None where it is not built."""
    if not pathlib.Path(program).exists():
        return None
    return listed_by(program)


def listed_by(program, *words):
    """RETURNS: suites and tests as the program lists them, without parameters, which may be addresses."""
    listed = subprocess.run([program, "--gtest_list_tests", *words], check=True, capture_output=True, text=True).stdout
    return [line.split("#")[0].rstrip() for line in listed.splitlines()]


def unlisted_of(entries):
    """Files with tests, of a program, that no entry runs: each is named by --sources of an entry."""
    sources = collections.defaultdict(set)
    for entry in entries.values():
        if entry.program and "nightly" not in entry.labels:
            sources[entry.program].update(entry.sources)
    for program, named in sources.items():
        every = tests_of(program)
        if every is None:
            continue
        some = listed_by(program, "--sources=" + ",".join(sorted(named)))
        if some != every:
            yield f"{program}: no entry runs {sorted(set(every) - set(some))}"


def faults_of(entries, text):
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            continue
        named = [name for name in re.findall(r"`(\w+)`", line) if re.search(r"_test$|^end_to_end_", name)]
        for name in named:
            if name not in entries:
                yield f"docs/guarantees/faults.md:{number}: {name} is no test"
        if named and all(name in entries and "nightly" in entries[name].labels for name in named):
            yield f"docs/guarantees/faults.md:{number}: rests on nightly tests alone"


def quick_of(entries):
    for entry in entries.values():
        for source in entry.sources if "quick" in entry.labels else []:
            found = NOT_QUICK.search((ROOT / "tests" / source).read_text())
            if found:
                yield f"{entry.name}: is quick, but {source} has {found[0]}"


def seconds_of(build):
    costs = {}
    path = build / "Testing/Temporary/CTestCostData.txt"
    for line in path.read_text().splitlines() if path.exists() else []:
        if line == "---":
            break
        name, _, seconds = line.split()
        costs[name] = float(seconds)
    return costs


def table_of(entries, build):
    """One row for each entry that is not nightly."""
    costs = seconds_of(build)
    lines = (build / "tests/entries.txt").read_text().splitlines()
    programs = {line.split()[0]: line.split()[2] for line in lines}
    yield "| entry | program | labels | by day; at night | seconds |"
    yield "|---|---|---|---|--:|"
    for name in sorted(entries):
        entry = entries[name]
        if "nightly" in entry.labels or "fuzz" in entry.labels:
            continue
        program = programs.get(name, "script")
        labels = ", ".join(label for label in ("quick", "full", "gpu", "mpi", "python", "torch", "sanitized", "threads")
                           if label in entry.labels and not (label == "full" and "quick" in entry.labels))
        night = MORE.get(name, "") if f"{name}_nightly" in entries else ""
        seconds = f"{costs[name]:.1f}" if costs.get(name) else ""
        yield f"| `{name}` | {program} | {labels} | {night} | {seconds} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    entries = entries_of(arguments.build)
    if arguments.table or arguments.write:
        table = "\n".join(table_of(entries, arguments.build))
        if arguments.write:
            readme = ROOT / "tests/README.md"
            before = readme.read_text().split("| entry |")[0]
            readme.write_text(before + table + "\n")
        else:
            print(table)
        return 0
    faults = (ROOT / "docs/guarantees/faults.md").read_text()
    wrong = [*weights_of(entries), *nightly_of(entries), *unlisted_of(entries), *faults_of(entries, faults),
             *quick_of(entries)]
    print("\n".join(wrong) or f"ok: {len(entries)} entries")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
