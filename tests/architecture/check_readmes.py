#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the READMEs of product code to the files beside them.

check_readmes.py [ROOT]: prints one `file:line: rule: what, remedy` per breach; exit 1 on any.

Each folder below src/ and kernels/ that holds code has a README.md. The first column of a README's file table
(a table whose head begins with `file`) names files of that folder, as names or patterns (`rng.*`); other tables
may name anything. Each code file of the folder is named by its README, in a table or in a sentence.
"""
import fnmatch
import pathlib
import re
import sys

TREES = ["src", "kernels"]
CODE = {".h", ".cpp", ".cu", ".cuh", ".cmake", ".in", ".js", ".css", ".html", ".jsonl", ".toml"}
QUOTED = re.compile(r"`([^`\s]+)`")
FENCE = "```"


def code_files(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix in CODE)


def file_table_names(lines):
    """(line number, name) of each quoted name in the first column of a table of files."""
    in_table = in_code = False
    for number, line in enumerate(lines, 1):
        if line.startswith(FENCE):
            in_code = not in_code
        if in_code or not line.startswith("|"):
            in_table = False
            continue
        first = line.split("|")[1].strip()
        if first == "file":
            in_table = True
        elif in_table:
            for name in QUOTED.findall(first):
                yield number, name


def quoted_names(lines):
    """Every quoted name of the README, wherever it stands."""
    return {name for line in lines for name in QUOTED.findall(line)}


def breaches(root):
    """One line per breach, in the order of the paths."""
    root = pathlib.Path(root)
    found = []
    for tree in TREES:
        for folder in sorted({path.parent for path in (root / tree).rglob("*") if path.is_file()}):
            found += breaches_of_folder(root, folder)
    return found


def breaches_of_folder(root, folder):
    files = code_files(folder)
    readme = folder / "README.md"
    place = readme.relative_to(root).as_posix()
    if not readme.exists():
        if not files:
            return []
        return [f"{place}:1: missing: a folder with {len(files)} code files has no README.md, write one"]
    lines = readme.read_text(encoding="utf-8").splitlines()
    present = {path.name for path in folder.iterdir()}
    found = [f"{place}:{number}: stale: no file of the folder is `{name}`, remove or rename it"
             for number, name in file_table_names(lines)
             if not fnmatch.filter(present, name)]
    patterns = quoted_names(lines)
    found += [f"{place}:1: unnamed: {file} is in no table and no sentence, add what it holds"
              for file in files
              if not any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns)]
    return found


def main(arguments):
    root = arguments[1] if len(arguments) > 1 else "."
    found = breaches(root)
    for breach in found:
        print(breach)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
