#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the Markdown pages of the project to the rules of plain prose.

  prose.py [ROOT]            one `file:line: rule: what` per breach; exit 1 on any
  prose.py [ROOT] --write    lowers the limits of prose_limits.json to what the pages have; adds pages that are new
  prose.py [ROOT] --show FILE ...   every finding of these pages, limits or not

Rules, for text outside of code blocks and tables:
- a line has at most 120 characters; a line that is long because of a URL is excepted;
- a sentence has at most 35 words in README.md, CONTRIBUTING.md and docs/tutorials, and 45 elsewhere;
- the mean sentence of README.md, CONTRIBUTING.md and of each tutorial has at most 18 words;
- README.md has at most 150 lines;
- a table has a row of dashes under its head, and an empty line or a comment behind its last row: otherwise it is shown
  as raw text, or takes in the paragraph behind it.
One more rule counts tables, and the comments of public headers, too: they avoid the words of MARKS, which mostly stand
in the place of a noun.

prose_limits.json has, for each page that breaks a rule, how often it may: [long lines, long sentences, marks]. A
limit may only fall. A page that is not listed may break no rule.
"""
import json
import pathlib
import re
import subprocess
import sys

LINE = 120
SHORT, LONG = 35, 45
MEAN = 18
README_LINES = 150
MARKS = re.compile(r"\b([Ww]ho|[Ww]hoever|[Ss]o many|of its own|[Bb]ut for|"
                   r"that one(?=[,.;:)]|$| (is|was|has|had|may|can|ends|whose)\b))\b")
SKIPPED = {"THIRD_PARTY.md"}
GENERATED = "docs/reference/"  # the program's texts
HEADERS = "include/isthmus/"  # of these, comments are looked at for marks alone
LIMITS = pathlib.Path(__file__).with_name("prose_limits.json")

LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z\"'`(*\[0-9])")
NO_END = re.compile(r"\b(e\.g|i\.e|et al|vs|Alg|Eq|Sec|Fig|v\d+|arXiv)\.$")


def pages(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "*.md", f"{HEADERS}*.h"], capture_output=True,
                            text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 else []
    if not names:  # an unpacked archive
        files = [*root.rglob("*.md"), *(root / HEADERS).glob("*.h")]
        names = sorted(each.relative_to(root).as_posix() for each in files
                       if not each.relative_to(root).parts[0].startswith((".", "build", "shared")))
    return [name for name in names if pathlib.PurePath(name).name not in SKIPPED
            and not name.startswith(GENERATED) and (root / name).exists()]


def is_short(name):
    """Whether a page is for a first reading: shorter sentences are asked of it."""
    return name in ("README.md", "CONTRIBUTING.md") or name.startswith("docs/tutorials/")


def marked(lines):
    """(number, line, whether it is left out) of each line: fences and what they hold, blocks that are indented, and
    what a program writes between <!-- NAME --> and <!-- end -->."""
    fenced = indented = made = False
    ends = [at for at, line in enumerate(lines, 1) if line.strip() == "<!-- end -->"]
    for at, line in enumerate(lines, 1):
        bare = line.strip()
        made = bare != "<!-- end -->" and (made or bare.startswith("<!-- ") and any(end > at for end in ends))
        if made:
            yield at, line, True
            continue
        if bare.startswith(("```", "~~~")):
            fenced = not fenced
            yield at, line, True
            continue
        deep = line.startswith("    ") and not re.match(r"\s*([-*+]|\d+\.)\s", line)
        indented = deep and (indented or at == 1 or not lines[at - 2].strip()) or (indented and not bare)
        yield at, line, fenced or indented


def blocks(lines):
    """(number of the first line, text) of each paragraph, item of a list and quotation; no code, tables, headings."""
    number, words = 0, []
    for at, line, code in marked(lines):
        bare = line.strip()
        skipped = code or not bare or bare.startswith(("|", "#", "<", "!["))
        starts = re.match(r"\s*([-*+]|\d+\.)\s", line) or bare.startswith(">")
        if words and (skipped or starts):
            yield number, " ".join(words)
            words = []
        if not skipped:
            if not words:
                number = at
            words.append(re.sub(r"^([-*+]|\d+\.|>)\s+", "", bare))
    if words:
        yield number, " ".join(words)


def sentences(text):
    plain = CODE.sub("Code", LINK.sub(r"\1", text))
    held = ""
    for part in END.split(plain):
        held = f"{held} {part}".strip()
        if not NO_END.search(part):
            yield held
            held = ""
    if held:
        yield held


def count(sentence):
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def prose_lines(lines):
    for at, line, code in marked(lines):
        yield at, line, code or line.strip().startswith("|")


def findings(name, text):
    """RETURNS: the lists of (line, what) of long lines, of long sentences and of marks, and the mean sentence."""
    lines = text.splitlines()
    if name.endswith(".h"):
        comments = [(at, line) for at, line in enumerate(lines, 1) if re.search(r"//|^\s*/?\*", line)]
        marks = [(at, f"mark: '{found[0]}', name the noun") for at, line in comments for found in MARKS.finditer(line)]
        return ([], [], marks), 0.0
    most = SHORT if is_short(name) else LONG
    long_lines, long_sentences, marks, lengths = [], [], [], []
    for at, line, skipped in prose_lines(lines):
        if not skipped and len(line) > LINE and not re.search(r"https?://\S{40,}", line):
            long_lines.append((at, f"long line: {len(line)} characters, at most {LINE}"))
        if not skipped or line.strip().startswith("|"):
            for found in MARKS.finditer(CODE.sub("", line)):
                marks.append((at, f"mark: '{found[0]}', name the noun"))
    for at, block in blocks(lines):
        for sentence in sentences(block):
            lengths.append(count(sentence))
            if lengths[-1] > most:
                long_sentences.append((at, f"long sentence: {lengths[-1]} words, at most {most}: {sentence[:60]}..."))
    full = [length for length in lengths if length > 2]
    return (long_lines, long_sentences, marks), (sum(full) / len(full) if full else 0.0)


def broken_tables(lines):
    """(number, what) of each table that is not shown as one."""
    rows = [(at, line, line.startswith("|") and not code) for at, line, code in marked(lines)]
    for place, (at, line, is_row) in enumerate(rows):
        before = place > 0 and rows[place - 1][2]
        if is_row and not before and not (place + 1 < len(rows) and re.match(r"\|[\s:|-]+$", rows[place + 1][1])):
            yield at, "table: no row of dashes under its head"
        if before and not is_row and line.strip() and not line.startswith("<!--"):
            yield at, "table: no empty line behind its last row"


def breaches(root, limits):
    now = {}
    told = []
    for name in pages(root):
        text = (root / name).read_text(encoding="utf-8")
        found, mean = findings(name, text)
        counts = [len(each) for each in found]
        if not name.endswith(".h"):
            told += [f"{name}:{at}: {what}" for at, what in broken_tables(text.splitlines())]
        if any(counts):
            now[name] = counts
        for each, limit in zip(found, limits.get(name, [0, 0, 0])):
            if len(each) > limit:
                told += [f"{name}:{at}: {what} (of {len(each)}; {limit} allowed)" for at, what in each]
        if is_short(name) and mean > MEAN:
            told.append(f"{name}:1: mean sentence: {mean:.1f} words, at most {MEAN}")
    readme = root / "README.md"
    if readme.exists() and len(readme.read_text().splitlines()) > README_LINES:
        told.append(f"README.md:1: length: more than {README_LINES} lines")
    told += [f"{name}: listed in {LIMITS.name}, but no such page breaks a rule; run --write"
             for name in limits if name not in now and not (root / name).exists()]
    return told, now


def main(arguments):
    words = [each for each in arguments[1:] if not each.startswith("--")]
    root = pathlib.Path(words[0] if words else ".").resolve()
    if "--show" in arguments:
        for name in words[1:]:
            found, mean = findings(name, (root / name).read_text(encoding="utf-8"))
            print(*(f"{name}:{at}: {what}" for each in found for at, what in each), sep="\n")
            print(f"{name}: mean sentence {mean:.1f}")
        return 0
    limits = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    told, now = breaches(root, limits)
    if "--write" in arguments:
        kept = {name: [min(pair) for pair in zip(counts, limits.get(name, counts))] for name, counts in now.items()}
        rows = [f"  {json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept) if any(kept[name])]
        LIMITS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        return 0
    print(*told, sep="\n")
    total = [sum(each) for each in zip(*now.values())] if now else [0, 0, 0]
    print(f"{len(pages(root))} pages; left: {total[0]} long lines, {total[1]} long sentences, {total[2]} marks")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
