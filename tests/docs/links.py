#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that links between the Markdown pages, and mentions of them anywhere in the tree, lead to something.

  links.py [ROOT]: one `file:line: what` per dead link; exit 1 on any.

- A relative link of a Markdown page names a file or folder of the tree; its fragment is a heading of that page.
- A page named as `docs/how-to/nat.md` in any text file of the tree, be it an error message, a comment or a script, is
  a page. Words after it as in `(docs/how-to/nat.md, Behind NAT)` are a heading of that page.
"""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$")
MENTION = re.compile(r"(?<![\w./-])docs/[\w/-]+\.md")
SECTION = re.compile(r"\((docs/[\w/-]+\.md), ([A-Z][^)\"]*)\)")
# A text that the program trains on, made of pages as they were once; pages made up for a test.
SKIPPED = {"src/app/commands/demo_text.txt", "tests/docs/docs_test.py"}


def files(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 else []
    return [name for name in names if name not in SKIPPED and (root / name).is_file()]


def slug(heading):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


def headings(path, cache):
    """The headings of a page and the names that links give them."""
    if path not in cache:
        fenced, found, taken = False, {}, {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                fenced = not fenced
            match = None if fenced else re.match(r"#+\s+(.*)", line)
            if match:
                name = slug(match[1])
                count = taken[name] = taken.get(name, -1) + 1
                found[name if count == 0 else f"{name}-{count}"] = match[1].strip()
        cache[path] = found
    return cache[path]


def breaches(root):
    cache = {}
    for name in files(root):
        path = root / name
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        fenced = False
        for at, line in enumerate(lines, 1):
            if name.endswith(".md"):
                if line.strip().startswith("```"):
                    fenced = not fenced
                for target in [] if fenced else map("".join, LINK.findall(re.sub(r"`[^`]*`", "", line))):
                    if re.match(r"[a-z]+:", target):
                        continue
                    file, _, fragment = target.partition("#")
                    to = (path.parent / file).resolve() if file else path.resolve()
                    if not to.exists():
                        yield f"{name}:{at}: {target} is no file"
                    elif fragment and to.suffix == ".md" and fragment not in headings(to, cache):
                        yield f"{name}:{at}: {target} is no heading of that page"
            for page in MENTION.findall(line):
                if not (root / page).exists():
                    yield f"{name}:{at}: {page} is no page"
            for page, section in SECTION.findall(line):
                to = (root / page).resolve()
                if to.exists() and section.strip(" .") not in headings(to, cache).values():
                    yield f"{name}:{at}: '{section}' is no heading of {page}"


def main(arguments):
    root = pathlib.Path(arguments[1] if len(arguments) > 1 else ".").resolve()
    found = list(breaches(root))
    print(*found, sep="\n")
    print(f"{len(files(root))} files, {len(found)} dead links")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
