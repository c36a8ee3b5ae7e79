#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the command blocks of the documentation, and lists those that cannot run here with their reasons.

  commands.py [ROOT] --list                       both lists; exit 1 where a rule below is broken
  commands.py [ROOT] --isthmus PROGRAM            the lists, then every block of the first one is run
              [--only WORD] [--python-path DIR --library FILE]

A command block is a fence without a language, or of bash or sh, in README.md, CONTRIBUTING.md or below docs. The line
above the fence may be one of these:
  <!-- needs: REASON -->      the block is not run; the reason begins with a word of REASONS
  <!-- runs in: ENTRY -->     another test, an entry of tests/README.md, runs these commands with its own files
  <!-- together -->           the lines are started at once, as on several machines
  <!-- sites: NAME -->        of a toml fence: NAME gets addresses on loopback and the keys that keygen has printed
  <!-- file: NAME -->         of any fence: its text is written to NAME before later blocks of the page run
  <!-- append: NAME -->       of any fence: its text is added to NAME
Rules: a block has at most one such line; at most a fifth of all blocks are not run.

The blocks of a page run one after another by `bash -e`, in a folder of the page alone. The folder has examples/, a
run.toml with two sites and a short run, a links.toml for them, and a three.toml. Runs that `isthmus init` writes are
made short. A port that a page names is replaced by any free one. The blocks of CONTRIBUTING.md run in the root of the
tree.
"""
import argparse
import collections
import concurrent.futures
import functools
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

REASONS = ("gpu", "slurm", "two machines", "fresh machine", "torch", "minutes")
OURS = re.compile(r"^(README|CONTRIBUTING)\.md$|^docs/(?!reference/)")
DIRECTIVE = re.compile(r"^<!-- (needs|runs in|file|append|sites|together):? ?(.*?) -->$")
MOST = 0.2
SECONDS = 240
HERE = pathlib.Path(__file__).resolve().parent

# `init` writes runs of a minute and more.
SHORTER = """#!/bin/bash
if [ "$1" = init ]; then
  "{program}" "$@" && sed -i 's/^tokens = "2M"/tokens = "120k"/; s/^steps = 600/steps = 30/' "$2/run.toml"
else
  exec "{program}" "$@"
fi
"""

Block = collections.namedtuple("Block", "page line language text directive value")


def blocks_of(page, text):
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        head = re.match(r"^(\s*)```(\w*)\s*$", lines[at])
        if not head:
            at += 1
            continue
        end = at + 1
        while end < len(lines) and not re.match(r"^\s*```\s*$", lines[end]):
            end += 1
        above = next((line.strip() for line in reversed(lines[:at]) if line.strip()), "")
        found = DIRECTIVE.match(above)
        body = "\n".join(line[len(head[1]):] for line in lines[at + 1:end]) + "\n"
        yield Block(page, at + 1, head[2], body, found[1] if found else "", found[2] if found else "")
        at = end + 1


def pages(root):
    for path in sorted([root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]):
        name = path.relative_to(root).as_posix()
        if path.exists() and OURS.match(name):
            yield name, list(blocks_of(name, path.read_text(encoding="utf-8")))


def is_command(block):
    return block.language in ("", "bash", "sh")


def first_line(block):
    return next((line for line in block.text.splitlines() if line.strip()), "").split("#")[0].strip()[:80]


def listed(root):
    """Prints both lists. RETURNS: the breaches of the rules."""
    entries = set(re.findall(r"^\| `(\w+)` \|", (root / "tests/README.md").read_text(), re.MULTILINE))
    run, elsewhere, left, wrong = [], [], [], []
    for _, blocks in pages(root):
        for block in filter(is_command, blocks):
            place = f"{block.page}:{block.line}"
            if block.directive == "needs":
                left.append(f"{place}: {first_line(block)}   needs: {block.value}")
                if not block.value.startswith(REASONS):
                    wrong.append(f"{place}: '{block.value}' begins with no reason of {', '.join(REASONS)}")
            elif block.directive == "runs in":
                elsewhere.append(f"{place}: {first_line(block)}   in {block.value}")
                if block.value not in entries:
                    wrong.append(f"{place}: {block.value} is no test of tests/README.md")
            else:
                run.append(f"{place}: {first_line(block)}")
    total = len(run) + len(elsewhere) + len(left)
    print(f"run here ({len(run)}):", *run, f"run by other tests ({len(elsewhere)}):", *elsewhere,
          f"not run ({len(left)} of {total}):", *left, sep="\n  ")
    if len(left) > MOST * total:
        wrong.append(f"{len(left)} of {total} command blocks are not run, at most {MOST:.0%} may be")
    return wrong


def prepared(text):
    """The text of a block as it runs here."""
    text = re.sub(r"127\.0\.0\.1:\d{4,5}(?!/)", "127.0.0.1:0", text)
    return text.replace("…", "...")


@functools.lru_cache
def python_with_numpy():
    for each in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([each, "-c", "import numpy"], capture_output=True).returncode == 0:
            return each
    return None


def free_port():
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return end.getsockname()[1]


def give_addresses(path, printed):
    """Sites of a file get an address, and the key that `keygen` has printed; the clock is real."""
    text = re.sub(r"^\[surrogate\]\n(?:(?!\[).*\n)*", "", path.read_text(), flags=re.MULTILINE)
    keys = dict(re.findall(r'name = "(\w+)"\nkey = "([^"]+)"', printed))
    text = re.sub(r'^name = "(east|west)".*$', lambda found: f'{found[0]}\naddress = "127.0.0.1:{free_port()}"\n'
                  f'key = "{keys[found[1]]}"', text, flags=re.MULTILINE)
    path.write_text(text)


def play(root, page, blocks, arguments):
    """Runs the blocks of one page. RETURNS: the failures."""
    failures = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "page"
        shutil.copytree(root / "examples", folder / "examples")
        (folder / "src").symlink_to(root / "src")  # the text of the examples
        for each in ("run.toml", "three.toml", "links.toml"):
            shutil.copy(HERE / "fixtures" / each, folder / each)
        (folder / "bin").mkdir()
        program = folder / "bin/isthmus"
        program.write_text(SHORTER.format(program=pathlib.Path(arguments.isthmus).resolve()))
        program.chmod(0o755)
        if python_with_numpy():
            (folder / "bin/python3").symlink_to(python_with_numpy())
        environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "NO_COLOR": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
        if arguments.library:
            environment.update(PYTHONPATH=str(root / "python"),
                               ISTHMUS_LIBRARY=str(pathlib.Path(arguments.library).resolve()),
                               ISTHMUS_PROGRAM=str(pathlib.Path(arguments.isthmus).resolve()))
        printed = ""
        for block in blocks:
            if block.directive == "sites":
                give_addresses(folder / block.value, printed)
            if block.directive in ("file", "append"):
                with open(folder / block.value, "w" if block.directive == "file" else "a", encoding="utf-8") as out:
                    out.write(block.text)
            if not is_command(block) or block.directive in ("needs", "runs in"):
                continue
            if "python3 train.py" in block.text and not (arguments.library and python_with_numpy()):
                print(f"left out, no --library or no numpy: {page}:{block.line}", flush=True)
                break
            try:
                text = prepared(block.text)
                if block.directive == "together":
                    lines = [line for line in text.splitlines() if line.strip()]
                    text = "".join(f"{{ {line.split('  #')[0]}\n}} & pid{at}=$!\n" for at, line in enumerate(lines))
                    text += "".join(f"wait $pid{at}\n" for at in range(len(lines)))
                done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text],
                                      cwd=root if page == "CONTRIBUTING.md" else folder, env=environment,
                                      capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
                code, told = done.returncode, done.stdout[-1500:] + done.stderr[-3000:]
                printed += done.stdout
            except subprocess.TimeoutExpired:
                code, told = "none", f"not over after {SECONDS} s"
            if code != 0:
                failures.append(f"{page}:{block.line}: exit code {code}: {first_line(block)}\n{told}")
            else:
                print(f"ok: {page}:{block.line}: {first_line(block)}", flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--isthmus")
    parser.add_argument("--library")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    wrong = listed(root)
    if arguments.isthmus and not arguments.list:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            played = [pool.submit(play, root, page, blocks, arguments) for page, blocks in pages(root)
                      if arguments.only in page]
            for each in played:
                wrong += each.result()
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
